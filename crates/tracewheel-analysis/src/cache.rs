//! Latency by the share of the prompt that came from the prefix cache.
//!
//! A warm cache answers sooner, so two percentiles over different mixtures of cached shares do not compare. The table says
//! how each bin fares; the weighted percentile gives every request of the replay the weight that makes its bins carry the
//! baseline's request shares. It stays within one run at one load: all-cold and all-warm runs queue differently and are
//! never mixed.

use serde::{Deserialize, Serialize};

use crate::alignment::Alignment;
use crate::comparison::MetricComparison;
use crate::interval::{Estimate, Series};
use crate::metric::{Metric, Population};
use crate::quantile::Percentile;
use crate::ratio::{self, RatioInterval};

/// Fewest successful requests of a bin from which a percentile is shown or a weight is made.
pub const MIN_BIN: u64 = 20;

/// Least share of successful requests that must report cached tokens before a weight is made.
const MIN_REPORTED: f64 = 0.95;

/// Bins with a smaller share than this in the baseline carry no weight.
const MIN_SHARE: f64 = 0.01;

/// A bin of the cached share of the input tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CacheBin {
    /// Nothing came from the cache.
    #[serde(rename = "0")]
    Zero,
    /// Up to a quarter.
    #[serde(rename = "(0,25]")]
    UpTo25,
    /// Up to a half.
    #[serde(rename = "(25,50]")]
    UpTo50,
    /// Up to three quarters.
    #[serde(rename = "(50,75]")]
    UpTo75,
    /// More than three quarters.
    #[serde(rename = "(75,100]")]
    UpTo100,
    /// Unknown.
    #[serde(rename = "not reported")]
    NotReported,
}

impl CacheBin {
    /// The bins in order.
    pub const ALL: [Self; 6] =
        [Self::Zero, Self::UpTo25, Self::UpTo50, Self::UpTo75, Self::UpTo100, Self::NotReported];

    /// The bin of a request.
    pub fn of(cached_tokens: Option<u32>, input_tokens: Option<u32>) -> Self {
        let (Some(cached), Some(input)) = (cached_tokens, input_tokens) else { return Self::NotReported };
        match u64::from(cached) * 4 {
            0 => Self::Zero,
            _ if input == 0 => Self::NotReported,
            quarters => match quarters.div_ceil(u64::from(input)) {
                0 | 1 => Self::UpTo25,
                2 => Self::UpTo50,
                3 => Self::UpTo75,
                _ => Self::UpTo100,
            },
        }
    }

    /// The word in JSON and tables, in per cent.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Zero => "0",
            Self::UpTo25 => "(0,25]",
            Self::UpTo50 => "(25,50]",
            Self::UpTo75 => "(50,75]",
            Self::UpTo100 => "(75,100]",
            Self::NotReported => "not reported",
        }
    }
}

/// The cache table.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CacheReport {
    /// Fewest requests of a bin for which percentiles are shown.
    pub min_n: u64,
    /// One entry a bin, in order.
    pub bins: Vec<CacheBinReport>,
    /// Percentiles of the replay with each request weighted so that the bins carry the baseline's request shares.
    pub weighted: Vec<CacheWeighted>,
}

/// One bin on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CacheBinReport {
    /// The bin, in per cent of the input tokens.
    pub bin: CacheBin,
    /// The replay's requests in it.
    pub replay: CacheBinSide,
    /// The baseline's requests in it; null when there is no baseline.
    pub baseline: Option<CacheBinSide>,
}

/// One bin on one side: successful requests.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CacheBinSide {
    /// Successful requests in the bin.
    pub n: u64,
    /// Their share of all successful requests.
    pub share: Option<f64>,
    /// Median TTFT (population `success`); null below `min_n`.
    pub ttft_p50: Option<Estimate>,
    /// 95th percentile of the TTFT; null below `min_n`.
    pub ttft_p95: Option<Estimate>,
}

/// A percentile at the baseline's cache shares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheWeighted {
    /// The metric, in population `success`.
    pub metric: Metric,
    /// The percentile.
    pub percentile: Percentile,
    /// The weighted quantile of the replay; null when withheld.
    pub replay: Option<Estimate>,
    /// Its ratio to the baseline's plain quantile.
    pub ratio: Option<RatioInterval>,
    /// Why it is withheld, and which setting would make it known.
    pub withheld: Option<String>,
}

/// Slots and their bins on one side.
type Bins = Vec<Option<CacheBin>>;

/// The table and the weighted percentiles; `metrics` holds the baseline's plain percentiles.
pub(crate) fn report(alignment: &Alignment<'_>, metrics: &[MetricComparison], level: f64) -> CacheReport {
    let replay = (alignment.replay_bins(), alignment.replay_slots(Metric::Ttft, Population::Success).values);
    let baseline = alignment.baseline_bins().map(|bins| {
        let slots = alignment.baseline_slots(Metric::Ttft, Population::Success);
        (bins, slots.map_or(Vec::new(), |s| s.values))
    });
    let bins = CacheBin::ALL.map(|bin| CacheBinReport {
        bin,
        replay: bin_side(bin, &replay.0, &replay.1, level),
        baseline: baseline.as_ref().map(|(bins, values)| bin_side(bin, bins, values, level)),
    });
    let weighted = match &baseline {
        None => Vec::new(),
        Some((theirs, _)) => [Metric::Ttft, Metric::E2e]
            .map(|metric| weighted(alignment, metric, (&replay.0, theirs), metrics, level))
            .to_vec(),
    };
    CacheReport { min_n: MIN_BIN, bins: bins.to_vec(), weighted }
}

fn count(bins: &Bins, bin: CacheBin) -> u64 {
    bins.iter().filter(|b| **b == Some(bin)).count() as u64
}

fn bin_side(bin: CacheBin, bins: &Bins, ttft: &[Option<i64>], level: f64) -> CacheBinSide {
    let n = count(bins, bin);
    let all = bins.iter().flatten().count() as u64;
    let share = (all > 0).then(|| n as f64 / all as f64);
    let values = ttft.iter().zip(bins).map(|(value, b)| value.filter(|_| *b == Some(bin))).collect();
    let series = Series::new(values);
    let shown = |p| if series.len() >= MIN_BIN { series.estimate(p, level) } else { None };
    CacheBinSide { n, share, ttft_p50: shown(Percentile::P50), ttft_p95: shown(Percentile::P95) }
}

/// The replay's p95 at the baseline's cache shares.
fn weighted(
    alignment: &Alignment<'_>,
    metric: Metric,
    (mine, theirs): (&Bins, &Bins),
    metrics: &[MetricComparison],
    level: f64,
) -> CacheWeighted {
    let percentile = Percentile::P95;
    let entry = CacheWeighted { metric, percentile, replay: None, ratio: None, withheld: None };
    let shares = match bin_weights(mine, theirs) {
        Ok(shares) => shares,
        Err(withheld) => return CacheWeighted { withheld: Some(withheld), ..entry },
    };
    let values = alignment.replay_slots(metric, Population::Success).values;
    let weight =
        |bin: &Option<CacheBin>| bin.and_then(|b| shares.iter().find(|s| s.0 == b)).map_or(0.0, |s| s.1);
    let weights = mine.iter().map(weight).collect();
    let replay = Series::weighted(values, weights).estimate(percentile, level);
    let plain = metrics.iter().find(|m| m.metric == metric && m.population == Population::Success);
    let baseline = plain.and_then(|m| m.percentile(percentile)).and_then(|p| p.baseline);
    let ratio = replay.zip(baseline).and_then(|(r, b)| ratio::ratio(&r, &b, 0.0));
    let withheld =
        replay.is_none().then(|| "the replay has no successful request with this metric".to_owned());
    CacheWeighted { replay, ratio, withheld, ..entry }
}

/// What a request of each bin weighs, or why there is no weight and what would give one.
fn bin_weights(mine: &Bins, theirs: &Bins) -> Result<Vec<(CacheBin, f64)>, String> {
    let reported = |bins: &Bins| {
        let all = bins.iter().flatten().count() as f64;
        if all > 0.0 { 1.0 - count(bins, CacheBin::NotReported) as f64 / all } else { 0.0 }
    };
    if reported(theirs) < MIN_REPORTED {
        return Err(format!(
            "the baseline reports cached tokens for {:.0} % of its successful requests, {:.0} % are needed: \
             ingest a log that carries usage with cached tokens",
            100.0 * reported(theirs),
            100.0 * MIN_REPORTED
        ));
    }
    if reported(mine) < MIN_REPORTED {
        return Err(format!(
            "the replay's target reports cached tokens for {:.0} % of its answers, {:.0} % are needed: \
             let it report usage with prompt token details",
            100.0 * reported(mine),
            100.0 * MIN_REPORTED
        ));
    }
    let known = &CacheBin::ALL[..5];
    let total: u64 = known.iter().map(|bin| count(theirs, *bin)).sum();
    let shares = known.iter().map(|bin| (*bin, count(theirs, *bin) as f64 / total.max(1) as f64));
    let mut weights = Vec::new();
    for (bin, share) in shares.filter(|(_, share)| *share >= MIN_SHARE) {
        let n = count(mine, bin);
        if n < MIN_BIN {
            return Err(format!(
                "bin {} % holds {:.0} % of the baseline's requests and only {n} of the replay's, {MIN_BIN} are needed: \
                 replay a longer window, or with the cache mode `natural` and a prime phase",
                bin.as_str(),
                100.0 * share
            ));
        }
        weights.push((bin, share / n as f64));
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fall_into_half_open_bins() {
        for (cached, input, bin) in [
            (Some(0), Some(100), "0"),
            (Some(1), Some(100), "(0,25]"),
            (Some(25), Some(100), "(0,25]"),
            (Some(26), Some(100), "(25,50]"),
            (Some(50), Some(100), "(25,50]"),
            (Some(75), Some(100), "(50,75]"),
            (Some(76), Some(100), "(75,100]"),
            (Some(100), Some(100), "(75,100]"),
            (Some(u32::MAX), Some(u32::MAX), "(75,100]"),
            (None, Some(100), "not reported"),
            (Some(3), None, "not reported"),
            (Some(3), Some(0), "not reported"),
        ] {
            assert_eq!(CacheBin::of(cached, input).as_str(), bin, "{cached:?} of {input:?}");
        }
    }

    fn bins(parts: &[(CacheBin, usize)]) -> Bins {
        parts.iter().flat_map(|(bin, n)| std::iter::repeat_n(Some(*bin), *n)).collect()
    }

    #[test]
    fn weights_carry_the_baselines_shares() {
        use CacheBin::{UpTo100, Zero};
        let weights =
            bin_weights(&bins(&[(Zero, 80), (UpTo100, 20)]), &bins(&[(Zero, 30), (UpTo100, 90)])).unwrap();
        assert_eq!(weights, [(Zero, 0.25 / 80.0), (UpTo100, 0.75 / 20.0)]);
    }

    #[test]
    fn weights_are_withheld_with_the_setting_that_would_give_them() {
        use CacheBin::{NotReported, UpTo100, Zero};
        let thin = bin_weights(&bins(&[(Zero, 80), (UpTo100, 19)]), &bins(&[(Zero, 30), (UpTo100, 90)]));
        assert!(thin.unwrap_err().contains("longer window"));
        let unknown = bin_weights(&bins(&[(Zero, 80)]), &bins(&[(Zero, 30), (NotReported, 90)]));
        assert!(unknown.unwrap_err().contains("ingest a log"));
        let silent = bin_weights(&bins(&[(NotReported, 80)]), &bins(&[(Zero, 30)]));
        assert!(silent.unwrap_err().contains("prompt token details"));
    }
}
