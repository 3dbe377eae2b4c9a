//! One row of a timeline: the columns of the schema, one field a column, in their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::vocab::{ArrivalSource, BodyState, Operation, Source, TtftKind};

/// What production recorded about one request (or, with [`retry_of_row`](Self::retry_of_row), one logged attempt).
///
/// `None` means unknown, never 0. A token count that is known not to exist is `None` with [`Source::Absent`] beside it.
/// Token counts are inclusive: input contains cached and cache-written tokens, output contains reasoning.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestRow {
    /// Start of the request at the recording point, nanoseconds since 1970 UTC (since the trace's start where the
    /// metadata says that there is no epoch). Always known in a timeline; `None` only in a baseline.
    pub arrival_unix_ns: Option<i64>,
    /// How fine the recorded text was, in nanoseconds. Without meaning, and 0, where the arrival is unknown.
    pub arrival_precision_ns: i64,
    /// What the recorded stamp meant.
    pub arrival_source: ArrivalSource,
    /// Keyed hash of the log's request id.
    pub source_id_hash: Option<u64>,
    /// Keyed hash of the session's id.
    pub session_hash: Option<u64>,
    /// Keyed hash of the tenant's id.
    pub tenant_hash: Option<u64>,
    /// Keyed hash of the user's id.
    pub user_hash: Option<u64>,
    /// Position in the session, from 0.
    pub turn: Option<u32>,
    /// Pause after the previous turn's end, in nanoseconds. Negative where turns overlap.
    pub think_ns: Option<i64>,
    /// The earlier row of which this is a logged retry.
    pub retry_of_row: Option<u64>,
    /// What was asked for.
    pub operation: Operation,
    /// HTTP method, as logged.
    pub method: Option<Arc<str>>,
    /// Path of the URL, as logged, without its query.
    pub path: Option<Arc<str>>,
    /// Host, deployment or listener, as logged.
    pub endpoint: Option<Arc<str>>,
    /// Model asked for.
    pub model: Option<Arc<str>>,
    /// Model that answered.
    pub model_served: Option<Arc<str>>,
    /// Provider that answered.
    pub provider: Option<Arc<str>>,
    /// Route or rule that a gateway chose.
    pub route: Option<Arc<str>>,
    /// Whether the answer was streamed.
    pub stream: Option<bool>,
    /// Prompt tokens, cached and cache-written ones included.
    pub input_tokens: Option<u32>,
    /// Where the input count comes from.
    pub input_tokens_source: Option<Source>,
    /// Answer tokens, reasoning included.
    pub output_tokens: Option<u32>,
    /// Where the output count comes from.
    pub output_tokens_source: Option<Source>,
    /// Prompt tokens read from a prefix cache.
    pub cached_tokens: Option<u32>,
    /// Where the cached count comes from.
    pub cached_tokens_source: Option<Source>,
    /// Prompt tokens written to a prefix cache.
    pub cache_write_tokens: Option<u32>,
    /// Where the cache-write count comes from.
    pub cache_write_tokens_source: Option<Source>,
    /// Reasoning tokens, part of the output.
    pub reasoning_tokens: Option<u32>,
    /// Where the reasoning count comes from.
    pub reasoning_tokens_source: Option<Source>,
    /// Chained hash of each block of the prompt, from its start: equal hashes mean equal prefixes.
    pub prefix_hashes: Option<Vec<u64>>,
    /// Length of each block, where lengths vary; else the metadata's `block_tokens` holds for all.
    pub prefix_block_tokens: Option<Vec<u32>>,
    /// Images in the request.
    pub images: Option<u16>,
    /// Tools that the request declares.
    pub tools: Option<u16>,
    /// Parameters as a JSON object: max tokens, temperature, seed, stop, response format.
    pub params: Option<Arc<str>>,
    /// The request's body.
    pub body: Option<Bytes>,
    /// How much of the body is there.
    pub body_state: BodyState,
    /// Whether a gateway answered from its own cache, so that the model never saw the request.
    pub served_by_gateway_cache: Option<bool>,
    /// Whether the client left before the end.
    pub client_gone: Option<bool>,
    /// When the client left, nanoseconds after the arrival.
    pub cancel_after_ns: Option<i64>,
    /// HTTP status that production answered with.
    pub prod_status: Option<u16>,
    /// Class of production's error, as logged.
    pub prod_error: Option<Arc<str>>,
    /// Attempts that production folded into this row.
    pub prod_attempts: Option<u16>,
    /// Production's time to the first output, nanoseconds after the arrival.
    pub prod_ttft_ns: Option<i64>,
    /// Which moment [`prod_ttft_ns`](Self::prod_ttft_ns) ends at; `None` exactly where that is unknown.
    pub prod_ttft_kind: Option<TtftKind>,
    /// Production's time from the arrival to the last byte, in nanoseconds.
    pub prod_e2e_ns: Option<i64>,
    /// Offsets of production's output events, nanoseconds after the arrival.
    pub prod_event_ns: Option<Vec<i64>>,
    /// Share of the traffic that the log kept, above 0 and at most 1. Below 1, gaps are too long.
    pub sample_rate: Option<f64>,
    /// Chosen fields of the log.
    pub tags: Option<BTreeMap<Arc<str>, Arc<str>>>,
    /// The log file's name.
    pub source_file: Arc<str>,
    /// Byte offset of the record in the log file (uncompressed), or its number where a format has no bytes.
    pub source_offset: u64,
    /// Headers of the request that may be sent again, by their names in lower case. Since version 1.1.
    pub request_headers: Option<BTreeMap<Arc<str>, Arc<str>>>,
}
