//! What one replay says when it has ended.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use tracewheel_record::manifest::{ConnectionOutcome, PrimeOutcome};
use tracewheel_timeline::vocab::Reason;
use tracewheel_workload::Thinned;

use crate::stop::StopLevel;

/// The closing word of a replay. Everything in it can be made again from the run directory.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Id of the run, also the name of its directory.
    pub run_id: String,
    /// The run directory.
    pub run_dir: PathBuf,
    /// Where the planned requests went, those of the warm-up among them.
    pub counts: Counts,
    /// Requests by reason, for those that did not end well.
    pub reasons: BTreeMap<String, u64>,
    /// Attempts made for requests of the phase `measure`, retries among them.
    pub attempts: u64,
    /// Attempts beyond each request's first.
    pub retries: u64,
    /// Requests sent to fill the cache before the measured phase.
    pub primed: u64,
    /// What filling the cache took; `None` where nothing was to be sent ahead.
    pub prime: Option<PrimeOutcome>,
    /// Planned requests of the warm-up: sent on schedule, in no statistics.
    pub warmup: u64,
    /// What thinning did; `None` where nothing was to be thinned.
    pub thinned: Option<Thinned>,
    /// Connections opened.
    pub connections: u64,
    /// Requests moved to a new connection because the server had closed the reserved one before a byte was written.
    pub stale_connections: u64,
    /// What was seen of the connections, and learned of how long the target keeps them.
    pub connection_life: ConnectionOutcome,
    /// First byte written − due, over first attempts, in nanoseconds.
    pub lateness: Quantiles,
    /// Due to first output event, over requests that ended well, in nanoseconds.
    pub ttft: Quantiles,
    /// Due to last output event, over requests that ended well, in nanoseconds.
    pub e2e: Quantiles,
    /// Planned requests per second over the planned span of the phase `measure`; `None` for fewer than two.
    pub offered_per_s: Option<f64>,
    /// Released requests per second over the time in which they were released; `None` for fewer than two.
    pub achieved_per_s: Option<f64>,
    /// Duration of the measured phase, from the end of the warm-up to the last end, in nanoseconds.
    pub measured_ns: i64,
    /// How far a person's stop went.
    pub stopped: StopLevel,
    /// When that was, after the measured phase's time zero, in nanoseconds: the end of the window. `None` when nobody
    /// stopped the run, or before the first request was due.
    pub stopped_after_ns: Option<i64>,
    /// Why the run gave up on the target, if it did.
    pub gave_up: Option<String>,
    /// Why no figure of this run says anything: every answer that ended well held no output.
    pub no_output: Option<String>,
    /// The first request that failed, if any did.
    pub first_failure: Option<FirstFailure>,
    /// What the reader should know before trusting the figures.
    pub warnings: Vec<String>,
}

/// The first request that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FirstFailure {
    /// The timeline's row.
    pub row: u64,
    /// Why, by its last attempt.
    pub reason: Reason,
    /// HTTP status of that attempt.
    pub http_status: Option<u16>,
    /// The server's words or ours, redacted, one line, 300 characters at most.
    pub said: Option<String>,
    /// What a person does about it.
    pub remedy: Option<&'static str>,
}

/// Where the planned requests went: `planned` is always the sum of the other five.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Requests in the plan.
    pub planned: u64,
    /// Ended well.
    pub ok: u64,
    /// Ended badly, after all attempts.
    pub failed: u64,
    /// Left as the recorded client left them.
    pub cancelled: u64,
    /// Cut off by the person who ran the replay, or by the run's end.
    pub interrupted: u64,
    /// Never released.
    pub unsent: u64,
}

impl Counts {
    /// True when every planned request is counted exactly once.
    pub fn conserved(&self) -> bool {
        self.planned == self.ok + self.failed + self.cancelled + self.interrupted + self.unsent
    }
}

/// Nearest-rank quantiles of a set of durations, from a histogram with a relative error below 0.4 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50_ns: Option<i64>,
    /// 90th percentile.
    pub p90_ns: Option<i64>,
    /// 95th percentile.
    pub p95_ns: Option<i64>,
    /// 99th percentile.
    pub p99_ns: Option<i64>,
    /// Largest, exact.
    pub max_ns: Option<i64>,
}
