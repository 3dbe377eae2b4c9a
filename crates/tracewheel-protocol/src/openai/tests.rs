//! Known answers: made-up streams in the form of each server, and what they must decode to under any cut.

mod answers;
mod cuts;
mod errors;
mod streams;
mod tokens;

use tracewheel_timeline::vocab::EventKind;

use crate::{
    ErrorDetail, Event, ResponseHead, ResponseMeta, StreamEnd, TokenSource, Usage, Warnings, provider,
};

/// All that a decoder said of a body.
#[derive(Clone, Debug, PartialEq)]
struct Decoded {
    events: Vec<Event>,
    end: StreamEnd,
    usage: Usage,
    meta: ResponseMeta,
    error: Option<ErrorDetail>,
    source: Option<TokenSource>,
    warnings: Warnings,
}

impl Decoded {
    /// Kind and bytes of each event.
    fn kinds(&self) -> Vec<(EventKind, u32)> {
        self.events.iter().map(|event| (event.kind, event.bytes)).collect()
    }

    /// Tokens of each output event.
    fn tokens(&self) -> Vec<Option<u16>> {
        self.events.iter().filter(|event| event.kind.is_output()).map(|event| event.tokens).collect()
    }

    fn first_output(&self) -> Option<&Event> {
        self.events.iter().find(|event| event.kind.is_output())
    }
}

const STREAM: ResponseHead<'static> = ResponseHead { status: 200, content_type: Some("text/event-stream") };
const JSON: ResponseHead<'static> = ResponseHead { status: 200, content_type: Some("application/json") };

fn decode_reads<'a>(head: &ResponseHead<'_>, reads: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = provider("openai-chat").expect("it is in the table").decoder(head);
    let mut events = Vec::new();
    for read in reads {
        decoder.feed(read, &mut events);
    }
    let end = decoder.finish(&mut events);
    Decoded {
        events,
        end,
        usage: *decoder.usage(),
        meta: decoder.meta().clone(),
        error: decoder.error().cloned(),
        source: decoder.token_source(),
        warnings: *decoder.warnings(),
    }
}

/// What `body` decodes to, made sure to be the same in one read, byte by byte, and cut at each place.
fn decode(head: &ResponseHead<'_>, body: impl AsRef<[u8]>) -> Decoded {
    let body = body.as_ref();
    let whole = decode_reads(head, [body]);
    assert_eq!(decode_reads(head, body.chunks(1)), whole, "byte by byte");
    for cut in 0..=body.len() {
        let (left, right) = body.split_at(cut);
        assert_eq!(decode_reads(head, [left, right]), whole, "cut at {cut}");
    }
    whole
}

/// A stream of these messages, each one event.
fn stream(messages: &[&str]) -> String {
    messages.iter().map(|message| format!("data: {message}\n\n")).collect()
}

fn decode_stream(messages: &[&str]) -> Decoded {
    decode(&STREAM, stream(messages))
}

/// A chunk whose only choice has this delta.
fn chunk(delta: &str) -> String {
    format!(r#"{{"id":"c1","model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#)
}

/// The kinds of a stream of one chunk with this delta, then the end marker.
fn kinds_of_delta(delta: &str) -> Vec<(EventKind, u32)> {
    let decoded = decode_stream(&[&chunk(delta), "[DONE]"]);
    assert_eq!(decoded.end, StreamEnd::Complete, "{delta}");
    let mut kinds = decoded.kinds();
    assert_eq!(kinds.pop(), Some((EventKind::Terminal, 6)));
    kinds
}
