//! From the inbox to the wire: admit, arm, release.

use std::sync::atomic::Ordering;

use http::{HeaderName, HeaderValue, header};
use tracewheel_clock::{Clock, RunNs, blocking};
use tracewheel_record::ReleaseRecord;
use tracewheel_transport::PreparedRequest;

use crate::config::ConnectionUse;
use crate::message::{ReadyRequest, RecorderMessage};
use crate::shared::Halt;

use super::flight::{Flight, Place, Stage};
use super::pool::MAX_LEAD_NS;
use super::slots::SlotEvent;
use super::{Chore, Pace, Worker};

/// A release so late has met a thread that was stopped: what it knew of its connections is old.
const STALL_NS: i64 = 20_000_000;

impl Worker {
    /// Takes a rendered request over and sets its alarms.
    pub(super) fn admit(&mut self, mut request: ReadyRequest) {
        let start_ns = self.start_ns;
        let record = &mut request.record;
        record.planned_ns = record.planned_ns.saturating_add(start_ns);
        record.due_ns = record.planned_ns;
        let number = self.flights.insert(Flight::new(request));
        if self.halt > Halt::Running {
            return self.drop_unsent(number);
        }
        match self.pace {
            Pace::Open => self.admit_turn(number),
            Pace::Closed { .. } => {
                self.line.push_back(number);
                self.pump();
            }
        }
    }

    /// Puts the flight's coming attempt into the wheels.
    pub(super) fn schedule(&mut self, number: u32) {
        let lead_ns = self.pool_of(number).lead_ns();
        let before_gate = self.stands_before_gate(number);
        let flight = self.flights.get(number);
        flight.alarms.arm =
            Some(self.chores.insert(flight.due_ns.saturating_sub(lead_ns), Chore::Arm(number)));
        if before_gate {
            // When it leaves, and so when it needs a connection, is known behind the gate.
            return;
        }
        let due_ns = flight.due_ns;
        flight.alarms.send = Some(self.sends.insert(due_ns, number));
        self.pool_of(number).forecast.add(due_ns);
        self.tend_by(due_ns.saturating_sub(MAX_LEAD_NS));
    }

    /// Closed loop: releases the next ones while there is room.
    pub(super) fn pump(&mut self) {
        let Pace::Closed { at_once } = self.pace else { return };
        if std::mem::replace(&mut self.pumping, true) {
            // Called by the end of a request that this very loop released: it goes on by itself.
            return;
        }
        while self.under_way < at_once && self.shared.halt() == Halt::Running {
            let Some(number) = self.line.pop_front() else { break };
            self.arm(number);
            let now = self.shared.clock.now().0;
            let flight = self.flights.get(number);
            flight.due_ns = now;
            flight.record.due_ns = now;
            self.release(number);
        }
        self.pumping = false;
        self.tend_by(0);
    }

    /// Reserves a connection and encodes the request on it; begins a connection where none is idle.
    pub(super) fn arm(&mut self, number: u32) {
        if self.flights.get(number).stage != Stage::Unarmed {
            return;
        }
        let request = self.request(number);
        let now = self.shared.clock.now().0;
        // However far off the due time, a connection made just now will do.
        let pool = self.flights.get(number).pool;
        let slots = &mut self.pools[pool].slots;
        let soon = now.saturating_add(slots.unused_good_for_ns() / 2);
        let at = self.flights.get(number).due_ns.min(soon).max(now);
        let (armed, stale) = slots.arm(request, number, at);
        match armed {
            Some(armed) => {
                let flight = self.flights.get(number);
                (flight.stage, flight.used) = (Stage::Armed(armed.slot), Some(armed.used));
                flight.good_until_ns = armed.good_until_ns;
                self.tending.counts.spares_used += u64::from(flight.lost_connection);
            }
            None => self.connect_for(number),
        }
        self.shared.gauges.stale_connections.fetch_add(u64::from(stale), Ordering::Relaxed);
    }

    /// The request with all its headers.
    fn request(&mut self, number: u32) -> PreparedRequest {
        let flight = self.flights.get(number);
        let host = &self.pools[flight.pool].target.host;
        let mut request = PreparedRequest::post(flight.uri.clone(), host.clone(), flight.body.clone());
        request.method.clone_from(&flight.method);
        let fixed = if flight.stream { &flight.head.streamed } else { &flight.head.plain };
        for (name, value) in fixed {
            request.headers.insert(name, value.clone());
        }
        for (name, value) in flight.headers.iter().flat_map(|headers| headers.iter()) {
            request.headers.insert(name, value.clone());
        }
        if self.rules.connection_use == ConnectionUse::PerRequest {
            request.headers.insert(header::CONNECTION, CLOSE);
        }
        request.headers.insert(X_REQUEST_ID, hex_header(flight.request_id));
        if flight.attempt > 1
            && let Some(name) = &self.rules.retry.count_header
            && let Ok(name) = HeaderName::from_bytes(name.as_bytes())
        {
            request.headers.insert(name, HeaderValue::from(flight.attempt - 1));
        }
        request
    }

    /// The wheel fired: the request leaves, or as soon as its connection stands.
    pub(super) fn release(&mut self, number: u32) {
        if let Some(ns) = self.rules.test_stall_ns {
            blocking::sleep(ns);
        }
        let now = self.shared.clock.now().0;
        let release = self.flights.get(number).release(now);
        if let Err(error) = self.departures.note(&release) {
            // What cannot be noted does not leave: the flight is dropped when the worker sees the halt.
            return self.shared.departure_failed(error);
        }
        let flight = self.flights.get(number);
        flight.released_ns = Some(now);
        let slots = &mut self.pools[flight.pool].slots;
        match flight.stage {
            Stage::Unarmed => self.arm(number),
            // It is so late that the server may be closing the connection by now.
            Stage::Armed(slot) if now > flight.good_until_ns.max(flight.due_ns + STALL_NS) => {
                flight.stage = Stage::Unarmed;
                flight.lost_connection = true;
                slots.abort(slot, RunNs(now), "");
                self.tending.counts.retired += 1;
                self.arm(number);
            }
            // A connection came free while one is still being made: it is the faster one.
            Stage::Connecting(slot) if slots.has_good(now) => {
                slots.disown(slot);
                flight.stage = Stage::Unarmed;
                self.arm(number);
            }
            Stage::Connecting(_) | Stage::Starving | Stage::Armed(_) | Stage::Running(_) => {}
        }
        let sent = self.open_valve(number);
        self.note_release(number, release);
        if let Some((pool, slot, event)) = sent {
            self.handle(pool, slot, event);
        }
    }

    /// Writes an armed request. `None` while it has no connection.
    fn open_valve(&mut self, number: u32) -> Option<(usize, u32, SlotEvent)> {
        let flight = self.flights.get(number);
        let Stage::Armed(slot) = flight.stage else { return None };
        flight.stage = Stage::Running(slot);
        let stood_late = flight.used.is_some_and(|used| used.ready_ns() > flight.due_ns);
        self.tending.counts.connected_at_send += u64::from(stood_late);
        let (pool, bytes, body) = (flight.pool, flight.body.own_bytes(), flight.body.len() as u64);
        let place = std::mem::replace(&mut flight.place, Place::None);
        self.give_place_back(place, bytes);
        let slots = &mut self.pools[pool].slots;
        let mut event = slots.release(slot);
        if self.rules.test_whole_bodies {
            event = slots.write_whole(slot, body, event);
        }
        Some((pool, slot, event))
    }

    /// Gives the place of a request back that leaves, or ends.
    pub(super) fn give_place_back(&mut self, place: Place, bytes: usize) {
        match place {
            Place::LookAhead => self.budget.give_back(bytes),
            Place::Parked => self.sessions.unpark(bytes),
            Place::None => {}
        }
    }

    fn note_release(&mut self, number: u32, release: ReleaseRecord) {
        let flight = self.flights.get(number);
        let gauges = &self.shared.gauges;
        if !flight.begun {
            flight.begun = true;
            self.under_way += 1;
            if flight.is_planned() {
                gauges.sent.fetch_add(1, Ordering::Relaxed);
            }
            flight.in_flight_seen =
                u32::try_from(gauges.in_flight.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
            if let Some(after) = flight.cancel_after_ns.filter(|_| self.rules.cancel_as_recorded) {
                // Counted, as production's was, from when the person began to wait.
                let at = flight.record.due_ns.saturating_add(after);
                flight.alarms.cancel = Some(self.chores.insert(at, Chore::Cancel(number)));
            }
        }
        let give_up = release.released_ns.saturating_add(self.rules.request_timeout_ns);
        flight.alarms.timeout = Some(self.chores.insert(give_up, Chore::Timeout(number)));
        self.outbox.post(RecorderMessage::Released(release));
    }

    /// Acts on what a connection brought about.
    pub(super) fn handle(&mut self, pool: usize, slot: u32, event: SlotEvent) {
        match event {
            SlotEvent::Nothing => return,
            SlotEvent::Connected { flight, round_trip_ns, handshake_ns, tls, lanes, http2 } => {
                let to = &mut self.pools[pool];
                to.connecting -= 1;
                to.backoff.reset();
                to.handshake_ns = handshake_ns.max(to.handshake_ns - to.handshake_ns / 8);
                self.shared.gauges.connections_opened.fetch_add(1, Ordering::Relaxed);
                self.shared.note_round_trip(round_trip_ns);
                if let Some(tls) = tls {
                    self.shared.note_tls(&tls);
                }
                self.shared.note_http(http2, lanes);
                if let Some(number) = flight {
                    self.flights.get(number).stage = Stage::Unarmed;
                    self.arm_again(number);
                }
            }
            SlotEvent::ConnectFailed { flight, error } => {
                self.pools[pool].connecting -= 1;
                self.connect_failed(pool, flight, error.kind, error.source.to_string());
            }
            SlotEvent::Lanes => {}
            SlotEvent::IdleClosed => {
                self.tending.counts.closed_idle += 1;
                self.tend_by(0);
            }
            SlotEvent::ArmedClosed { flight: number } => {
                self.shared.gauges.stale_connections.fetch_add(1, Ordering::Relaxed);
                let flight = self.flights.get(number);
                (flight.stage, flight.lost_connection) = (Stage::Unarmed, true);
                self.tend_by(0);
                self.arm_again(number);
            }
            SlotEvent::Ended { flight, outcome } => {
                debug_assert!(matches!(self.flights.get(flight).stage, Stage::Running(at) if at == slot));
                self.exchange_ended(flight, outcome);
            }
        }
        self.feed_starving();
    }

    /// Arms a flight that lost its place or got its connection, and sends it if its time has come.
    pub(super) fn arm_again(&mut self, number: u32) {
        self.arm(number);
        if self.flights.get(number).released_ns.is_some()
            && let Some((pool, slot, event)) = self.open_valve(number)
        {
            self.handle(pool, slot, event);
        }
    }
}

const CLOSE: HeaderValue = HeaderValue::from_static("close");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Sixteen hexadecimal digits.
fn hex_header(id: u64) -> HeaderValue {
    HeaderValue::from_str(&format!("{id:016x}")).expect("hexadecimal digits are valid in a header")
}
