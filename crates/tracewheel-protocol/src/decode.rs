//! What a decoder gives: events, how the stream ended, usage, and what the server said about itself.

use serde::Serialize;
use tracewheel_timeline::vocab::EventKind;

use crate::Usage;

mod error_detail;

pub use error_detail::ErrorDetail;

/// Reads one response body. Feed it the bytes in the order of their arrival, cut anywhere; the events are the same
/// for every cut.
pub trait Decoder {
    /// Takes the next piece of the body and appends the events that it completed to `out`.
    fn feed(&mut self, bytes: &[u8], out: &mut Vec<Event>);

    /// The body has ended. Appends what only the end completes (a plain JSON answer, for one) and says how the
    /// stream ended. Call it once; bytes fed after it are ignored.
    fn finish(&mut self, out: &mut Vec<Event>) -> StreamEnd;

    /// Bytes that its buffers hold or have room for: bounded, whatever is fed.
    fn held_bytes(&self) -> usize;

    /// The token counts reported so far.
    fn usage(&self) -> &Usage;

    /// What the server said about itself so far.
    fn meta(&self) -> &ResponseMeta;

    /// The first error that the body carried, if any.
    fn error(&self) -> Option<&ErrorDetail>;

    /// Where the token counts of the events come from; `None` while no event has one.
    fn token_source(&self) -> Option<TokenSource>;

    /// Oddities that were counted and otherwise overlooked.
    fn warnings(&self) -> &Warnings;
}

/// One decoded unit of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What arrived. Output kinds are text, reasoning, tool_args and refusal, and are never empty.
    pub kind: EventKind,
    /// The choice that it belongs to, 255 for every index above.
    pub choice: u8,
    /// Output tokens in this event, where the server says so. When one server message carries several output
    /// kinds, the last of their events has the tokens and the others `Some(0)`.
    pub tokens: Option<u16>,
    /// For output and opaque kinds: bytes of the payload, decoded (UTF-8 text, JSON escapes undone). For every
    /// other kind: bytes of the message that carried it.
    pub bytes: u32,
    /// Offset in the body just past the byte that completed the event, counted from the first byte of the body.
    /// An SSE event is complete with the line end of its blank line; of a CR LF pair the CR completes it. Several
    /// events of one message share an offset. Rises monotonically over a body.
    pub end_offset: u64,
}

/// How a body ended. Only the first two are a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The provider's end marker arrived and nothing went wrong before it.
    Complete,
    /// One plain JSON answer, whole.
    NonStream,
    /// The body ended without the provider's end marker, though maybe after output. An empty body is this too.
    Truncated,
    /// The body ended inside an event: bytes were there that no blank line completed.
    UnterminatedTail,
    /// An error arrived in a stream that had begun as a success.
    ErrorInStream(ErrorDetail),
    /// The body is an error answer: its status said so, or it is plain JSON with an error in it.
    ErrorBody(ErrorDetail),
    /// A message was not what the protocol allows. Those after it were still read.
    Malformed {
        /// Offset just past the message, as in [`Event::end_offset`].
        offset: u64,
        /// What was wrong.
        what: String,
    },
    /// A message was larger than 32 MiB. Nothing after it was read.
    TooLarge {
        /// Offset just past its first byte too many.
        offset: u64,
    },
}

impl StreamEnd {
    /// The answer arrived whole and without error.
    pub fn is_success(&self) -> bool {
        matches!(self, StreamEnd::Complete | StreamEnd::NonStream)
    }
}

/// What the server said about itself and the answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResponseMeta {
    /// The id of the answer.
    pub id: Option<String>,
    /// The model that served it.
    pub model: Option<String>,
    /// `system_fingerprint`.
    pub system_fingerprint: Option<String>,
    /// `service_tier`.
    pub service_tier: Option<String>,
    /// Why the first choice stopped, as reported (`stop`, `length`, ...).
    pub finish_reason: Option<String>,
    /// Whole milliseconds that the server says it spent on the whole answer: from llama.cpp's `timings` and Ollama's
    /// `total_duration`.
    pub server_ms: Option<i64>,
}

/// Where the token count of an event comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenSource {
    /// The server listed the token ids of each chunk: exact.
    TokenIds,
    /// The server reported a running total with each chunk; the difference is the chunk's.
    ContinuousUsage,
}

/// Oddities of a stream that break nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Warnings {
    /// Comments that a proxy had wrapped into data.
    pub wrapped_comments: u32,
    /// Events with a name that the protocol does not know.
    pub unknown_names: u32,
    /// Messages of valid JSON that fit no known form.
    pub unknown_messages: u32,
    /// Messages after the end marker.
    pub after_terminal: u32,
}

/// What is known of a response before its body.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The content type as sent. Without one, or with one that says neither JSON nor SSE, the first byte decides.
    pub content_type: Option<&'a str>,
}
