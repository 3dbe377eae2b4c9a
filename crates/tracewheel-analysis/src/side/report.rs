//! What is said about one side beside its latencies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::cached::CachedReport;
use super::prompts::PromptReport;
use super::wave::RetryWave;
use crate::fidelity::DurationSummary;

/// What a side was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SideKind {
    /// A run directory.
    Run,
    /// A timeline: what production recorded.
    Timeline,
}

/// One side: which requests, in which window, at which load, how they ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// What it was read from.
    pub kind: SideKind,
    /// The run's id, or the timeline's digest.
    pub name: String,
    /// The time that the numbers cover.
    pub window: Window,
    /// Requests in flight.
    pub concurrency: Concurrency,
    /// Requests by how they ended.
    pub counts: Counts,
    /// Retries and waits inside the latency.
    pub retries: RetryReport,
    /// How much of the prompts came from the prefix cache, and how much was predicted to.
    pub cached: CachedReport,
    /// How exactly made-up prompts have their lengths.
    pub prompts: PromptReport,
    /// Evenness of the streams.
    pub streams: StreamReport,
    /// Where the times come from.
    pub stamps: StampShare,
}

/// The time that the numbers cover.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Window {
    /// First planned send on the run clock; null for a timeline.
    pub from_ns: Option<i64>,
    /// Last planned send on the run clock, or the moment at which a person stopped the run; null for a timeline.
    pub to_ns: Option<i64>,
    /// First recorded arrival, ns since 1970 UTC (since the trace's start where it has no epoch).
    pub trace_from_unix_ns: Option<i64>,
    /// Last recorded arrival.
    pub trace_to_unix_ns: Option<i64>,
    /// From the first to the last start.
    pub span_ns: i64,
    /// Requests per second over the span; null for fewer than two requests.
    pub requests_per_second: Option<f64>,
    /// Whether a person (or a crash) ended the run before its plan, so that the window ends there.
    pub ended_early: bool,
}

/// Requests in flight, from the start of each to its end, weighted by time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Concurrency {
    /// Requests whose end is known: the others are in none of the figures.
    pub known: u64,
    /// Mean.
    pub mean: f64,
    /// Median: half of the time, at most so many.
    pub p50: u64,
    /// 95th percentile.
    pub p95: u64,
    /// Most at once.
    pub max: u64,
}

/// Requests by how they ended: `planned` is the sum of the five that follow it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Requests of the window.
    pub planned: u64,
    /// Ended well.
    pub ok: u64,
    /// Ended badly.
    pub failed: u64,
    /// Left by the client as recorded: in no population.
    pub cancelled: u64,
    /// Cut by the end of the run: in no population.
    pub interrupted: u64,
    /// Never released.
    pub unsent: u64,
    /// Planned requests after the window's early end: in no population and not in `planned`.
    pub after_window: u64,
    /// Requests of other phases than `measure`: in no population and not in `planned`.
    pub other_phases: u64,
    /// Requests of the window by reason or, in a timeline, by HTTP status or error word.
    pub reasons: BTreeMap<String, u64>,
    /// Timeline only: logged retries that were folded into their first row.
    pub retries_folded: u64,
    /// Timeline only: rows without a status, taken as ok.
    pub status_unknown: u64,
    /// Timeline only: rows that a gateway answered from its own cache.
    pub served_by_gateway_cache: u64,
}

/// Retries and waits: parts of the latency, not hidden in it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RetryReport {
    /// Attempts of all requests.
    pub attempts: u64,
    /// Requests with more than one attempt.
    pub retried: u64,
    /// `retried` / requests that were sent.
    pub retried_share: Option<f64>,
    /// Requests with at least one refusal for rate or load (429, 503, 529).
    pub throttled: u64,
    /// `throttled` / requests that were sent.
    pub throttled_share: Option<f64>,
    /// Back-off waits of the requests that had one.
    pub backoff: DurationSummary,
    /// Waits for the client's own budgets, of the requests that had one.
    pub budget_wait: DurationSummary,
    /// How closely retries came together.
    pub wave: RetryWave,
}

/// Evenness of the streams of successful requests.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StreamReport {
    /// Streams with output.
    pub streams: u64,
    /// Output events in them.
    pub output_events: u64,
    /// Output events that arrived in the same read as the one before: their gap is 0 and only an upper bound of the time.
    pub coalesced_events: u64,
    /// Output events that share their read with another event, of whatever kind: all but the last of a read may have come
    /// earlier than its stamp says.
    pub merged_events: u64,
    /// `merged_events` / `output_events`; null without output and for logged events.
    pub merged_share: Option<f64>,
    /// Output events that carried their own count of tokens; each of the others is one token in ITL.
    pub counted_events: u64,
    /// Successful requests without any output event: they have no TTFT.
    pub without_output: u64,
    /// Jitter.
    pub jitter: JitterSummary,
    /// Stalls.
    pub stalls: StallSummary,
    /// Where token counts come from.
    pub tokens: TokenSources,
}

/// p95 / p50 of the gaps within a request, over requests.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct JitterSummary {
    /// Streams with enough gaps (20) and a median gap above zero.
    pub streams: u64,
    /// Median jitter; 1 is perfectly even.
    pub p50: Option<f64>,
    /// 95th percentile of the jitter.
    pub p95: Option<f64>,
}

/// Gaps longer than `stall_ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StallSummary {
    /// Gaps longer than the set time.
    pub stalls: u64,
    /// Streams with at least one.
    pub streams: u64,
    /// Sum of those gaps.
    pub total_ns: i64,
}

/// Streams by where the count of their tokens came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenSources {
    /// Each event carried its own count.
    pub event: u64,
    /// The answer's usage, less the first event's tokens.
    pub usage: u64,
    /// Nothing said so: one token an event.
    pub one_per_event: u64,
    /// Timeline without event times: usage, over first output to last byte.
    pub to_last_byte: u64,
}

/// Where the times of output events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StampShare {
    /// Output events stamped by the kernel.
    pub kernel: u64,
    /// Output events stamped in user space, right after the read.
    pub user: u64,
    /// Output events as production's log gives them.
    pub logged: u64,
}
