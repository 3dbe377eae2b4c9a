//! What travels between the threads of a run.

use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use tracewheel_protocol::{AnswerForm, Provider};
use tracewheel_record::{AttemptRecord, EventRow, ReadStampRow, ReleaseRecord, RequestRecord};
use tracewheel_timeline::vocab::{AttemptStatus, Phase, Reason, RequestStatus};
use tracewheel_transport::{Body, ExchangeOutcome};
use tracewheel_workload::PlannedRequest;

use crate::decode::Decoded;
use crate::worker::Head;

/// A request rendered ahead of its due time.
#[derive(Debug)]
pub(crate) struct ReadyRequest {
    /// What the recorder will want of it, as far as known; the worker fills in how it went.
    pub(crate) record: Box<RequestRecord>,
    /// Sent as `x-request-id` on every attempt; also enters the jitter.
    pub(crate) request_id: u64,
    /// The protocol that it is rendered by and its answer read by.
    pub(crate) provider: &'static dyn Provider,
    /// Which of the run's targets it goes to.
    pub(crate) target: u16,
    /// The headers that it has in common with others.
    pub(crate) head: Arc<Head>,
    /// How it goes.
    pub(crate) method: Method,
    /// Where it goes: the path with its query.
    pub(crate) uri: Uri,
    /// Recorded headers, in the place of the protocol's own.
    pub(crate) headers: Option<Box<HeaderMap>>,
    /// The exact bytes to send.
    pub(crate) body: Body,
    /// When the recorded client left, after the arrival.
    pub(crate) cancel_after_ns: Option<i64>,
    /// Recorded pause after the previous turn's end; negative where the turns overlapped.
    pub(crate) think_ns: Option<i64>,
    /// Planned input and output tokens together.
    pub(crate) tokens: u64,
    /// Whether a streamed answer is asked for.
    pub(crate) stream: bool,
    /// The form of its answer, for free-form requests.
    pub(crate) answer: AnswerForm,
    /// What was planned, where the answer before it goes into its body.
    pub(crate) draft: Option<Box<PlannedRequest>>,
}

/// What the recorder is told.
#[derive(Debug)]
pub(crate) enum RecorderMessage {
    /// An attempt left the wheel.
    Released(ReleaseRecord),
    /// An attempt ended, and perhaps its request.
    Attempt(Box<EndedAttempt>),
    /// The same, of a turn whose answer the reader has decoded already.
    Read(Box<ReadAttempt>),
    /// A request ended without another attempt: it was never released, or cut while it waited for a retry.
    Request(Box<RequestRecord>),
}

/// An attempt as the sender saw it, before anything was decoded.
#[derive(Debug)]
pub(crate) struct EndedAttempt {
    /// The timeline's row.
    pub(crate) row: u64,
    /// Which copy of it.
    pub(crate) copy: u32,
    /// Number of the attempt, from 1.
    pub(crate) attempt: u16,
    /// Phase of the run.
    pub(crate) phase: Phase,
    /// The protocol that its answer is read by.
    pub(crate) provider: &'static dyn Provider,
    /// The form of its answer, for free-form requests.
    pub(crate) answer: AnswerForm,
    /// When it was due.
    pub(crate) due_ns: i64,
    /// When the wheel fired.
    pub(crate) released_ns: i64,
    /// Requests in flight when it was released, without itself.
    pub(crate) in_flight: u32,
    /// The connection it ran on.
    pub(crate) connection: Option<UsedConnection>,
    /// How it ended, as far as the transport knows; a good answer may still turn out broken when it is decoded.
    pub(crate) status: AttemptStatus,
    /// Why.
    pub(crate) reason: Option<Reason>,
    /// Delay that the server asked for.
    pub(crate) retry_after_ns: Option<i64>,
    /// The exchange, if a connection was obtained.
    pub(crate) outcome: Option<ExchangeOutcome>,
    /// When it ended.
    pub(crate) end_ns: i64,
    /// What was wrong, in the layers' own words.
    pub(crate) detail: Option<String>,
    /// The request, when this attempt ended it.
    pub(crate) closes: Option<Box<RequestRecord>>,
}

impl EndedAttempt {
    /// Bytes that it holds while it waits for the recorder.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.outcome
            .as_ref()
            .map_or(0, |outcome| (outcome.body.capacity() + outcome.reads.capacity() * 32) as u64)
    }
}

/// An attempt whose answer has been read.
#[derive(Debug)]
pub(crate) struct ReadAttempt {
    /// As the sender saw it.
    pub(crate) ended: EndedAttempt,
    /// Its row.
    pub(crate) record: AttemptRecord,
    /// What its request takes from it.
    pub(crate) decoded: Decoded,
}

impl ReadAttempt {
    /// Bytes that it holds while it waits for the recorder.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.ended.held_bytes() + self.decoded_bytes()
    }

    /// What decoding added to them.
    pub(crate) fn decoded_bytes(&self) -> u64 {
        let events = self.record.events.capacity() * size_of::<EventRow>();
        (events + self.record.reads.capacity() * size_of::<ReadStampRow>()) as u64
    }
}

/// What the reader is told.
#[derive(Debug)]
pub(crate) enum ToReader {
    /// A turn ended.
    Ended(TurnToRead),
    /// A turn's due time is known, and its body is to be written with the answers before it.
    Next(TurnToWrite),
}

/// A turn that ended well as far as its sender knows, on its way to the reader: the session's next turn waits to hear
/// whether its answer was whole.
#[derive(Debug)]
pub(crate) struct TurnToRead {
    /// The turn's last attempt.
    pub(crate) ended: Box<EndedAttempt>,
    /// Its session.
    pub(crate) session: u64,
    /// The worker that wants to know.
    pub(crate) worker: u32,
    /// What was planned, where its answer goes on into the next turn.
    pub(crate) draft: Option<Box<PlannedRequest>>,
}

/// A turn whose body is to be written.
#[derive(Debug)]
pub(crate) struct TurnToWrite {
    /// The worker's number for it.
    pub(crate) number: u32,
    /// Its session.
    pub(crate) session: u64,
    /// The row of the turn before it, if that one ended well.
    pub(crate) after_row: Option<u64>,
    /// The worker that waits for it.
    pub(crate) worker: u32,
    /// The protocol that carries it.
    pub(crate) provider: &'static dyn Provider,
    /// What was planned.
    pub(crate) draft: Box<PlannedRequest>,
}

/// A turn whose body was written.
#[derive(Debug)]
pub(crate) struct WrittenTurn {
    /// The worker's number for it.
    pub(crate) number: u32,
    /// Its session.
    pub(crate) session: u64,
    /// What was planned.
    pub(crate) draft: Box<PlannedRequest>,
    /// Its body; `None` where it goes as planned.
    pub(crate) body: Option<Body>,
    /// Input tokens of its made-up prompt.
    pub(crate) asked_input_tokens: Option<u32>,
}

/// What the reader says.
#[derive(Debug)]
pub(crate) enum Heard {
    /// What it found in a turn's answer.
    Ended {
        /// The turn's session.
        session: u64,
        /// The turn's row.
        row: u64,
        /// It was a whole answer without an error in it.
        well: bool,
    },
    /// A turn's body is written.
    Written(Box<WrittenTurn>),
}

/// The connection of an attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsedConnection {
    /// Its number within the run.
    pub(crate) number: u32,
    /// Whether it speaks HTTP/2.
    pub(crate) http2: bool,
    /// Whether it had carried an exchange before.
    pub(crate) reused: bool,
    /// Before the system was asked to connect.
    pub(crate) connect_start_ns: i64,
    /// When TCP stood.
    pub(crate) connected_ns: i64,
    /// When TLS stood.
    pub(crate) tls_ns: Option<i64>,
}

impl UsedConnection {
    /// When requests could be sent on it.
    pub(crate) fn ready_ns(&self) -> i64 {
        self.tls_ns.unwrap_or(self.connected_ns)
    }
}

/// Ends `record` as `status` for `reason`.
pub(crate) fn close(record: &mut RequestRecord, status: RequestStatus, reason: Option<Reason>) {
    record.status = status;
    record.reason = reason;
}
