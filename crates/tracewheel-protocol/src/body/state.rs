//! What a decoder remembers of a body, and the events that it makes.

use tracewheel_timeline::vocab::EventKind;

use crate::sse::MAX_EVENT_BYTES;
use crate::{ErrorDetail, Event, StreamEnd, TokenSource, Usage, Warnings};

/// What a decoder knows besides its events.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) usage: Usage,
    pub(crate) token_source: Option<TokenSource>,
    pub(crate) warnings: Warnings,
    /// The first error that the server sent.
    pub(crate) error: Option<ErrorDetail>,
    /// How the body will have ended because of the first message that could not be understood.
    pub(super) broken: Option<StreamEnd>,
    /// The protocol's end marker was seen.
    pub(crate) terminal: bool,
    /// There is no end marker, and what was seen is enough for a whole answer.
    pub(crate) may_end: bool,
}

impl State {
    /// Notes a message that is no message of the protocol, and gives an event for it.
    pub(crate) fn malformed(&mut self, what: String, bytes: usize, offset: u64, out: &mut Vec<Event>) {
        self.broken.get_or_insert(StreamEnd::Malformed { offset, what });
        out.push(event(EventKind::Error, bytes, offset));
    }

    /// Notes a message beyond the bound, whose first byte too many ends at `offset`, and gives an event for it.
    pub(super) fn too_large(&mut self, offset: u64, out: &mut Vec<Event>) {
        self.broken.get_or_insert(StreamEnd::TooLarge { offset });
        out.push(event(EventKind::Error, MAX_EVENT_BYTES as usize, offset));
    }

    /// Notes the server's error in `json`, and gives an event for it.
    pub(crate) fn failed(&mut self, json: &[u8], end_offset: u64, out: &mut Vec<Event>) {
        self.error.get_or_insert_with(|| ErrorDetail::of(json));
        out.push(event(EventKind::Error, json.len(), end_offset));
    }
}

/// An event that is not output and of no choice.
pub(crate) fn event(kind: EventKind, bytes: usize, end_offset: u64) -> Event {
    Event { kind, choice: 0, tokens: None, bytes: u32::try_from(bytes).unwrap_or(u32::MAX), end_offset }
}

/// Appends an event for each kind of which there are bytes.
pub(crate) fn outputs(kinds: &[(EventKind, u32)], choice: u8, end_offset: u64, out: &mut Vec<Event>) {
    for &(kind, bytes) in kinds {
        if bytes > 0 {
            out.push(Event { kind, choice, tokens: None, bytes, end_offset });
        }
    }
}
