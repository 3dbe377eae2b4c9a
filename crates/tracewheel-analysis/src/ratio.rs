//! Replay ÷ baseline with an interval, and the verdict that it allows.
//!
//! The interval is built from the two quantiles' own intervals by the method of variance estimates recovery on the log
//! scale (Zou & Donner, *Construction of confidence limits about effect measures*, Statistics in Medicine 27 (2008)):
//! with `d = ln v₁ − ln v₂`, lower and upper distances `a = ln v₁ − ln l₁`, `b = ln u₂ − ln v₂` and so on,
//!
//! `d − √(a² + b² − 2ρab)  …  d + √(a'² + b'² − 2ρa'b')`.
//!
//! `ρ` is the long-run correlation of the two sides' scores, taken only where both sides hold the same requests, and then
//! one standard error closer to zero: long prompts are slow on both sides, which the ratio should not pay for twice.
//! Intervals that are lopsided or open stay so: an unbounded end makes the ratio's end unbounded.
//!
//! **Verdict.** With `t` the larger of the relative tolerance and `floor_ns` ÷ baseline, parity is the band
//! `[1/(1+t), 1+t]`. The interval wholly inside it: agree. Wholly above: slower. Wholly below: faster. Otherwise the data
//! cannot tell; more requests would. (Two one-sided tests: Schuirmann, J. Pharmacokinetics and Biopharmaceutics 15 (1987).)

use serde::{Deserialize, Serialize};

use crate::interval::{BoundIs, Estimate};
use crate::metric::Verdict;
use crate::quantile::NEVER_NS;

/// The name of the ratio's interval, as outputs state it.
pub const RATIO_METHOD: &str = "mover_log";

/// The rule of the verdict, as outputs state it.
pub const VERDICT_RULE: &str = "agree: the ratio's interval lies within [1/(1+t), 1+t], t the larger of tolerance and \
                                floor_ns / baseline; slower: wholly above; faster: wholly below; else cannot_tell";

/// Replay ÷ baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioInterval {
    /// The ratio of the two quantiles; null when it is +∞.
    pub value: Option<f64>,
    /// Lower end; 0 when nothing bounds it, null when it is +∞: even there the replay was never answered.
    pub lo: Option<f64>,
    /// Upper end; null when nothing bounds it.
    pub hi: Option<f64>,
    /// What the upper end is.
    pub hi_is: BoundIs,
    /// Level of the interval.
    pub level: f64,
}

/// The ratio of two quantiles whose scores are correlated by `rho`; `None` where both are +∞ or one is not positive.
pub fn ratio(replay: &Estimate, baseline: &Estimate, rho: f64) -> Option<RatioInterval> {
    let level = replay.interval.level.min(baseline.interval.level);
    let (v1, v2) = (log(replay.value())?, log(baseline.value())?);
    let (l1, u1) = (log_or_zero(replay.lo()), log_or_zero(replay.hi()));
    let (l2, u2) = (log_or_zero(baseline.lo()), log_or_zero(baseline.hi()));
    if v1.is_infinite() && v2.is_infinite() {
        return None;
    }
    let (lo, hi) = if v1.is_finite() && v2.is_finite() {
        let apart = |a: f64, b: f64| {
            if a.is_finite() && b.is_finite() {
                (a * a + b * b - 2.0 * rho * a * b).max(0.0).sqrt()
            } else {
                f64::INFINITY
            }
        };
        (v1 - v2 - apart(v1 - l1, u2 - v2), v1 - v2 + apart(u1 - v1, v2 - l2))
    } else {
        // One quantile is +∞: what remains sure is the extreme pairing of the ends.
        (l1 - u2, if v1.is_infinite() { f64::INFINITY } else { u1 - l2 })
    };
    let value = match (replay.value_ns, baseline.value_ns) {
        (Some(replay), Some(baseline)) => Some(replay as f64 / baseline as f64),
        (Some(_), None) => Some(0.0),
        (None, _) => None,
    };
    let hi = if hi.is_nan() { f64::INFINITY } else { hi.exp() };
    let lo = if lo.is_nan() { 0.0 } else { lo.exp() };
    let infinite = replay.infinite || replay.interval.hi_is == BoundIs::Infinite;
    let hi_is = match (hi.is_finite(), infinite) {
        (true, _) => BoundIs::Value,
        (false, true) => BoundIs::Infinite,
        (false, false) => BoundIs::Unbounded,
    };
    Some(RatioInterval {
        value,
        lo: lo.is_finite().then_some(lo),
        hi: hi.is_finite().then_some(hi),
        hi_is,
        level,
    })
}

/// The logarithm with +∞ kept; `None` for what has none.
fn log(ns: i64) -> Option<f64> {
    match ns {
        NEVER_NS => Some(f64::INFINITY),
        ns if ns > 0 => Some((ns as f64).ln()),
        _ => None,
    }
}

/// The logarithm of an interval's end, with −∞ for one that is not positive.
fn log_or_zero(ns: i64) -> f64 {
    log(ns).unwrap_or(f64::NEG_INFINITY)
}

/// The relative difference that counts as agreement: `tolerance`, or what `floor_ns` is of the baseline if that is more.
pub fn tolerance_at(baseline: &Estimate, tolerance: f64, floor_ns: i64) -> f64 {
    match baseline.value() {
        NEVER_NS => tolerance,
        value if value > 0 => tolerance.max(floor_ns as f64 / value as f64),
        _ => tolerance,
    }
}

/// What the two quantiles say, by the rule of the module.
pub fn verdict(
    replay: &Estimate,
    baseline: &Estimate,
    ratio: Option<&RatioInterval>,
    tolerance: f64,
    floor_ns: i64,
) -> Verdict {
    let Some(ratio) = ratio else {
        // A quantile of zero has no ratio; both sides within the floor of zero are alike all the same.
        return if replay.hi() <= floor_ns && baseline.hi() <= floor_ns {
            Verdict::Agree
        } else {
            Verdict::CannotTell
        };
    };
    let (low, high) = (1.0 / (1.0 + tolerance), 1.0 + tolerance);
    let lo = ratio.lo.unwrap_or(f64::INFINITY);
    let hi = ratio.hi.unwrap_or(f64::INFINITY);
    if lo > high {
        Verdict::Slower
    } else if hi < low {
        Verdict::Faster
    } else if lo >= low && hi <= high {
        Verdict::Agree
    } else {
        Verdict::CannotTell
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::interval::Series;
    use crate::interval::tests::latencies;
    use crate::quantile::Percentile;

    fn estimate(value: i64, lo: Option<i64>, hi: Option<i64>) -> Estimate {
        Estimate::new(value, (lo, hi), 0.95, 100)
    }

    #[test]
    fn the_ratio_of_two_known_intervals_is_the_formula() {
        let r =
            ratio(&estimate(200, Some(150), Some(260)), &estimate(100, Some(90), Some(120)), 0.0).unwrap();
        let lo = 2f64.ln() - ((200f64 / 150.0).ln().powi(2) + 1.2f64.ln().powi(2)).sqrt();
        let hi = 2f64.ln() + (1.3f64.ln().powi(2) + (100f64 / 90.0).ln().powi(2)).sqrt();
        assert_eq!(r.value, Some(2.0));
        assert!(
            (r.lo.unwrap() - lo.exp()).abs() < 1e-12 && (r.hi.unwrap() - hi.exp()).abs() < 1e-12,
            "{r:?}"
        );
    }

    #[test]
    fn correlation_narrows_the_ratio() {
        let (a, b) = (estimate(200, Some(150), Some(260)), estimate(100, Some(90), Some(120)));
        let (free, tied) = (ratio(&a, &b, 0.0).unwrap(), ratio(&a, &b, 0.8).unwrap());
        assert!(tied.lo > free.lo && tied.hi < free.hi);
    }

    #[test]
    fn open_and_infinite_ends_stay_so() {
        let base = estimate(100, Some(90), Some(120));
        let open = ratio(&estimate(200, Some(150), None), &base, 0.0).unwrap();
        assert_eq!((open.hi, open.hi_is), (None, BoundIs::Unbounded));
        let failed = ratio(&estimate(NEVER_NS, Some(150), Some(NEVER_NS)), &base, 0.0).unwrap();
        assert_eq!((failed.value, failed.hi, failed.hi_is), (None, None, BoundIs::Infinite));
        assert!((failed.lo.unwrap() - 150.0 / 120.0).abs() < 1e-12);
        let healed = ratio(&base, &estimate(NEVER_NS, Some(300), Some(NEVER_NS)), 0.0).unwrap();
        assert_eq!((healed.value, healed.lo), (Some(0.0), Some(0.0)));
        assert!((healed.hi.unwrap() - 120.0 / 300.0).abs() < 1e-12);
        let never = estimate(NEVER_NS, Some(1), None);
        assert_eq!(ratio(&never, &never, 0.0), None);
        assert_eq!(ratio(&estimate(0, Some(0), Some(3)), &base, 0.0), None);
    }

    #[test]
    fn verdicts_follow_the_rule() {
        let base = estimate(1000, Some(990), Some(1010));
        let judge = |value: i64, width: i64| {
            let replay = estimate(value, Some(value - width), Some(value + width));
            verdict(&replay, &base, ratio(&replay, &base, 0.0).as_ref(), 0.1, 0)
        };
        assert_eq!(judge(1000, 20), Verdict::Agree);
        assert_eq!(judge(1000, 300), Verdict::CannotTell);
        assert_eq!(judge(1300, 20), Verdict::Slower);
        assert_eq!(judge(700, 20), Verdict::Faster);
        assert_eq!(judge(1090, 20), Verdict::CannotTell);
    }

    #[test]
    fn differences_below_the_floor_agree_even_at_zero() {
        let (a, b) = (estimate(0, Some(0), Some(0)), estimate(20, Some(10), Some(30)));
        assert_eq!(verdict(&a, &b, ratio(&a, &b, 0.0).as_ref(), 0.1, 1000), Verdict::Agree);
        assert_eq!(tolerance_at(&estimate(4_000_000, None, None), 0.1, 1_000_000), 0.25);
        assert_eq!(tolerance_at(&estimate(40_000_000, None, None), 0.1, 1_000_000), 0.1);
    }

    /// Two runs over the same prompts: part of each log latency is the prompt's, part the run's own AR(1).
    fn pair(n: usize, shared: f64, rng: &mut ChaCha8Rng) -> (Series, Series) {
        let common = latencies(n, 0.3, rng);
        let mut side = || {
            let own = latencies(n, 0.7, rng);
            let blend = own.iter().zip(&common).map(|(own, common)| {
                let (own, common) = ((own.unwrap() as f64 / 1e8).ln(), (common.unwrap() as f64 / 1e8).ln());
                Some((1e8 * (shared.sqrt() * common + (1.0 - shared).sqrt() * own).exp()) as i64)
            });
            Series::new(blend.collect())
        };
        (side(), side())
    }

    #[test]
    fn ratios_of_equal_processes_contain_one_as_often_as_they_say() {
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for p in [Percentile::P50, Percentile::P95] {
            for shared in [0.0, 0.6] {
                let rounds = 150;
                let (mut hits, mut width, mut free_width) = (0, 0.0, 0.0);
                for _ in 0..rounds {
                    let (a, b) = pair(400, shared, &mut rng);
                    let (a, b) = (a.measure(p, 0.95).unwrap(), b.measure(p, 0.95).unwrap());
                    let rho = a.spectrum.correlation(&b.spectrum);
                    let r = ratio(&a.estimate, &b.estimate, rho).unwrap();
                    let free = ratio(&a.estimate, &b.estimate, 0.0).unwrap();
                    hits += u32::from(r.lo.unwrap() <= 1.0 && r.hi.is_none_or(|hi| hi >= 1.0));
                    width += r.hi.unwrap_or(10.0).ln() - r.lo.unwrap().ln();
                    free_width += free.hi.unwrap_or(10.0).ln() - free.lo.unwrap().ln();
                }
                let share = f64::from(hits) / f64::from(rounds);
                assert!(share >= 0.90, "{p}, shared {shared}: {share}");
                assert!(width <= free_width);
            }
        }
    }
}
