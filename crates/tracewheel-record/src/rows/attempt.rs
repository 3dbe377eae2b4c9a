//! One row an attempt: one HTTP exchange with every milestone, every read and every event.

use std::sync::Arc;

use tracewheel_timeline::vocab::{AttemptStatus, EventKind, Phase, Protocol, Reason};

/// One HTTP exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptRecord {
    /// The timeline's row.
    pub row: u64,
    /// Which amplified copy of the row.
    pub copy: u32,
    /// Number of the attempt, from 1.
    pub attempt: u16,
    /// Attempt 1: the request's due time + its budget wait; later: the previous attempt's end + back-off.
    pub due_ns: i64,
    /// The wheel fired.
    pub released_ns: Option<i64>,
    /// The connection was begun; `None` on a reused one.
    pub connect_start_ns: Option<i64>,
    /// TCP was established.
    pub connected_ns: Option<i64>,
    /// TLS was established.
    pub tls_ns: Option<i64>,
    /// The kernel accepted the first byte of the request.
    pub first_write_ns: Option<i64>,
    /// The kernel accepted the last byte of the request.
    pub last_write_ns: Option<i64>,
    /// Status line and headers were complete.
    pub headers_ns: Option<i64>,
    /// First byte of the body.
    pub first_byte_ns: Option<i64>,
    /// The exchange was over.
    pub end_ns: Option<i64>,
    /// Number of the connection within the shard; `None` when none was obtained.
    pub connection: Option<u32>,
    /// Whether the connection had carried an exchange before this one.
    pub connection_reused: Option<bool>,
    /// HTTP version spoken.
    pub protocol: Option<Protocol>,
    /// How it ended.
    pub status: AttemptStatus,
    /// Why it did not end well.
    pub reason: Option<Reason>,
    /// HTTP status code.
    pub http_status: Option<u16>,
    /// Delay that the server asked for.
    pub retry_after_ns: Option<i64>,
    /// Every read of the answer's body; time lives here.
    pub reads: Vec<ReadStampRow>,
    /// Every decoded event, of every kind; [`EventRow::read`] says when.
    pub events: Vec<EventRow>,
    /// Input tokens as reported, cached ones included.
    pub usage_input_tokens: Option<u32>,
    /// Tokens read from the prefix cache as reported.
    pub usage_cached_tokens: Option<u32>,
    /// Tokens written to the prefix cache as reported.
    pub usage_cache_write_tokens: Option<u32>,
    /// Output tokens as reported, reasoning included.
    pub usage_output_tokens: Option<u32>,
    /// Reasoning tokens as reported.
    pub usage_reasoning_tokens: Option<u32>,
    /// Server time in milliseconds as reported (for example `openai-processing-ms`).
    pub server_ms: Option<i64>,
    /// The server's id of the exchange as reported.
    pub request_id: Option<Arc<str>>,
    /// System fingerprint as reported.
    pub system_fingerprint: Option<Arc<str>>,
    /// Allowed requests a window as reported.
    pub rate_limit_requests_limit: Option<i64>,
    /// Requests left in the window as reported.
    pub rate_limit_requests_remaining: Option<i64>,
    /// Time until the request window is full again, as reported.
    pub rate_limit_requests_reset_ns: Option<i64>,
    /// Allowed tokens a window as reported.
    pub rate_limit_tokens_limit: Option<i64>,
    /// Tokens left in the window as reported.
    pub rate_limit_tokens_remaining: Option<i64>,
    /// Time until the token window is full again, as reported.
    pub rate_limit_tokens_reset_ns: Option<i64>,
    /// First 2 KiB of an error's body, redacted.
    pub error_body: Option<Arc<str>>,
}

impl Default for AttemptRecord {
    /// A first attempt of which nothing is known.
    fn default() -> Self {
        Self {
            row: 0,
            copy: 0,
            attempt: 1,
            due_ns: 0,
            released_ns: None,
            connect_start_ns: None,
            connected_ns: None,
            tls_ns: None,
            first_write_ns: None,
            last_write_ns: None,
            headers_ns: None,
            first_byte_ns: None,
            end_ns: None,
            connection: None,
            connection_reused: None,
            protocol: None,
            status: AttemptStatus::Interrupted,
            reason: None,
            http_status: None,
            retry_after_ns: None,
            reads: Vec::new(),
            events: Vec::new(),
            usage_input_tokens: None,
            usage_cached_tokens: None,
            usage_cache_write_tokens: None,
            usage_output_tokens: None,
            usage_reasoning_tokens: None,
            server_ms: None,
            request_id: None,
            system_fingerprint: None,
            rate_limit_requests_limit: None,
            rate_limit_requests_remaining: None,
            rate_limit_requests_reset_ns: None,
            rate_limit_tokens_limit: None,
            rate_limit_tokens_remaining: None,
            rate_limit_tokens_reset_ns: None,
            error_body: None,
        }
    }
}

/// One read from the socket that carried bytes of the answer's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadStampRow {
    /// User-space stamp right after the read.
    pub user_ns: i64,
    /// The kernel's receive stamp, on the run clock.
    pub kernel_ns: Option<i64>,
    /// Bytes read.
    pub bytes: u32,
}

/// One decoded event of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRow {
    /// Index in [`AttemptRecord::reads`] of the read that completed the event.
    pub read: u32,
    /// What kind of event.
    pub kind: EventKind,
    /// Output tokens that it carried, where the source says.
    pub tokens: Option<u16>,
    /// Size of the event's payload.
    pub bytes: u32,
    /// Index of the choice.
    pub choice: u8,
}

/// A request's attempt left the wheel. Journaled at once, so that a killed run knows what had left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseRecord {
    /// The timeline's row.
    pub row: u64,
    /// Which amplified copy of the row.
    pub copy: u32,
    /// Number of the attempt, from 1.
    pub attempt: u16,
    /// The request's phase.
    pub phase: Phase,
    /// The request's planned time.
    pub planned_ns: i64,
    /// The attempt's due time: for attempt 1 that of the request + its budget wait.
    pub due_ns: i64,
    /// Whether `due_ns` waited for a previous turn.
    pub gated: bool,
    /// The recorded arrival, ns since 1970 UTC.
    pub trace_unix_ns: Option<i64>,
    /// The wheel fired.
    pub released_ns: i64,
}
