//! The worker's connections: being made, idle, armed, running. One slot each, with a waker that lives as long as the slot.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use http::{HeaderName, Version, header};
use tracewheel_clock::{RunClock, RunNs};
use tracewheel_transport::{
    ConnectError, ConnectErrorKind, Exchange, ExchangeErrorKind, ExchangeLimits, ExchangeOutcome,
    H1Connection, H2Connection, Lane, Opened, Opening, PreparedRequest, Response, TlsFacts, Way,
};

use tracewheel_clock::Clock;
use tracewheel_record::manifest::ConnectionOutcome;

use crate::config::ConnectionUse;
use crate::message::UsedConnection;
use crate::ready::{ReadyQueue, SlotWaker};

use super::Target;
use super::ending::end_ns;
use super::lifetime::{Kind, Lifetimes, Said};
use super::standing::{Resting, Standing};

use carriers::{Carriers, Of};

mod carriers;

enum Life {
    Free,
    Connecting {
        opening: Opening,
        flight: Option<u32>,
    },
    Idle(Lane),
    Busy {
        exchange: Exchange,
        flight: u32,
        released: bool,
    },
    /// A connection whose lanes have slots of their own.
    Carrier(Box<H2Connection>),
}

struct Slot {
    waker: SlotWaker,
    life: Life,
    /// Number of the connection within the run.
    number: u32,
    /// Since when the connection has carried nothing: its last answer's end, or when it stood.
    since_ns: i64,
    /// The connection whose lane it is.
    of: Option<Of>,
}

impl Slot {
    /// Whether it is a lane that is not listed as idle.
    fn counts_as_busy(&self) -> bool {
        !matches!(self.life, Life::Idle(_))
    }
}

/// A request on a connection, behind the valve.
pub(super) struct Armed {
    pub(super) slot: u32,
    pub(super) used: UsedConnection,
    /// Up to when the connection is known to be good.
    pub(super) good_until_ns: i64,
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
        /// Requests at once that it carries.
        lanes: u32,
        /// Whether it speaks HTTP/2.
        http2: bool,
    },
    /// No connection could be made.
    ConnectFailed { flight: Option<u32>, error: ConnectError },
    /// The server closed an idle connection.
    IdleClosed,
    /// A connection has more lanes than it had, or takes no new requests.
    Lanes,
    /// The server closed an armed connection: nothing of the flight's request was written.
    ArmedClosed { flight: u32 },
    /// A released exchange ended; the connection lies idle in its slot, or is gone.
    Ended { flight: u32, outcome: Box<ExchangeOutcome> },
}

/// All connections of one worker.
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections that stand ready.
    standing: Standing,
    /// What is known of how long the target keeps them.
    lifetimes: Lifetimes,
    /// Connections that carry many requests.
    carriers: Carriers,
    connection_use: ConnectionUse,
    /// Connections being made for no flight.
    making_for_nobody: usize,
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
        connection_use: ConnectionUse,
    ) -> Self {
        Slots {
            slots: Vec::new(),
            free: Vec::new(),
            standing: Standing::default(),
            lifetimes: Lifetimes::default(),
            carriers: Carriers::before_any(target.lanes_ahead()),
            connection_use,
            making_for_nobody: 0,
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
        self.slots.len() - self.free.len() - self.carriers.lanes()
    }

    /// Whether a connection stands ready that will be good at `at_ns`.
    pub(super) fn has_good(&self, at_ns: i64) -> bool {
        self.carriers.idle() > 0 || self.standing.has_good(at_ns, &self.lifetimes)
    }

    /// Counts the standing connections (and lanes) that will be good, for times that ascend from call to call.
    pub(super) fn count_good(&self) -> impl FnMut(i64) -> usize {
        let (mut standing, lanes) = (self.standing.count_good(&self.lifetimes), self.carriers.idle());
        move |at_ns| standing(at_ns) + lanes
    }

    /// Connections (and lanes) that carry a request, armed or under way, when `connecting` are being made.
    pub(super) fn in_use(&self, connecting: usize) -> usize {
        let others =
            self.standing.len() + self.standing.witnesses() + self.carriers.connections() + connecting;
        self.open().saturating_sub(others) + self.carriers.lanes() - self.carriers.idle()
    }

    pub(super) fn making_for_nobody(&self) -> usize {
        self.making_for_nobody
    }

    /// How long a connection that has carried nothing is known to be good.
    pub(super) fn unused_good_for_ns(&self) -> i64 {
        self.lifetimes.good_for_ns(Kind::Unused)
    }

    pub(super) fn next_retirement_ns(&self) -> Option<i64> {
        self.standing.next_retirement_ns(&self.lifetimes)
    }

    /// Closes the idle connections that come near to the target's limit; how many. With `room`, one of each kind stays
    /// open out of use, to see whether the limit is one.
    pub(super) fn retire(&mut self, now_ns: i64, room: bool) -> u64 {
        self.standing.testify(now_ns, &mut self.lifetimes);
        let mut retired = Vec::new();
        self.standing.retire(now_ns, &self.lifetimes, room, &mut retired);
        retired.iter().for_each(|slot| self.vacate(*slot));
        retired.len() as u64
    }

    /// Closes an idle connection that is of no use for what is due at `at_ns`; false if there is none.
    pub(super) fn give_way(&mut self, at_ns: i64) -> bool {
        let slot = self.standing.give_way(at_ns, &self.lifetimes);
        slot.map(|slot| self.vacate(slot)).is_some()
    }

    /// Connections that lie idle, and those of many lanes that carry nothing.
    pub(super) fn idle_connections(&self) -> usize {
        self.standing.len() + self.standing.witnesses() + self.carriers.unused()
    }

    /// Closes one of these, of least use first; false if there is none.
    pub(super) fn close_one_idle(&mut self) -> bool {
        let slot = self.standing.give_way(i64::MAX, &self.lifetimes);
        slot.map(|slot| self.vacate(slot)).is_some() || self.close_one_carrier()
    }

    /// What was learned of the target's connections, beside what was counted.
    pub(super) fn learned(&self, counts: ConnectionOutcome) -> ConnectionOutcome {
        let answers = self.lifetimes.answers_limit();
        ConnectionOutcome {
            idle_limit_ns: self.lifetimes.idle_limit_ns(Kind::Used),
            idle_limit_unused_ns: self.lifetimes.idle_limit_ns(Kind::Unused),
            retire_after_ns: self.lifetimes.retire_after_ns(Kind::Used),
            answers_limit: answers.map(|(limit, _)| limit),
            answers_limit_from: answers.map(|(_, from)| from),
            ..counts
        }
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
        let Target { addr, tls, http, h2, .. } = &*self.target;
        let way = Way { addr: *addr, tls: tls.clone(), http: *http, h2: *h2 };
        self.open_with(Opening::new(way, Arc::clone(&self.clock)), flight)
    }

    /// As [`Self::connect`], by this way.
    pub(super) fn open_with(&mut self, opening: Opening, flight: Option<u32>) -> u32 {
        self.making_for_nobody += usize::from(flight.is_none());
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
                let waker = SlotWaker::new(slot, &self.ready);
                self.slots.push(Slot { waker, life, number, since_ns: 0, of: None });
                slot
            }
        };
        self.woken.push_back(slot);
        slot
    }

    /// Takes the connection that is being made from its flight: it will lie idle when it stands.
    pub(super) fn disown(&mut self, slot: u32) {
        if let Life::Connecting { flight, .. } = &mut self.slots[slot as usize].life
            && flight.take().is_some()
        {
            self.making_for_nobody += 1;
        }
    }

    /// If the slot is still making the connection `number`, for whom, and what its failure is called: for the connect
    /// time-out.
    pub(super) fn give_up_connecting(
        &mut self,
        slot: u32,
        number: u32,
    ) -> Option<(Option<u32>, ConnectErrorKind)> {
        let place = &self.slots[slot as usize];
        let Life::Connecting { flight, opening } = &place.life else { return None };
        if place.number != number {
            return None;
        }
        let given_up = (*flight, opening.timed_out_as());
        self.making_for_nobody -= usize::from(given_up.0.is_none());
        self.vacate(slot);
        Some(given_up)
    }

    pub(super) fn number(&self, slot: u32) -> u32 {
        self.slots[slot as usize].number
    }

    /// Puts a request that leaves at `at_ns` onto a standing connection, behind the valve, if there is one that is known
    /// to be good by then. Besides, the number of connections that turned out to be closed.
    pub(super) fn arm(
        &mut self,
        mut request: PreparedRequest,
        flight: u32,
        at_ns: i64,
    ) -> (Option<Armed>, u32) {
        let mut stale = 0;
        loop {
            let taken = match self.standing.take(at_ns, &self.lifetimes) {
                Some(taken) => Some((taken.slot, taken.good_until_ns)),
                // What a connection of many lanes brings is seen as it comes: it is good until it says otherwise.
                None => self.carriers.take().map(|slot| (slot, i64::MAX)),
            };
            let Some((slot, good_until_ns)) = taken else { return (None, stale) };
            let place = &mut self.slots[slot as usize];
            let Life::Idle(lane) = std::mem::replace(&mut place.life, Life::Free) else {
                debug_assert!(false, "only idle connections stand ready");
                continue;
            };
            let stamps = lane.connect_stamps();
            let used = UsedConnection {
                number: place.number,
                http2: matches!(lane, Lane::H2(_)),
                reused: lane.used(),
                connect_start_ns: stamps.start_ns.0,
                connected_ns: stamps.connected_ns.0,
                tls_ns: stamps.tls_ns.map(|at| at.0),
            };
            let mut exchange = lane.arm(request, self.limits.clone());
            let waker = place.waker.begin_poll();
            if exchange.poll_armed(&mut Context::from_waker(waker)).is_pending() {
                place.life = Life::Busy { exchange, flight, released: false };
                return (Some(Armed { slot, used, good_until_ns }), stale);
            }
            self.note_closed(slot, exchange.exchanges().saturating_sub(1));
            request = exchange.into_request();
            stale += 1;
            self.vacate(slot);
        }
    }

    /// Opens the valve and writes.
    pub(super) fn release(&mut self, slot: u32) -> SlotEvent {
        if let Life::Busy { exchange, released, .. } = &mut self.slots[slot as usize].life {
            exchange.release();
            *released = true;
        }
        self.poll(slot)
    }

    /// Goes on with a released exchange until its body is written, whatever else is due.
    pub(super) fn write_whole(&mut self, slot: u32, body: u64, mut event: SlotEvent) -> SlotEvent {
        while let (SlotEvent::Nothing, Life::Busy { exchange: exchange @ Exchange::H1(_), .. }) =
            (&event, &self.slots[slot as usize].life)
            && exchange.writes().bytes < body
        {
            event = self.poll(slot);
        }
        event
    }

    /// Gives a running exchange up, or takes an armed one from its connection. That is closed, unless others run on it.
    pub(super) fn abort(&mut self, slot: u32, now: RunNs, why: &str) -> Option<Box<ExchangeOutcome>> {
        let life = std::mem::replace(&mut self.slots[slot as usize].life, Life::Free);
        let Life::Busy { mut exchange, released: true, .. } = life else {
            self.vacate(slot);
            return None;
        };
        exchange.abort(now, why);
        let (outcome, lane) = exchange.finish();
        match lane {
            Some(Lane::H2(lane)) => self.settle_lane(slot, lane),
            _ => self.vacate(slot),
        }
        Some(Box::new(outcome))
    }

    /// Polls one slot.
    pub(super) fn poll(&mut self, slot: u32) -> SlotEvent {
        let place = &mut self.slots[slot as usize];
        let waker = place.waker.begin_poll();
        let mut cx = Context::from_waker(waker);
        match &mut place.life {
            Life::Free => SlotEvent::Nothing,
            Life::Carrier(_) => self.poll_carrier(slot),
            Life::Connecting { opening, flight } => {
                let flight = *flight;
                let polled = Pin::new(opening).poll(&mut cx);
                self.making_for_nobody -= usize::from(polled.is_ready() && flight.is_none());
                match polled {
                    Poll::Pending => SlotEvent::Nothing,
                    Poll::Ready(Ok(connection)) => {
                        let stamps = connection.connect_stamps();
                        let round_trip_ns = stamps.connected_ns.since(stamps.start_ns);
                        let handshake_ns = stamps.ready_ns().since(stamps.start_ns);
                        let tls = connection.tls().cloned();
                        let (lanes, http2) = self.settle_opened(slot, connection);
                        SlotEvent::Connected { flight, round_trip_ns, handshake_ns, tls, lanes, http2 }
                    }
                    Poll::Ready(Err(error)) => {
                        self.vacate(slot);
                        SlotEvent::ConnectFailed { flight, error }
                    }
                }
            }
            // Their connection looks after them.
            Life::Idle(Lane::H2(_)) => SlotEvent::Nothing,
            Life::Idle(Lane::H1(connection)) => match connection.poll_idle(&mut cx) {
                Poll::Pending => SlotEvent::Nothing,
                Poll::Ready(()) => {
                    let answers = connection.exchanges();
                    self.standing.remove(slot);
                    self.note_closed(slot, answers);
                    self.vacate(slot);
                    SlotEvent::IdleClosed
                }
            },
            Life::Busy { exchange, flight, released: false } => {
                let flight = *flight;
                match exchange.poll_armed(&mut cx) {
                    Poll::Pending => SlotEvent::Nothing,
                    Poll::Ready(()) => {
                        let answers = exchange.exchanges().saturating_sub(1);
                        self.note_closed(slot, answers);
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
        let answers = exchange.exchanges();
        let (outcome, lane) = exchange.finish();
        let ends = self.slots[slot as usize].of.is_none() && self.learn_from(slot, &outcome, answers);
        match lane {
            Some(Lane::H2(lane)) => self.settle_lane(slot, lane),
            Some(Lane::H1(connection)) if !ends => {
                let since_ns = end_ns(&outcome).unwrap_or_else(|| self.clock.now().0);
                self.settle(slot, connection, since_ns);
            }
            _ => self.vacate(slot),
        }
        Box::new(outcome)
    }

    /// Learns from an exchange how long the target keeps its connections; whether this one is not to be used again.
    fn learn_from(&mut self, slot: u32, outcome: &ExchangeOutcome, answers: u32) -> bool {
        match (&outcome.error, &outcome.response) {
            (Some(error), _) => {
                let met_a_close = matches!(
                    error.kind,
                    ExchangeErrorKind::ResetBeforeResponse | ExchangeErrorKind::ClosedBeforeWrite
                );
                if met_a_close {
                    self.note_closed(slot, answers - 1);
                }
                true
            }
            (None, Some(head)) if head.status.is_success() => {
                let said = said(head);
                self.lifetimes.answered(answers, said);
                said.answers_left == Some(0)
                    || said.timeout_s == Some(0)
                    || self.connection_use == ConnectionUse::PerRequest
                    || self.lifetimes.is_spent(answers)
            }
            (None, _) => self.connection_use == ConnectionUse::PerRequest,
        }
    }

    /// The server was found to have closed the connection in that slot, which carries nothing (or a request that it did
    /// not answer), after so many answers.
    fn note_closed(&mut self, slot: u32, answers: u32) {
        if self.slots[slot as usize].of.is_some() {
            // How long a connection of many lanes lies idle is another matter.
            return;
        }
        let age_ns = self.clock.now().0 - self.slots[slot as usize].since_ns;
        self.lifetimes.closed(age_ns, answers);
    }

    /// Lets a connection that has carried nothing since then stand ready in its slot, watched.
    fn settle(&mut self, slot: u32, mut connection: Box<H1Connection>, since_ns: i64) {
        let place = &mut self.slots[slot as usize];
        place.since_ns = since_ns;
        let waker = place.waker.begin_poll();
        let exchanges = connection.exchanges();
        if connection.poll_idle(&mut Context::from_waker(waker)).is_pending() {
            place.life = Life::Idle(Lane::H1(connection));
            self.standing.add(Kind::of(exchanges), Resting { slot, since_ns });
        } else {
            self.note_closed(slot, exchanges);
            self.vacate(slot);
        }
    }

    /// Puts a connection that was made into its slot; how many requests at once it carries, and whether by HTTP/2.
    fn settle_opened(&mut self, slot: u32, opened: Opened) -> (u32, bool) {
        match opened {
            Opened::H1(connection) => {
                let since_ns = connection.connect_stamps().ready_ns().0;
                self.carriers.note_each(1);
                self.settle(slot, connection, since_ns);
                (1, false)
            }
            Opened::H2(connection) => {
                let lanes = connection.limit();
                self.settle_carrier(slot, connection);
                (lanes, true)
            }
        }
    }

    fn vacate(&mut self, slot: u32) {
        self.leave_carrier(slot);
        self.slots[slot as usize].life = Life::Free;
        self.free.push(slot);
    }

    /// Closes every connection that carries nothing.
    pub(super) fn close_idle(&mut self) {
        for slot in self.standing.drain() {
            self.vacate(slot);
        }
        self.close_carriers();
    }
}

/// What an answer's head says about its connection.
fn said(head: &Response) -> Said {
    let values = |name| head.headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let has = |token: &str| {
        let mut tokens = values(header::CONNECTION).flat_map(|value| value.split(','));
        tokens.any(|found| found.trim().eq_ignore_ascii_case(token))
    };
    let mut said = Said {
        closes: has("close") || (head.version < Version::HTTP_11 && !has("keep-alive")),
        ..Said::default()
    };
    for parameter in values(KEEP_ALIVE).flat_map(|value| value.split(',')) {
        match parameter.trim().split_once('=') {
            Some((name, value)) if name.trim_end().eq_ignore_ascii_case("timeout") => {
                said.timeout_s = value.trim().parse::<u32>().ok().map(i64::from);
            }
            Some((name, value)) if name.trim_end().eq_ignore_ascii_case("max") => {
                said.answers_left = value.trim().parse().ok();
            }
            _ => {}
        }
    }
    said
}

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, StatusCode};

    fn head(version: Version, headers: &[(&'static str, &'static str)]) -> Response {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect::<HeaderMap>();
        Response { status: StatusCode::OK, version, headers, read: 0 }
    }

    #[test]
    fn what_servers_say_about_their_connections_is_read_and_nonsense_is_not() {
        let says = |headers: &[_]| said(&head(Version::HTTP_11, headers));
        assert_eq!(says(&[]), Said::default());
        assert!(says(&[("connection", "foo, Close")]).closes);
        let both = says(&[("keep-alive", "timeout=5, max=100")]);
        assert_eq!((both.timeout_s, both.answers_left, both.closes), (Some(5), Some(100), false));
        let odd = says(&[("keep-alive", "timeout = 7,max=-1, timeout=x1, five")]);
        assert_eq!((odd.timeout_s, odd.answers_left), (None, None));
        assert!(said(&head(Version::HTTP_10, &[])).closes);
        assert!(!said(&head(Version::HTTP_10, &[("connection", "keep-alive")])).closes);
    }
}
