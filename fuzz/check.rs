//! What must hold for every input: shared by the fuzz targets and by the test that replays the corpus.
//!
//! An input is a byte that chooses the response's head, a byte that seeds the cuts, and the body. Both bytes may be
//! letters, so that a corpus file can be read.

use tracewheel_protocol::{
    Decoder, ErrorDetail, Event, ResponseHead, ResponseMeta, StreamEnd, TokenSource, Usage, Warnings,
    provider,
};

/// Heads that decide how a body is read.
const HEADS: [(u16, Option<&str>); 8] = [
    (200, None),
    (200, Some("text/event-stream")),
    (200, Some("application/json")),
    (200, Some("application/x-ndjson")),
    (200, Some("application/octet-stream")),
    (200, Some("text/html")),
    (429, Some("application/json")),
    (503, Some("text/event-stream")),
];

/// What a decoder may hold beside what it was fed: its strings, and the rounding of its buffers.
const HELD_BESIDE_BYTES: usize = 64 << 10;

/// All that a decoder said of a body.
#[derive(Debug, PartialEq)]
struct Decoded {
    events: Vec<Event>,
    end: StreamEnd,
    usage: Usage,
    meta: ResponseMeta,
    error: Option<ErrorDetail>,
    source: Option<TokenSource>,
    warnings: Warnings,
}

/// Decodes the input with the protocol of that name: the same events under every cut, offsets that rise, output that is
/// never empty, and no more held than was fed.
pub(crate) fn check(protocol: &str, input: &[u8]) {
    let [head, cuts, body @ ..] = input else { return };
    let (status, content_type) = HEADS[usize::from(*head) % HEADS.len()];
    let head = ResponseHead { status, content_type };
    let whole = decode(protocol, &head, body, |_| usize::MAX);
    assert_eq!(decode(protocol, &head, body, |_| 1), whole, "byte by byte");
    let mut state = u32::from(*cuts) + 1;
    let pieces = decode(protocol, &head, body, |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as usize % 24 + 1
    });
    assert_eq!(pieces, whole, "in pieces of many sizes");
    let cut = usize::from(*cuts) * body.len() / 255;
    assert_eq!(
        decode(protocol, &head, body, |at| if at < cut { cut } else { usize::MAX }),
        whole,
        "cut at {cut}"
    );
    let mut last = 0;
    for event in &whole.events {
        assert!(!event.kind.is_output() || event.bytes > 0, "output is never empty");
        assert!(
            event.end_offset >= last && event.end_offset <= body.len() as u64,
            "offsets rise within the body"
        );
        last = event.end_offset;
    }
}

fn decode(
    protocol: &str,
    head: &ResponseHead<'_>,
    body: &[u8],
    mut piece: impl FnMut(usize) -> usize,
) -> Decoded {
    let mut decoder: Box<dyn Decoder + Send> = provider(protocol).expect("it is in the table").decoder(head);
    let mut events = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let end = at + piece(at).min(body.len() - at);
        decoder.feed(&body[at..end], &mut events);
        at = end;
        assert!(decoder.held_bytes() <= 4 * at + HELD_BESIDE_BYTES, "no more is held than was fed");
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
