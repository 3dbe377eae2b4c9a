//! From raw bytes and read stamps to an attempt's row.

mod echo;

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use tracewheel_clock::RunNs;
use tracewheel_protocol::{AnswerForm, Event, Provider, ReportedHeaders, ResponseHead, StreamEnd, Usage};
use tracewheel_record::redact::{REDACTED, redact_url};
use tracewheel_record::{AttemptRecord, EventRow, ReadStampRow};
use tracewheel_timeline::vocab::{AttemptStatus, EventKind, Protocol, Reason, Source};
use tracewheel_transport::{ExchangeOutcome, Response, WriteMarks};

use crate::config::Secret;
use crate::message::{EndedAttempt, UsedConnection};
use crate::stamp::best_ns;

use echo::without_prompt;

/// Most events of one answer; later ones are not kept and the attempt fails. Twice what the longest answers of today have
/// at an event a token. A flood of tiny comments has millions within the bound on bytes, at a hundred bytes of memory each.
const MAX_EVENTS: usize = 1 << 18;
/// Bytes that are decoded between two looks at the number of events.
const SLICE_BYTES: usize = 64 << 10;
/// Bytes of an error's body that are kept.
const ERROR_BODY_BYTES: usize = 2048;
/// Bytes of a page that came where an answer was expected.
const PAGE_BYTES: usize = 300;
/// A shorter key can't be told from ordinary text.
const MIN_KEY_BYTES: usize = 6;

/// What an answer's body says.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) first_output_ns: Option<i64>,
    pub(crate) first_visible_ns: Option<i64>,
    pub(crate) last_output_ns: Option<i64>,
    pub(crate) usage: Usage,
    pub(crate) model_served: Option<Arc<str>>,
    pub(crate) system_fingerprint: Option<Arc<str>>,
    pub(crate) server: Option<String>,
    /// Where the body came encoded although nobody asked.
    content_encoding: Option<String>,
    output_events: u32,
    /// An output event is about a token.
    events_are_tokens: bool,
    /// Sum over the events, where every output event has a count.
    event_tokens: Option<u32>,
}

impl Decoded {
    /// The best count of output tokens that there is, and where it comes from.
    pub(crate) fn output_tokens(&self) -> (Option<u32>, Option<Source>) {
        if let Some(reported) = self.usage.output_tokens {
            return (Some(reported), Some(Source::Reported));
        }
        match (self.event_tokens, self.output_events) {
            (_, 0) => (None, None),
            (Some(sum), _) => (Some(sum), Some(Source::Derived)),
            (None, events) if self.events_are_tokens => (Some(events), Some(Source::Estimated)),
            (None, _) => (None, None),
        }
    }
}

/// The attempt's row, and what its request takes from it.
pub(crate) fn attempt(secrets: &[Secret], ended: &EndedAttempt) -> (AttemptRecord, Decoded) {
    let mut record = frame(ended);
    let mut decoded = Decoded::default();
    let mut said = None;
    if let Some(outcome) = &ended.outcome {
        milestones(&mut record, outcome);
        if let Some(response) = &outcome.response {
            headers(&mut record, &mut decoded, response);
            said = body(&mut record, &mut decoded, (ended.provider, ended.answer), outcome, response);
            if record.status == AttemptStatus::Failed {
                said = what_was_said(outcome, response).or(said);
            }
        }
    }
    if record.status == AttemptStatus::Failed {
        said = said.or_else(|| ended.detail.as_ref().map(|detail| format!("transport: {detail}")));
    }
    record.error_body = said.map(|said| Arc::from(redacted(&said, secrets)));
    (record, decoded)
}

/// What may be kept of a text: neither a key nor a piece of a prompt. (What looks like any other secret is taken out by
/// the run's writer.)
fn redacted(said: &str, secrets: &[Secret]) -> String {
    let mut said = Cow::Borrowed(said);
    for key in secrets.iter().map(|secret| secret.expose().trim()).filter(|key| key.len() >= MIN_KEY_BYTES) {
        if said.contains(key) {
            said = Cow::Owned(said.replace(key, REDACTED));
        }
    }
    cut(&without_prompt(&said), ERROR_BODY_BYTES).to_owned()
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
        tls_ns: fresh.and_then(|used| used.tls_ns),
        end_ns: Some(ended.end_ns),
        connection: used.map(|used| used.number),
        connection_reused: used.map(|used| used.reused),
        protocol: used.as_ref().map(protocol),
        status: ended.status,
        reason: ended.reason,
        retry_after_ns: ended.retry_after_ns,
        ..AttemptRecord::default()
    }
}

fn milestones(record: &mut AttemptRecord, outcome: &ExchangeOutcome) {
    let answered = outcome.reads.first().map(best_ns);
    (record.first_write_ns, record.last_write_ns) = written(&outcome.writes, answered);
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

/// When a request's first and last byte were with the kernel, of which `answered` (the answer's first byte) may know more.
///
/// The stamp after a write call is an upper bound. On a short way the answer may be there before the call returns; it can't
/// have come before the request, so its own stamp is a bound too. An answer from before the last call did not wait for the
/// end of a long body: it says nothing of when that left.
fn written(writes: &WriteMarks, answered: Option<i64>) -> (Option<i64>, Option<i64>) {
    let bounded = |at: RunNs| answered.map_or(at.0, |answered| at.0.min(answered));
    let within = writes.last_call_ns.zip(answered).is_none_or(|(call, answered)| call.0 <= answered);
    let last = writes.last_ns.map(|at| if within { bounded(at) } else { at.0 });
    (writes.first_ns.map(bounded), last)
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
    decoded.content_encoding = reported.content_encoding;
}

fn body(
    record: &mut AttemptRecord,
    decoded: &mut Decoded,
    (provider, answer): (&dyn Provider, AnswerForm),
    outcome: &ExchangeOutcome,
    response: &Response,
) -> Option<String> {
    if let Some(coding) = &decoded.content_encoding {
        if record.status == AttemptStatus::Ok {
            (record.status, record.reason) = (AttemptStatus::Failed, Some(Reason::ContentEncoded));
        }
        let said = "the answer came with content-encoding";
        return Some(format!("transport: {said} {coding}, though accept-encoding was identity"));
    }
    let content_type = response.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let head = ResponseHead { status: response.status.as_u16(), content_type };
    let mut decoder = provider.decoder_of(&head, answer);
    let mut events = Vec::with_capacity(outcome.marks.len() * 2);
    for slice in outcome.body.chunks(SLICE_BYTES) {
        decoder.feed(slice, &mut events);
        if events.len() > MAX_EVENTS {
            break;
        }
    }
    let end = decoder.finish(&mut events);
    let flooded = events.len() > MAX_EVENTS;
    events.truncate(MAX_EVENTS);
    let aborted = decoder.meta().finish_reason.as_deref() == Some("abort");
    let reason = match broken(&end) {
        _ if flooded => Some(Reason::LimitExceeded),
        None if aborted => Some(Reason::AbortedByServer),
        reason => reason,
    };
    if record.status == AttemptStatus::Ok && reason.is_some() {
        (record.status, record.reason) = (AttemptStatus::Failed, reason);
    }
    record.events = events.iter().map(|event| row_of(event, outcome)).collect();
    times(decoded, &record.events, outcome);
    decoded.events_are_tokens = provider.events_are_tokens();
    let usage = *decoder.usage();
    record.usage_input_tokens = usage.input_tokens;
    record.usage_cached_tokens = usage.cached_tokens;
    record.usage_cache_write_tokens = usage.cache_write_tokens;
    record.usage_output_tokens = usage.output_tokens;
    record.usage_reasoning_tokens = usage.reasoning_tokens;
    decoded.usage = usage;
    let meta = decoder.meta();
    record.server_ms = record.server_ms.or(meta.server_ms);
    decoded.model_served = meta.model.as_deref().map(Arc::from);
    decoded.system_fingerprint = meta.system_fingerprint.as_deref().map(Arc::from);
    record.system_fingerprint.clone_from(&decoded.system_fingerprint);
    if record.request_id.is_none() {
        record.request_id = meta.id.as_deref().map(Arc::from);
    }
    if flooded {
        return Some(format!("transport: the answer has more than {MAX_EVENTS} events"));
    }
    match (decoder.error(), end) {
        (Some(error), _) => Some(error.body.clone()),
        (None, StreamEnd::Malformed { what, .. }) => Some(not_the_dialect(&what, content_type, outcome)),
        _ => None,
    }
}

/// What was wrong with a body that is not what its dialect says. Nothing of it is shown if it began as an answer: that
/// would be output.
fn not_the_dialect(what: &str, content_type: Option<&str>, outcome: &ExchangeOutcome) -> String {
    let content_type = content_type.unwrap_or("none");
    let body = match outcome.body.trim_ascii_start() {
        page @ [b'<', ..] => {
            format!(": {}", cut(&String::from_utf8_lossy(&page[..page.len().min(PAGE_BYTES)]), PAGE_BYTES))
        }
        _ => String::new(),
    };
    format!("{what} (content type {content_type}){body}")
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
fn what_was_said(outcome: &ExchangeOutcome, response: &Response) -> Option<String> {
    let status = response.status.as_u16();
    let header = |name| response.headers.get(name).map(HeaderValue::as_bytes).map(String::from_utf8_lossy);
    if (300..400).contains(&status) {
        let place = header(LOCATION).map_or("nowhere".to_owned(), |place| redact_url(&place));
        return Some(format!("redirected to {place}; not followed"));
    }
    if status < 400 || outcome.body.is_empty() {
        return None;
    }
    if let Some(coding) = header(CONTENT_ENCODING).filter(|coding| coding != "identity") {
        return Some(format!(
            "[{} bytes of content encoded as {coding}, which was not asked for]",
            outcome.body.len()
        ));
    }
    // Some bytes more: what is taken out makes room, and a character at the cut is not mistaken for a broken one.
    let start = &outcome.body[..outcome.body.len().min(2 * ERROR_BODY_BYTES)];
    Some(match text(start) {
        Some(text) => text.to_owned(),
        None => binary(start, outcome.body.len(), header(CONTENT_TYPE).as_deref()),
    })
}

/// Bytes as text, without a character that is cut at the end; `None` for what is no text.
fn text(bytes: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return None,
    };
    let control = |letter: char| letter.is_control() && !letter.is_ascii_whitespace() && letter != '\u{1b}';
    (!text.contains(control)).then_some(text)
}

/// A body that is no text, described.
fn binary(start: &[u8], len: usize, content_type: Option<&str>) -> String {
    let digits: String = start.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let content_type = content_type.unwrap_or("none");
    format!("[{len} bytes that are no text, content type {content_type}, beginning with {digits}]")
}

/// At most so many bytes of a text, cut at a character.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

/// Which HTTP was spoken on a connection.
fn protocol(used: &UsedConnection) -> Protocol {
    match (used.http2, used.tls_ns) {
        (false, _) => Protocol::H1,
        (true, Some(_)) => Protocol::H2,
        (true, None) => Protocol::H2c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_bounds_the_write_that_it_came_within_and_no_later_one() {
        let marks = |last_call, last| WriteMarks {
            first_call_ns: Some(RunNs(100)),
            first_ns: Some(RunNs(130)),
            last_call_ns: Some(RunNs(last_call)),
            last_ns: Some(RunNs(last)),
            bytes: 9,
        };
        let (one, sliced) = (marks(100, 130), marks(500, 540));
        assert_eq!(written(&one, None), (Some(130), Some(130)));
        assert_eq!(written(&one, Some(120)), (Some(120), Some(120)));
        assert_eq!(written(&one, Some(200)), (Some(130), Some(130)));
        assert_eq!(written(&sliced, Some(520)), (Some(130), Some(520)));
        assert_eq!(written(&sliced, Some(600)), (Some(130), Some(540)));
        assert_eq!(written(&sliced, Some(300)), (Some(130), Some(540)), "refused before all of it was read");
        assert_eq!(written(&WriteMarks::default(), Some(5)), (None, None));
    }

    #[test]
    fn text_is_told_from_what_is_none_also_when_a_character_is_cut() {
        assert_eq!(text("né".as_bytes()), Some("né"));
        assert_eq!(text(&"né".as_bytes()[..2]), Some("n"), "the cut character is left out");
        assert_eq!(text(b"{\"a\":\r\n\t1}"), Some("{\"a\":\r\n\t1}"));
        assert_eq!(text(b"\x1f\x8b\x08\x00"), None);
        assert_eq!(text(b"a\0b"), None);
        assert_eq!(text(b"\xffabc"), None);
        assert_eq!(
            binary(b"\x1f\x8b\x08", 3, Some("application/gzip")),
            "[3 bytes that are no text, content type application/gzip, beginning with 1f8b08]"
        );
    }

    #[test]
    fn neither_the_key_nor_half_a_character_is_kept() {
        let key = Secret::new("hunter-22 ");
        let said = format!("wrong key hunter-22: {}", "é".repeat(ERROR_BODY_BYTES));
        let kept = redacted(&said, &[Secret::new("other-key"), key]);
        assert!(kept.starts_with("wrong key [redacted]: éé") && kept.len() <= ERROR_BODY_BYTES, "{kept}");
        assert_eq!(redacted("a b", &[Secret::new("b")]), "a b", "a key of one letter is none");
    }
}
