//! The worker's connections: being made, idle, armed, running. One slot each, with a waker that lives as long as the slot.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use tracewheel_clock::{RunClock, RunNs};
use tracewheel_transport::{
    ConnectError, Exchange, ExchangeLimits, ExchangeOutcome, H1Connection, Opening, PreparedRequest, TlsFacts,
};

use crate::message::UsedConnection;
use crate::ready::{ReadyQueue, SlotWaker};

use super::Target;

enum Life {
    Free,
    Connecting { opening: Opening, flight: Option<u32> },
    Idle(Box<H1Connection>),
    Busy { exchange: Box<Exchange>, flight: u32, released: bool },
}

struct Slot {
    waker: SlotWaker,
    life: Life,
    /// Number of the connection within the run.
    number: u32,
}

/// What polling a slot brought about.
#[derive(Debug)]
pub(super) enum SlotEvent {
    /// Nothing to act on.
    Nothing,
    /// A connection stands; it lies idle in its slot. It was made for that flight, if any.
    Connected {
        flight: Option<u32>,
        /// TCP's part of making it.
        round_trip_ns: i64,
        /// All of it, TLS included.
        handshake_ns: i64,
        tls: Option<Arc<TlsFacts>>,
    },
    /// No connection could be made.
    ConnectFailed { flight: Option<u32>, error: ConnectError },
    /// The server closed an idle connection.
    IdleClosed,
    /// The server closed an armed connection: nothing of the flight's request was written.
    ArmedClosed { flight: u32 },
    /// A released exchange ended; the connection lies idle in its slot, or is gone.
    Ended { flight: u32, outcome: Box<ExchangeOutcome> },
}

/// All connections of one worker.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Slots of idle connections; the one used last is used first.
    idle: Vec<u32>,
    ready: Arc<ReadyQueue>,
    woken: VecDeque<u32>,
    clock: Arc<RunClock>,
    target: Arc<Target>,
    limits: ExchangeLimits,
    numbers: Arc<AtomicU32>,
}

impl Slots {
    pub(super) fn new(
        clock: Arc<RunClock>,
        target: Arc<Target>,
        limits: ExchangeLimits,
        numbers: Arc<AtomicU32>,
    ) -> Self {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
            idle: Vec::new(),
            ready: ReadyQueue::new(),
            woken: VecDeque::new(),
            clock,
            target,
            limits,
            numbers,
        }
    }

    /// Connections that exist or are being made.
    pub(super) fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Who is woken when a slot is.
    pub(super) fn set_parent(&self, cx: &Context<'_>) {
        self.ready.set_parent(cx.waker());
    }

    /// The next slot that was woken.
    pub(super) fn next_woken(&mut self) -> Option<u32> {
        if self.woken.is_empty() {
            self.ready.take(&mut self.woken);
        }
        self.woken.pop_front()
    }

    pub(super) fn any_woken(&mut self) -> bool {
        self.ready.take(&mut self.woken);
        !self.woken.is_empty()
    }

    /// Begins to make a connection; its slot. The first poll is this turn's work like any other: a failure at once must
    /// not begin the next connection within this call.
    pub(super) fn connect(&mut self, flight: Option<u32>) -> u32 {
        let (addr, clock) = (self.target.addr, Arc::clone(&self.clock));
        let opening = match &self.target.tls {
            None => H1Connection::open(addr, clock),
            Some(tls) => H1Connection::open_tls(addr, tls.clone(), clock),
        };
        self.open_with(opening, flight)
    }

    /// As [`Self::connect`], by this way.
    pub(super) fn open_with(&mut self, opening: Opening, flight: Option<u32>) -> u32 {
        let life = Life::Connecting { opening, flight };
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let slot = match self.free.pop() {
            Some(slot) => {
                let place = &mut self.slots[slot as usize];
                (place.life, place.number) = (life, number);
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("file descriptors run out long before");
                self.slots.push(Slot { waker: SlotWaker::new(slot, &self.ready), life, number });
                slot
            }
        };
        self.woken.push_back(slot);
        slot
    }

    /// Takes the connection that is being made from its flight: it will lie idle when it stands.
    pub(super) fn disown(&mut self, slot: u32) {
        if let Life::Connecting { flight, .. } = &mut self.slots[slot as usize].life {
            *flight = None;
        }
    }

    /// If the slot is still making the connection `number`, for whom and whether TCP stands: for the connect time-out.
    pub(super) fn give_up_connecting(&mut self, slot: u32, number: u32) -> Option<(Option<u32>, bool)> {
        let place = &self.slots[slot as usize];
        let Life::Connecting { flight, opening } = &place.life else { return None };
        if place.number != number {
            return None;
        }
        let given_up = (*flight, opening.tcp_stands());
        self.vacate(slot);
        Some(given_up)
    }

    pub(super) fn number(&self, slot: u32) -> u32 {
        self.slots[slot as usize].number
    }

    /// Puts a request onto an idle connection, behind the valve: its slot, if there was one that held. Besides, the number
    /// of idle connections that turned out to be closed.
    pub(super) fn arm(
        &mut self,
        mut request: PreparedRequest,
        flight: u32,
    ) -> (Option<(u32, UsedConnection)>, u32) {
        let mut stale = 0;
        while let Some(slot) = self.idle.pop() {
            let place = &mut self.slots[slot as usize];
            let Life::Idle(connection) = std::mem::replace(&mut place.life, Life::Free) else {
                debug_assert!(false, "only idle connections are listed as idle");
                continue;
            };
            let stamps = connection.connect_stamps();
            let used = UsedConnection {
                number: place.number,
                reused: connection.exchanges() > 0,
                connect_start_ns: stamps.start_ns.0,
                connected_ns: stamps.connected_ns.0,
                tls_ns: stamps.tls_ns.map(|at| at.0),
            };
            let mut exchange = Box::new(connection.arm(request, self.limits.clone()));
            let waker = place.waker.begin_poll();
            if exchange.poll_armed(&mut Context::from_waker(waker)).is_pending() {
                place.life = Life::Busy { exchange, flight, released: false };
                return (Some((slot, used)), stale);
            }
            request = exchange.into_request();
            stale += 1;
            self.vacate(slot);
        }
        (None, stale)
    }

    /// Opens the valve and writes.
    pub(super) fn release(&mut self, slot: u32) -> SlotEvent {
        if let Life::Busy { exchange, released, .. } = &mut self.slots[slot as usize].life {
            exchange.release();
            *released = true;
        }
        self.poll(slot)
    }

    /// Gives a running exchange up, or takes an armed one from its connection (which is closed).
    pub(super) fn abort(&mut self, slot: u32, now: RunNs, why: &str) -> Option<Box<ExchangeOutcome>> {
        let life = std::mem::replace(&mut self.slots[slot as usize].life, Life::Free);
        self.vacate(slot);
        match life {
            Life::Busy { mut exchange, released: true, .. } => {
                exchange.abort(now, why);
                Some(Box::new(exchange.finish().0))
            }
            _ => None,
        }
    }

    /// Polls one slot.
    pub(super) fn poll(&mut self, slot: u32) -> SlotEvent {
        let place = &mut self.slots[slot as usize];
        let waker = place.waker.begin_poll();
        let mut cx = Context::from_waker(waker);
        match &mut place.life {
            Life::Free => SlotEvent::Nothing,
            Life::Connecting { opening, flight } => {
                let flight = *flight;
                match Pin::new(opening).poll(&mut cx) {
                    Poll::Pending => SlotEvent::Nothing,
                    Poll::Ready(Ok(connection)) => {
                        let stamps = connection.connect_stamps();
                        let round_trip_ns = stamps.connected_ns.since(stamps.start_ns);
                        let handshake_ns = stamps.ready_ns().since(stamps.start_ns);
                        let tls = connection.tls().cloned();
                        self.settle(slot, connection);
                        SlotEvent::Connected { flight, round_trip_ns, handshake_ns, tls }
                    }
                    Poll::Ready(Err(error)) => {
                        self.vacate(slot);
                        SlotEvent::ConnectFailed { flight, error }
                    }
                }
            }
            Life::Idle(connection) => match connection.poll_idle(&mut cx) {
                Poll::Pending => SlotEvent::Nothing,
                Poll::Ready(()) => {
                    self.idle.retain(|idle| *idle != slot);
                    self.vacate(slot);
                    SlotEvent::IdleClosed
                }
            },
            Life::Busy { exchange, flight, released: false } => {
                let flight = *flight;
                match exchange.poll_armed(&mut cx) {
                    Poll::Pending => SlotEvent::Nothing,
                    Poll::Ready(()) => {
                        self.vacate(slot);
                        SlotEvent::ArmedClosed { flight }
                    }
                }
            }
            Life::Busy { exchange, flight, released: true } => {
                let flight = *flight;
                match exchange.poll(&mut cx) {
                    Poll::Pending => SlotEvent::Nothing,
                    Poll::Ready(()) => SlotEvent::Ended { flight, outcome: self.finish(slot) },
                }
            }
        }
    }

    fn finish(&mut self, slot: u32) -> Box<ExchangeOutcome> {
        let life = std::mem::replace(&mut self.slots[slot as usize].life, Life::Free);
        let Life::Busy { exchange, .. } = life else { unreachable!("only a running exchange is finished") };
        let (outcome, connection) = exchange.finish();
        match connection {
            Some(connection) => self.settle(slot, connection),
            None => self.vacate(slot),
        }
        Box::new(outcome)
    }

    /// Lets a connection lie idle in its slot, watched.
    fn settle(&mut self, slot: u32, mut connection: H1Connection) {
        let place = &mut self.slots[slot as usize];
        let waker = place.waker.begin_poll();
        if connection.poll_idle(&mut Context::from_waker(waker)).is_pending() {
            place.life = Life::Idle(Box::new(connection));
            self.idle.push(slot);
        } else {
            self.vacate(slot);
        }
    }

    fn vacate(&mut self, slot: u32) {
        self.slots[slot as usize].life = Life::Free;
        self.free.push(slot);
    }

    /// Closes every connection that carries nothing.
    pub(super) fn close_idle(&mut self) {
        for slot in std::mem::take(&mut self.idle) {
            self.vacate(slot);
        }
    }
}
