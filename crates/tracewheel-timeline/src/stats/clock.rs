//! The clock resolution that arrivals show, as opposed to the digits that they were written with.

use crate::vocab::vocabulary;

/// Steps that are looked at for a coarser rhythm; beyond that, every second, fourth, ... step.
const SAMPLE: usize = 1 << 16;

/// Fewer steps than this say nothing about the clock: a few numbers have a large divisor by chance.
const FEW: u64 = 16;

/// Share of steps that must lie on the rhythm, and how far from it they may lie, both in percent.
const ON_STEP_PERCENT: usize = 99;
const TOLERANCE_PERCENT: i64 = 1;

vocabulary! {
    /// How a clock resolution was found.
    ClockRule, "clock rule" {
        /// Arrivals move in nearly equal steps: the typical step.
        Step = "step",
        /// The largest unit that divides every difference between distinct arrivals.
        Unit = "unit",
        /// Too few distinct arrivals to tell, or a finer find than the text could hold: the text's own precision.
        Declared = "declared",
    }
}

/// A clock resolution and how it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundResolution {
    /// In nanoseconds.
    pub resolution_ns: i64,
    /// The rule that gave it.
    pub rule: ClockRule,
}

/// Finds the clock resolution of sorted arrivals, in bounded memory. [`ClockResolution::METHOD`] says how.
///
/// The typical step: of the steps between distinct arrivals, those from the 1 % quantile up to one and a half times it
/// are taken for single steps, and their median is the candidate. It stands if 99 % of all steps lie within 1 % of the
/// candidate from a whole multiple of it. Arrivals of a fine clock pass that test with a probability of 2 % a step, so
/// not at all; arrivals that a collector stamped every three seconds pass it although they are written in milliseconds.
#[derive(Debug, Default)]
pub struct ClockResolution {
    last_unix_ns: Option<i64>,
    declared_ns: Option<i64>,
    steps: u64,
    divisor_ns: i64,
    sample: Vec<i64>,
    /// Every so many steps go into the sample.
    stride: u64,
}

impl ClockResolution {
    /// The method, as it stands in every output.
    pub const METHOD: &'static str = "typical step between distinct arrivals where 99 % of the steps lie within 1 % of a multiple of \
        it; else the largest unit that divides every step; never finer than the text's precision, which stands alone below 16 steps";

    /// No arrivals yet.
    pub fn new() -> Self {
        Self { stride: 1, ..Self::default() }
    }

    /// Takes the next arrival, in order, and the precision of its text.
    pub fn push(&mut self, arrival_unix_ns: i64, precision_ns: i64) {
        if precision_ns > 0 {
            self.declared_ns = Some(self.declared_ns.map_or(precision_ns, |finest| finest.min(precision_ns)));
        }
        let Some(last) = self.last_unix_ns.replace(arrival_unix_ns) else { return };
        let step_ns = arrival_unix_ns.saturating_sub(last);
        if step_ns <= 0 {
            return;
        }
        self.divisor_ns = greatest_common_divisor(self.divisor_ns, step_ns);
        if self.steps.is_multiple_of(self.stride) {
            self.sample.push(step_ns);
        }
        self.steps += 1;
        if self.sample.len() >= SAMPLE {
            let mut keep = false;
            self.sample.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
        }
    }

    /// The resolution; `None` where there are too few arrivals and no declared precision.
    pub fn finish(mut self) -> Option<FoundResolution> {
        let declared = |resolution_ns| FoundResolution { resolution_ns, rule: ClockRule::Declared };
        if self.steps < FEW {
            return self.declared_ns.map(declared);
        }
        let step_ns = typical_step(&mut self.sample);
        let found = match step_ns.filter(|step_ns| *step_ns > self.divisor_ns) {
            Some(resolution_ns) => FoundResolution { resolution_ns, rule: ClockRule::Step },
            None => FoundResolution { resolution_ns: self.divisor_ns, rule: ClockRule::Unit },
        };
        match self.declared_ns {
            Some(declared_ns) if declared_ns > found.resolution_ns => Some(declared(declared_ns)),
            _ => Some(found),
        }
    }
}

fn typical_step(steps: &mut [i64]) -> Option<i64> {
    steps.sort_unstable();
    let smallest = *steps.get(steps.len() / 100)?;
    let first = steps.partition_point(|step| *step < smallest);
    let end = steps.partition_point(|step| *step <= smallest.saturating_add(smallest / 2));
    let step = steps[first + (end - first) / 2];
    let on_step = steps.iter().filter(|other| {
        let beyond = **other % step;
        let distance = if **other < step { step - **other } else { beyond.min(step - beyond) };
        distance.saturating_mul(100) <= step.saturating_mul(TOLERANCE_PERCENT)
    });
    (on_step.count() * 100 >= steps.len() * ON_STEP_PERCENT).then_some(step)
}

fn greatest_common_divisor(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn found(arrivals: impl IntoIterator<Item = i64>, precision_ns: i64) -> Option<(i64, ClockRule)> {
        let mut clock = ClockResolution::new();
        arrivals.into_iter().for_each(|arrival| clock.push(arrival, precision_ns));
        clock.finish().map(|found| (found.resolution_ns, found.rule))
    }

    /// Irregular steps of at least 1, the same at every run.
    fn irregular(count: u64, up_to: i64) -> Vec<i64> {
        let mut state = 7_u64;
        let mut arrival = 0;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            arrival += 1 + ((state >> 33) as i64) % up_to;
            arrival
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_fine_clock_shows_its_unit_even_under_finer_digits() {
        let micros = irregular(2_000, 500_000).into_iter().map(|arrival| arrival * 1_000);
        assert_eq!(found(micros, 100), Some((1_000, ClockRule::Unit)));
        let seconds = irregular(2_000, 90).into_iter().map(|arrival| arrival * 1_000 * MS);
        assert_eq!(found(seconds, 1_000 * MS), Some((1_000 * MS, ClockRule::Unit)));
    }

    #[test]
    fn nearly_equal_steps_show_their_rhythm() {
        // Every three seconds, up to 3 ms off, sometimes a stamp is left out, ties in between.
        let jitter = irregular(1_000, 4).windows(2).map(|pair| pair[1] - pair[0] - 2).collect::<Vec<_>>();
        let arrivals = (0..).zip(jitter).filter(|(number, _)| number % 11 != 0);
        let arrivals = arrivals.flat_map(|(number, off)| [(number * 3_000 + off) * MS; 3]);
        let (resolution_ns, rule) = found(arrivals, MS).unwrap();
        assert_eq!(rule, ClockRule::Step);
        assert!((2_995 * MS..=3_005 * MS).contains(&resolution_ns), "{resolution_ns}");
    }

    #[test]
    fn a_few_arrivals_say_nothing_and_the_text_decides() {
        assert_eq!(found([0, 3_000 * MS, 6_000 * MS], MS), Some((MS, ClockRule::Declared)));
        assert_eq!(found([], 0), None);
        assert_eq!(found([5; 100], 0), None);
    }

    #[test]
    fn no_find_is_finer_than_the_text() {
        // Ends with whole seconds from which durations in milliseconds were taken off.
        let arrivals = irregular(2_000, 5_000).into_iter().map(|arrival| arrival * MS);
        assert_eq!(found(arrivals, 1_000 * MS), Some((1_000 * MS, ClockRule::Declared)));
    }

    #[test]
    fn millions_of_steps_stay_in_a_bounded_sample() {
        let mut clock = ClockResolution::new();
        irregular(1_000_000, 1_000).into_iter().for_each(|arrival| clock.push(arrival * 1_000, 0));
        assert!(clock.sample.len() < SAMPLE && clock.sample.len() >= SAMPLE / 4);
        assert_eq!(clock.finish().map(|found| found.resolution_ns), Some(1_000));
    }
}
