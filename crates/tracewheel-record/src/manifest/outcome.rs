//! Sections that are known only at the end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the run ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OutcomeSection {
    /// What ended it.
    pub ended_by: EndedBy,
    /// When sending ended on the run clock: with the last release, or when a person stopped it.
    pub ended_ns: Option<i64>,
    /// Planned requests by status; set by the writer.
    pub counts: Counts,
    /// Requests beside the plan (phases `calibrate` and `prime`) by status; set by the writer.
    pub extra: Counts,
    /// Failed, cancelled, interrupted and unsent requests of the plan by reason; set by the writer.
    pub reasons: BTreeMap<String, u64>,
    /// Attempts recorded; set by the writer.
    pub attempts: u64,
    /// Finished parts of each table; set by the writer.
    pub parts: BTreeMap<String, u64>,
    /// Requests per second that left, over the span from the first to the last.
    pub achieved_per_second: Option<f64>,
    /// First byte written − due, over first attempts of the phase `measure`.
    pub lateness: Option<PercentilesNs>,
    /// Due − planned, over gated requests.
    pub gate_drift: Option<PercentilesNs>,
    /// Requests in flight, seen by each arriving request.
    pub in_flight: Option<DistributionSection>,
    /// Whether the generator kept the schedule, as the replay judged it.
    pub faithful: Option<bool>,
}

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The plan was done.
    Plan,
    /// A person's signal; in flight requests were drained.
    Drained,
    /// A person's second signal; in flight requests were cut.
    Cut,
    /// A limit on failures.
    Failures,
    /// The recorder could not keep up, or its disk was full.
    Recorder,
    /// The process died; the run was closed from its journal.
    Killed,
    /// Unknown, or a word that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Requests by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Ended well.
    pub ok: u64,
    /// Ended badly.
    pub failed: u64,
    /// Cancelled as in production.
    pub cancelled: u64,
    /// Cut by the end of the run.
    pub interrupted: u64,
    /// Never left.
    pub unsent: u64,
    /// Those of `unsent` that have no row in `requests`.
    pub unsent_without_row: u64,
}

impl Counts {
    /// Sum over the five states.
    pub fn total(&self) -> u64 {
        self.ok + self.failed + self.cancelled + self.interrupted + self.unsent
    }
}

/// Nearest-rank percentiles of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PercentilesNs {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50_ns: i64,
    /// 90th percentile.
    pub p90_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// 99.9th percentile.
    pub p999_ns: i64,
    /// Maximum.
    pub max_ns: i64,
}

/// Nearest-rank percentiles of a count.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DistributionSection {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}
