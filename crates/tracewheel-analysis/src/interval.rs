//! Intervals for quantiles that hold when neighbours resemble each other.
//!
//! The interval of a quantile is read off the sample itself: with `m` independent observations the true `q`-quantile lies
//! between the order statistics `L` and `U`, where `P(Bin(m, q) < L) ≤ α/2` and `P(Bin(m, q) ≥ U) ≤ α/2`, whatever the
//! distribution is (David & Nagaraja, *Order Statistics*, §7.1; the idea for correlated and weighted samples is Woodruff's,
//! *Confidence intervals for medians and other position measures*, JASA 47 (1952)). For a correlated sample, `m` is its
//! effective size (its module, `effective`, says how), and `L` and `U` are carried over as shares: from the rank just above
//! `(L−1)/m` of the sample to the rank of `U/m`, so that `m = n` gives the classical interval.
//!
//! Why not a block bootstrap: it never yields a bound beyond the largest value seen, so that a p99 of 150 requests would get
//! an upper bound that is too low with certainty; here such a bound is [`BoundIs::Unbounded`] and says so. It would also
//! need a block length and a seed, and a thousand sorts. This needs one sort, is a pure function of the data, takes +∞,
//! weights and pooled gaps alike, and keeps its level on autocorrelated series (see the tests, which simulate it).

mod effective;
mod special;

use serde::{Deserialize, Serialize};

pub(crate) use effective::{Scores, Spectrum};

use crate::quantile::{NEVER_NS, Percentile, nearest_rank, value_at_mass};
use special::binomial_cdf;

/// The name of the method, as outputs state it.
pub const INTERVAL_METHOD: &str = "order_statistics_of_effective_size";

/// The level of every interval unless an option says otherwise.
pub const DEFAULT_LEVEL: f64 = 0.95;

/// The two ends of an interval; `None` where nothing bounds that side.
type Ends = (Option<i64>, Option<i64>);

/// What the end of an interval is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BoundIs {
    /// A recorded value.
    Value,
    /// +∞: at this rank stand requests that were never answered.
    Infinite,
    /// The sample is too small to bound this side at this level.
    Unbounded,
}

/// Where the true quantile lies, at a stated level.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end in nanoseconds; null unless `lo_is` is `value`.
    pub lo_ns: Option<i64>,
    /// What the lower end is. `unbounded` here means no lower bound but zero.
    pub lo_is: BoundIs,
    /// Upper end in nanoseconds; null unless `hi_is` is `value`.
    pub hi_ns: Option<i64>,
    /// What the upper end is.
    pub hi_is: BoundIs,
    /// The share of such intervals that contain the truth, for example 0.95.
    pub level: f64,
    /// How many independent observations the sample is worth at this quantile.
    pub effective_n: u64,
}

/// A quantile of a sample, with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The quantile in nanoseconds; null when it is +∞.
    pub value_ns: Option<i64>,
    /// Whether the quantile is +∞: so many requests were never answered.
    pub infinite: bool,
    /// Where the true quantile lies.
    pub interval: Interval,
}

impl Estimate {
    /// The quantile with +∞ as [`NEVER_NS`].
    pub fn value(&self) -> i64 {
        self.value_ns.unwrap_or(NEVER_NS)
    }

    /// The lower end with "no bound but zero" as 0 and +∞ as [`NEVER_NS`].
    pub fn lo(&self) -> i64 {
        match self.interval.lo_is {
            BoundIs::Value => self.interval.lo_ns.unwrap_or(0),
            BoundIs::Infinite => NEVER_NS,
            BoundIs::Unbounded => 0,
        }
    }

    /// The upper end with both kinds of missing bound as [`NEVER_NS`].
    pub fn hi(&self) -> i64 {
        self.interval.hi_ns.unwrap_or(NEVER_NS)
    }

    pub(crate) fn new(value: i64, ends: Ends, level: f64, effective_n: u64) -> Self {
        let (lo_ns, lo_is) = bound(ends.0);
        let (hi_ns, hi_is) = bound(ends.1);
        let interval = Interval { lo_ns, lo_is, hi_ns, hi_is, level, effective_n };
        Self { value_ns: (value != NEVER_NS).then_some(value), infinite: value == NEVER_NS, interval }
    }
}

fn bound(end: Option<i64>) -> (Option<i64>, BoundIs) {
    match end {
        None => (None, BoundIs::Unbounded),
        Some(NEVER_NS) => (None, BoundIs::Infinite),
        Some(value) => (Some(value), BoundIs::Value),
    }
}

/// An estimate together with what an interval of a ratio needs.
pub(crate) struct Measured {
    /// The quantile and its interval.
    pub(crate) estimate: Estimate,
    /// The scores' low frequencies, for the correlation with the other side.
    pub(crate) spectrum: Spectrum,
}

/// The order statistics of `m` independent observations between which the true quantile lies, counted from 1; `None`
/// where even the extreme one does not bound it.
fn order_bounds(p: Percentile, m: u64, level: f64) -> (Option<u64>, Option<u64>) {
    let (q, tail) = (p.fraction(), (1.0 - level) / 2.0);
    // The largest L with P(Bin ≤ L−1) ≤ tail, and the smallest U with P(Bin ≤ U−1) ≥ 1−tail.
    let below = smallest(m, |k| binomial_cdf(k, m, q) > tail);
    let above = smallest(m, |k| binomial_cdf(k, m, q) >= 1.0 - tail);
    ((below > 0).then_some(below), (above < m).then_some(above + 1))
}

/// The smallest `k` in `0..=m` for which the growing condition holds; `m` when none does.
fn smallest(m: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut lo, mut hi) = (0, m);
    while lo < hi {
        let middle = lo + (hi - lo) / 2;
        if holds(middle) { hi = middle } else { lo = middle + 1 }
    }
    lo
}

/// The ranks, among `n` observations that are worth `m`, between which the true quantile lies, counted from 1.
pub(crate) fn rank_bounds(p: Percentile, n: u64, m: u64, level: f64) -> (Option<u64>, Option<u64>) {
    let (lower, upper) = order_bounds(p, m, level);
    let scale = |k: u64| u128::from(k) * u128::from(n);
    let rank = |r: u128| u64::try_from(r).expect("a rank is at most n");
    (
        lower.map(|l| rank(scale(l - 1) / u128::from(m) + 1)),
        upper.map(|u| rank(scale(u).div_ceil(u128::from(m)))),
    )
}

/// Latencies in arrival order, one slot a request; a slot without a value takes no part. +∞ is [`NEVER_NS`].
pub struct Series {
    slots: Vec<Option<i64>>,
    weights: Option<Vec<f64>>,
    sorted: Vec<i64>,
}

impl Series {
    /// A series in which every value counts alike.
    pub fn new(slots: Vec<Option<i64>>) -> Self {
        let mut sorted: Vec<i64> = slots.iter().flatten().copied().collect();
        sorted.sort_unstable();
        Self { slots, weights: None, sorted }
    }

    /// A series in which the value of slot `i` counts `weights[i]`. Slots of no weight take no part.
    pub fn weighted(mut slots: Vec<Option<i64>>, weights: Vec<f64>) -> Self {
        debug_assert_eq!(slots.len(), weights.len(), "one weight a slot");
        for (slot, weight) in slots.iter_mut().zip(&weights) {
            if *weight <= 0.0 {
                *slot = None;
            }
        }
        Self { weights: Some(weights), ..Self::new(slots) }
    }

    /// How many slots hold a value.
    pub fn len(&self) -> u64 {
        self.sorted.len() as u64
    }

    /// Whether no slot holds a value.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// How many values are +∞.
    pub fn infinite(&self) -> u64 {
        (self.sorted.len() - self.sorted.partition_point(|v| *v < NEVER_NS)) as u64
    }

    /// The nearest-rank quantile and its interval at `level`; `None` without values.
    pub fn estimate(&self, p: Percentile, level: f64) -> Option<Estimate> {
        Some(self.measure(p, level)?.estimate)
    }

    pub(crate) fn measure(&self, p: Percentile, level: f64) -> Option<Measured> {
        let scores = self.scores(p)?;
        let spectrum = Spectrum::new(&scores.scores);
        let m = scores.effective(&spectrum, level);
        let (value, ends) = match &self.weights {
            None => {
                let at = |rank: u64| self.sorted[rank as usize - 1];
                let (lo, hi) = rank_bounds(p, self.len(), m, level);
                (nearest_rank(&self.sorted, p)?, (lo.map(at), hi.map(at)))
            }
            Some(weights) => self.weighted_bounds(weights, p, m, level)?,
        };
        let estimate = Estimate::new(value, ends, level, m);
        Some(Measured { estimate, spectrum })
    }

    fn weighted_bounds(&self, weights: &[f64], p: Percentile, m: u64, level: f64) -> Option<(i64, Ends)> {
        let mut pairs: Vec<(i64, f64)> =
            self.slots.iter().zip(weights).filter_map(|(v, w)| Some(((*v)?, *w))).collect();
        pairs.sort_unstable_by_key(|(value, _)| *value);
        let total: f64 = pairs.iter().map(|(_, w)| w).sum();
        let (lower, upper) = order_bounds(p, m, level);
        let at = |share: f64| value_at_mass(&pairs, share * total);
        let ends =
            (lower.and_then(|l| at((l - 1) as f64 / m as f64)), upper.and_then(|u| at(u as f64 / m as f64)));
        Some((at(p.fraction())?, ends))
    }

    /// The scores at the value nearest to the quantile that leaves at least five others on either side: further out,
    /// nothing is left from which a dependence could be seen.
    fn scores(&self, p: Percentile) -> Option<Scores> {
        let n = self.len();
        let rank = p.rank(n)?;
        let margin = 5.min(n / 2);
        let threshold = self.sorted[(rank.clamp(margin.max(1), (n - margin).max(1)) - 1) as usize];
        // Where everything is at or below the threshold, "below it" is what still tells two kinds apart.
        let strict = self.sorted.last() == Some(&threshold);
        let under = |v: i64| if strict { v < threshold } else { v <= threshold };
        let weight = |i: usize| self.weights.as_ref().map_or(1.0, |w| w[i]);
        let parts = self.slots.iter().enumerate().map(|(i, slot)| match slot {
            None => (0.0, 0.0),
            Some(v) => (f64::from(u8::from(under(*v))) * weight(i), weight(i)),
        });
        let (sum, squares) = parts.clone().fold((0.0, 0.0), |(s, q), (_, w)| (s + w, q + w * w));
        let ceiling = if squares > 0.0 { sum * sum / squares } else { n as f64 };
        Some(Scores::new(parts, ceiling))
    }
}

#[cfg(test)]
pub(crate) mod tests;
