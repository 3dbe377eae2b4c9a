//! One request and its answer on a stream of an HTTP/2 connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use tracewheel_clock::{Clock, RunNs};
use tracewheel_net::WriteMarks;

use super::connection::{Core, H2Lane, Shared, code_name};
use super::wire::{StreamLog, poll_turn};
use crate::answer::Answer;
use crate::body::Unsent;
use crate::error::{ExchangeError, ExchangeErrorKind, StreamCode};
use crate::exchange::{ExchangeLimits, ExchangeOutcome, Response};
use crate::request::PreparedRequest;

/// Pieces of a body taken within one poll.
const ROUNDS: u32 = 64;
/// Informational answers before an answer's head, at most.
const MAX_INFORMATIONAL: u32 = 32;

enum State {
    /// Not handed to the library.
    Armed(Option<Box<http::Request<()>>>),
    Head(ResponseFuture),
    Body(RecvStream),
    Ended,
}

/// One request and its answer on a lane.
pub struct H2Exchange {
    lane: H2Lane,
    request: PreparedRequest,
    state: State,
    /// Kept so that the rest of the request goes on being sent.
    upload: Option<SendStream<Unsent>>,
    stream: Option<u32>,
    released: bool,
    informational: u32,
    /// Since when the request has waited for the peer's window.
    starved_ns: Option<RunNs>,
    answer: Answer,
    reusable: bool,
}

impl std::fmt::Debug for H2Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H2Exchange")
            .field("lane", &self.lane)
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

impl H2Exchange {
    pub(super) fn new(lane: H2Lane, request: PreparedRequest, limits: ExchangeLimits) -> Self {
        let state = State::Armed(request.to_h2(lane.shared.https).map(Box::new));
        H2Exchange {
            lane,
            request,
            state,
            upload: None,
            stream: None,
            released: false,
            informational: 0,
            starved_ns: None,
            answer: Answer::new(limits, 0),
            reusable: false,
        }
    }

    /// As of any exchange: `Ready` means that the lane is of no use any more, and nothing was written.
    pub fn poll_armed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.lane.poll_idle(cx)
    }

    /// The next poll sends.
    pub fn release(&mut self) {
        self.released = true;
    }

    /// The request, to be sent elsewhere.
    pub fn into_request(self) -> PreparedRequest {
        self.request.clone()
    }

    /// When the request left, so far.
    pub fn writes(&self) -> WriteMarks {
        let state = self.lane.shared.wire.lock();
        self.stream
            .and_then(|stream| state.streams.get(&stream))
            .map_or(self.answer.outcome.writes, |log| log.writes)
    }

    /// Bytes of the answer's body so far.
    pub fn body_bytes(&self) -> usize {
        self.answer.outcome.body.len()
    }

    /// The lane that it runs on.
    pub fn lane(&self) -> &H2Lane {
        &self.lane
    }

    /// Drives a released exchange; the connection is driven by its owner.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        debug_assert!(self.released, "an armed exchange is driven by poll_armed");
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Armed(Some(head)) => self.send(*head),
            State::Armed(None) => {
                let detail = "the request's target or host cannot stand in an HTTP/2 head".to_owned();
                self.end(Some(ExchangeError { kind: ExchangeErrorKind::Unsendable, detail }), None);
            }
            state => self.state = state,
        }
        self.watch_window(cx);
        for _ in 0..ROUNDS {
            if matches!(self.state, State::Ended) {
                return Poll::Ready(());
            }
            if self.step(cx).is_pending() {
                return Poll::Pending;
            }
        }
        if matches!(self.state, State::Ended) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Hands the request over and writes.
    fn send(&mut self, head: http::Request<()>) {
        let shared = Arc::clone(&self.lane.shared);
        let mut core = shared.core();
        if core.active == 0 {
            // An end that is known by now moves the request elsewhere. No system call is made unless something arrived;
            // where streams run, reading could take long.
            core.drive(&shared.wire, 1, false);
        }
        if !core.is_open() {
            core.tell_the_end();
            let detail = core.ended().unwrap_or("the peer announced its end").to_owned();
            drop(core);
            return self.unsent(detail);
        }
        match self.hand_over(&mut core, &shared, head) {
            Ok(()) => {
                core.drive(&shared.wire, 0, true);
                core.tell_the_end();
            }
            Err(error) => {
                core.retire();
                drop(core);
                self.unsent(error.to_string());
            }
        }
    }

    fn hand_over(
        &mut self,
        core: &mut Core,
        shared: &Shared,
        head: http::Request<()>,
    ) -> Result<(), h2::Error> {
        // A clone of the sender waits for no other request of this connection.
        let (response, mut upload) = core.sender.clone().send_request(head, self.request.body.is_empty())?;
        let stream = response.stream_id().as_u32();
        shared.wire.register(stream);
        self.stream = Some(stream);
        self.answer.outcome.stream = Some(stream);
        core.begin();
        if !self.request.body.is_empty() {
            // It can't fail: the stream was opened just now.
            upload.send_data(self.request.body.unsent(), true)?;
        }
        (self.state, self.upload) = (State::Head(response), Some(upload));
        Ok(())
    }

    fn unsent(&mut self, detail: String) {
        self.end(Some(ExchangeError { kind: ExchangeErrorKind::ClosedBeforeWrite, detail }), None);
    }

    /// Notes when the request began to wait for the peer's window.
    fn watch_window(&mut self, cx: &mut Context<'_>) {
        if self.starved_ns.is_some() || self.upload.is_none() {
            return;
        }
        let Some(stream) = self.stream else { return };
        let wire = self.lane.shared.wire.lock();
        let Some(log) = wire.streams.get(&stream) else { return };
        if log.sent {
            drop(wire);
            self.upload = None;
        } else if wire.slice_used() {
            // The owner sends the next slice first.
            let _pending = poll_turn(cx);
        } else if !wire.socket_full {
            drop(wire);
            self.starved_ns = Some(self.lane.shared.clock.now());
        }
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.state {
            State::Armed(_) | State::Ended => Poll::Ready(()),
            State::Head(head) => {
                if let Poll::Ready(Some(Ok(_))) = head.poll_informational(cx) {
                    self.informational += 1;
                    if self.informational > MAX_INFORMATIONAL {
                        let detail = format!("more than {MAX_INFORMATIONAL} informational answers");
                        self.end(Some(ExchangeError { kind: ExchangeErrorKind::HeadTooLarge, detail }), None);
                    }
                    return Poll::Ready(());
                }
                match Pin::new(head).poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(response)) => self.begin_body(response),
                    Poll::Ready(Err(error)) => self.fail(&error),
                }
                Poll::Ready(())
            }
            State::Body(body) => {
                match body.poll_data(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(data))) => {
                        // At once, so that no stream is held up by what another one has not taken.
                        let _closed = body.flow_control().release_capacity(data.len());
                        self.take_body(&data);
                    }
                    Poll::Ready(Some(Err(error))) => self.fail(&error),
                    Poll::Ready(None) => self.end(None, None),
                }
                Poll::Ready(())
            }
        }
    }

    fn begin_body(&mut self, response: http::Response<RecvStream>) {
        let (head, body) = response.into_parts();
        let read = {
            let wire = self.lane.shared.wire.lock();
            let log = self.stream.and_then(|stream| wire.streams.get(&stream));
            log.and_then(|log| log.heads.get(self.informational as usize).or(log.heads.last()).copied())
        };
        self.answer.outcome.response = Some(Response {
            status: head.status,
            version: head.version,
            headers: head.headers,
            read: read.unwrap_or(0),
        });
        self.state = State::Body(body);
    }

    fn take_body(&mut self, data: &Bytes) {
        let (reads, stamps) = {
            let wire = self.lane.shared.wire.lock();
            let log = self.stream.and_then(|stream| wire.streams.get(&stream));
            log.map_or((0, (0, 0)), |log| (log.reads.len(), (log.reads.capacity(), log.marks.capacity())))
        };
        let taken = self.answer.check_reads(reads).and_then(|()| self.answer.take(data, stamps));
        if let Err(error) = taken {
            self.end(Some(error), None);
        }
    }

    fn fail(&mut self, error: &h2::Error) {
        let shared = Arc::clone(&self.lane.shared);
        let wire = shared.wire.lock();
        let log = self.stream.and_then(|stream| wire.streams.get(&stream));
        let written = log.map_or(0, |log| log.writes.bytes);
        let nothing_came = log.is_none_or(|log| log.reads.is_empty());
        let reset = log.and_then(|log| log.reset);
        let refused_above =
            wire.go_away.filter(|at| self.stream.is_some_and(|stream| stream > at.last_stream));
        let in_head = self.answer.outcome.response.is_none();
        let (kind, detail) = if let Some(code) = reset.filter(|_| error.is_reset()) {
            (ExchangeErrorKind::of_reset(code), format!("RST_STREAM, {}", code_name(code)))
        } else if let Some(at) = refused_above {
            let kind = if written == 0 {
                ExchangeErrorKind::ClosedBeforeWrite
            } else {
                ExchangeErrorKind::StreamRefused
            };
            (
                kind,
                format!(
                    "GOAWAY, {}: nothing above stream {} was looked at",
                    code_name(at.code),
                    at.last_stream
                ),
            )
        } else if written == 0 && in_head {
            (ExchangeErrorKind::ClosedBeforeWrite, error.to_string())
        } else if !error.is_io() && !error.is_remote() {
            let kind = if in_head { ExchangeErrorKind::Malformed } else { ExchangeErrorKind::BadFraming };
            (kind, format!("the answer breaks the rules of HTTP/2: {error}"))
        } else if in_head && nothing_came {
            (ExchangeErrorKind::ResetBeforeResponse, said(&wire.go_away, error))
        } else if in_head {
            (ExchangeErrorKind::ResetInHead, said(&wire.go_away, error))
        } else {
            (ExchangeErrorKind::ResetMidResponse, said(&wire.go_away, error))
        };
        drop(wire);
        self.end(Some(ExchangeError { kind, detail }), None);
    }

    fn end(&mut self, error: Option<ExchangeError>, at: Option<RunNs>) {
        // The stream is let go first: what is left of it is reset.
        self.state = State::Ended;
        self.upload = None;
        let shared = Arc::clone(&self.lane.shared);
        let log = match self.stream.take() {
            Some(stream) => {
                shared.core().end();
                shared.wire.forget(stream)
            }
            None => StreamLog::default(),
        };
        let outcome = &mut self.answer.outcome;
        let waited = self.starved_ns.zip(log.writes.last_ns).map(|(since, last)| last.since(since));
        outcome.window_wait_ns = waited.filter(|_| log.sent).map(|waited| waited.max(0));
        if outcome.window_wait_ns.is_none() && !log.sent {
            outcome.window_wait_ns = self.starved_ns.map(|since| shared.clock.now().since(since).max(0));
        }
        outcome.writes = log.writes;
        outcome.reads = log.reads;
        outcome.marks = log.marks;
        let body = outcome.body.len() as u64;
        // Frames that came and were not taken any more.
        while outcome.marks.len() > 1 && outcome.marks[outcome.marks.len() - 2].end_offset >= body {
            outcome.marks.pop();
        }
        if let Some(last) = outcome.marks.last_mut() {
            last.end_offset = last.end_offset.min(body);
        }
        outcome.marks.retain(|mark| mark.end_offset > 0);
        let last_read = outcome.reads.last().map(|read| read.user_ns);
        outcome.end_ns = at.or(match &error {
            Some(error) if !error.kind.is_said_by_peer() => Some(shared.clock.now()),
            _ => last_read.or_else(|| Some(shared.clock.now())),
        });
        outcome.error = error;
        self.reusable = shared.core().is_open();
        outcome.reusable = self.reusable;
    }

    /// Gives the exchange up at `now`: the stream is reset, the connection goes on.
    pub fn abort(&mut self, now: RunNs, detail: &str) {
        if !matches!(self.state, State::Ended) {
            let error = ExchangeError { kind: ExchangeErrorKind::Aborted, detail: detail.to_owned() };
            self.end(Some(error), Some(now));
        }
    }

    /// What happened, and the lane if it can be used again.
    pub fn finish(self) -> (ExchangeOutcome, Option<H2Lane>) {
        (self.answer.outcome, self.reusable.then_some(self.lane))
    }
}

fn said(go_away: &Option<super::wire::GoAway>, error: &h2::Error) -> String {
    let cause = error.get_io().map_or_else(|| error.to_string(), io::Error::to_string);
    match go_away {
        Some(at) => format!("GOAWAY, {}, and the connection ended: {cause}", code_name(at.code)),
        None => cause,
    }
}

impl ExchangeErrorKind {
    /// What a stream's reset with this code is.
    fn of_reset(code: u32) -> Self {
        match code {
            7 => ExchangeErrorKind::StreamRefused,
            1 => ExchangeErrorKind::StreamReset(StreamCode::Protocol),
            2 => ExchangeErrorKind::StreamReset(StreamCode::Internal),
            3 => ExchangeErrorKind::StreamReset(StreamCode::FlowControl),
            8 => ExchangeErrorKind::StreamReset(StreamCode::Cancel),
            11 => ExchangeErrorKind::StreamReset(StreamCode::Calm),
            13 => ExchangeErrorKind::StreamReset(StreamCode::Http1Required),
            _ => ExchangeErrorKind::StreamReset(StreamCode::Other),
        }
    }
}
