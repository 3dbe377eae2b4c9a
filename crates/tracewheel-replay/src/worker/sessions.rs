//! Sessions in which a turn waits for the one before it.
//!
//! A turn that waits is ready but in no wheel: it has no due time until the turn before it has ended. It gives its place
//! in the look-ahead back while it waits, within a bound of its own, so that conversations that fall behind do not keep
//! new ones from beginning.
//!
//! Whether a turn's answer was whole, and without an error inside, the reader says a moment after its end; the next turn
//! waits for that too. What this adds to the recorded pause is part of the turn's due time, and so of its drift.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tracewheel_clock::Clock;
use tracewheel_timeline::vocab::{Reason, RequestStatus};

use crate::config::{AfterFailure, SessionMode, SessionRule};
use crate::message::{Heard, TurnToWrite, WrittenTurn};
use crate::reader::goes_on;

use super::flight::{Flight, Place};
use super::turn::WORK_A_TURN;
use super::{Chore, Pace, Worker};

/// Turns that may wait without a place in the look-ahead, and bytes of their bodies.
const MOST_PARKED: usize = 1 << 16;
const MOST_PARKED_BYTES: usize = 256 << 20;
/// A turn's body is written so long before it is due, for a reader that is behind, and no longer: it takes memory.
const WRITE_AHEAD_NS: i64 = 1_000_000_000;
/// Sessions without a turn under way that are remembered, twice: beyond them the ones used longest ago are forgotten, and
/// what follows in them counts as a first turn.
const MOST_IDLE: usize = 1 << 19;

/// The sessions of one worker.
#[derive(Debug)]
pub(super) struct Sessions {
    rule: SessionRule,
    /// The worker's number.
    worker: u32,
    /// What the reader says of turns that ended.
    reader: Option<mpsc::Receiver<Heard>>,
    /// What it said while the worker rested.
    heard: Option<Heard>,
    /// With a turn under way or waiting.
    active: HashMap<u64, Session>,
    /// The others, younger and older.
    idle: [HashMap<u64, Turn>; 2],
    waiting: usize,
    parked: usize,
    parked_bytes: usize,
}

#[derive(Debug)]
struct Session {
    last: Turn,
    /// The next turn's body is being written; when the turn is due.
    writing: Option<i64>,
    waiting: VecDeque<u32>,
}

/// The latest turn of a session that has a due time.
#[derive(Debug, Clone, Copy)]
struct Turn {
    row: u64,
    planned_ns: i64,
    due_ns: i64,
    end: Option<TurnEnd>,
}

#[derive(Debug, Clone, Copy)]
struct TurnEnd {
    at_ns: i64,
    after: After,
}

/// What a turn's end means for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The reader has yet to say.
    Unread,
    /// The conversation can go on, not before this time.
    GoesOn { from_ns: i64 },
    /// The turn failed.
    Failed,
}

impl Session {
    fn after(last: Turn) -> Session {
        Session { last, writing: None, waiting: VecDeque::new() }
    }
}

impl Turn {
    fn went_well(&self) -> bool {
        self.end.is_some_and(|end| matches!(end.after, After::GoesOn { .. }))
    }

    /// It has ended, and what that means is known.
    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end.after != After::Unread)
    }
}

/// What becomes of the first turn that waits.
enum Next {
    Due(i64),
    PassedOver,
    Waits,
}

impl Sessions {
    pub(super) fn new(rule: SessionRule, worker: u32, reader: Option<mpsc::Receiver<Heard>>) -> Self {
        Sessions {
            rule,
            worker,
            reader,
            heard: None,
            active: HashMap::new(),
            idle: [HashMap::new(), HashMap::new()],
            waiting: 0,
            parked: 0,
            parked_bytes: 0,
        }
    }

    /// Turns that wait for the one before.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether the reader has said something that was not taken yet.
    pub(super) fn hears(&self) -> bool {
        self.heard.is_some() || self.reader.as_ref().is_some_and(|reader| !reader.is_empty())
    }

    /// Ready when it has; asks to be woken otherwise.
    pub(super) fn poll_hear(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(reader) = &mut self.reader else { return Poll::Pending };
        match reader.poll_recv(cx) {
            Poll::Ready(Some(heard)) => self.heard = Some(heard),
            Poll::Ready(None) => self.reader = None,
            Poll::Pending => return Poll::Pending,
        }
        Poll::Ready(())
    }

    /// The next thing that the reader said.
    fn next_heard(&mut self) -> Option<Heard> {
        self.heard.take().or_else(|| self.reader.as_mut()?.try_recv().ok())
    }

    /// Nothing follows any more.
    pub(super) fn close(&mut self) {
        (self.active, self.waiting) = (HashMap::new(), 0);
        self.idle = [HashMap::new(), HashMap::new()];
    }

    fn recall(&mut self, session: u64) -> Option<Turn> {
        let [younger, older] = &mut self.idle;
        younger.remove(&session).or_else(|| older.remove(&session))
    }

    fn lay_aside(&mut self, session: u64, last: Turn) {
        let [younger, older] = &mut self.idle;
        if younger.len() >= MOST_IDLE {
            *older = std::mem::take(younger);
        }
        younger.insert(session, last);
    }

    /// What the turn before makes of this one.
    fn next(&self, last: &Turn, flight: &Flight) -> Next {
        // It was sent before the answer was there: it keeps its distance from that turn's beginning.
        if flight.think_ns.is_some_and(|think| think < 0) {
            return Next::Due(last.due_ns.saturating_add(flight.record.planned_ns - last.planned_ns));
        }
        let Some(end) = last.end else { return Next::Waits };
        let from_ns = match end.after {
            After::Unread => return Next::Waits,
            After::Failed if self.rule.after_failure == AfterFailure::Stop => return Next::PassedOver,
            After::Failed => end.at_ns,
            After::GoesOn { from_ns } => from_ns,
        };
        let due_ns = match flight.think_ns {
            Some(think) => end.at_ns.saturating_add(think),
            // How long the person took is not known: not before either.
            None => flight.record.planned_ns.max(end.at_ns),
        };
        Next::Due(due_ns.max(from_ns))
    }

    /// A place that a waiting turn does not take from the look-ahead; false where there is none left.
    fn park(&mut self, bytes: usize) -> bool {
        let fits = self.parked < MOST_PARKED && self.parked_bytes + bytes <= MOST_PARKED_BYTES;
        if fits {
            self.parked += 1;
            self.parked_bytes += bytes;
        }
        fits
    }

    /// A body that has such a place became another one.
    fn resize(&mut self, from_bytes: usize, to_bytes: usize) {
        self.parked_bytes = self.parked_bytes + to_bytes - from_bytes;
    }

    /// Gives such a place back.
    pub(super) fn unpark(&mut self, bytes: usize) {
        self.parked -= 1;
        self.parked_bytes -= bytes;
    }
}

impl Worker {
    /// Gives a request its due time, or lets it wait for the turn before it.
    pub(super) fn admit_turn(&mut self, number: u32) {
        let flight = self.flights.get(number);
        let session = flight.record.strata.session_hash;
        let gates = self.sessions.rule.mode == SessionMode::AfterPrevious && self.pace == Pace::Open;
        let Some(session) = session.filter(|_| gates && flight.is_planned()) else {
            return self.schedule(number);
        };
        if !self.sessions.active.contains_key(&session) {
            match self.sessions.recall(session) {
                Some(last) => {
                    self.sessions.active.insert(session, Session::after(last));
                }
                None => {
                    let last = turn_of(flight);
                    self.sessions.active.insert(session, Session::after(last));
                    return self.schedule(number);
                }
            }
        }
        if let Some(known) = self.sessions.active.get_mut(&session) {
            known.waiting.push_back(number);
            self.sessions.waiting += 1;
        }
        self.go_on(session);
        let Some(flight) = self.flights.known(number) else { return };
        if flight.alarms.arm.is_none() && flight.place == Place::LookAhead {
            let bytes = flight.body.own_bytes();
            if self.sessions.park(bytes) {
                flight.place = Place::Parked;
                self.budget.give_back(bytes);
            }
        }
    }

    /// A request has ended: perhaps another one waited for that. Where only its answer tells what follows: the session and
    /// this worker's number, for the reader.
    pub(super) fn turn_ended(
        &mut self,
        flight: &Flight,
        status: RequestStatus,
        at_ns: i64,
    ) -> Option<(u64, u32)> {
        let session = flight.record.strata.session_hash?;
        let known = self.sessions.active.get_mut(&session)?;
        if known.last.row != flight.record.row || known.last.end.is_some() {
            return None;
        }
        let after = match status {
            RequestStatus::Ok if self.sessions.reader.is_some() => After::Unread,
            status if goes_on(status) => After::GoesOn { from_ns: at_ns },
            _ => After::Failed,
        };
        known.last.end = Some(TurnEnd { at_ns, after });
        self.go_on(session);
        (after == After::Unread).then_some((session, self.sessions.worker))
    }

    /// Takes in what the reader says of turns that ended.
    pub(super) fn hear(&mut self) {
        for _ in 0..WORK_A_TURN {
            if !self.sessions.hears() || !self.may_work() {
                return;
            }
            match self.sessions.next_heard() {
                Some(Heard::Ended { session, row, well }) => self.heard_of(session, row, well),
                Some(Heard::Written(turn)) => self.take_written(*turn),
                None => return,
            }
        }
    }

    /// What a turn's end means is known.
    fn heard_of(&mut self, session: u64, row: u64, well: bool) {
        let Some(known) = self.sessions.active.get_mut(&session) else { return };
        if let Some(end) = known.last.end.as_mut().filter(|_| known.last.row == row) {
            let from_ns = self.shared.clock.now().0;
            end.after = if well { After::GoesOn { from_ns } } else { After::Failed };
            self.go_on(session);
        }
    }

    /// Sees to it that the reader writes the body of a turn that waits for nothing else, shortly before it is due: it may be
    /// long, and the pause too. False where it goes as it is.
    fn let_write(&mut self, session: u64, number: u32, due_ns: i64) -> bool {
        let flight = self.flights.get(number);
        // What was sent before the answer was there cannot hold it.
        if flight.draft.is_none() || flight.think_ns.is_some_and(|think| think < 0) {
            return false;
        }
        let Some(known) = self.sessions.active.get_mut(&session) else { return false };
        known.writing = Some(due_ns);
        self.sessions.waiting += 1;
        let at = due_ns.saturating_sub(WRITE_AHEAD_NS);
        if at > self.shared.clock.now().0 {
            flight.alarms.write = Some(self.chores.insert(at, Chore::Write(number)));
        } else {
            self.write(number);
        }
        true
    }

    /// Lets the reader write a turn's body.
    pub(super) fn write(&mut self, number: u32) {
        let worker = self.sessions.worker;
        let flight = self.flights.get(number);
        flight.alarms.write = None;
        let (provider, session) = (flight.provider, flight.record.strata.session_hash);
        let known = session.and_then(|session| self.sessions.active.get(&session));
        if let (Some(session), Some(known), Some(draft)) = (session, known, flight.draft.take()) {
            let after_row = known.last.went_well().then_some(known.last.row);
            self.outbox.post_to_write(TurnToWrite { number, session, after_row, worker, provider, draft });
        }
    }

    /// A turn's body is written: it gets its due time.
    fn take_written(&mut self, turn: WrittenTurn) {
        let WrittenTurn { number, session, draft, body, asked_input_tokens } = turn;
        // After a stop nobody waits for it any more.
        let Some(known) = self.sessions.active.get_mut(&session) else { return };
        let Some(due_ns) = known.writing.take() else { return };
        self.sessions.waiting -= 1;
        let flight = self.flights.get(number);
        flight.draft = Some(draft);
        if let Some(body) = body {
            let (from, to) = (flight.body.own_bytes(), body.own_bytes());
            match flight.place {
                Place::LookAhead => self.budget.resize(from, to),
                Place::Parked => self.sessions.resize(from, to),
                Place::None => {}
            }
            flight.body = body;
            flight.record.asked_input_tokens = asked_input_tokens.or(flight.record.asked_input_tokens);
        }
        let due_ns = due_ns.max(self.shared.clock.now().0);
        self.due_turn(session, number, due_ns);
        self.go_on(session);
    }

    /// Gives a turn its due time.
    fn due_turn(&mut self, session: u64, number: u32, due_ns: i64) {
        let flight = self.flights.get(number);
        (flight.due_ns, flight.record.due_ns, flight.record.gated) = (due_ns, due_ns, true);
        let last = turn_of(flight);
        if let Some(known) = self.sessions.active.get_mut(&session) {
            known.last = last;
        }
        self.schedule(number);
    }

    /// Gives due times to the turns of a session that may have one.
    fn go_on(&mut self, session: u64) {
        // Turns that are passed over end here too: one loop for all, instead of one within another.
        while let Some(known) = self.sessions.active.get(&session) {
            if known.writing.is_some() {
                return;
            }
            let (last, head) = (known.last, known.waiting.front().copied());
            let Some(number) = head else {
                if last.is_over() {
                    self.sessions.active.remove(&session);
                    self.sessions.lay_aside(session, last);
                }
                return;
            };
            let flight = self.flights.get(number);
            let next = self.sessions.next(&last, flight);
            if matches!(next, Next::Waits) {
                return;
            }
            if let Some(known) = self.sessions.active.get_mut(&session) {
                known.waiting.pop_front();
                self.sessions.waiting -= 1;
            }
            match next {
                Next::Due(due_ns) => {
                    if !self.let_write(session, number, due_ns) {
                        self.due_turn(session, number, due_ns);
                    }
                }
                Next::PassedOver => self.pass_over(number, Reason::PreviousTurnFailed),
                Next::Waits => return,
            }
        }
    }
}

fn turn_of(flight: &Flight) -> Turn {
    let record = &flight.record;
    Turn { row: record.row, planned_ns: record.planned_ns, due_ns: record.due_ns, end: None }
}
