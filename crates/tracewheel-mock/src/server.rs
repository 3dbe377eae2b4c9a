//! The endpoint on a socket: one thread, one `current_thread` runtime, paced by the engine.

mod accept;
mod alarm;
mod body;
mod exchange;
mod flush;
mod hub;
mod io;
mod meet_fault;
mod metrics;
mod routes;
mod tamper;
mod wire;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tracewheel_clock::{Clock, PreciseWaiter, RunClock, WaiterOptions};
use tracewheel_net::tls::{TlsConfigError, TlsServer};
use tracewheel_net::{NetError, StampedListener};

use self::accept::Acceptor;
use self::hub::Hub;
use self::routes::Service;
use crate::config::{ConfigError, MockConfig};
use crate::engine::{Engine, EngineCounters};
use crate::log::{self, LogError, LogSink, LogThread};

/// Ticks between two looks at the event queue; the default of 61 would leave arrivals and the timer lying.
const EVENT_INTERVAL: u32 = 7;
/// The endpoint shares its machine with the generator in demos and tests: spinning stays rare.
const PACING: WaiterOptions = WaiterOptions { max_spin_ns: 80_000, max_spin_percent: 20 };

/// A mock could not be started, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MockError {
    /// The configuration describes no possible mock.
    #[error("the mock can't be like this")]
    Config(#[from] ConfigError),
    /// The address could not be listened on.
    #[error("the mock can't be had at this address: give another, or port 0 for a free one")]
    Listen(#[from] NetError),
    /// The certificate or its key can't be used.
    #[error("the mock can't serve HTTPS")]
    Tls(#[from] TlsConfigError),
    /// A thread, a runtime or a timer was refused.
    #[error("the mock can't run: {what} failed")]
    System {
        /// What was asked of the system.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A log could not be written.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// What a mock did, told at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MockSummary {
    /// The engine's sums.
    pub engine: EngineCounters,
    /// Connections accepted.
    pub connections: u64,
    /// Requests of any route.
    pub requests: u64,
    /// Requests by the status of their answer; those that got none are under 0.
    pub statuses: BTreeMap<u16, u64>,
    /// Rules of faults in their order, and how often each took effect.
    pub faults: Vec<(String, u64)>,
    /// Log lines dropped because the log's thread was behind.
    pub dropped_log_lines: u64,
}

/// A running mock endpoint. Dropping it stops it.
#[derive(Debug)]
pub struct Mock {
    local_addr: SocketAddr,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: oneshot::Sender<()>,
    server: JoinHandle<Result<MockSummary, MockError>>,
    log: LogThread,
}

impl Mock {
    /// Starts an endpoint on `addr` (port 0 takes a free one), on threads of its own. It serves when this returns.
    ///
    /// `clock` may be shared with whatever else runs in the process; the mock also keeps its wall offset sampled.
    ///
    /// # Errors
    /// The configuration is impossible, the address or a log file can't be had, or the system refuses a thread or timer.
    pub fn bind(config: MockConfig, addr: SocketAddr, clock: Arc<RunClock>) -> Result<Self, MockError> {
        config.validate()?;
        let tls = tls(&config)?;
        let (sink, receiver) = log::channel();
        let (stop, stopped) = oneshot::channel();
        let (ready, became_ready) = sync_channel(1);
        let served = config.clone();
        let of_server = Arc::clone(&clock);
        let server = std::thread::Builder::new()
            .name("mock".to_owned())
            .spawn(move || serve(served, tls, addr, of_server, sink, &ready, stopped))
            .map_err(|source| MockError::System { what: "starting a thread", source })?;
        let Ok(local_addr) = became_ready.recv() else {
            // The thread ended before it served.
            return match join(server) {
                Err(error) => Err(error),
                Ok(_) => unreachable!("a server that ends in order has served"),
            };
        };
        // Only now: a mock that can't be had must not empty the logs of the one that has its address.
        match LogThread::start(&config, clock, receiver) {
            Ok(log) => Ok(Self { local_addr, running: Some(Running { stop, server, log }) }),
            Err(error) => {
                let _ = stop.send(());
                join(server)?;
                Err(error.into())
            }
        }
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops: open connections are closed, logs are complete when this returns.
    ///
    /// # Errors
    /// The server had ended by itself with an error, or a log could not be written.
    pub fn shutdown(mut self) -> Result<MockSummary, MockError> {
        self.running.take().map_or_else(|| Ok(MockSummary::default()), Running::end)
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // Whoever wants to know of errors calls `shutdown`.
            let _ = running.end();
        }
    }
}

impl Running {
    fn end(self) -> Result<MockSummary, MockError> {
        // A server that has ended by itself no longer listens to this.
        let _ = self.stop.send(());
        let summary = join(self.server);
        self.log.join()?;
        summary
    }
}

fn join(server: JoinHandle<Result<MockSummary, MockError>>) -> Result<MockSummary, MockError> {
    server.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The server's thread.
fn serve(
    config: MockConfig,
    tls: Option<TlsServer>,
    addr: SocketAddr,
    clock: Arc<RunClock>,
    sink: LogSink,
    ready: &SyncSender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) -> Result<MockSummary, MockError> {
    let runtime = runtime()?;
    let local = LocalSet::new();
    let hub = Hub::new(Engine::starting_at(&config, clock.now()), Arc::clone(&clock));
    let accepted = Rc::new(Cell::new(0));
    let stopping = Rc::new(Cell::new(false));
    let service =
        Service::new(config, tls, Rc::clone(&hub), Arc::clone(&clock), sink.clone(), Rc::clone(&stopping));
    let result = runtime.block_on(local.run_until(async {
        let listener = StampedListener::bind(addr, Arc::clone(&clock))?;
        let local_addr = listener.local_addr().map_err(system("naming the address"))?;
        let pacer = waiter(&clock)?;
        let acceptor = Acceptor::new(Rc::clone(&service), local_addr, Rc::clone(&accepted), waiter(&clock)?);
        // Nobody waits for it only if the caller is gone.
        let _ = ready.send(local_addr);
        tracing::info!(address = %local_addr, "mock serves");
        tokio::select! {
            _ = stopped => Ok(()),
            ended = hub.pace(pacer) => ended.map_err(system("waiting")),
            ended = acceptor.run(listener) => ended.map_err(system("waiting")),
        }
    }));
    stopping.set(true);
    // Streams end here, and with them their log lines.
    drop(local);
    let tally = service.tally.take();
    tracing::info!(connections = accepted.get(), requests = tally.requests, "mock ends");
    result.map(|()| MockSummary {
        engine: hub.gauges().counters,
        connections: accepted.get(),
        requests: tally.requests,
        statuses: tally.statuses,
        faults: service.fault_effects(),
        dropped_log_lines: sink.dropped(),
    })
}

/// What HTTPS is served with, where it is.
fn tls(config: &MockConfig) -> Result<Option<TlsServer>, TlsConfigError> {
    let files = config.http.tls_cert.as_ref().zip(config.http.tls_key.as_ref());
    files.map(|(cert, key)| TlsServer::from_files(cert, key, &["h2", "http/1.1"])).transpose()
}

fn runtime() -> Result<Runtime, MockError> {
    Builder::new_current_thread()
        .enable_io()
        .event_interval(EVENT_INTERVAL)
        .build()
        .map_err(system("making a runtime"))
}

fn waiter(clock: &Arc<RunClock>) -> Result<PreciseWaiter, MockError> {
    PreciseWaiter::with_options(Arc::clone(clock), PACING).map_err(system("making a timer"))
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> MockError {
    move |source| MockError::System { what, source }
}
