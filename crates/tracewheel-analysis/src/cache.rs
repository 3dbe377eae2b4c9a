//! Latency by the share of the prompt that came from the prefix cache.

use serde::{Deserialize, Serialize};

use crate::interval::Estimate;
use crate::metric::Metric;
use crate::quantile::Percentile;
use crate::ratio::RatioInterval;

/// Fewest successful requests of a bin from which a percentile is shown or a weight is made.
pub const MIN_BIN: u64 = 20;

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
