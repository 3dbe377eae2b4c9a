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
    /// Lower end; 0 when nothing bounds it.
    pub lo: f64,
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
    let value = (v1 - v2).exp();
    let hi = if hi.is_nan() { f64::INFINITY } else { hi.exp() };
    let lo = if lo.is_nan() { 0.0 } else { lo.exp() };
    let infinite = replay.infinite || replay.interval.hi_is == BoundIs::Infinite;
    let hi_is = match (hi.is_finite(), infinite) {
        (true, _) => BoundIs::Value,
        (false, true) => BoundIs::Infinite,
        (false, false) => BoundIs::Unbounded,
    };
    Some(RatioInterval {
        value: value.is_finite().then_some(value),
        lo,
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
    let hi = ratio.hi.unwrap_or(f64::INFINITY);
    if ratio.lo > high {
        Verdict::Slower
    } else if hi < low {
        Verdict::Faster
    } else if ratio.lo >= low && hi <= high {
        Verdict::Agree
    } else {
        Verdict::CannotTell
    }
}
