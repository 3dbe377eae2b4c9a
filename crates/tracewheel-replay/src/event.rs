//! The one event stream of a running replay: progress lines, dashboards and exporters read it.
//!
//! Events are lossy by design: they are offered with `try_send`, so a slow reader misses ticks and the sender never
//! waits. [`ReplayEvent::Started`] and [`ReplayEvent::Finished`] are offered in the same way; a channel of 16 or more
//! that is read at all will carry them.

use std::path::PathBuf;

use serde::Serialize;

use crate::report::RunReport;

/// One thing that a running replay says about itself.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ReplayEvent {
    /// The run directory exists and the first request will be due soon.
    Started(Started),
    /// Progress, several times a second.
    Tick(Tick),
    /// The run is closed; nothing follows.
    Finished(Box<RunReport>),
}

/// What is known when a replay begins.
#[derive(Debug, Clone, Serialize)]
pub struct Started {
    /// Id of the run, also the name of its directory.
    pub run_id: String,
    /// The run directory.
    pub run_dir: PathBuf,
    /// Requests in the plan.
    pub planned: u64,
    /// Time from the first to the last planned request, in nanoseconds.
    pub span_ns: i64,
    /// The target's URL.
    pub target: String,
    /// Whether the recorded arrival times are ignored.
    pub closed_loop: bool,
}

/// Lateness from which a first attempt counts into [`Tick::late`], in nanoseconds.
pub const LATE_BOUND_NS: i64 = 1_000_000;

/// Progress of a running replay. Counts are since the plan's time zero, quantiles are of the phase `measure`.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Tick {
    /// `prime` before the plan (connections, a cache to fill), then `warmup` if there is one, `measure`, then `drain`.
    pub phase: &'static str,
    /// When the tick was made, on the run's clock, in nanoseconds.
    pub at_ns: i64,
    /// Time since the plan's time zero, in nanoseconds; negative before.
    pub elapsed_ns: i64,
    /// Requests in the plan.
    pub planned: u64,
    /// Requests whose first attempt was released.
    pub sent: u64,
    /// Requests that were released and have not ended (waiting for a retry counts).
    pub in_flight: u64,
    /// Requests ended well.
    pub ok: u64,
    /// Requests ended badly.
    pub failed: u64,
    /// Requests left as the recorded client left them.
    pub cancelled: u64,
    /// Requests cut off by the person who runs the replay.
    pub interrupted: u64,
    /// Requests that will not be sent any more.
    pub unsent: u64,
    /// Attempts beyond each request's first.
    pub retries: u64,
    /// Median lateness (first byte written − due), in nanoseconds; `None` before the first.
    pub late_p50_ns: Option<i64>,
    /// 99th percentile of lateness, in nanoseconds.
    pub late_p99_ns: Option<i64>,
    /// First attempts whose lateness was above [`LATE_BOUND_NS`].
    pub late: u64,
    /// The greatest lateness, in nanoseconds; `None` before the first.
    pub late_max_ns: Option<i64>,
    /// Median time to the first output event from due, in nanoseconds.
    pub ttft_p50_ns: Option<i64>,
    /// 95th percentile of the time to the first output event from due, in nanoseconds.
    pub ttft_p95_ns: Option<i64>,
    /// 95th percentile of the time from due to the last output event, in nanoseconds.
    pub e2e_p95_ns: Option<i64>,
    /// Output tokens received, as reported, else one for each output event.
    pub output_tokens: u64,
    /// Messages that wait for the recorder.
    pub recorder_queue: u64,
}
