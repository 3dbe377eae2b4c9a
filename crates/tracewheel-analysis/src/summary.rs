//! What a single run says: the summary at the end of a replay, and the inspection of a run.

use serde::{Deserialize, Serialize};
use tracewheel_record::Run;

use crate::comparison::{
    CacheReport, Estimate, Fidelity, Metric, Percentile, Population, SampleSize, SideReport, Warning,
};
use crate::error::{AnalysisError, Result};

/// Version of the summary's JSON: a minor version only adds keys.
pub const SUMMARY_VERSION: &str = "1.0";

/// How to summarise.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryOptions {
    /// Level of every interval, between 0.5 and 0.999; 0.95 by default.
    pub level: f64,
    /// A gap longer than this is a stall, in nanoseconds; 500 ms by default.
    pub stall_ns: i64,
}

impl Default for SummaryOptions {
    fn default() -> Self {
        Self { level: crate::interval::DEFAULT_LEVEL, stall_ns: 500_000_000 }
    }
}

/// What a replay measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplaySummary {
    /// [`SUMMARY_VERSION`].
    pub schema: String,
    /// `nearest_rank`.
    pub quantile: String,
    /// Name of the interval method.
    pub interval: String,
    /// The run.
    pub run: SideReport,
    /// How exactly the plan was sent.
    pub fidelity: Fidelity,
    /// Latencies: metric by metric, population by population.
    pub metrics: Vec<MetricSummary>,
    /// Latency by cached share of the prompt.
    pub cache: CacheReport,
    /// What should be known before a number is trusted.
    pub warnings: Vec<Warning>,
}

impl ReplaySummary {
    /// The summary of one metric in one population.
    pub fn metric(&self, metric: Metric, population: Population) -> Option<&MetricSummary> {
        self.metrics.iter().find(|m| m.metric == metric && m.population == population)
    }
}

/// One metric in one population.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricSummary {
    /// The metric.
    pub metric: Metric,
    /// The population.
    pub population: Population,
    /// What the sample consists of.
    pub sample: SampleSize,
    /// One entry a percentile.
    pub percentiles: Vec<PercentileSummary>,
}

/// One percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PercentileSummary {
    /// The percentile.
    pub percentile: Percentile,
    /// The quantile; null without values.
    pub estimate: Option<Estimate>,
}

/// What stands in a run directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInspection {
    /// [`SUMMARY_VERSION`].
    pub schema: String,
    /// The run's id.
    pub id: String,
    /// `open`, `closed` or `recovered`.
    pub state: String,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// Where it was sent, without secrets.
    pub target: String,
    /// Digest of the timeline that was replayed.
    pub timeline_digest: String,
    /// Requests by phase and status.
    pub phases: Vec<PhaseCount>,
    /// Tokens of successful measured requests.
    pub tokens: TokenTotals,
    /// The summary of the measured requests; null when there are none.
    pub summary: Option<ReplaySummary>,
}

/// Requests of one phase and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCount {
    /// The phase.
    pub phase: String,
    /// The status.
    pub status: String,
    /// How many.
    pub requests: u64,
}

/// Sums of tokens over successful measured requests that report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenTotals {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Of those, served from the cache.
    pub cached: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
}

/// Summarises a run: counts, latencies, precision of sending, rates.
///
/// # Errors
/// An unreadable run, options out of range, or no measured request.
pub fn summarise(run: &Run, options: &SummaryOptions) -> Result<ReplaySummary> {
    let _ = (run, options);
    Err(AnalysisError::Empty { run: String::new() })
}

/// Says what stands in a run directory, closed or not.
///
/// # Errors
/// An unreadable run.
pub fn inspect_run(run: &Run) -> Result<RunInspection> {
    let _ = run;
    Err(AnalysisError::Empty { run: String::new() })
}
