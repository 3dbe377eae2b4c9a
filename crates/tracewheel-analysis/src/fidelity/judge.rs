//! The verdict: criteria, their bounds, and the worst of them.

use serde::{Deserialize, Serialize};

use super::{FidelityBounds, GapReport, MIN_GAPS};

/// Whether the generator kept the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FidelityVerdict {
    /// Every criterion lies within its bound.
    Faithful,
    /// A criterion lies beyond its bound: read the latencies with that in mind.
    Degraded,
    /// A criterion lies far beyond its bound: the latencies are partly the generator's own.
    Unfaithful,
}

impl FidelityVerdict {
    /// The word in JSON and text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Faithful => "faithful",
            Self::Degraded => "degraded",
            Self::Unfaithful => "unfaithful",
        }
    }
}

/// A figure with the bounds that it is held against.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Judged<T> {
    /// The figure; null where there is none.
    pub value: Option<T>,
    /// Above this the run is degraded.
    pub degraded_above: T,
    /// Above this it is unfaithful.
    pub unfaithful_above: T,
    /// What the figure says; null where it is not judged.
    pub verdict: Option<FidelityVerdict>,
}

impl<T: PartialOrd + Copy> Judged<T> {
    fn new(value: Option<T>, degraded_above: T, unfaithful_above: T, counts: bool) -> Self {
        let verdict = value.filter(|_| counts).map(|value| {
            if value > unfaithful_above {
                FidelityVerdict::Unfaithful
            } else if value > degraded_above {
                FidelityVerdict::Degraded
            } else {
                FidelityVerdict::Faithful
            }
        });
        Self { value, degraded_above, unfaithful_above, verdict }
    }
}

/// What the verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct FidelityCriteria {
    /// 99th percentile of lateness.
    pub lateness_p99_ns: Judged<i64>,
    /// Distance of written gaps from planned ones; judged from [`MIN_GAPS`] gaps on.
    pub gap_distance_ns: Judged<i64>,
    /// Unsent requests ÷ planned ones.
    pub unsent_share: Judged<f64>,
}

impl FidelityCriteria {
    /// How late a request must be to need a cause: the bound that was passed, that of lateness before that of the gaps.
    pub(crate) fn late_above_ns(&self) -> Option<i64> {
        let passed = |judged: &Judged<i64>| judged.verdict >= Some(FidelityVerdict::Degraded);
        let criteria = [&self.lateness_p99_ns, &self.gap_distance_ns];
        criteria.into_iter().find(|judged| passed(judged)).map(|judged| judged.degraded_above)
    }

    /// The criteria by what a person calls them, with what they say.
    fn named(&self) -> [(&'static str, Option<FidelityVerdict>); 3] {
        [
            ("the p99 of lateness", self.lateness_p99_ns.verdict),
            ("the distance of the gaps", self.gap_distance_ns.verdict),
            ("the share of unsent requests", self.unsent_share.verdict),
        ]
    }
}

/// What a run is judged from.
pub(crate) struct Evidence {
    /// Requests were to leave at times of their own.
    pub(crate) has_schedule: bool,
    pub(crate) planned: u64,
    pub(crate) unsent: u64,
    pub(crate) lateness_p99_ns: Option<i64>,
    pub(crate) gaps: GapReport,
}

/// What the criteria, the verdict and its sentence are.
pub(crate) fn judge(
    evidence: &Evidence,
    bounds: &FidelityBounds,
) -> (FidelityCriteria, Option<FidelityVerdict>, String) {
    let gaps = &evidence.gaps;
    let schedule = evidence.has_schedule;
    let far = |ns: i64| (ns as f64 * bounds.unfaithful_factor) as i64;
    let late = bound_ns(
        bounds.lateness_share,
        (bounds.lateness_floor_ns, bounds.lateness_ceiling_ns),
        gaps.median_ns,
    );
    let distance = bound_ns(
        bounds.gap_distance_share,
        (bounds.gap_distance_floor_ns, bounds.gap_distance_ceiling_ns),
        gaps.median_ns,
    );
    let share = (evidence.planned > 0).then(|| evidence.unsent as f64 / evidence.planned as f64);
    let criteria = FidelityCriteria {
        lateness_p99_ns: Judged::new(evidence.lateness_p99_ns, late, far(late), schedule),
        gap_distance_ns: Judged::new(
            gaps.distance_ns,
            distance,
            far(distance),
            schedule && gaps.compared >= MIN_GAPS,
        ),
        unsent_share: Judged::new(share, 0.0, bounds.unsent_share, schedule),
    };
    let verdict = criteria.named().into_iter().filter_map(|(_, verdict)| verdict).max();
    (criteria, verdict, reason(&criteria, verdict, schedule))
}

/// The share of the median gap, but not below the floor nor above the ceiling; without a gap there is no pattern that lateness
/// could spoil, and the ceiling holds.
fn bound_ns(share: f64, (floor_ns, ceiling_ns): (i64, i64), median_ns: Option<i64>) -> i64 {
    median_ns.map_or(ceiling_ns, |median| ((share * median as f64) as i64).clamp(floor_ns, ceiling_ns))
}

fn reason(criteria: &FidelityCriteria, verdict: Option<FidelityVerdict>, has_schedule: bool) -> String {
    let Some(verdict) = verdict else {
        let why =
            if has_schedule { "no request was to be sent" } else { "a closed loop has no schedule to keep" };
        return why.to_owned();
    };
    if verdict == FidelityVerdict::Faithful {
        return "every criterion lies within its bound".to_owned();
    }
    let named = criteria.named().into_iter().filter(|(_, found)| *found == Some(verdict));
    let names: Vec<&str> = named.map(|(name, _)| name).collect();
    let bound = if verdict == FidelityVerdict::Degraded { "of a faithful run" } else { "of a degraded run" };
    format!("beyond the bound {bound}: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    /// A run of many requests, a median gap of 40 ms, and this lateness, distance and number unsent of a thousand.
    fn evidence(late_ns: i64, distance_ns: i64, unsent: u64) -> Evidence {
        Evidence {
            has_schedule: true,
            planned: 1_000,
            unsent,
            lateness_p99_ns: Some(late_ns),
            gaps: GapReport {
                n: 999,
                median_ns: Some(40 * MS),
                compared: 999 - unsent,
                distance_ns: Some(distance_ns),
            },
        }
    }

    fn verdict(evidence: &Evidence) -> Option<FidelityVerdict> {
        judge(evidence, &FidelityBounds::default()).1
    }

    #[test]
    fn a_bound_is_a_share_of_the_median_gap_between_floor_and_ceiling() {
        let of = |median| bound_ns(0.05, (MS, 10 * MS), median);
        assert_eq!(of(Some(0)), MS);
        assert_eq!(of(Some(20 * MS)), MS);
        assert_eq!(of(Some(40 * MS)), 2 * MS);
        assert_eq!(of(Some(200 * MS)), 10 * MS);
        assert_eq!(of(Some(i64::MAX)), 10 * MS);
        assert_eq!(of(None), 10 * MS);
    }

    #[test]
    fn each_criterion_has_two_edges() {
        use FidelityVerdict::{Degraded, Faithful, Unfaithful};
        // 5 % of 40 ms are 2 ms, three times that 6 ms; of a thousand requests ten may stay unsent.
        for (late, distance, unsent, expected) in [
            (2 * MS, 2 * MS, 0, Faithful),
            (2 * MS + 1, 0, 0, Degraded),
            (6 * MS, 0, 0, Degraded),
            (6 * MS + 1, 0, 0, Unfaithful),
            (0, 2 * MS + 1, 0, Degraded),
            (0, 6 * MS + 1, 0, Unfaithful),
            (0, 0, 1, Degraded),
            (0, 0, 10, Degraded),
            (0, 0, 11, Unfaithful),
            (2 * MS + 1, 6 * MS + 1, 1, Unfaithful),
        ] {
            assert_eq!(
                verdict(&evidence(late, distance, unsent)),
                Some(expected),
                "{late} {distance} {unsent}"
            );
        }
    }

    #[test]
    fn the_sentence_names_what_made_the_verdict() {
        let told = |e: &Evidence| judge(e, &FidelityBounds::default()).2;
        assert_eq!(
            told(&evidence(7 * MS, 3 * MS, 50)),
            "beyond the bound of a degraded run: the p99 of lateness, the share of unsent requests"
        );
        assert_eq!(
            told(&evidence(0, 3 * MS, 0)),
            "beyond the bound of a faithful run: the distance of the gaps"
        );
        assert_eq!(told(&evidence(0, 0, 0)), "every criterion lies within its bound");
    }

    #[test]
    fn few_gaps_are_shown_and_not_judged() {
        let mut few = evidence(MS, 50 * MS, 0);
        few.gaps.compared = MIN_GAPS - 1;
        let (criteria, verdict, _) = judge(&few, &FidelityBounds::default());
        assert_eq!((criteria.gap_distance_ns.value, criteria.gap_distance_ns.verdict), (Some(50 * MS), None));
        assert_eq!(verdict, Some(FidelityVerdict::Faithful));
    }

    #[test]
    fn a_closed_loop_and_an_empty_plan_have_no_verdict() {
        let looped = Evidence { has_schedule: false, ..evidence(50 * MS, 0, 0) };
        let (criteria, verdict, reason) = judge(&looped, &FidelityBounds::default());
        assert_eq!((verdict, criteria.lateness_p99_ns.value), (None, Some(50 * MS)));
        assert!(reason.contains("closed loop"), "{reason}");
        let empty = Evidence {
            has_schedule: true,
            planned: 0,
            unsent: 0,
            lateness_p99_ns: None,
            gaps: GapReport::default(),
        };
        let (_, verdict, reason) = judge(&empty, &FidelityBounds::default());
        assert_eq!((verdict, reason.as_str()), (None, "no request was to be sent"));
    }

    #[test]
    fn one_request_is_judged_by_the_ceiling() {
        let one = |late| Evidence {
            has_schedule: true,
            planned: 1,
            unsent: 0,
            lateness_p99_ns: Some(late),
            gaps: GapReport::default(),
        };
        assert_eq!(verdict(&one(10 * MS)), Some(FidelityVerdict::Faithful));
        assert_eq!(verdict(&one(10 * MS + 1)), Some(FidelityVerdict::Degraded));
        assert_eq!(verdict(&one(30 * MS + 1)), Some(FidelityVerdict::Unfaithful));
    }

    proptest! {
        #[test]
        fn more_of_anything_is_never_a_better_verdict(
            late in 0..100 * MS, distance in 0..100 * MS, unsent in 0u64..500,
            more_late in 0..100 * MS, more_distance in 0..100 * MS, more_unsent in 0u64..400,
        ) {
            let worse = evidence(late + more_late, distance + more_distance, unsent + more_unsent);
            prop_assert!(verdict(&worse) >= verdict(&evidence(late, distance, unsent)));
        }

        #[test]
        fn wider_bounds_are_never_a_worse_verdict(
            late in 0..100 * MS, distance in 0..100 * MS, factor in 1.0..50f64, ceiling in 0..50 * MS,
        ) {
            let usual = FidelityBounds::default();
            let wide = FidelityBounds {
                lateness_floor_ns: usual.lateness_floor_ns + ceiling,
                lateness_ceiling_ns: usual.lateness_ceiling_ns + ceiling,
                unfaithful_factor: usual.unfaithful_factor * factor,
                ..usual
            };
            let found = evidence(late, distance, 0);
            prop_assert!(judge(&found, &wide).1 <= judge(&found, &usual).1);
        }
    }
}
