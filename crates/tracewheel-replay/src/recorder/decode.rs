//! From raw bytes and read stamps to an attempt's row.

use std::borrow::Cow;
use std::sync::Arc;

use tracewheel_protocol::{Event, Provider, ReportedHeaders, ResponseHead, StreamEnd, Usage};
use tracewheel_record::{AttemptRecord, EventRow, ReadStampRow};
use tracewheel_timeline::vocab::{AttemptStatus, EventKind, Protocol, Reason, Source};
use tracewheel_transport::{ExchangeOutcome, Response};

use super::echo::without_prompt;
use crate::message::EndedAttempt;
use crate::stamp::best_ns;

/// Bytes of an error's body that are kept.
const ERROR_BODY_BYTES: usize = 2048;

/// What an answer's body says.
#[derive(Debug, Default)]
pub(super) struct Decoded {
    pub(super) first_output_ns: Option<i64>,
    pub(super) first_visible_ns: Option<i64>,
    pub(super) last_output_ns: Option<i64>,
    pub(super) usage: Usage,
    pub(super) model_served: Option<Arc<str>>,
    pub(super) system_fingerprint: Option<Arc<str>>,
    pub(super) server: Option<String>,
    output_events: u32,
    /// Sum over the events, where every output event has a count.
    event_tokens: Option<u32>,
}

impl Decoded {
    /// The best count of output tokens that there is, and where it comes from.
    pub(super) fn output_tokens(&self) -> (Option<u32>, Option<Source>) {
        if let Some(reported) = self.usage.output_tokens {
            return (Some(reported), Some(Source::Reported));
        }
        match (self.event_tokens, self.output_events) {
            (_, 0) => (None, None),
            (Some(sum), _) => (Some(sum), Some(Source::Derived)),
            (None, events) => (Some(events), Some(Source::Estimated)),
        }
    }
}

/// The attempt's row, and what its request takes from it.
pub(super) fn attempt(provider: &dyn Provider, ended: &EndedAttempt) -> (AttemptRecord, Decoded) {
    let mut record = frame(ended);
    let mut decoded = Decoded::default();
    let Some(outcome) = &ended.outcome else {
        record.error_body = transport_text(ended.detail.as_deref());
        return (record, decoded);
    };
    milestones(&mut record, outcome);
    let Some(response) = &outcome.response else {
        record.error_body = transport_text(ended.detail.as_deref());
        return (record, decoded);
    };
    headers(&mut record, &mut decoded, response);
    body(&mut record, &mut decoded, provider, outcome, response);
    if record.status == AttemptStatus::Failed && record.error_body.is_none() {
        record.error_body = error_text(outcome, response).or_else(|| transport_text(ended.detail.as_deref()));
    }
    if let Some(said) = &record.error_body
        && let Cow::Owned(kept) = without_prompt(said)
    {
        record.error_body = Some(Arc::from(kept));
    }
    (record, decoded)
}

fn frame(ended: &EndedAttempt) -> AttemptRecord {
    let used = ended.connection;
    let fresh = used.filter(|used| !used.reused);
    AttemptRecord {
        row: ended.row,
        copy: ended.copy,
        attempt: ended.attempt,
        due_ns: ended.due_ns,
        released_ns: Some(ended.released_ns),
        connect_start_ns: fresh.map(|used| used.connect_start_ns),
        connected_ns: fresh.map(|used| used.connected_ns),
        end_ns: Some(ended.end_ns),
        connection: used.map(|used| used.number),
        connection_reused: used.map(|used| used.reused),
        protocol: used.map(|_| Protocol::H1),
        status: ended.status,
        reason: ended.reason,
        retry_after_ns: ended.retry_after_ns,
        ..AttemptRecord::default()
    }
}

fn milestones(record: &mut AttemptRecord, outcome: &ExchangeOutcome) {
    let writes = outcome.writes;
    record.first_write_ns = writes.first_ns.map(|at| at.0);
    record.last_write_ns = writes.last_ns.map(|at| at.0);
    // The stamp after a write call is an upper bound of when the kernel had the bytes. On a short way the answer may be
    // there before the call returns; it can't have come before the request, so its own stamp is a bound too.
    if let Some(answered) = outcome.reads.first().map(best_ns) {
        if writes.first_ns == writes.last_ns {
            record.last_write_ns = record.last_write_ns.map(|at| at.min(answered));
        }
        record.first_write_ns = record.first_write_ns.map(|at| at.min(answered));
    }
    let at = |read: u32| outcome.reads.get(read as usize).map(best_ns);
    record.headers_ns = outcome.response.as_ref().and_then(|head| at(head.read));
    record.first_byte_ns = outcome.marks.first().and_then(|mark| at(mark.read));
    record.reads = outcome
        .reads
        .iter()
        .map(|read| ReadStampRow {
            user_ns: read.user_ns.0,
            kernel_ns: read.kernel_ns.map(|at| at.0),
            bytes: read.bytes,
        })
        .collect();
}

fn headers(record: &mut AttemptRecord, decoded: &mut Decoded, response: &Response) {
    let pairs = response.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let reported = ReportedHeaders::read(pairs);
    record.http_status = Some(response.status.as_u16());
    record.request_id = reported.request_id.map(Arc::from);
    record.server_ms = reported.server_ms;
    record.rate_limit_requests_limit = reported.requests_limit;
    record.rate_limit_requests_remaining = reported.requests_remaining;
    record.rate_limit_requests_reset_ns = reported.requests_reset_ns;
    record.rate_limit_tokens_limit = reported.tokens_limit;
    record.rate_limit_tokens_remaining = reported.tokens_remaining;
    record.rate_limit_tokens_reset_ns = reported.tokens_reset_ns;
    decoded.server = reported.server;
}

fn body(
    record: &mut AttemptRecord,
    decoded: &mut Decoded,
    provider: &dyn Provider,
    outcome: &ExchangeOutcome,
    response: &Response,
) {
    let content_type = response.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let head = ResponseHead { status: response.status.as_u16(), content_type };
    let mut decoder = provider.decoder(&head);
    let mut events = Vec::with_capacity(outcome.marks.len() * 2);
    decoder.feed(&outcome.body, &mut events);
    let end = decoder.finish(&mut events);
    if record.status == AttemptStatus::Ok
        && let Some(reason) = broken(&end)
    {
        (record.status, record.reason) = (AttemptStatus::Failed, Some(reason));
    }
    record.events = events.iter().map(|event| row_of(event, outcome)).collect();
    times(decoded, &record.events, outcome);
    let usage = *decoder.usage();
    record.usage_input_tokens = usage.input_tokens;
    record.usage_cached_tokens = usage.cached_tokens;
    record.usage_cache_write_tokens = usage.cache_write_tokens;
    record.usage_output_tokens = usage.output_tokens;
    record.usage_reasoning_tokens = usage.reasoning_tokens;
    decoded.usage = usage;
    let meta = decoder.meta();
    decoded.model_served = meta.model.as_deref().map(Arc::from);
    decoded.system_fingerprint = meta.system_fingerprint.as_deref().map(Arc::from);
    record.system_fingerprint.clone_from(&decoded.system_fingerprint);
    if record.request_id.is_none() {
        record.request_id = meta.id.as_deref().map(Arc::from);
    }
    if let Some(error) = decoder.error() {
        record.error_body = Some(Arc::from(error.body.as_str()));
    }
}

/// Why a whole answer with a good status is no success after all.
fn broken(end: &StreamEnd) -> Option<Reason> {
    match end {
        StreamEnd::Complete | StreamEnd::NonStream => None,
        StreamEnd::Truncated => Some(Reason::Truncated),
        StreamEnd::UnterminatedTail => Some(Reason::UnterminatedTail),
        StreamEnd::ErrorInStream(_) | StreamEnd::ErrorBody(_) => Some(Reason::ErrorInStream),
        StreamEnd::Malformed { .. } => Some(Reason::Malformed),
        StreamEnd::TooLarge { .. } => Some(Reason::LimitExceeded),
    }
}

fn row_of(event: &Event, outcome: &ExchangeOutcome) -> EventRow {
    let last = outcome.marks.last().map_or(0, |mark| mark.read);
    EventRow {
        read: outcome.read_completing(event.end_offset).unwrap_or(last),
        kind: event.kind,
        tokens: event.tokens,
        bytes: event.bytes,
        choice: event.choice,
    }
}

fn times(decoded: &mut Decoded, events: &[EventRow], outcome: &ExchangeOutcome) {
    let at = |event: &EventRow| outcome.reads.get(event.read as usize).map(best_ns);
    let mut sum = Some(0u32);
    for event in events.iter().filter(|event| event.kind.is_output()) {
        decoded.output_events += 1;
        sum = sum.zip(event.tokens).map(|(sum, tokens)| sum.saturating_add(u32::from(tokens)));
        decoded.last_output_ns = at(event);
        decoded.first_output_ns = decoded.first_output_ns.or(decoded.last_output_ns);
        if event.kind == EventKind::Text {
            decoded.first_visible_ns = decoded.first_visible_ns.or(decoded.last_output_ns);
        }
    }
    decoded.event_tokens = sum.filter(|_| decoded.output_events > 0);
}

/// The beginning of what the server said about an error; the writer redacts it. The body of an answer that had begun
/// well is output, not an error, and is never kept.
fn error_text(outcome: &ExchangeOutcome, response: &Response) -> Option<Arc<str>> {
    if response.status.as_u16() < 400 || outcome.body.is_empty() {
        return None;
    }
    let text = String::from_utf8_lossy(&outcome.body[..outcome.body.len().min(ERROR_BODY_BYTES)]);
    Some(Arc::from(text.as_ref()))
}

/// What our own layers said.
fn transport_text(detail: Option<&str>) -> Option<Arc<str>> {
    detail.map(|detail| Arc::from(format!("transport: {detail}")))
}
