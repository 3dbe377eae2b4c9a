//! One planned request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tracewheel_timeline::vocab::{BodyState, Operation, Phase};
use xxhash_rust::xxh3::Xxh3;

use crate::PromptSpec;

/// One request of a plan: all that a replay needs to send it, and every stratum to tell it apart by afterwards.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedRequest {
    /// Its row in the timeline.
    pub row: u64,
    /// Which copy of the row, 0 for the first. Always 0 until plans amplify.
    pub copy: u32,
    /// The same on every machine that plans this timeline: see [`request_id`].
    pub request_id: u64,
    /// When it leaves, in nanoseconds after the plan's time zero. Never moves.
    pub planned_ns: i64,
    /// `measure`, or `warmup`: sent all the same, and in no statistics. `prime` where it goes ahead of the plan.
    pub phase: Phase,
    /// The recorded arrival, in Unix nanoseconds (from 0 in a timeline without an epoch).
    pub trace_unix_ns: Option<i64>,
    /// What it asks for.
    pub operation: Operation,
    /// HTTP method, as logged.
    pub method: Option<Arc<str>>,
    /// Path of the URL, as logged.
    pub path: Option<Arc<str>>,
    /// The model to ask for: the plan's own if it has one, else the recorded one.
    pub model: Option<Arc<str>>,
    /// The route or rule that a gateway chose.
    pub route: Option<Arc<str>>,
    /// Host, deployment or listener, as logged.
    pub endpoint: Option<Arc<str>>,
    /// The provider that answered.
    pub provider: Option<Arc<str>>,
    /// Input tokens: the sum over [`prompt`](Self::prompt).
    pub input_tokens: u32,
    /// Output tokens to ask for, at least 1.
    pub output_tokens: u32,
    /// A token count was missing and is the plan's fill value.
    pub tokens_filled: bool,
    /// Ask for a streamed answer.
    pub stream: bool,
    /// When the recorded client left, in nanoseconds after the arrival. Not scaled by the speed.
    pub cancel_after_ns: Option<i64>,
    /// Keyed hash of the session.
    pub session_hash: Option<u64>,
    /// Position in the session, from 0.
    pub turn: Option<u32>,
    /// Recorded pause after the previous turn's end, in nanoseconds. Not scaled by the speed.
    pub think_ns: Option<i64>,
    /// Keyed hash of the tenant.
    pub tenant_hash: Option<u64>,
    /// Keyed hash of the user.
    pub user_hash: Option<u64>,
    /// Chosen fields of the log.
    pub tags: Option<BTreeMap<Arc<str>, Arc<str>>>,
    /// Recorded parameters as a JSON object.
    pub params: Option<Arc<str>>,
    /// Recorded headers that may be sent again, by their names in lower case. Only free-form requests send them.
    pub headers: Option<BTreeMap<Arc<str>, Arc<str>>>,
    /// The recorded body. Only a [`BodyState::Full`] one may be sent in the place of the prompt.
    pub body: Option<Bytes>,
    /// How much of the body is there.
    pub body_state: BodyState,
    /// The prompt to make up where no full body is there.
    pub prompt: PromptSpec,
    /// Input tokens that a prefix cache of endless size would already hold from the requests planned before this
    /// one: exactly, until the plan has had more distinct blocks than are remembered ([`Prediction`](crate::Prediction)
    /// says when), then at least. `None` where that cannot be known: no prefix hashes.
    pub predicted_cached_tokens: Option<u32>,
    /// Where it goes, as an [`Assign`] says; the same for all without one.
    pub lane: Lane,
}

/// Where a request goes. The numbers are the replay's to give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// By which way: of no meaning to the plan.
    pub number: u32,
    /// Which cache it finds there. Requests of different caches share no prefix, and predictions keep them apart.
    pub cache: u64,
}

/// Says for each request of a plan, once and in the order of the plan, where it goes.
pub struct Assign(Box<dyn FnMut(&PlannedRequest) -> Lane + Send>);

impl Assign {
    /// An assignment by `of`.
    pub fn new(of: impl FnMut(&PlannedRequest) -> Lane + Send + 'static) -> Assign {
        Assign(Box::new(of))
    }

    /// Where `request`, the next one, goes.
    pub fn of(&mut self, request: &PlannedRequest) -> Lane {
        (self.0)(request)
    }
}

impl fmt::Debug for Assign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Assign")
    }
}

/// The identity of a request: xxh3 over the timeline's digest (its text), the row and the copy (both little endian).
pub fn request_id(timeline_digest: &str, row: u64, copy: u32) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(timeline_digest.as_bytes());
    hasher.update(&row.to_le_bytes());
    hasher.update(&copy.to_le_bytes());
    hasher.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_by_timeline_row_and_copy_and_stay_what_they_are() {
        assert_eq!(request_id("d1", 7, 0), request_id("d1", 7, 0));
        assert_ne!(request_id("d1", 7, 0), request_id("d2", 7, 0));
        assert_ne!(request_id("d1", 7, 0), request_id("d1", 8, 0));
        assert_ne!(request_id("d1", 7, 0), request_id("d1", 7, 1));
    }
}
