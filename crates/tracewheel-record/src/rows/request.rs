//! One row a request: what the user experienced.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::{Operation, Phase, Reason, RequestStatus, Source};

/// One request of the plan (or of a phase beside it), with all its attempts behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestRecord {
    /// The timeline's row.
    pub row: u64,
    /// Which amplified copy of the row; see [`EXTRA_COPY`](super::EXTRA_COPY).
    pub copy: u32,
    /// Only [`Phase::Measure`] enters statistics.
    pub phase: Phase,
    /// When the plan wanted it to leave (trace offset / speed). Never moves.
    pub planned_ns: i64,
    /// When it was to leave: `planned_ns` when open loop, else the previous turn's end + think time.
    pub due_ns: i64,
    /// Whether `due_ns` waited for a previous turn.
    pub gated: bool,
    /// The recorded arrival, ns since 1970 UTC.
    pub trace_unix_ns: Option<i64>,
    /// How it ended.
    pub status: RequestStatus,
    /// Why it did not end well.
    pub reason: Option<Reason>,
    /// Number of attempts, 0 for a request that never left.
    pub attempts: u16,
    /// The attempt that counted, from 1; 0 when there was none.
    pub final_attempt: u16,
    /// Time spent waiting for the client's own budgets: a part of the latency.
    pub budget_wait_ns: i64,
    /// Time spent in back-off between attempts: a part of the latency.
    pub backoff_ns: i64,
    /// Input tokens that the prompt was made up for; `None` for a recorded body.
    pub asked_input_tokens: Option<u32>,
    /// Input tokens that the plan expects in the target's prefix cache.
    pub predicted_cached_tokens: Option<u32>,
    /// Input tokens that the target served from its prefix cache.
    pub cached_tokens: Option<u32>,
    /// Where `cached_tokens` comes from.
    pub cached_tokens_source: Option<Source>,
    /// Input tokens, cached and cache-written ones included.
    pub input_tokens: Option<u32>,
    /// Where `input_tokens` comes from.
    pub input_tokens_source: Option<Source>,
    /// Output tokens, reasoning included.
    pub output_tokens: Option<u32>,
    /// Where `output_tokens` comes from.
    pub output_tokens_source: Option<Source>,
    /// First output event of any output kind, of the attempt that counted.
    pub first_output_ns: Option<i64>,
    /// First `text` event of the attempt that counted.
    pub first_visible_ns: Option<i64>,
    /// Last output event of the attempt that counted.
    pub last_output_ns: Option<i64>,
    /// End of the attempt that counted; of a request that was left or cut off while it waited for a retry, that moment.
    pub end_ns: Option<i64>,
    /// The scenario's route that it took; `None` where the scenario has none, or where a killed run was closed.
    pub sent_route: Option<Arc<str>>,
    /// What the request belongs to.
    pub strata: Strata,
}

impl Default for RequestRecord {
    /// A request that was planned and never left.
    fn default() -> Self {
        Self {
            row: 0,
            copy: 0,
            phase: Phase::default(),
            planned_ns: 0,
            due_ns: 0,
            gated: false,
            trace_unix_ns: None,
            status: RequestStatus::Unsent,
            reason: None,
            attempts: 0,
            final_attempt: 0,
            budget_wait_ns: 0,
            backoff_ns: 0,
            asked_input_tokens: None,
            predicted_cached_tokens: None,
            cached_tokens: None,
            cached_tokens_source: None,
            input_tokens: None,
            input_tokens_source: None,
            output_tokens: None,
            output_tokens_source: None,
            first_output_ns: None,
            first_visible_ns: None,
            last_output_ns: None,
            end_ns: None,
            sent_route: None,
            strata: Strata::default(),
        }
    }
}

/// What a request belongs to: the timeline's columns by which a run is cut, under the timeline's names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strata {
    /// What was asked of the endpoint; `None` only where a killed run is closed without its timeline.
    pub operation: Option<Operation>,
    /// HTTP method.
    pub method: Option<Arc<str>>,
    /// Request path.
    pub path: Option<Arc<str>>,
    /// Endpoint name as logged.
    pub endpoint: Option<Arc<str>>,
    /// Model asked for, as logged.
    pub model: Option<Arc<str>>,
    /// Model that the replay's answer named.
    pub model_served: Option<Arc<str>>,
    /// Provider as logged.
    pub provider: Option<Arc<str>>,
    /// Route as logged.
    pub route: Option<Arc<str>>,
    /// Whether the answer was asked for as a stream.
    pub stream: Option<bool>,
    /// Keyed hash of the session.
    pub session_hash: Option<u64>,
    /// Position in the session, from 0.
    pub turn: Option<u32>,
    /// Keyed hash of the tenant.
    pub tenant_hash: Option<u64>,
    /// Keyed hash of the user.
    pub user_hash: Option<u64>,
    /// Chosen fields of the log.
    pub tags: Option<BTreeMap<Arc<str>, Arc<str>>>,
}

impl From<&RequestRow> for Strata {
    /// The recorded strata; `model_served` is left open for the replay's answer to fill.
    fn from(row: &RequestRow) -> Self {
        Self {
            operation: Some(row.operation),
            method: row.method.clone(),
            path: row.path.clone(),
            endpoint: row.endpoint.clone(),
            model: row.model.clone(),
            model_served: None,
            provider: row.provider.clone(),
            route: row.route.clone(),
            stream: row.stream,
            session_hash: row.session_hash,
            turn: row.turn,
            tenant_hash: row.tenant_hash,
            user_hash: row.user_hash,
            tags: row.tags.clone(),
        }
    }
}
