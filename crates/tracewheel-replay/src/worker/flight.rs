//! Requests on their way: from the look-ahead to their last attempt's end.

use std::sync::Arc;

use http::{HeaderMap, Method, Uri};
use tracewheel_protocol::{AnswerForm, Provider};
use tracewheel_record::{ReleaseRecord, RequestRecord};
use tracewheel_timeline::vocab::Phase;
use tracewheel_transport::Body;
use tracewheel_wheel::Key;
use tracewheel_workload::PlannedRequest;

use crate::message::{ReadyRequest, UsedConnection};

use super::Head;

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has no connection yet; its due time is ahead, or it is in the closed loop's line.
    Unarmed,
    /// A connection is being made for it, in that slot.
    Connecting(u32),
    /// All connections that are allowed are in use.
    Starving,
    /// It lies encoded behind the valve of the connection in that slot.
    Armed(u32),
    /// It was released on the connection in that slot.
    Running(u32),
}

/// Which bound a request that has not left counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The look-ahead.
    LookAhead,
    /// That of turns that wait for the one before.
    Parked,
    /// None any more: it has left.
    None,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) record: Box<RequestRecord>,
    pub(super) request_id: u64,
    pub(super) provider: &'static dyn Provider,
    /// Number of its target's pool.
    pub(super) pool: usize,
    pub(super) head: Arc<Head>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// Recorded headers, in the place of the protocol's own.
    pub(super) headers: Option<Box<HeaderMap>>,
    pub(super) body: Body,
    /// What was planned, where the answer before it goes into its body.
    pub(super) draft: Option<Box<PlannedRequest>>,
    pub(super) cancel_after_ns: Option<i64>,
    /// Recorded pause after the previous turn's end.
    pub(super) think_ns: Option<i64>,
    /// Planned input and output tokens, for budgets.
    pub(super) tokens: u64,
    pub(super) stream: bool,
    pub(super) answer: AnswerForm,
    /// Number of the present or coming attempt, from 1.
    pub(super) attempt: u16,
    /// Wait before the present attempt; `None` for the first.
    pub(super) last_delay_ns: Option<i64>,
    /// When that attempt is due.
    pub(super) due_ns: i64,
    pub(super) stage: Stage,
    /// When the present attempt was released; `None` before it is (also during a back-off).
    pub(super) released_ns: Option<i64>,
    /// The first attempt was released: the request counts as in flight.
    pub(super) begun: bool,
    /// The place that it takes until it first has a connection to leave on, or ends. What waits for one is as much ahead
    /// of itself as what is not due yet, and as bounded.
    pub(super) place: Place,
    /// It has passed the client's budgets.
    pub(super) passed_gate: bool,
    /// Requests in flight when the present attempt was released.
    pub(super) in_flight_seen: u32,
    pub(super) used: Option<UsedConnection>,
    /// Connections that broke under the present attempt before a byte was written.
    pub(super) moves: u8,
    /// The server closed the present attempt's connection before a byte was written.
    pub(super) lost_connection: bool,
    /// Up to when the connection that it is armed on is known to be good.
    pub(super) good_until_ns: i64,
    /// The present attempt had to wait for a connection that it may have.
    pub(super) starved: bool,
    pub(super) alarms: Alarms,
}

/// Entries of the wheels that name a flight; all are taken out when it ends.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Alarms {
    pub(super) send: Option<Key>,
    pub(super) arm: Option<Key>,
    pub(super) write: Option<Key>,
    pub(super) timeout: Option<Key>,
    pub(super) cancel: Option<Key>,
}

impl Flight {
    pub(super) fn new(request: ReadyRequest) -> Self {
        Flight {
            due_ns: request.record.due_ns,
            record: request.record,
            request_id: request.request_id,
            provider: request.provider,
            pool: usize::from(request.target),
            head: request.head,
            method: request.method,
            uri: request.uri,
            headers: request.headers,
            body: request.body,
            draft: request.draft,
            cancel_after_ns: request.cancel_after_ns,
            think_ns: request.think_ns,
            tokens: request.tokens,
            stream: request.stream,
            answer: request.answer,
            attempt: 1,
            last_delay_ns: None,
            stage: Stage::Unarmed,
            released_ns: None,
            begun: false,
            place: Place::LookAhead,
            passed_gate: false,
            in_flight_seen: 0,
            used: None,
            moves: 0,
            lost_connection: false,
            good_until_ns: i64::MAX,
            starved: false,
            alarms: Alarms::default(),
        }
    }

    /// The release of the present attempt.
    pub(super) fn release(&self, released_ns: i64) -> ReleaseRecord {
        let record = &self.record;
        ReleaseRecord {
            row: record.row,
            copy: record.copy,
            attempt: self.attempt,
            phase: record.phase,
            planned_ns: record.planned_ns,
            due_ns: self.due_ns,
            gated: record.gated,
            trace_unix_ns: record.trace_unix_ns,
            released_ns,
        }
    }

    /// Whether it is of the plan, rather than sent ahead of it.
    pub(super) fn is_planned(&self) -> bool {
        !matches!(self.record.phase, Phase::Prime | Phase::Calibrate)
    }

    pub(super) fn is_measured(&self) -> bool {
        self.record.phase == Phase::Measure
    }
}

/// Flights by number; numbers are used again.
#[derive(Debug, Default)]
pub(super) struct Flights {
    entries: Vec<Option<Flight>>,
    free: Vec<u32>,
}

impl Flights {
    pub(super) fn insert(&mut self, flight: Flight) -> u32 {
        if let Some(number) = self.free.pop() {
            self.entries[number as usize] = Some(flight);
            return number;
        }
        self.entries.push(Some(flight));
        u32::try_from(self.entries.len() - 1).expect("the look-ahead and the connections bound the flights")
    }

    pub(super) fn remove(&mut self, number: u32) -> Flight {
        let flight = self.entries[number as usize].take().expect("a flight is removed once, when it ends");
        self.free.push(number);
        flight
    }

    pub(super) fn get(&mut self, number: u32) -> &mut Flight {
        self.entries[number as usize].as_mut().expect("wheels and slots name only flights that are under way")
    }

    /// The flight of that number, if it is still under way.
    pub(super) fn known(&mut self, number: u32) -> Option<&mut Flight> {
        self.entries[number as usize].as_mut()
    }

    /// When the flight of that number is due, if it is still under way.
    pub(super) fn due_ns(&self, number: u32) -> Option<i64> {
        self.entries[number as usize].as_ref().map(|flight| flight.due_ns)
    }

    /// Its target's pool, likewise.
    pub(super) fn pool(&self, number: u32) -> Option<usize> {
        self.entries[number as usize].as_ref().map(|flight| flight.pool)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn numbers(&self) -> Vec<u32> {
        (0u32..).zip(&self.entries).filter(|(_, entry)| entry.is_some()).map(|(number, _)| number).collect()
    }
}
