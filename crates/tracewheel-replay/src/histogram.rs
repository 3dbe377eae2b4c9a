//! The quantiles that progress and reports show.

pub(crate) use tracewheel_workload::Histogram;

use tracewheel_record::manifest::DistributionSection;

use crate::report::Quantiles;

/// The usual five of a histogram of durations.
pub(crate) fn quantiles(histogram: &Histogram) -> Quantiles {
    Quantiles {
        count: histogram.count(),
        p50_ns: histogram.quantile(0.5),
        p90_ns: histogram.quantile(0.9),
        p95_ns: histogram.quantile(0.95),
        p99_ns: histogram.quantile(0.99),
        max_ns: histogram.max(),
    }
}

/// A histogram of counts as the manifest shows it.
pub(crate) fn distribution(histogram: &Histogram, sum: u64) -> DistributionSection {
    let at = |q: f64| histogram.quantile(q).unwrap_or(0).unsigned_abs();
    let count = histogram.count();
    DistributionSection {
        count,
        mean: if count == 0 { 0.0 } else { sum as f64 / count as f64 },
        min: histogram.min().unwrap_or(0).unsigned_abs(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: histogram.max().unwrap_or(0).unsigned_abs(),
    }
}
