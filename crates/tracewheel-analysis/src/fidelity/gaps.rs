//! The gaps between departures, planned and written.

use serde::{Deserialize, Serialize};

use crate::quantile::{Percentile, nearest_rank};

/// Fewest gaps of which the distance is judged. With fewer, the p99 of lateness is its maximum, and no sorted gap can differ
/// from its planned counterpart by more than that: the distance would say nothing that lateness does not.
pub const MIN_GAPS: u64 = 100;

/// The gaps between departures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GapReport {
    /// Gaps between the due times of the window's requests.
    pub n: u64,
    /// Their median (nearest rank): what the bounds are shares of. Null without a gap.
    pub median_ns: Option<i64>,
    /// Gaps between the first attempts of which a byte was written.
    pub compared: u64,
    /// Their [`gap_distance`] from the gaps between the due times of the same attempts; null without a gap.
    pub distance_ns: Option<i64>,
}

impl GapReport {
    /// From the due times of all requests, and due and written times of the first attempts that left; in any order.
    pub(crate) fn of(due: Vec<i64>, sent_due: Vec<i64>, written: Vec<i64>) -> Self {
        let all = gaps(due);
        let (planned, sent) = (gaps(sent_due), gaps(written));
        Self {
            n: all.len() as u64,
            median_ns: nearest_rank(&all, Percentile::P50),
            compared: sent.len() as u64,
            distance_ns: gap_distance(&planned, &sent),
        }
    }
}

/// The Wasserstein-1 distance of two samples of one size, both ascending, rounded down to whole nanoseconds: the mean of
/// |pᵢ − wᵢ| over their ranks, which is the area between the two empirical distribution functions. `None` for empty samples.
pub fn gap_distance(planned: &[i64], written: &[i64]) -> Option<i64> {
    let sum: u128 = planned.iter().zip(written).map(|(p, w)| u128::from(p.abs_diff(*w))).sum();
    let n = planned.len().min(written.len()) as u128;
    (n > 0).then(|| i64::try_from(sum / n).unwrap_or(i64::MAX))
}

/// The gaps between times, ascending.
fn gaps(mut times: Vec<i64>) -> Vec<i64> {
    times.sort_unstable();
    let mut gaps: Vec<i64> = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    gaps.sort_unstable();
    gaps
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_distance_is_the_mean_difference_of_sorted_gaps() {
        // Due at 0, 10, 20, 40 (gaps 10, 10, 20); written at 1, 11, 26, 41 (gaps 10, 15, 15): (0 + 5 + 5) / 3.
        let report = GapReport::of(vec![20, 0, 40, 10], vec![0, 10, 20, 40], vec![41, 1, 11, 26]);
        assert_eq!(report, GapReport { n: 3, median_ns: Some(10), compared: 3, distance_ns: Some(3) });
    }

    #[test]
    fn a_burst_that_leaves_one_after_the_other_is_as_far_as_its_writes_take() {
        // Four at once, then one a second later; each write takes 30 µs.
        let second = 1_000_000_000;
        let due = vec![0, 0, 0, 0, second];
        let written = vec![30_000, 60_000, 90_000, 120_000, second + 30_000];
        let report = GapReport::of(due.clone(), due, written);
        // Gaps 0, 0, 0, 1 s became 30, 30, 30 µs and 1 s − 90 µs: (3 · 30 + 90) / 4 = 45 µs.
        assert_eq!((report.median_ns, report.distance_ns), (Some(0), Some(45_000)));
    }

    #[test]
    fn fewer_than_two_departures_have_no_gap() {
        for times in [vec![], vec![7]] {
            let report = GapReport::of(times.clone(), times.clone(), times);
            assert_eq!(report, GapReport::default());
        }
    }

    #[test]
    fn sends_gathered_on_a_coarse_tick_show_although_none_is_late() {
        // A request every 0.7 ms that leaves at the next whole millisecond: none is later than 1 ms, and yet no gap is kept.
        let due: Vec<i64> = (0..1000).map(|i| i * 700_000).collect();
        let written = due.iter().map(|at| (at + 999_999) / 1_000_000 * 1_000_000).collect();
        let report = GapReport::of(due.clone(), due, written);
        // Three gaps in ten are 0 (0.7 ms off), seven are 1 ms (0.3 ms off): 0.42 ms on average.
        let distance = report.distance_ns.unwrap();
        assert!((415_000..=425_000).contains(&distance), "{distance}");
    }

    proptest! {
        #[test]
        fn the_distance_is_never_more_than_the_latest_departure(
            departures in prop::collection::vec((0i64..1_000_000, 0i64..5_000), 2..60),
        ) {
            let due: Vec<i64> = departures.iter().map(|(due, _)| *due).collect();
            let written: Vec<i64> = departures.iter().map(|(due, late)| due + late).collect();
            let latest = departures.iter().map(|(_, late)| *late).max().unwrap();
            let distance = GapReport::of(due.clone(), due, written).distance_ns.unwrap();
            prop_assert!((0..=latest).contains(&distance), "{distance} {latest}");
        }

        #[test]
        fn moving_all_departures_alike_moves_no_gap(
            due in prop::collection::vec(0i64..1_000_000, 2..60),
            late in 0i64..1_000_000,
        ) {
            let written = due.iter().map(|at| at + late).collect();
            prop_assert_eq!(GapReport::of(due.clone(), due, written).distance_ns, Some(0));
        }

        #[test]
        fn the_distance_is_symmetric_and_that_of_a_sample_from_itself_is_none(
            a in prop::collection::vec(0i64..1_000_000, 1..60),
            shift in prop::collection::vec(-1_000i64..1_000, 60),
        ) {
            let mut one = a.clone();
            let mut other: Vec<i64> = a.iter().zip(&shift).map(|(a, s)| a + s).collect();
            one.sort_unstable();
            other.sort_unstable();
            prop_assert_eq!(gap_distance(&one, &other), gap_distance(&other, &one));
            prop_assert_eq!(gap_distance(&one, &one), Some(0));
        }
    }
}
