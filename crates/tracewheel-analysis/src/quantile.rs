//! Quantiles: nearest rank for latencies, linear interpolation for token statistics only.
//!
//! **Nearest rank** is the inverse of the empirical distribution function: the smallest recorded value `x` such that at
//! least the share `q` of all values is `≤ x`; of `n` sorted values, the one at rank `⌈q·n⌉` (Hyndman & Fan, *Sample
//! quantiles in statistical packages*, The American Statistician 50 (1996), type 1; SQL's `percentile_disc`, DuckDB's
//! `quantile_disc`). It is always a value that somebody met, and it survives weights and +∞: a request that never got
//! its answer is [`NEVER_NS`], larger than every latency, and may be the p99.
//!
//! **Linear interpolation** is type 7 of the same paper (DuckDB's `quantile_cont`, the default of R and NumPy).
//!
//! Levels are exact fractions ([`Percentile`]), so a rank never depends on how `0.07 * 100.0` rounds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of the method for latencies, as outputs state it.
pub const QUANTILE_METHOD: &str = "nearest_rank";

/// +∞ among latencies in nanoseconds: the answer never came. Sorts after every real latency.
pub const NEVER_NS: i64 = i64::MAX;

/// A quantile level, held exactly in thousandths of a per cent: p95 is 95 000, p99.9 is 99 900. From 0 to 100 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Percentile(u32);

impl Percentile {
    /// The median.
    pub const P50: Self = Self(50_000);
    /// 90 %.
    pub const P90: Self = Self(90_000);
    /// 95 %, the headline.
    pub const P95: Self = Self(95_000);
    /// 99 %.
    pub const P99: Self = Self(99_000);
    /// The percentiles that a comparison reports, in this order.
    pub const REPORTED: [Self; 4] = [Self::P50, Self::P90, Self::P95, Self::P99];

    const WHOLE: u32 = 100_000;

    /// The level of `thousandths` of a per cent; `None` above 100 %.
    pub const fn from_thousandths(thousandths: u32) -> Option<Self> {
        if thousandths <= Self::WHOLE { Some(Self(thousandths)) } else { None }
    }

    /// The level as a fraction between 0 and 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// The nearest rank among `n` values, counted from 1: `⌈q·n⌉`, at least 1. `None` without values.
    pub fn rank(self, n: u64) -> Option<u64> {
        if n == 0 {
            return None;
        }
        let scaled = (u128::from(n) * u128::from(self.0)).div_ceil(u128::from(Self::WHOLE));
        Some(u64::try_from(scaled).expect("a rank is at most n").max(1))
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        if rest == 0 {
            write!(f, "p{whole}")
        } else {
            let digits = format!("{rest:03}");
            write!(f, "p{whole}.{}", digits.trim_end_matches('0'))
        }
    }
}

impl From<Percentile> for String {
    fn from(p: Percentile) -> Self {
        p.to_string()
    }
}

impl TryFrom<String> for Percentile {
    type Error = NotAPercentile;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl std::str::FromStr for Percentile {
    type Err = NotAPercentile;

    /// Reads `p95`, `p99.9` (the `p` may be missing); at most three decimals.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotAPercentile { text: text.to_owned() };
        let number = text.strip_prefix('p').unwrap_or(text);
        let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || whole.len() > 3 || rest.len() > 3 {
            return Err(wrong());
        }
        if !whole.bytes().chain(rest.bytes()).all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let whole: u32 = whole.parse().map_err(|_| wrong())?;
        let rest: u32 = format!("{rest:0<3}").parse().map_err(|_| wrong())?;
        Self::from_thousandths(whole * 1000 + rest).ok_or_else(wrong)
    }
}

/// A text that names no percentile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a percentile between p0 and p100 with at most three decimals: {text:?}")]
pub struct NotAPercentile {
    /// What was given.
    pub text: String,
}

/// The nearest-rank quantile of values sorted in ascending order; `None` without values.
pub fn nearest_rank(sorted: &[i64], p: Percentile) -> Option<i64> {
    debug_assert!(sorted.is_sorted(), "values must be sorted");
    let rank = p.rank(sorted.len() as u64)?;
    sorted.get(rank as usize - 1).copied()
}

/// The nearest-rank quantile of ratios (or other floats) sorted in ascending order; `None` without values.
pub fn nearest_rank_f64(sorted: &[f64], p: Percentile) -> Option<f64> {
    debug_assert!(sorted.is_sorted(), "values must be sorted");
    let rank = p.rank(sorted.len() as u64)?;
    sorted.get(rank as usize - 1).copied()
}

/// The nearest-rank quantile of weighted values sorted by value: the smallest value at which the running sum of the
/// weights reaches `q` of their total. Whole weights give what repeating each value that often would give. Values of
/// no or negative weight do not count; `None` when no weight is left.
pub fn nearest_rank_weighted(sorted: &[(i64, f64)], p: Percentile) -> Option<i64> {
    debug_assert!(sorted.is_sorted_by_key(|(value, _)| *value), "values must be sorted");
    let total: f64 = sorted.iter().map(|(_, w)| w.max(0.0)).sum();
    value_at_mass(sorted, p.fraction() * total)
}

/// The smallest value at which the running sum of the weights reaches `mass`; the largest value of positive weight when
/// `mass` exceeds the total. Sums of floats that miss `mass` by a rounding error (1 part in 10¹²) still reach it.
pub(crate) fn value_at_mass(sorted: &[(i64, f64)], mass: f64) -> Option<i64> {
    let mut sum = 0.0;
    let mut last = None;
    for &(value, weight) in sorted.iter().filter(|(_, w)| *w > 0.0) {
        sum += weight;
        last = Some(value);
        if sum >= mass * (1.0 - 1e-12) {
            return last;
        }
    }
    last
}

/// The linearly interpolated quantile (type 7) of values sorted in ascending order; `None` without values. For token
/// statistics only: a latency between two recorded ones was met by nobody, and +∞ cannot be interpolated.
pub fn linear(sorted: &[f64], p: Percentile) -> Option<f64> {
    debug_assert!(sorted.is_sorted(), "values must be sorted");
    let last = sorted.len().checked_sub(1)?;
    let at = p.fraction() * last as f64;
    let below = (at.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let (lo, hi) = (sorted[below], sorted[above]);
    Some(lo + (at - below as f64) * (hi - lo))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn p(thousandths: u32) -> Percentile {
        Percentile::from_thousandths(thousandths).unwrap()
    }

    /// The definition read aloud: try every value, keep the smallest that covers the share. No ranks, no rounding up.
    fn by_definition(values: &[i64], thousandths: u64) -> Option<i64> {
        let covers = |x: i64| {
            let at_most = values.iter().filter(|v| **v <= x).count() as u64;
            at_most * 100_000 >= thousandths * values.len() as u64
        };
        values.iter().copied().filter(|x| covers(*x)).min()
    }

    #[test]
    fn nearest_rank_gives_the_textbook_answers() {
        let values = [15, 20, 35, 40, 50];
        assert_eq!(nearest_rank(&values, p(5_000)), Some(15));
        assert_eq!(nearest_rank(&values, p(30_000)), Some(20));
        assert_eq!(nearest_rank(&values, p(40_000)), Some(20));
        assert_eq!(nearest_rank(&values, p(50_000)), Some(35));
        assert_eq!(nearest_rank(&values, p(100_000)), Some(50));
        assert_eq!(nearest_rank(&values, p(0)), Some(15));
        assert_eq!(nearest_rank(&[], Percentile::P50), None);
    }

    #[test]
    fn a_rank_that_floats_would_push_one_up_stays_exact() {
        // 0.07 * 100 is 7.000000000000001 in binary.
        assert_eq!(p(7_000).rank(100), Some(7));
        assert_eq!(Percentile::P95.rank(20), Some(19));
        assert_eq!(Percentile::P99.rank(u64::MAX), Some(18_262_276_632_972_456_099));
    }

    #[test]
    fn an_answer_that_never_came_is_the_tail() {
        let values = [10, 20, 30, NEVER_NS];
        assert_eq!(nearest_rank(&values, p(75_000)), Some(30));
        assert_eq!(nearest_rank(&values, Percentile::P95), Some(NEVER_NS));
    }

    #[test]
    fn weights_move_the_quantile_as_repeats_would() {
        let values = [(10, 1.0), (20, 8.0), (30, 1.0)];
        assert_eq!(nearest_rank_weighted(&values, p(10_000)), Some(10));
        assert_eq!(nearest_rank_weighted(&values, Percentile::P50), Some(20));
        assert_eq!(nearest_rank_weighted(&values, Percentile::P90), Some(20));
        assert_eq!(nearest_rank_weighted(&values, Percentile::P95), Some(30));
        assert_eq!(nearest_rank_weighted(&[(1, 0.0)], Percentile::P50), None);
    }

    #[test]
    fn linear_interpolation_is_type_7() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(linear(&values, Percentile::P50), Some(2.5));
        assert_eq!(linear(&values, p(25_000)), Some(1.75));
        assert_eq!(linear(&values, p(100_000)), Some(4.0));
        assert_eq!(linear(&[], Percentile::P50), None);
    }

    #[test]
    fn percentiles_are_written_and_read_alike() {
        for (text, thousandths) in [("p50", 50_000), ("p99.9", 99_900), ("p99.99", 99_990), ("p0", 0)] {
            assert_eq!(p(thousandths).to_string(), text);
            assert_eq!(text.parse(), Ok(p(thousandths)));
        }
        for text in ["", "p", "p101", "p99.9999", "p-1", "95%", "p+5"] {
            assert!(text.parse::<Percentile>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn nearest_rank_equals_its_definition(
            mut values in prop::collection::vec(prop_oneof![4 => -50i64..50, 1 => Just(NEVER_NS)], 1..60),
            thousandths in 0u32..=100_000,
        ) {
            let expected = by_definition(&values, u64::from(thousandths));
            values.sort_unstable();
            prop_assert_eq!(nearest_rank(&values, p(thousandths)), expected);
        }

        #[test]
        fn whole_weights_equal_repeated_values(
            mut pairs in prop::collection::vec((-20i64..20, 1u32..6), 1..30),
            thousandths in 1u32..=100_000,
        ) {
            pairs.sort_unstable();
            let repeated: Vec<i64> =
                pairs.iter().flat_map(|(v, w)| std::iter::repeat_n(*v, *w as usize)).collect();
            let weighted: Vec<(i64, f64)> = pairs.iter().map(|(v, w)| (*v, f64::from(*w))).collect();
            prop_assert_eq!(
                nearest_rank_weighted(&weighted, p(thousandths)),
                nearest_rank(&repeated, p(thousandths))
            );
        }

        #[test]
        fn linear_stays_between_its_neighbours_and_grows(
            mut values in prop::collection::vec(-1e6f64..1e6, 1..40),
            a in 0u32..=100_000, b in 0u32..=100_000,
        ) {
            values.sort_unstable_by(f64::total_cmp);
            let (a, b) = (a.min(b), a.max(b));
            let (low, high) = (linear(&values, p(a)).unwrap(), linear(&values, p(b)).unwrap());
            prop_assert!(low <= high + 1e-9);
            prop_assert!(low >= values[0] - 1e-9 && high <= values[values.len() - 1] + 1e-9);
        }
    }
}
