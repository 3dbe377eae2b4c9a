//! Retries that come back together: clients that failed together and wait by the same formula without chance in it arrive
//! together again.

use serde::{Deserialize, Serialize};

use crate::quantile::{Percentile, nearest_rank};

/// Bounds of the window in which retries count as coming together.
const MIN_WINDOW_NS: i64 = 1_000_000;
const MAX_WINDOW_NS: i64 = 1_000_000_000;
/// Parts of a retry, so that sums of shares are whole numbers.
const WHOLE: i64 = 1_000_000;
/// From so many retries in the densest window on, and so many times what an even spread gives, they are a wave.
const WAVE_RETRIES: u64 = 10;
const WAVE_FACTOR: f64 = 3.0;

/// How closely retries came together, against the same retries spread evenly over their waits.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RetryWave {
    /// Retries whose wait is known.
    pub retries: u64,
    /// Length of the window: a tenth of the median wait, from 1 ms to 1 s.
    pub window_ns: Option<i64>,
    /// Retries in the densest window.
    pub densest: u64,
    /// `densest` / `retries`.
    pub densest_share: Option<f64>,
    /// Retries that the densest window would hold if each had left at any moment of its wait with the same chance.
    pub even: Option<f64>,
    /// `densest` / `even`: about 10 where all came back after the same wait, about 1 or less where chance spread them.
    pub peak_factor: Option<f64>,
    /// Median time from the attempt before to the retry, over the densest window: the wave's period.
    pub period_ns: Option<i64>,
    /// Whether it is a wave: at least 10 retries in the densest window, and at least 3 times the even spread.
    pub synchronised: bool,
}

/// One retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resend {
    /// When it left.
    pub(crate) at_ns: i64,
    /// From the end of the attempt before.
    pub(crate) wait_ns: i64,
    /// From when the attempt before was due.
    pub(crate) period_ns: i64,
}

impl RetryWave {
    /// Of retries in any order.
    pub(crate) fn of(mut resends: Vec<Resend>) -> Self {
        if resends.is_empty() {
            return Self::default();
        }
        resends.sort_unstable_by_key(|resend| resend.at_ns);
        let median = |values: &mut Vec<i64>| {
            values.sort_unstable();
            nearest_rank(values, Percentile::P50)
        };
        let wait_ns = median(&mut resends.iter().map(|resend| resend.wait_ns).collect()).unwrap_or(0);
        let window_ns = (wait_ns / 10).clamp(MIN_WINDOW_NS, MAX_WINDOW_NS);
        let densest = densest(&resends, window_ns);
        let even = even(&resends, window_ns);
        let retries = resends.len() as u64;
        let peak_factor = densest.len() as f64 / even;
        Self {
            retries,
            window_ns: Some(window_ns),
            densest: densest.len() as u64,
            densest_share: Some(densest.len() as f64 / retries as f64),
            even: Some(even),
            peak_factor: Some(peak_factor),
            period_ns: median(&mut densest.iter().map(|resend| resend.period_ns).collect()),
            synchronised: densest.len() as u64 >= WAVE_RETRIES && peak_factor >= WAVE_FACTOR,
        }
    }
}

/// The first of the fullest windows that begin with a retry.
fn densest(sorted: &[Resend], window_ns: i64) -> &[Resend] {
    let (mut end, mut fullest) = (0, &sorted[..0]);
    for (begin, first) in sorted.iter().enumerate() {
        while sorted.get(end).is_some_and(|resend| resend.at_ns - first.at_ns < window_ns) {
            end += 1;
        }
        if end - begin > fullest.len() {
            fullest = &sorted[begin..end];
        }
    }
    fullest
}

/// The most that any window holds on average when every retry is spread evenly over its wait, or over the window where the
/// wait is shorter.
fn even(resends: &[Resend], window_ns: i64) -> f64 {
    let steps = resends.iter().flat_map(|resend| {
        let spread_ns = resend.wait_ns.max(window_ns);
        let part = i128::from(window_ns) * i128::from(WHOLE) / i128::from(spread_ns);
        let part = i64::try_from(part).unwrap_or(WHOLE).max(1);
        let from_ns = resend.at_ns - resend.wait_ns;
        [(from_ns, part), (from_ns + spread_ns, -part)]
    });
    let mut steps: Vec<(i64, i64)> = steps.collect();
    steps.sort_unstable();
    let (mut level, mut highest) = (0, 0);
    for (_, step) in steps {
        level += step;
        highest = highest.max(level);
    }
    highest as f64 / WHOLE as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// A hundred clients that failed within 5 ms and wait as `wait_ns` says.
    fn hundred(wait_ns: impl Fn(i64) -> i64) -> RetryWave {
        RetryWave::of(
            (0..100)
                .map(|client| {
                    let (failed_ns, wait_ns) = (client * 50_000, wait_ns(client));
                    Resend { at_ns: failed_ns + wait_ns, wait_ns, period_ns: wait_ns + 20 * MS }
                })
                .collect(),
        )
    }

    #[test]
    fn a_hundred_clients_without_jitter_are_a_wave_with_its_period() {
        let wave = hundred(|_| 500 * MS);
        assert_eq!((wave.retries, wave.densest, wave.window_ns), (100, 100, Some(50 * MS)));
        assert_eq!((wave.densest_share, wave.even), (Some(1.0), Some(10.0)));
        assert_eq!((wave.peak_factor, wave.period_ns, wave.synchronised), (Some(10.0), Some(520 * MS), true));
    }

    #[test]
    fn a_hundred_clients_with_full_jitter_are_none() {
        // Every hundredth of the delay, in a mixed order.
        let wave = hundred(|client| (client * 37 % 100) * 5 * MS);
        assert!(wave.densest < 20 && wave.peak_factor.unwrap() < 1.0 && !wave.synchronised, "{wave:?}");
    }

    #[test]
    fn the_jitter_of_the_sdks_leaves_a_wave_that_is_less_sharp() {
        let wave = hundred(|client| 375 * MS + (client * 37 % 100) * 1_250_000);
        assert!(wave.synchronised && wave.peak_factor.unwrap() < 5.0, "{wave:?}");
    }

    #[test]
    fn failures_that_are_spread_give_retries_that_are() {
        let resends =
            (0..100).map(|client| Resend { at_ns: client * 97 * MS, wait_ns: 500 * MS, period_ns: 0 });
        let wave = RetryWave::of(resends.collect());
        assert_eq!((wave.densest, wave.synchronised), (1, false));
    }

    #[test]
    fn few_retries_are_no_wave_and_none_say_nothing() {
        let few = |n| RetryWave::of(vec![Resend { at_ns: 0, wait_ns: 500 * MS, period_ns: 500 * MS }; n]);
        assert_eq!(few(0), RetryWave::default());
        assert!(!few(9).synchronised && few(10).synchronised);
        let hasty = RetryWave::of(vec![Resend { at_ns: 0, wait_ns: 0, period_ns: 0 }; 50]);
        assert_eq!((hasty.window_ns, hasty.even, hasty.synchronised), (Some(MS), Some(50.0), false));
    }
}
