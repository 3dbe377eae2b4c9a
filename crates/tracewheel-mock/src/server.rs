//! The endpoint on a socket: one thread, one `current_thread` runtime, paced by the engine.

mod body;
mod exchange;
mod hub;
mod io;
mod metrics;
mod routes;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tracewheel_clock::{Clock, PreciseWaiter, RunClock, WaiterOptions};
use tracewheel_net::{NetError, StampedListener, StampedStream};

use self::hub::Hub;
use self::io::{Connection, ConnectionIo};
use self::routes::Service;
use crate::config::{ConfigError, MockConfig};
use crate::engine::{Engine, EngineCounters};
use crate::log::{LogError, LogSink, LogThread};

/// Ticks between two looks at the event queue; the default of 61 would leave arrivals and the timer lying.
const EVENT_INTERVAL: u32 = 7;
/// Pause after an accept that failed, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE_NS: i64 = 10_000_000;
/// hyper's write buffer for one connection, bytes: what a slow reader can make the server hold.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MockSummary {
    /// The engine's sums.
    pub engine: EngineCounters,
    /// Connections accepted.
    pub connections: u64,
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
        let (log, sink) = LogThread::start(&config, Arc::clone(&clock))?;
        let (stop, stopped) = oneshot::channel();
        let (ready, became_ready) = sync_channel(1);
        let server = std::thread::Builder::new()
            .name("mock".to_owned())
            .spawn(move || serve(config, addr, clock, sink, &ready, stopped))
            .map_err(|source| MockError::System { what: "starting a thread", source })?;
        match became_ready.recv() {
            Ok(local_addr) => Ok(Self { local_addr, running: Some(Running { stop, server, log }) }),
            // The thread ended before it served.
            Err(_) => match join(server) {
                Err(error) => Err(error),
                Ok(_) => unreachable!("a server that ends in order has served"),
            },
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
    addr: SocketAddr,
    clock: Arc<RunClock>,
    sink: LogSink,
    ready: &SyncSender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) -> Result<MockSummary, MockError> {
    let runtime = runtime()?;
    let local = LocalSet::new();
    let hub = Hub::new(Engine::new(&config));
    let accepted = Rc::new(Cell::new(0));
    let stopping = Rc::new(Cell::new(false));
    let result = runtime.block_on(local.run_until(async {
        let listener = StampedListener::bind(addr, Arc::clone(&clock))?;
        let local_addr = listener.local_addr().map_err(system("naming the address"))?;
        let pacer = waiter(&clock)?;
        let acceptor = Acceptor {
            most: config.http.max_connections,
            service: Service::new(
                config,
                Rc::clone(&hub),
                Arc::clone(&clock),
                sink.clone(),
                Rc::clone(&stopping),
            ),
            accepted: Rc::clone(&accepted),
            open: Rc::default(),
            pause: waiter(&clock)?,
        };
        // Nobody waits for it only if the caller is gone.
        let _ = ready.send(local_addr);
        tokio::select! {
            _ = stopped => Ok(()),
            ended = hub.pace(pacer) => ended.map_err(system("waiting")),
            ended = acceptor.run(listener) => ended.map_err(system("waiting")),
        }
    }));
    stopping.set(true);
    // Streams end here, and with them their log lines.
    drop(local);
    result.map(|()| MockSummary {
        engine: hub.gauges().counters,
        connections: accepted.get(),
        dropped_log_lines: sink.dropped(),
    })
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

/// Takes connections in.
struct Acceptor {
    service: Rc<Service>,
    most: u32,
    accepted: Rc<Cell<u64>>,
    open: Rc<Cell<u32>>,
    pause: PreciseWaiter,
}

/// Counts a connection while it lives.
struct Open(Rc<Cell<u32>>);

impl Open {
    fn new(count: &Rc<Cell<u32>>) -> Self {
        count.set(count.get() + 1);
        Self(Rc::clone(count))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Acceptor {
    async fn run(mut self, listener: StampedListener) -> std::io::Result<()> {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.take(stream),
                Err(_) => {
                    let until = self.service.clock.now().plus(ACCEPT_PAUSE_NS);
                    self.pause.wait_until(until).await?;
                }
            }
        }
    }

    fn take(&self, stream: StampedStream) {
        if self.open.get() >= self.most {
            return;
        }
        self.accepted.set(self.accepted.get() + 1);
        let open = Open::new(&self.open);
        let connection = Connection::new(self.accepted.get(), &stream, Arc::clone(&self.service.clock));
        let io = ConnectionIo::new(stream, Rc::clone(&connection));
        let service = Rc::clone(&self.service);
        tokio::task::spawn_local(async move {
            let _open = open;
            let answer = service_fn(|request| Rc::clone(&service).answer(Rc::clone(&connection), request));
            // A client that breaks off or talks nonsense is its own problem; the log has the exchange.
            let _ = http1::Builder::new()
                .header_read_timeout(None)
                .writev(false)
                .max_buf_size(WRITE_BUFFER_BYTES)
                .serve_connection(io, answer)
                .await;
        });
    }
}
