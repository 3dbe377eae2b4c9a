//! A sending thread: one `current_thread` runtime, one task, which owns the wheels and its connections.
//!
//! Each turn of the task does what is most urgent first: releases that are due, then (not within the waiter's margin
//! before the next release, unless they were held back too long) chores such as arming and time-outs, then connections that became readable. Between any two
//! pieces of work it looks at the clock again. Then it rests: on the timer, on its sockets, on its inbox.

mod ending;
mod flight;
mod forecast;
mod gate;
mod lifetime;
mod pool;
mod priority;
mod reconnect;
mod send;
mod sessions;
#[cfg(test)]
mod simulated;
mod slots;
mod standing;
mod tend;
mod turn;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::SyncSender;

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::mpsc;
use tracewheel_clock::{Clock, PreciseWaiter, WaiterOptions};
use tracewheel_record::DepartureLog;
use tracewheel_transport::{ConnectErrorKind, ExchangeLimits, H2Options, HttpChoice, TlsClient};
use tracewheel_wheel::Wheel;

use crate::client_budget::ClientBudget;
use crate::config::{ConnectionUse, SessionRule};
use crate::message::{Heard, ReadyRequest};
use crate::prefetch::Budget;
use crate::realtime::Cores;
use crate::retry::RetryPolicy;
use crate::shared::{Halt, Outbox, Shared};

use flight::Flights;
use gate::Gate;
use pool::Pool;
use priority::Priority;
pub(crate) use reconnect::connect_reason;
use sessions::Sessions;
use slots::Slots;
use tend::Tending;

/// Where requests go.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its base URL, as it may be printed.
    pub(crate) url: String,
    pub(crate) addr: SocketAddr,
    /// `None` for plain HTTP.
    pub(crate) tls: Option<TlsClient>,
    /// Which HTTP is spoken, and how HTTP/2 is used.
    pub(crate) http: HttpChoice,
    pub(crate) h2: H2Options,
    pub(crate) host: HeaderValue,
}

/// What requests have in their heads alike. The authorization among it is marked sensitive.
#[derive(Debug)]
pub(crate) struct Head {
    /// Where a streamed answer is asked for.
    pub(crate) streamed: HeaderMap,
    /// Where a plain one is.
    pub(crate) plain: HeaderMap,
    /// Which of them the scenario has set, so that recorded ones do not replace them.
    pub(crate) set: Vec<HeaderName>,
}

impl Target {
    /// Requests at once that a connection carries, where that is known before there is one.
    fn lanes_ahead(&self) -> Option<usize> {
        match (self.http, &self.tls) {
            (HttpChoice::Http1, _) | (HttpChoice::Auto, None) => Some(1),
            (HttpChoice::Http2, _) | (HttpChoice::Auto, Some(_)) => None,
        }
    }
}

/// The rules of a run, as its workers keep them.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) retry: RetryPolicy,
    pub(crate) seed: u64,
    pub(crate) request_timeout_ns: i64,
    pub(crate) connect_timeout_ns: i64,
    pub(crate) cancel_as_recorded: bool,
    pub(crate) budget: ClientBudget,
    pub(crate) sessions: SessionRule,
    pub(crate) limits: ExchangeLimits,
    /// Whether a connection carries one request or many.
    pub(crate) connection_use: ConnectionUse,
    /// Connections of one worker kept ready beyond the known need. `None`: by the recent peak.
    pub(crate) spares: Option<usize>,
    /// Connections of one worker, at most.
    pub(crate) max_connections: usize,
    /// Connections that one worker can have before the process runs out of descriptors.
    pub(crate) descriptor_room: usize,
    /// Only for tests: holds the thread up before each release.
    pub(crate) test_stall_ns: Option<i64>,
    /// Only for benches: a request's slices are written one after the other.
    pub(crate) test_whole_bodies: bool,
}

/// What a worker is told to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Open so many connections to a target.
    Warm {
        /// The target's place in the list.
        target: usize,
        connections: u32,
        /// Room for so many requests will do: a connection that carries many is opened once for them.
        as_room: bool,
    },
    /// Send what comes out of an inbox, until it is closed and all is done.
    Phase {
        /// Rendered requests.
        inbox: mpsc::Receiver<ReadyRequest>,
        /// Whose places they take.
        budget: Arc<Budget>,
        /// When they are released.
        pace: Pace,
        /// Time zero of their plan on the run clock.
        start_ns: i64,
    },
    /// Look at the shared state again.
    Look,
}

/// When requests are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Each at its time.
    Open,
    /// As soon as fewer than so many are under way.
    Closed { at_once: usize },
}

/// A worker's answer to a command.
#[derive(Debug)]
pub(crate) enum Answer {
    /// So many connections stand; the first failure, if any.
    Warmed { open: u32, failure: Option<ConnectFailure> },
    /// The phase is done.
    PhaseDone,
    /// The worker can't go on.
    Failed { source: io::Error },
}

/// Why a connection could not be made.
#[derive(Debug, Clone)]
pub(crate) struct ConnectFailure {
    pub(crate) kind: ConnectErrorKind,
    /// The system's or the peer's words.
    pub(crate) detail: String,
}

/// Everything a worker thread is given.
pub(crate) struct Setup {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outbox: Outbox,
    /// What the reader finds in answers that a turn waits for, where one reads them.
    pub(crate) heard: Option<mpsc::Receiver<Heard>>,
    pub(crate) departures: DepartureLog,
    pub(crate) budget: Arc<Budget>,
    /// Where requests go: they say which by its place here.
    pub(crate) targets: Arc<[Arc<Target>]>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) connection_numbers: Arc<AtomicU32>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) answers: SyncSender<Answer>,
    /// Number of the worker, from 0.
    pub(crate) number: u32,
    /// Ask for the real-time class.
    pub(crate) realtime: bool,
    pub(crate) cores: Option<Cores>,
}

/// Things to do that are not a release.
#[derive(Debug, Clone, Copy)]
enum Chore {
    Arm(u32),
    /// Let a turn's body be written.
    Write(u32),
    Timeout(u32),
    Cancel(u32),
    ConnectTimeout {
        pool: usize,
        slot: u32,
        number: u32,
    },
    Tend,
}

struct Worker {
    shared: Arc<Shared>,
    outbox: Outbox,
    departures: DepartureLog,
    budget: Arc<Budget>,
    rules: Arc<Rules>,
    commands: mpsc::Receiver<Command>,
    /// Releases; waited for to the microsecond.
    sends: Wheel<u32>,
    /// Everything else; never looked at shortly before a release.
    chores: Wheel<Chore>,
    precise: PreciseWaiter,
    lax: PreciseWaiter,
    /// The connections, by target.
    pools: Vec<Pool>,
    /// Which of them has its turn when connections were woken.
    next_pool: usize,
    flights: Flights,
    /// Closed loop: flights that wait for their turn, in planned order.
    line: VecDeque<u32>,
    /// The line is being taken from.
    pumping: bool,
    /// The client's own budgets.
    gate: Gate,
    /// Who waits for whom.
    sessions: Sessions,
    /// Flights that were released and have not ended.
    under_way: usize,
    inbox: Option<mpsc::Receiver<ReadyRequest>>,
    /// What the inbox gave while the worker rested.
    arrived: Option<ReadyRequest>,
    pace: Pace,
    /// Time zero of the phase's plan on the run clock.
    start_ns: i64,
    /// How the run is being ended, as far as acted on.
    halt: Halt,
    tending: Tending,
    priority: Priority,
    /// Since when work has been held back by close releases.
    held_since_ns: Option<i64>,
    /// Pieces of work to be done although a release is close.
    owed_pieces: u32,
    gauged: Gauged,
}

/// What was added to the shared gauges so far.
#[derive(Debug, Default)]
struct Gauged {
    connections: i64,
    wheel_entries: i64,
}

/// Runs a worker until its commands end.
pub(crate) fn run(setup: Setup) {
    let (answers, shared) = (setup.answers.clone(), Arc::clone(&setup.shared));
    shared.sender_begins();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().event_interval(1).build();
    let outcome = runtime.and_then(|runtime| {
        // The worker bounds its own work between two looks at the reactor; tokio's budget would cut it at odd places.
        runtime.block_on(tokio::task::unconstrained(serve(setup)))
    });
    if let Err(source) = outcome {
        // Nobody listens any more only when the run is over.
        let _unheard = answers.send(Answer::Failed { source });
    }
    shared.sender_ends();
}

async fn serve(setup: Setup) -> io::Result<()> {
    let priority = Priority::obtain(&setup);
    let Setup {
        shared,
        outbox,
        heard,
        departures,
        budget,
        targets,
        rules,
        number,
        connection_numbers,
        commands,
        answers,
        ..
    } = setup;
    let clock = Arc::clone(&shared.clock);
    let now = clock.now().0;
    let worker = Worker {
        sends: Wheel::new(now),
        chores: Wheel::new(now),
        precise: PreciseWaiter::new(Arc::clone(&clock))?,
        lax: PreciseWaiter::with_options(
            Arc::clone(&clock),
            WaiterOptions { max_spin_ns: 0, max_spin_percent: 0 },
        )?,
        pools: targets
            .iter()
            .map(|target| {
                let slots = Slots::new(
                    Arc::clone(&clock),
                    Arc::clone(target),
                    rules.limits.clone(),
                    Arc::clone(&connection_numbers),
                    rules.connection_use,
                );
                Pool::new(Arc::clone(target), slots)
            })
            .collect(),
        next_pool: 0,
        gate: Gate::new(rules.budget),
        sessions: Sessions::new(rules.sessions, number, heard),
        shared,
        outbox,
        departures,
        budget,
        rules,
        commands,
        flights: Flights::default(),
        line: VecDeque::new(),
        pumping: false,
        under_way: 0,
        inbox: None,
        arrived: None,
        pace: Pace::Open,
        start_ns: 0,
        halt: Halt::Running,
        tending: Tending::default(),
        priority,
        held_since_ns: None,
        owed_pieces: 0,
        gauged: Gauged::default(),
    };
    worker.obey(answers).await
}
