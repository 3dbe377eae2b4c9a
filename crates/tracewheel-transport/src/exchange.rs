//! One request and its answer on one connection, as a state machine that its owner polls.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode, Version};
use hyper::body::{Body, Incoming};
use hyper::client::conn::TrySendError;
use tracewheel_clock::{Clock, RunNs};
use tracewheel_net::{ReadStamp, WriteMarks};

use crate::budget::{BodyBudget, Held};
use crate::connection::{H1Connection, RequestBody};
use crate::error::{Broken, ExchangeError, ExchangeErrorKind, broken, chain, foreign, shown};
use crate::request::PreparedRequest;

type HeadFuture = Pin<
    Box<
        dyn Future<Output = Result<http::Response<Incoming>, TrySendError<http::Request<RequestBody>>>>
            + Send,
    >,
>;

/// Rounds of reading within one poll: a flood must not keep its task from others' due sends.
const ROUNDS: u32 = 16;

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
    /// All reads of the exchange, oldest first. The first is the one that brought the answer's first byte.
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

enum State {
    Head(HeadFuture),
    Body(Incoming),
    Ended,
}

/// One request and its answer on one connection. Dropping it closes the connection.
pub struct Exchange {
    connection: H1Connection,
    request: PreparedRequest,
    limits: ExchangeLimits,
    state: State,
    released: bool,
    /// The valve was opened.
    opened: bool,
    driver_ended: bool,
    /// The answer names no length: its end is the connection's.
    ends_by_close: bool,
    outcome: ExchangeOutcome,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("connection", &self.connection)
            .field("released", &self.released)
            .field("reads", &self.outcome.reads.len())
            .finish_non_exhaustive()
    }
}

impl Exchange {
    pub(crate) fn new(
        connection: H1Connection,
        request: PreparedRequest,
        response: HeadFuture,
        limits: ExchangeLimits,
    ) -> Self {
        let held = Held::of(limits.budget.clone());
        Exchange {
            connection,
            request,
            limits,
            state: State::Head(response),
            released: false,
            opened: false,
            driver_ended: false,
            ends_by_close: false,
            outcome: ExchangeOutcome {
                writes: WriteMarks::default(),
                response: None,
                reads: Vec::with_capacity(16),
                marks: Vec::with_capacity(16),
                body: Vec::with_capacity(4096),
                end_ns: None,
                error: None,
                reusable: false,
                held,
            },
        }
    }

    /// Drives an armed exchange: encodes the request, watches the connection. `Ready` means that the connection is of
    /// no use any more and that nothing was written; take the request back with [`Self::into_request`].
    pub fn poll_armed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        debug_assert!(!self.released, "a released exchange is driven by poll");
        self.poll_shut(cx)
    }

    /// Drives the connection with the valve shut.
    fn poll_shut(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.connection.valve.shut();
        if !self.driver_ended {
            self.driver_ended = Pin::new(&mut self.connection.driver).poll(cx).is_ready();
        }
        self.connection.stamps.drain_reads(&mut self.outcome.reads);
        // Bytes before the request left are no answer to it: servers announce a closing idle connection with a 408.
        let answered = match &mut self.state {
            State::Head(head) => head.as_mut().poll(cx).is_ready(),
            State::Body(_) | State::Ended => true,
        };
        if answered || self.driver_ended || !self.outcome.reads.is_empty() {
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
    pub fn into_request(self) -> PreparedRequest {
        self.request
    }

    /// When the request left, so far.
    pub fn writes(&self) -> WriteMarks {
        self.connection.stamps.write_marks()
    }

    /// Drives a released exchange to its end. After `Ready`, take the result with [`Self::finish`].
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        debug_assert!(self.released, "an armed exchange is driven by poll_armed");
        if !self.opened {
            // A close that is known by now must be seen before the valve opens: hyper, once it has read the end of the
            // stream, still flushes what it holds. No system call is made unless something arrived.
            if self.poll_shut(cx).is_ready() {
                let detail = "closed while armed".to_owned();
                self.end(Some(ExchangeError { kind: ExchangeErrorKind::ClosedBeforeWrite, detail }));
                return Poll::Ready(());
            }
            self.opened = true;
        }
        self.connection.valve.open(matches!(self.state, State::Body(_)));
        for _ in 0..ROUNDS {
            if !self.driver_ended {
                self.driver_ended = Pin::new(&mut self.connection.driver).poll(cx).is_ready();
            }
            self.connection.stamps.drain_reads(&mut self.outcome.reads);
            if self.outcome.reads.len() > self.limits.max_reads as usize {
                let detail = format!("the limit is {} reads", self.limits.max_reads);
                self.end(Some(ExchangeError { kind: ExchangeErrorKind::BodyTooLarge, detail }));
                return Poll::Ready(());
            }
            match self.step(cx) {
                Step::Ended => return Poll::Ready(()),
                Step::Advanced => {}
                Step::Waiting => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        match &mut self.state {
            State::Head(head) => match head.as_mut().poll(cx) {
                Poll::Pending => Step::Waiting,
                Poll::Ready(Ok(response)) => self.begin_body(response),
                Poll::Ready(Err(error)) => self.fail(error.error()),
            },
            State::Body(body) => match Pin::new(body).poll_frame(cx) {
                Poll::Pending => Step::Waiting,
                Poll::Ready(None) => self.complete(cx),
                Poll::Ready(Some(Err(error))) => self.fail(&error),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.take_body(&data),
                    // Trailers: drained, so that the connection can be used again.
                    Err(_other) => Step::Advanced,
                },
            },
            State::Ended => Step::Ended,
        }
    }

    fn begin_body(&mut self, response: http::Response<Incoming>) -> Step {
        if self.connection.stamps.write_marks().bytes == 0 {
            // Servers announce that they close an idle connection with a 408: it answers nothing of ours.
            let detail = format!("status {} came before the request was written", response.status().as_u16());
            return self.end(Some(ExchangeError { kind: ExchangeErrorKind::ClosedBeforeWrite, detail }));
        }
        self.connection.valve.head_done();
        let (head, body) = response.into_parts();
        self.ends_by_close =
            !head.headers.contains_key(CONTENT_LENGTH) && !head.headers.contains_key(TRANSFER_ENCODING);
        self.outcome.response = Some(Response {
            status: head.status,
            version: head.version,
            headers: head.headers,
            read: self.last_read(),
        });
        self.state = State::Body(body);
        Step::Advanced
    }

    fn take_body(&mut self, data: &Bytes) -> Step {
        let end_offset = (self.outcome.body.len() + data.len()) as u64;
        let most = self.max_body_bytes();
        if end_offset > most {
            return self.too_large(format!("the limit is {most} bytes"));
        }
        if data.is_empty() {
            return Step::Advanced;
        }
        // hyper fills its buffer by one read only when it is empty, so a frame's bytes came with the latest read.
        let read = self.last_read();
        self.outcome.body.extend_from_slice(data);
        match self.outcome.marks.last_mut() {
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

    fn complete(&mut self, cx: &mut Context<'_>) -> Step {
        self.end(None);
        // Once more, so that the connection returns to its idle state, or learns that it won't.
        if !self.driver_ended {
            self.driver_ended = Pin::new(&mut self.connection.driver).poll(cx).is_ready();
        }
        self.outcome.reusable = !self.driver_ended && self.connection.sender.is_ready();
        Step::Ended
    }

    fn fail(&mut self, error: &hyper::Error) -> Step {
        let nothing_left = self.connection.stamps.write_marks().bytes == 0;
        let in_head = self.outcome.response.is_none();
        let mut detail = chain(error);
        let kind = match broken(error) {
            _ if nothing_left && in_head => ExchangeErrorKind::ClosedBeforeWrite,
            Broken::HeadTooLarge => ExchangeErrorKind::HeadTooLarge,
            Broken::Protocol if in_head => {
                let greeting = self.connection.valve.greeting();
                let (kind, hint) = match foreign(&greeting) {
                    Some((kind, hint)) => (kind, hint.to_owned()),
                    None => (ExchangeErrorKind::Malformed, shown(&greeting)),
                };
                detail = format!("{hint} ({detail})");
                kind
            }
            Broken::Protocol => ExchangeErrorKind::BadFraming,
            Broken::Connection if self.outcome.reads.is_empty() => ExchangeErrorKind::ResetBeforeResponse,
            Broken::Connection if in_head => {
                // A TLS alert is short: hyper waits for more, and the peer closes.
                match foreign(&self.connection.valve.greeting()) {
                    Some((kind, hint)) => {
                        detail = format!("{hint} ({detail})");
                        kind
                    }
                    None => ExchangeErrorKind::ResetInHead,
                }
            }
            Broken::Connection => ExchangeErrorKind::ResetMidResponse,
        };
        self.end(Some(ExchangeError { kind, detail }))
    }

    fn end(&mut self, error: Option<ExchangeError>) -> Step {
        let last_read = self.outcome.reads.last().map(|read| read.user_ns);
        let closed = self.connection.stamps.eof_ns();
        self.outcome.end_ns = match &error {
            Some(_) => closed.or_else(|| Some(self.connection.clock.now())),
            None if self.ends_by_close => closed.or(last_read),
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
    Waiting,
    Advanced,
    Ended,
}
