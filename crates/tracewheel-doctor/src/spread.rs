//! A set of durations in four figures.

use serde::Serialize;
use tracewheel_analysis::fidelity::DurationSummary;

/// Nearest-rank percentiles of a set of durations, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Spread {
    /// Number of values; without any, the figures are null.
    pub n: u64,
    /// Median.
    pub p50_ns: Option<i64>,
    /// 99th percentile.
    pub p99_ns: Option<i64>,
    /// Largest.
    pub max_ns: Option<i64>,
}

impl Spread {
    /// Of durations in any order.
    pub(crate) fn of(values: Vec<i64>) -> Self {
        DurationSummary::of(values).into()
    }
}

impl From<DurationSummary> for Spread {
    fn from(all: DurationSummary) -> Self {
        Spread { n: all.n, p50_ns: all.p50_ns, p99_ns: all.p99_ns, max_ns: all.max_ns }
    }
}
