//! Known answers: made-up streams in the form of each server, and what they must decode to under any cut.

mod answers;
mod cuts;
mod errors;
mod streams;
mod tokens;

use tracewheel_timeline::vocab::EventKind;

use crate::known_answers::{self, Decoded, JSON, STREAM, stream};
use crate::{ErrorDetail, ResponseHead, ResponseMeta, StreamEnd, TokenSource, Warnings, provider};

fn decode_reads<'a>(head: &ResponseHead<'_>, reads: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    known_answers::decode_reads("openai-chat", head, reads)
}

fn decode(head: &ResponseHead<'_>, body: impl AsRef<[u8]>) -> Decoded {
    known_answers::decode("openai-chat", head, body)
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
