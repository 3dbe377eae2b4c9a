//! What tests of every provider need: a body decoded under every cut.

mod every_provider;

use tracewheel_timeline::vocab::EventKind;

use crate::{
    ErrorDetail, Event, ResponseHead, ResponseMeta, StreamEnd, TokenSource, Usage, Warnings, provider,
};

/// All that a decoder said of a body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) events: Vec<Event>,
    pub(crate) end: StreamEnd,
    pub(crate) usage: Usage,
    pub(crate) meta: ResponseMeta,
    pub(crate) error: Option<ErrorDetail>,
    pub(crate) source: Option<TokenSource>,
    pub(crate) warnings: Warnings,
}

impl Decoded {
    /// Kind and bytes of each event.
    pub(crate) fn kinds(&self) -> Vec<(EventKind, u32)> {
        self.events.iter().map(|event| (event.kind, event.bytes)).collect()
    }

    /// Tokens of each output event.
    pub(crate) fn tokens(&self) -> Vec<Option<u16>> {
        self.events.iter().filter(|event| event.kind.is_output()).map(|event| event.tokens).collect()
    }

    pub(crate) fn first_output(&self) -> Option<&Event> {
        self.events.iter().find(|event| event.kind.is_output())
    }
}

pub(crate) const STREAM: ResponseHead<'static> =
    ResponseHead { status: 200, content_type: Some("text/event-stream") };
pub(crate) const JSON: ResponseHead<'static> =
    ResponseHead { status: 200, content_type: Some("application/json") };

pub(crate) fn decode_reads<'a>(
    name: &str,
    head: &ResponseHead<'_>,
    reads: impl IntoIterator<Item = &'a [u8]>,
) -> Decoded {
    let mut decoder = provider(name).expect("it is in the table").decoder(head);
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
pub(crate) fn decode(name: &str, head: &ResponseHead<'_>, body: impl AsRef<[u8]>) -> Decoded {
    let body = body.as_ref();
    let whole = decode_reads(name, head, [body]);
    assert_eq!(decode_reads(name, head, body.chunks(1)), whole, "byte by byte");
    for cut in 0..=body.len() {
        let (left, right) = body.split_at(cut);
        assert_eq!(decode_reads(name, head, [left, right]), whole, "cut at {cut}");
    }
    whole
}

/// A stream of these messages, each one event.
pub(crate) fn stream(messages: &[&str]) -> String {
    messages.iter().map(|message| format!("data: {message}\n\n")).collect()
}

/// The same, each event with the name that its message begins with as `type`.
pub(crate) fn named_stream(messages: &[&str]) -> String {
    let name = |message: &str| message.split('"').nth(3).expect("a message begins with its type").to_owned();
    messages.iter().map(|message| format!("event: {}\ndata: {message}\n\n", name(message))).collect()
}
