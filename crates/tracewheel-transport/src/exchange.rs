//! One request and its answer on one connection, as a state machine that its owner polls.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, StatusCode, Version};
use tracewheel_clock::{Clock, RunNs};
use tracewheel_net::{ReadStamp, WriteMarks};

use crate::apart::{Pace, first_after_head, first_of_several};
use crate::budget::{BodyBudget, Held};
use crate::connection::H1Connection;
use crate::error::{ExchangeError, ExchangeErrorKind, foreign, shown};
use crate::h1::{Framing, Head, HeadError};
use crate::io::{Outgoing, with_scratch};
use crate::request::PreparedRequest;

/// Room for a body at its beginning, at least and at most.
const BODY_BYTES: usize = 1024;
const MOST_BODY_BYTES: usize = 64 * 1024;
/// Room for reads at a body's beginning, at most.
const MOST_READS: usize = 512;
/// Reads within one poll before an answer's head is there: an honest head comes with one, and a flood of informational
/// answers must not keep its task from others' due sends.
const READS_FOR_A_HEAD: u32 = 2;
/// Reads within one poll afterwards, for the same reason.
const READS_FOR_A_BODY: u32 = 16;

/// Bounds of one exchange.
#[derive(Debug, Clone)]
pub struct ExchangeLimits {
    /// Largest body that is accepted, in bytes.
    pub max_body_bytes: u64,
    /// The same for an answer whose status is none of success: no more is kept, the connection is closed.
    pub max_error_body_bytes: u64,
    /// Most reads that an answer may take: each is remembered, and a body of single bytes has as many as it is long.
    pub max_reads: u32,
    /// What all answers may hold together; `None`: no bound.
    pub budget: Option<Arc<BodyBudget>>,
}

impl Default for ExchangeLimits {
    fn default() -> Self {
        ExchangeLimits {
            max_body_bytes: 8 << 20,
            max_error_body_bytes: 64 << 10,
            max_reads: 1 << 19,
            budget: None,
        }
    }
}

/// Up to `end_offset` (exclusive, in bytes of the decoded body) the body had arrived with read number `read`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyMark {
    /// Offset in the body just past the bytes that this mark is about.
    pub end_offset: u64,
    /// Index into [`ExchangeOutcome::reads`].
    pub read: u32,
}

/// Head of an answer.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: StatusCode,
    /// HTTP version.
    pub version: Version,
    /// Headers.
    pub headers: HeaderMap,
    /// Index of the read that completed the head.
    pub read: u32,
}

/// All that is known of an exchange when it has ended, whichever way.
#[derive(Debug)]
pub struct ExchangeOutcome {
    /// When the request left.
    pub writes: WriteMarks,
    /// The answer's head, if it came.
    pub response: Option<Response>,
    /// All reads of the exchange, oldest first. The first is the one that brought the answer's first byte. Of a stream of
    /// HTTP/2 those that brought bytes of its frames, and so many bytes.
    pub reads: Vec<ReadStamp>,
    /// Which read brought which part of the body; strictly ascending in both fields' order.
    pub marks: Vec<BodyMark>,
    /// The body, as far as it came.
    pub body: Vec<u8>,
    /// When the exchange ended: the stamp of the read that completed the answer or found it broken, else of the abort.
    pub end_ns: Option<RunNs>,
    /// Why it did not come to its proper end.
    pub error: Option<ExchangeError>,
    /// Whether the connection can carry another exchange.
    pub reusable: bool,
    /// The stream of an HTTP/2 connection.
    pub stream: Option<u32>,
    /// How long the request waited for the peer's window, from when that was found shut until the last byte left (or the
    /// end, where it never did). `None` where it did not wait; HTTP/2 only.
    pub window_wait_ns: Option<i64>,
    /// What the answer holds of the budget for all of them.
    pub held: Held,
}

impl ExchangeOutcome {
    /// Index of the read that brought body byte `offset − 1`, that is, completed the first `offset` bytes.
    pub fn read_completing(&self, offset: u64) -> Option<u32> {
        let at = self.marks.partition_point(|mark| mark.end_offset < offset);
        self.marks.get(at).map(|mark| mark.read)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Body,
    Ended,
}

/// One request and its answer on one connection. Dropping it closes the connection.
pub struct H1Exchange {
    connection: H1Connection,
    /// Until all of it was written.
    request: Option<PreparedRequest>,
    outgoing: Outgoing,
    /// The request could not be written to its end; the answer may say why.
    unwritable: Option<io::Error>,
    limits: ExchangeLimits,
    state: State,
    /// How the answer's body is framed, as far as it is not read.
    framing: Framing,
    /// The server means to keep the connection after this answer.
    keeps: bool,
    released: bool,
    /// The valve was opened.
    opened: bool,
    pace: Pace,
    outcome: ExchangeOutcome,
}

impl std::fmt::Debug for H1Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H1Exchange")
            .field("connection", &self.connection)
            .field("released", &self.released)
            .field("reads", &self.outcome.reads.len())
            .finish_non_exhaustive()
    }
}

impl H1Exchange {
    pub(crate) fn new(
        connection: H1Connection,
        request: PreparedRequest,
        outgoing: Outgoing,
        limits: ExchangeLimits,
    ) -> Self {
        let held = Held::of(limits.budget.clone());
        H1Exchange {
            connection,
            request: Some(request),
            outgoing,
            unwritable: None,
            limits,
            state: State::Head,
            framing: Framing::Length(0),
            keeps: false,
            released: false,
            opened: false,
            pace: Pace::default(),
            outcome: ExchangeOutcome {
                writes: WriteMarks::default(),
                response: None,
                reads: Vec::new(),
                marks: Vec::new(),
                body: Vec::new(),
                end_ns: None,
                error: None,
                reusable: false,
                stream: None,
                window_wait_ns: None,
                held,
            },
        }
    }

    /// Drives an armed exchange: watches the connection, and encrypts the request where there is TLS. `Ready` means that
    /// the connection is of no use any more and that nothing was written; take the request back with
    /// [`Self::into_request`].
    pub fn poll_armed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        debug_assert!(!self.released, "a released exchange is driven by poll");
        self.poll_shut(cx)
    }

    /// Drives the connection with the valve shut.
    fn poll_shut(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let stream = &mut self.connection.stream;
        let broken = self.outgoing.prepare(stream).is_err();
        // Bytes before the request left are no answer to it: servers announce a closing idle connection with a 408.
        let read = with_scratch(|scratch| stream.poll_read_slice(cx, scratch)).is_ready();
        if broken || read {
            self.connection.stamps.drain_reads(&mut self.outcome.reads);
            self.state = State::Ended;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Opens the valve. The next [`Self::poll`] writes.
    pub fn release(&mut self) {
        self.released = true;
    }

    /// The connection that it runs on.
    pub fn connection(&self) -> &H1Connection {
        &self.connection
    }

    /// The request, to be sent on another connection; closes this one.
    ///
    /// # Panics
    /// When all of it was written: then it must not be sent again unasked.
    pub fn into_request(self) -> PreparedRequest {
        self.request.expect("a request is taken back only while nothing of it was written")
    }

    /// When the request left, so far.
    pub fn writes(&self) -> WriteMarks {
        self.connection.stamps.write_marks()
    }

    /// Drives a released exchange to its end. After `Ready`, take the result with [`Self::finish`].
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        debug_assert!(self.released, "an armed exchange is driven by poll_armed");
        if !self.opened {
            // A close that is known by now must be seen before a byte leaves. No system call is made unless something
            // arrived.
            if self.poll_shut(cx).is_ready() {
                let detail = "closed while armed".to_owned();
                self.end(Some(ExchangeError { kind: ExchangeErrorKind::ClosedBeforeWrite, detail }));
                return Poll::Ready(());
            }
            self.opened = true;
        }
        if let Step::Ended = self.send(cx) {
            return Poll::Ready(());
        }
        with_scratch(|scratch| self.receive(cx, scratch))
    }

    /// Writes what is left of the request.
    fn send(&mut self, cx: &mut Context<'_>) -> Step {
        if self.state == State::Ended {
            return Step::Ended;
        }
        if self.outgoing.is_sent() || self.unwritable.is_some() {
            return Step::Advanced;
        }
        match self.outgoing.poll_send(&mut self.connection.stream, cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.request = None,
            Poll::Ready(Err(error)) if self.connection.stamps.write_marks().bytes == 0 => {
                return self.broken(&error);
            }
            // A server may refuse a body that it has not read to its end, and close: its answer is what counts.
            Poll::Ready(Err(error)) => self.unwritable = Some(error),
        }
        Step::Advanced
    }

    fn receive(&mut self, cx: &mut Context<'_>, scratch: &mut [u8]) -> Poll<()> {
        let reads = if self.state == State::Head { READS_FOR_A_HEAD } else { READS_FOR_A_BODY };
        for _ in 0..reads {
            let Poll::Ready(read) = self.read(cx, scratch) else {
                return Poll::Pending;
            };
            match &read {
                Ok((_, Some(stamp))) => self.outcome.reads.push(*stamp),
                _ => self.connection.stamps.drain_reads(&mut self.outcome.reads),
            }
            let step = match read {
                Ok((0, _)) => self.closed(),
                Ok((bytes, _)) => self.take(&scratch[..bytes]),
                Err(error) => self.broken(&error),
            };
            if let Step::Ended = step {
                return Poll::Ready(());
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// One read: of all that waits, or of the first of several chunks.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut [u8],
    ) -> Poll<io::Result<(usize, Option<ReadStamp>)>> {
        let stream = &mut self.connection.stream;
        let mut room = scratch.len();
        if self.pace.wants_a_look(self.connection.clock.now().0) {
            let waiting = ready!(stream.poll_peek_slice(cx, scratch))?;
            let waiting = &scratch[..waiting];
            let end = match self.state {
                State::Head => first_after_head(waiting),
                State::Body | State::Ended => first_of_several(self.framing, waiting),
            };
            room = end.unwrap_or(room);
        }
        stream.poll_read_stamped(cx, &mut scratch[..room])
    }

    /// Takes what one read brought.
    fn take(&mut self, bytes: &[u8]) -> Step {
        if self.outcome.reads.len() > self.limits.max_reads as usize {
            return self.too_large(format!("the limit is {} reads", self.limits.max_reads));
        }
        if let Some(read) = self.outcome.reads.last() {
            self.pace.note(*read);
        }
        let mut at = 0;
        if self.state == State::Head {
            match self.connection.head.take(bytes) {
                Ok(None) => return Step::Advanced,
                Ok(Some((head, used))) => {
                    at = used;
                    self.begin_body(head);
                }
                Err(error) => return self.bad_head(&error),
            }
        }
        self.take_body(bytes, at)
    }

    fn begin_body(&mut self, head: Head) {
        self.connection.head.clear();
        (self.framing, self.keeps) = (head.framing, head.keeps);
        self.outcome.response = Some(Response {
            status: head.status,
            version: head.version,
            headers: head.headers,
            read: self.last_read(),
        });
        // Answers of one target are alike: room as the one before on this connection had.
        let (body, reads) = self.connection.usual;
        self.outcome.body.reserve(body.clamp(BODY_BYTES, MOST_BODY_BYTES));
        self.outcome.reads.reserve(reads.min(MOST_READS));
        self.outcome.marks.reserve(reads.min(MOST_READS));
        self.state = State::Body;
    }

    /// Takes the body's bytes of a read, from `at` on.
    fn take_body(&mut self, bytes: &[u8], mut at: usize) -> Step {
        let before = self.outcome.body.len();
        let bad = loop {
            match self.framing.next(bytes, &mut at) {
                Ok(None) => break None,
                Ok(Some(range)) => {
                    let most = self.max_body_bytes();
                    if (self.outcome.body.len() + range.len()) as u64 > most {
                        return self.too_large(format!("the limit is {most} bytes"));
                    }
                    self.outcome.body.extend_from_slice(&bytes[range]);
                }
                Err(bad) => break Some(bad),
            }
        };
        if self.outcome.body.len() > before {
            let (end_offset, read) = (self.outcome.body.len() as u64, self.last_read());
            match self.outcome.marks.last_mut() {
                // Several TLS records came with one read.
                Some(mark) if mark.read == read => mark.end_offset = end_offset,
                _ => self.outcome.marks.push(BodyMark { end_offset, read }),
            }
            let holds = self.holds();
            if !self.outcome.held.grow_to(holds) {
                let most = self.limits.budget.as_ref().map_or(0, |budget| budget.max_bytes());
                return self.too_large(format!(
                    "the limit is {most} bytes for all answers under way (this one held too large a share)"
                ));
            }
        }
        if let Some(bad) = bad {
            let (kind, detail) = (ExchangeErrorKind::BadFraming, bad.to_string());
            return self.end(Some(ExchangeError { kind, detail }));
        }
        if self.framing.is_over() {
            // What comes after the end of an answer answers nothing.
            let clean = at == bytes.len() && self.outgoing.is_sent();
            self.end(None);
            self.connection.usual = (self.outcome.body.len(), self.outcome.reads.len());
            self.outcome.reusable = self.keeps && clean;
            return Step::Ended;
        }
        Step::Advanced
    }

    /// Of an error's body nobody wants more than its beginning.
    fn max_body_bytes(&self) -> u64 {
        let good = self.outcome.response.as_ref().is_none_or(|head| head.status.is_success());
        let most = self.limits.max_body_bytes;
        if good { most } else { most.min(self.limits.max_error_body_bytes) }
    }

    fn too_large(&mut self, detail: String) -> Step {
        self.end(Some(ExchangeError { kind: ExchangeErrorKind::BodyTooLarge, detail }))
    }

    /// Bytes that the answer takes in memory.
    fn holds(&self) -> u64 {
        let outcome = &self.outcome;
        let stamps = outcome.reads.capacity() * size_of::<ReadStamp>();
        (outcome.body.capacity() + stamps + outcome.marks.capacity() * size_of::<BodyMark>()) as u64
    }

    fn last_read(&self) -> u32 {
        u32::try_from(self.outcome.reads.len().saturating_sub(1)).unwrap_or(u32::MAX)
    }

    /// The connection ended in order.
    fn closed(&mut self) -> Step {
        if self.state == State::Body && self.framing == Framing::UntilClose {
            return self.end(None);
        }
        let error = self.unwritable.take();
        self.broken(&error.unwrap_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the peer closed the connection")
        }))
    }

    /// The connection broke, or what came over it is no TLS.
    fn broken(&mut self, error: &io::Error) -> Step {
        let in_head = self.outcome.response.is_none();
        let garbled = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput);
        let kind = match garbled {
            _ if in_head && self.connection.stamps.write_marks().bytes == 0 => {
                ExchangeErrorKind::ClosedBeforeWrite
            }
            true if in_head => return self.bad_head(&HeadError::Malformed(error.to_string())),
            true => ExchangeErrorKind::BadFraming,
            false if self.outcome.reads.is_empty() => ExchangeErrorKind::ResetBeforeResponse,
            false if in_head => ExchangeErrorKind::ResetInHead,
            false => ExchangeErrorKind::ResetMidResponse,
        };
        self.end(Some(ExchangeError { kind, detail: error.to_string() }))
    }

    fn bad_head(&mut self, error: &HeadError) -> Step {
        let begins_with = self.connection.head.begins_with();
        let (kind, detail) = match error {
            HeadError::TooLarge(said) => (ExchangeErrorKind::HeadTooLarge, said.clone()),
            HeadError::Malformed(said) => match foreign(begins_with) {
                Some((kind, hint)) => (kind, format!("{hint} ({said})")),
                None => (ExchangeErrorKind::Malformed, format!("{} ({said})", shown(begins_with))),
            },
        };
        self.end(Some(ExchangeError { kind, detail }))
    }

    fn end(&mut self, error: Option<ExchangeError>) -> Step {
        let last_read = self.outcome.reads.last().map(|read| read.user_ns);
        let closed = self.connection.stamps.eof_ns();
        self.outcome.end_ns = match &error {
            Some(_) => closed.or_else(|| Some(self.connection.clock.now())),
            None if self.framing == Framing::UntilClose => closed.or(last_read),
            None => last_read,
        };
        self.outcome.writes = self.connection.stamps.write_marks();
        self.outcome.error = error;
        self.state = State::Ended;
        Step::Ended
    }

    /// Gives the exchange up at `now`; the connection will be closed. What came so far is kept.
    pub fn abort(&mut self, now: RunNs, detail: &str) {
        if !matches!(self.state, State::Ended) {
            self.connection.stamps.drain_reads(&mut self.outcome.reads);
            let error = ExchangeError { kind: ExchangeErrorKind::Aborted, detail: detail.to_owned() };
            self.end(Some(error));
            self.outcome.end_ns = Some(now);
        }
        self.outcome.reusable = false;
    }

    /// What happened, and the connection if it can be used again.
    pub fn finish(self) -> (ExchangeOutcome, Option<H1Connection>) {
        let reusable = self.outcome.reusable;
        (self.outcome, reusable.then_some(self.connection))
    }

    /// Releases at once and runs to the end: for callers without a schedule.
    pub async fn run(mut self) -> (ExchangeOutcome, Option<H1Connection>) {
        self.release();
        poll_fn(|cx| self.poll(cx)).await;
        self.finish()
    }
}

enum Step {
    Advanced,
    Ended,
}
