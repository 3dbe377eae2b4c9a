//! The dispatch of days in simulated time: the worker's own wheels, forecast, standing connections, learned lifetimes and
//! retry verdicts, driven by a virtual clock against a model of a server that closes kept connections. No sockets and no
//! threads: what is left out is the transport, not the schedule.

use http::HeaderMap;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tracewheel_clock::{Clock, RunNs, VirtualClock};
use tracewheel_timeline::vocab::Reason;
use tracewheel_wheel::Wheel;

use super::forecast::{Cost, Forecast};
use super::lifetime::{Kind, Lifetimes, Said};
use super::standing::{Resting, Standing};
use super::tend::spares;
use crate::retry::{Answer, Failure, RetryPolicy, Verdict, chance};

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;
const HOUR: i64 = 3_600 * S;
const HANDSHAKE_NS: i64 = MS;
/// Half of it: a packet's way.
const WAY_NS: i64 = HANDSHAKE_NS / 2;
const LEAD_NS: i64 = 3 * MS;
const LOOK_AHEAD: usize = 4_096;
/// The server: closes what was idle so long, and ends a connection with this answer, which it announces.
const IDLE_NS: i64 = 5 * S;
const ANSWERS: u32 = 100;
/// One request in so many is answered with 429 at first.
const REFUSED: u64 = 97;
/// Connections begun in one look, at most.
const BEGUN_AT_ONCE: usize = 64;

/// What is simulated.
#[derive(Clone, Copy)]
struct Setting {
    seed: u64,
    requests: u64,
    mean_gap_ns: i64,
    /// After so many requests nothing comes for as long as the server keeps a connection, give or take.
    pause_every: u64,
    /// After so many releases the thread is stopped for 40 ms.
    stall_every: Option<u64>,
}

/// What came of it.
#[derive(Debug, Default)]
struct Seen {
    answered: u64,
    retries: u64,
    /// Requests written on a connection that the server had closed.
    reset: u64,
    connected_at_send: u64,
    latest_ns: i64,
    /// The last first attempt: planned and released.
    last: (i64, i64),
    opened: u64,
    most_flights: usize,
    most_connections: usize,
    most_entries: usize,
    resident_bytes: [i64; 2],
}

struct Flight {
    row: u64,
    due_ns: i64,
    retries: u32,
    connection: Option<u32>,
    released: bool,
}

#[derive(Default)]
struct Connection {
    since_ns: i64,
    answers: u32,
    /// Counts what happened to the place, so that an event of an earlier connection means nothing.
    generation: u32,
    armed_by: Option<u32>,
    running: bool,
}

enum Event {
    Arm(u32),
    Stands { flight: Option<u32> },
    Answered { flight: u32, connection: u32 },
    Closed { connection: u32, generation: u32 },
    Tend,
}

struct Simulation {
    setting: Setting,
    clock: VirtualClock,
    rng: ChaCha8Rng,
    policy: RetryPolicy,
    sends: Wheel<u32>,
    events: Wheel<Event>,
    forecast: Forecast,
    standing: Standing,
    lifetimes: Lifetimes,
    flights: Vec<Option<Flight>>,
    free_flights: Vec<u32>,
    connections: Vec<Connection>,
    free_connections: Vec<u32>,
    making: usize,
    waiting: usize,
    next_row: u64,
    planned_ns: i64,
    released: u64,
    latest_release: (i64, u64),
    tend_at_ns: i64,
    seen: Seen,
}

impl Simulation {
    fn new(setting: Setting) -> Self {
        Simulation {
            setting,
            clock: VirtualClock::new(),
            rng: ChaCha8Rng::seed_from_u64(setting.seed),
            policy: RetryPolicy::preset("openai-sdk").unwrap(),
            sends: Wheel::new(0),
            events: Wheel::new(0),
            forecast: Forecast::default(),
            standing: Standing::default(),
            lifetimes: Lifetimes::default(),
            flights: Vec::new(),
            free_flights: Vec::new(),
            connections: Vec::new(),
            free_connections: Vec::new(),
            making: 0,
            waiting: 0,
            next_row: 0,
            planned_ns: S,
            released: 0,
            latest_release: (0, 0),
            tend_at_ns: i64::MAX,
            seen: Seen::default(),
        }
    }

    fn now(&self) -> i64 {
        self.clock.now().0
    }

    /// Uniform over [0, 1).
    fn chance(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn run(mut self) -> Seen {
        let tenth = self.setting.requests / 10;
        while self.seen.answered < self.setting.requests {
            self.admit();
            let next = self.sends.next_deadline().into_iter().chain(self.events.next_deadline()).min();
            self.clock.advance_to(RunNs(next.expect("what is not answered waits for something")));
            while let Some((due_ns, flight)) = self.sends.pop_due(self.now()) {
                self.release(due_ns, flight);
            }
            if let Some((_, event)) = self.events.pop_due(self.now()) {
                self.happen(event);
            }
            self.measure(tenth);
        }
        self.seen
    }

    fn measure(&mut self, tenth: u64) {
        let seen = &mut self.seen;
        seen.most_flights = seen.most_flights.max(self.flights.len());
        seen.most_connections = seen.most_connections.max(self.connections.len());
        seen.most_entries = seen.most_entries.max(self.sends.len() + self.events.len());
        for (at, resident) in [tenth, self.setting.requests].into_iter().zip(&mut seen.resident_bytes) {
            if seen.answered == at && *resident == 0 {
                *resident = resident_bytes();
            }
        }
    }

    /// Fills the look-ahead from the trace: exponential gaps, and now and then a pause.
    fn admit(&mut self) {
        while self.waiting < LOOK_AHEAD && self.next_row < self.setting.requests {
            let row = self.next_row;
            let flight =
                Flight { row, due_ns: self.planned_ns, retries: 0, connection: None, released: false };
            let number = match self.free_flights.pop() {
                Some(number) => number,
                None => {
                    self.flights.push(None);
                    self.flights.len() as u32 - 1
                }
            };
            self.flights[number as usize] = Some(flight);
            self.waiting += 1;
            self.schedule(number);
            self.next_row += 1;
            let gap = -self.setting.mean_gap_ns as f64 * (1.0 - self.chance()).ln();
            self.planned_ns += gap as i64;
            if self.next_row.is_multiple_of(self.setting.pause_every) {
                self.planned_ns += IDLE_NS - 300 * MS + (600.0 * MS as f64 * self.chance()) as i64;
            }
        }
    }

    fn schedule(&mut self, number: u32) {
        let due_ns = self.flight(number).due_ns;
        self.sends.insert(due_ns, number);
        self.events.insert(due_ns - LEAD_NS, Event::Arm(number));
        self.forecast.add(due_ns);
        self.tend_by(due_ns - 2 * S);
    }

    fn flight(&mut self, number: u32) -> &mut Flight {
        self.flights[number as usize].as_mut().expect("events name flights that are under way")
    }

    fn tend_by(&mut self, at_ns: i64) {
        let at_ns = at_ns.max(self.now() + 5 * MS);
        if at_ns < self.tend_at_ns {
            self.tend_at_ns = at_ns;
            self.events.insert(at_ns, Event::Tend);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arm(number) => self.arm(number),
            Event::Tend => self.tend(),
            Event::Stands { flight } => self.stands(flight),
            Event::Answered { flight, connection } => self.answered(flight, connection),
            Event::Closed { connection, generation } => self.closed(connection, generation),
        }
    }

    fn arm(&mut self, number: u32) {
        let now = self.now();
        let flight = self.flights[number as usize].as_ref();
        let Some(flight) = flight.filter(|flight| flight.connection.is_none()) else { return };
        match self.standing.take(flight.due_ns.max(now), &self.lifetimes) {
            Some(taken) => {
                self.connections[taken.slot as usize].armed_by = Some(number);
                let flight = self.flight(number);
                flight.connection = Some(taken.slot);
                if flight.released {
                    self.write(number, taken.slot);
                }
            }
            None => self.connect(Some(number)),
        }
    }

    fn connect(&mut self, flight: Option<u32>) {
        self.making += usize::from(flight.is_none());
        self.seen.opened += 1;
        self.events.insert(self.now() + HANDSHAKE_NS, Event::Stands { flight });
    }

    fn stands(&mut self, flight: Option<u32>) {
        self.making -= usize::from(flight.is_none());
        let slot = self.free_connections.pop().unwrap_or_else(|| {
            self.connections.push(Connection::default());
            self.connections.len() as u32 - 1
        });
        self.rest(slot, 0);
        if let Some(number) = flight {
            self.arm(number);
        }
    }

    /// The connection carries nothing from now on, and the server's timer runs.
    fn rest(&mut self, slot: u32, answers: u32) {
        let now = self.now();
        let place = &mut self.connections[slot as usize];
        let generation = place.generation + 1;
        *place = Connection { since_ns: now, answers, generation, ..Connection::default() };
        self.standing.add(Kind::of(answers), Resting { slot, since_ns: now });
        self.events.insert(now + IDLE_NS + WAY_NS, Event::Closed { connection: slot, generation });
    }

    fn vacate(&mut self, slot: u32) {
        self.connections[slot as usize].generation += 1;
        self.free_connections.push(slot);
    }

    fn release(&mut self, due_ns: i64, number: u32) {
        let now = self.now();
        let row = self.flight(number).row;
        assert!(
            (due_ns, row) > self.latest_release || self.flight(number).retries > 0,
            "planned order is kept"
        );
        if self.flight(number).retries == 0 {
            self.latest_release = (due_ns, row);
            self.seen.last = (due_ns, now);
            self.waiting -= 1;
        }
        self.seen.latest_ns = self.seen.latest_ns.max(now - due_ns);
        self.flight(number).released = true;
        match self.flight(number).connection {
            Some(slot) => self.write(number, slot),
            None => {
                self.seen.connected_at_send += 1;
                self.arm(number);
            }
        }
        self.released += 1;
        if self.setting.stall_every.is_some_and(|every| self.released.is_multiple_of(every)) {
            self.clock.advance_by(40 * MS);
        }
    }

    /// The bytes leave; they arrive half a round trip later.
    fn write(&mut self, number: u32, slot: u32) {
        let now = self.now();
        let place = &mut self.connections[slot as usize];
        (place.running, place.generation) = (true, place.generation + 1);
        self.seen.reset += u64::from(now + WAY_NS >= place.since_ns + IDLE_NS);
        let service_ns = 5 * MS + (55.0 * MS as f64 * self.chance()) as i64;
        self.events.insert(now + service_ns, Event::Answered { flight: number, connection: slot });
    }

    fn answered(&mut self, number: u32, slot: u32) {
        let answers = self.connections[slot as usize].answers + 1;
        let closes = answers == ANSWERS;
        self.lifetimes.answered(answers, Said { closes, ..Said::default() });
        if closes {
            self.vacate(slot);
        } else {
            self.rest(slot, answers);
        }
        let now = self.now();
        let flight = self.flight(number);
        (flight.connection, flight.released) = (None, false);
        let (row, retries) = (flight.row, flight.retries);
        if row.is_multiple_of(REFUSED) && retries == 0 {
            let headers = HeaderMap::new();
            let failure = Failure {
                reason: Reason::RateLimited,
                response: Some(Answer { status: 429, headers: &headers, body: b"" }),
                last_delay_ns: None,
                elapsed_ns: 0,
                streamed: true,
                end_unix_ns: now,
                retries,
            };
            let verdict = self.policy.decide(failure, || chance(7, row, retries));
            let Verdict::Retry { delay_ns } = verdict else { panic!("the policy repeats a 429") };
            let flight = self.flight(number);
            (flight.retries, flight.due_ns) = (retries + 1, now + delay_ns);
            self.seen.retries += 1;
            return self.schedule(number);
        }
        self.flights[number as usize] = None;
        self.free_flights.push(number);
        self.seen.answered += 1;
    }

    /// The server's close arrives.
    fn closed(&mut self, slot: u32, generation: u32) {
        let place = &self.connections[slot as usize];
        if place.generation != generation || place.running {
            return;
        }
        let (age_ns, answers, armed_by) = (self.now() - place.since_ns, place.answers, place.armed_by);
        self.standing.remove(slot);
        self.lifetimes.closed(age_ns, answers);
        self.vacate(slot);
        if let Some(number) = armed_by {
            self.flight(number).connection = None;
            self.arm(number);
        }
        self.tend_by(0);
    }

    fn tend(&mut self) {
        let now = self.now();
        if now < self.tend_at_ns {
            return;
        }
        self.tend_at_ns = i64::MAX;
        self.standing.testify(now, &mut self.lifetimes);
        let mut retired = Vec::new();
        self.standing.retire(now, &self.lifetimes, true, &mut retired);
        retired.into_iter().for_each(|slot| self.vacate(slot));
        self.forecast.pass(now + LEAD_NS);
        let cost = Cost {
            handshake_ns: HANDSHAKE_NS,
            each_ns: 0,
            good_for_ns: self.lifetimes.good_for_ns(Kind::Unused),
        };
        let good = self.standing.count_good(&self.lifetimes);
        let outlook = self.forecast.look(now, good, self.making, spares(0), cost);
        (0..outlook.missing.min(BEGUN_AT_ONCE)).for_each(|_| self.connect(None));
        self.tend_by(if outlook.missing > 0 { now } else { outlook.next_ns.min(now + S) });
    }
}

/// Memory of this process.
fn resident_bytes() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<i64>().unwrap() * 4_096
}

/// What must hold whatever the trace was.
fn check(seen: &Seen, setting: Setting) {
    assert_eq!(seen.answered, setting.requests, "none is lost, none comes twice: {seen:?}");
    assert_eq!(seen.retries, setting.requests.div_ceil(REFUSED));
    assert_eq!(seen.reset, 0, "no request met a closed connection: {seen:?}");
    assert!(seen.most_flights < LOOK_AHEAD + 4_096 && seen.most_connections < 4_096, "{seen:?}");
}

#[test]
fn a_day_in_simulated_time_loses_no_request_and_its_last_one_is_as_punctual_as_its_first() {
    let setting =
        Setting { seed: 3, requests: 60_000, mean_gap_ns: 1_600 * MS, pause_every: 1_000, stall_every: None };
    let seen = Simulation::new(setting).run();
    check(&seen, setting);
    assert!(seen.last.0 > 24 * HOUR, "{seen:?}");
    assert_eq!((seen.latest_ns, seen.last.1 - seen.last.0), (0, 0));
    assert_eq!(seen.connected_at_send, 0, "connections stood before they were needed: {seen:?}");
}

#[test]
fn a_thread_that_is_stopped_now_and_then_sends_late_and_in_order_and_loses_nothing() {
    for seed in 0..4 {
        let setting =
            Setting { seed, requests: 8_000, mean_gap_ns: 20 * MS, pause_every: 100, stall_every: Some(37) };
        let seen = Simulation::new(setting).run();
        check(&seen, setting);
        assert!(seen.latest_ns > 0 && seen.latest_ns <= 80 * MS, "{seen:?}");
        assert!(seen.last.1 - seen.last.0 <= 80 * MS, "lateness does not add up: {seen:?}");
    }
}

/// The whole of it: `cargo test --workspace --locked --lib -- --ignored --nocapture seventeen_million`.
#[test]
#[ignore = "17 million requests take many minutes without optimisation"]
#[allow(clippy::print_stdout, reason = "whoever asks for it wants the figures")]
fn seventeen_million_requests_of_a_day_keep_their_times_in_flat_memory() {
    let setting = Setting {
        seed: 1,
        requests: 17_280_000,
        mean_gap_ns: 5 * MS,
        pause_every: 150_000,
        stall_every: None,
    };
    let seen = Simulation::new(setting).run();
    check(&seen, setting);
    assert!(seen.last.0 > 23 * HOUR, "{seen:?}");
    assert_eq!((seen.latest_ns, seen.connected_at_send), (0, 0), "{seen:?}");
    let [early, late] = seen.resident_bytes;
    // Slots of the wheels keep some of their room once they were used, a day's slots after a day.
    assert!(late - early < 16 << 20, "memory grew from {early} to {late} bytes");
    println!("{seen:?}");
}
