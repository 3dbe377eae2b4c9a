//! How attempts and requests end.

use std::sync::atomic::Ordering;

use tracewheel_clock::{Clock, RunNs};
use tracewheel_timeline::vocab::{AttemptStatus, Reason, RequestStatus};
use tracewheel_transport::{ExchangeErrorKind, ExchangeOutcome, StreamCode};

use crate::message::{EndedAttempt, RecorderMessage, TurnToRead, close};
use crate::retry::{Answer, Failure, ServerDelay, Verdict, chance, server_delay_ns};
use crate::shared::Halt;
use crate::stamp::best_ns;

use super::Worker;
use super::flight::{Flight, Stage};

/// Connections that may break under one attempt before a byte is written; then it counts as a broken attempt.
const MAX_MOVES: u8 = 16;

/// How an attempt ended.
struct AttemptEnd {
    status: AttemptStatus,
    reason: Option<Reason>,
    outcome: Option<Box<ExchangeOutcome>>,
    end_ns: i64,
    detail: Option<String>,
}

impl Worker {
    pub(super) fn exchange_ended(&mut self, number: u32, outcome: Box<ExchangeOutcome>) {
        let flight = self.flights.get(number);
        let error = outcome.error.as_ref();
        if error.is_some_and(|error| error.kind == ExchangeErrorKind::ClosedBeforeWrite)
            && flight.moves < MAX_MOVES
        {
            flight.moves += 1;
            flight.stage = Stage::Unarmed;
            flight.lost_connection = true;
            self.shared.gauges.stale_connections.fetch_add(1, Ordering::Relaxed);
            self.tend_by(0);
            return self.arm_again(number);
        }
        if let Some(ns) = outcome.window_wait_ns {
            self.tending.counts.window_waits += 1;
            let longest = &mut self.tending.counts.window_wait_max_ns;
            *longest = Some(longest.map_or(ns, |known| known.max(ns)));
        }
        let (status, reason) = judge(&outcome);
        let detail = error.map(|error| error.detail.clone());
        let end_ns = end_ns(&outcome).unwrap_or_else(|| self.shared.clock.now().0);
        self.end_attempt(number, AttemptEnd { status, reason, outcome: Some(outcome), end_ns, detail });
    }

    /// Ends a released attempt that never got a connection.
    pub(super) fn fail_unconnected(&mut self, number: u32, reason: Reason, detail: String) {
        let end = AttemptEnd {
            status: AttemptStatus::Failed,
            reason: Some(reason),
            outcome: None,
            end_ns: self.shared.clock.now().0,
            detail: Some(detail),
        };
        self.end_attempt(number, end);
    }

    pub(super) fn time_out(&mut self, number: u32) {
        let flight = self.flights.get(number);
        let reason = match flight.stage {
            Stage::Starving | Stage::Unarmed => Reason::ConnectionLimit,
            Stage::Connecting(_) if flight.starved => Reason::ConnectionLimit,
            Stage::Connecting(_) => Reason::ConnectTimeout,
            Stage::Armed(_) | Stage::Running(_) => Reason::TotalTimeout,
        };
        self.abort_attempt(number, AttemptStatus::Failed, reason);
    }

    /// The recorded client left now.
    pub(super) fn cancel(&mut self, number: u32) {
        if self.flights.get(number).released_ns.is_some() {
            self.abort_attempt(number, AttemptStatus::Cancelled, Reason::CancelledAsRecorded);
        } else {
            self.end_between_attempts(number, RequestStatus::Cancelled, Reason::CancelledAsRecorded);
        }
    }

    /// The run ends before the request does.
    pub(super) fn interrupt(&mut self, number: u32) {
        let reason = match self.halt {
            Halt::DrainLimit => Reason::InterruptedByDrainLimit,
            Halt::Abort => Reason::InterruptedByAbort,
            Halt::Running | Halt::Drain | Halt::Cut => Reason::InterruptedByUser,
        };
        if self.flights.get(number).released_ns.is_some() {
            self.abort_attempt(number, AttemptStatus::Interrupted, reason);
        } else {
            self.end_between_attempts(number, RequestStatus::Interrupted, reason);
        }
    }

    fn abort_attempt(&mut self, number: u32, status: AttemptStatus, reason: Reason) {
        let now = self.shared.clock.now();
        let outcome = self.leave_connection(number, now, reason.as_str());
        let no_head = outcome.as_ref().is_some_and(|outcome| outcome.response.is_none());
        let reason = match reason {
            Reason::TotalTimeout if no_head => Reason::ResponseTimeout,
            reason => reason,
        };
        let end = AttemptEnd { status, reason: Some(reason), outcome, end_ns: now.0, detail: None };
        self.end_attempt(number, end);
        self.feed_starving();
    }

    /// Takes a flight from whatever connection it has or waits for.
    fn leave_connection(&mut self, number: u32, now: RunNs, why: &str) -> Option<Box<ExchangeOutcome>> {
        let flight = self.flights.get(number);
        let pool = flight.pool;
        match std::mem::replace(&mut flight.stage, Stage::Unarmed) {
            Stage::Unarmed => None,
            Stage::Starving => {
                self.pools[pool].starving.retain(|waiting| *waiting != number);
                None
            }
            Stage::Connecting(slot) => {
                self.pools[pool].slots.disown(slot);
                None
            }
            Stage::Armed(slot) | Stage::Running(slot) => self.pools[pool].slots.abort(slot, now, why),
        }
    }

    fn end_attempt(&mut self, number: u32, end: AttemptEnd) {
        let flight = self.flights.get(number);
        if let Some(key) = flight.alarms.timeout.take() {
            self.chores.cancel(key);
        }
        flight.stage = Stage::Unarmed;
        let end_unix_ns = self.shared.clock.wall(RunNs(end.end_ns));
        let answer = end.outcome.as_ref().and_then(|outcome| {
            let head = outcome.response.as_ref()?;
            Some(Answer { status: head.status.as_u16(), headers: &head.headers, body: &outcome.body })
        });
        // Whatever the policy makes of it, it is recorded.
        let retry_after_ns = answer.filter(|_| end.status == AttemptStatus::Failed).and_then(|answer| {
            let ways = ServerDelay::ALL.map(|(_, way)| way);
            server_delay_ns(&ways, answer.headers, answer.body, end_unix_ns)
        });
        let verdict = match end.reason {
            Some(reason) if end.status == AttemptStatus::Failed && self.halt < Halt::DrainLimit => {
                let retries = u32::from(flight.attempt - 1);
                let elapsed_ns = end.end_ns.saturating_sub(flight.record.due_ns);
                let failure = Failure {
                    reason,
                    response: answer,
                    end_unix_ns,
                    retries,
                    last_delay_ns: flight.last_delay_ns,
                    elapsed_ns,
                    streamed: flight.stream,
                };
                let (seed, id) = (self.rules.seed, flight.request_id);
                self.rules.retry.decide(failure, || chance(seed, id, retries))
            }
            _ => Verdict::Final,
        };
        let mut ended = Box::new(EndedAttempt {
            row: flight.record.row,
            copy: flight.record.copy,
            attempt: flight.attempt,
            phase: flight.record.phase,
            provider: flight.provider,
            answer: flight.answer,
            due_ns: flight.due_ns,
            released_ns: flight.released_ns.unwrap_or(flight.due_ns),
            in_flight: flight.in_flight_seen,
            connection: flight.used.take(),
            status: end.status,
            reason: end.reason,
            retry_after_ns,
            outcome: end.outcome.map(|outcome| *outcome),
            end_ns: end.end_ns,
            detail: end.detail,
            closes: None,
        });
        match verdict {
            Verdict::Retry { delay_ns } => {
                self.outbox.post(RecorderMessage::Attempt(ended));
                self.retry(number, end.end_ns, delay_ns);
            }
            Verdict::Final => {
                let mut flight = self.take_off(number);
                close(&mut flight.record, end.status.into(), end.reason);
                flight.record.final_attempt = flight.attempt;
                flight.record.attempts = flight.attempt;
                let reads = self.turn_ended(&flight, end.status.into(), end.end_ns);
                ended.closes = Some(flight.record);
                match reads {
                    Some((session, worker)) => {
                        let draft = flight.draft;
                        self.outbox.post_to_read(TurnToRead { ended, session, worker, draft });
                    }
                    None => self.outbox.post(RecorderMessage::Attempt(ended)),
                }
                self.pump();
            }
        }
    }

    fn retry(&mut self, number: u32, end_ns: i64, delay_ns: i64) {
        let flight = self.flights.get(number);
        flight.attempt += 1;
        flight.due_ns = end_ns.saturating_add(delay_ns);
        flight.record.backoff_ns = flight.record.backoff_ns.saturating_add(delay_ns);
        (flight.released_ns, flight.last_delay_ns) = (None, Some(delay_ns));
        (flight.moves, flight.starved, flight.lost_connection) = (0, false, false);
        if flight.is_measured() {
            self.shared.gauges.retries.fetch_add(1, Ordering::Relaxed);
        }
        self.schedule(number);
    }

    /// Ends a request that waits for a retry.
    fn end_between_attempts(&mut self, number: u32, status: RequestStatus, reason: Reason) {
        let now = self.shared.clock.now();
        self.leave_connection(number, now, reason.as_str());
        let mut flight = self.take_off(number);
        close(&mut flight.record, status, Some(reason));
        flight.record.attempts = flight.attempt - 1;
        flight.record.final_attempt = flight.attempt - 1;
        flight.record.end_ns = Some(now.0);
        let _unread = self.turn_ended(&flight, status, now.0);
        self.outbox.post(RecorderMessage::Request(flight.record));
        self.pump();
        self.feed_starving();
    }

    /// Ends a request that was never released.
    pub(super) fn drop_unsent(&mut self, number: u32) {
        let now = self.shared.clock.now();
        let reason = match self.shared.aborted() {
            Some(_) => Reason::RunAborted,
            None => Reason::StoppedByUser,
        };
        self.leave_connection(number, now, reason.as_str());
        self.line.retain(|waiting| *waiting != number);
        let mut flight = self.take_off(number);
        close(&mut flight.record, RequestStatus::Unsent, Some(reason));
        self.outbox.post(RecorderMessage::Request(flight.record));
    }

    /// Ends a request that will not be sent although the run goes on.
    pub(super) fn pass_over(&mut self, number: u32, reason: Reason) {
        let now = self.shared.clock.now();
        self.leave_connection(number, now, reason.as_str());
        let mut flight = self.take_off(number);
        close(&mut flight.record, RequestStatus::Unsent, Some(reason));
        if flight.is_planned() {
            self.shared.gauges.passed_over.fetch_add(1, Ordering::Relaxed);
        }
        let _unread = self.turn_ended(&flight, RequestStatus::Unsent, now.0);
        self.outbox.post(RecorderMessage::Request(flight.record));
    }

    /// Takes a flight out of every list.
    fn take_off(&mut self, number: u32) -> Flight {
        let flight = self.flights.remove(number);
        let alarms = flight.alarms;
        if let Some(key) = alarms.send {
            self.sends.cancel(key);
        }
        for key in [alarms.arm, alarms.write, alarms.timeout, alarms.cancel].into_iter().flatten() {
            self.chores.cancel(key);
        }
        self.give_place_back(flight.place, flight.body.own_bytes());
        if flight.passed_gate {
            self.leave_gate();
        }
        if flight.begun {
            self.under_way -= 1;
            self.shared.gauges.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        flight
    }
}

/// What the transport and the status say; the body may still say otherwise.
fn judge(outcome: &ExchangeOutcome) -> (AttemptStatus, Option<Reason>) {
    let by_status = outcome.response.as_ref().and_then(|head| Reason::from_http_status(head.status.as_u16()));
    let by_transport = outcome.error.as_ref().map(|error| match error.kind {
        ExchangeErrorKind::ClosedBeforeWrite | ExchangeErrorKind::ResetBeforeResponse => {
            Reason::ResetBeforeResponse
        }
        ExchangeErrorKind::ResetInHead => Reason::ResetInHeaders,
        ExchangeErrorKind::ResetMidResponse => Reason::ResetMidStream,
        ExchangeErrorKind::Malformed => Reason::HttpProtocol,
        ExchangeErrorKind::AnsweredTls => Reason::HttpsExpected,
        ExchangeErrorKind::AnsweredHttp2 => Reason::Http2Only,
        ExchangeErrorKind::StreamRefused => Reason::StreamRefused,
        ExchangeErrorKind::StreamReset(code) => stream_reason(code),
        ExchangeErrorKind::BadFraming => Reason::HttpFraming,
        ExchangeErrorKind::HeadTooLarge => Reason::HeadTooLarge,
        ExchangeErrorKind::BodyTooLarge => Reason::LimitExceeded,
        // Who aborts says why; an exchange that ends by itself was not aborted.
        ExchangeErrorKind::Aborted | ExchangeErrorKind::Unsendable => Reason::Internal,
    });
    match by_status.or(by_transport) {
        None => (AttemptStatus::Ok, None),
        Some(reason) => (AttemptStatus::Failed, Some(reason)),
    }
}

/// What a stream that was reset is called, by the code.
fn stream_reason(code: StreamCode) -> Reason {
    match code {
        StreamCode::Cancel => Reason::StreamCancelled,
        StreamCode::Internal => Reason::StreamInternalError,
        StreamCode::Calm => Reason::StreamCalm,
        StreamCode::Protocol | StreamCode::FlowControl => Reason::StreamProtocol,
        StreamCode::Http1Required => Reason::Http1Only,
        StreamCode::Other => Reason::StreamReset,
    }
}

/// When an exchange ended: the kernel's stamp of the read that completed it, where it has one.
pub(super) fn end_ns(outcome: &ExchangeOutcome) -> Option<i64> {
    let end = outcome.end_ns?;
    match outcome.reads.last() {
        Some(read) if read.user_ns == end => Some(best_ns(read)),
        _ => Some(end.0),
    }
}
