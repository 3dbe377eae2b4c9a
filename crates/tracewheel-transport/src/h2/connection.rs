//! One HTTP/2 connection, and the lanes on it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use h2::client::{Builder, Connection as Driver, SendRequest};
use h2::{Ping, PingPong};
use tracewheel_clock::RunClock;
use tracewheel_net::tls::TlsFacts;

use super::exchange::H2Exchange;
use super::wire::{H2Io, READS_A_POLL, Wire};
use crate::body::Unsent;
use crate::connection::ConnectStamps;
use crate::error::{ConnectError, ConnectErrorKind, shown};
use crate::exchange::ExchangeLimits;
use crate::io::Stream;
use crate::request::PreparedRequest;

/// The largest window that the protocol knows, less what the peer may have been given before.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 30;
/// What a stream's answer may hold unread: more than any answer that is accepted.
const STREAM_WINDOW_BYTES: u32 = 16 << 20;
/// The library's guard against many small frames is meant for those who do not read. A token is a small frame.
const FRAME_BUDGET_BYTES: usize = 1 << 40;
/// Streams of one connection: ids run out at 2³⁰.
const MAX_EXCHANGES: u32 = 1 << 29;
/// Largest head of an answer.
const MAX_HEAD_BYTES: u32 = 64 << 10;

/// How HTTP/2 connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H2Options {
    /// Exchanges at once on one connection, at most; the peer may allow fewer.
    pub streams_per_connection: u32,
    /// Exchanges that a connection carries in its life; ids of streams bound it too.
    pub exchanges_per_connection: u32,
}

impl Default for H2Options {
    fn default() -> Self {
        H2Options { streams_per_connection: 100, exchanges_per_connection: MAX_EXCHANGES }
    }
}

/// An HTTP/2 connection. It must be polled whenever it is woken, also while exchanges run on its lanes.
pub struct H2Connection {
    shared: Arc<Shared>,
    connect: ConnectStamps,
    kernel_stamps: bool,
    local_addr: Option<SocketAddr>,
    tls: Option<Arc<TlsFacts>>,
}

impl std::fmt::Debug for H2Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H2Connection").field("connect", &self.connect).finish_non_exhaustive()
    }
}

/// What a connection and its lanes share.
pub(super) struct Shared {
    core: Mutex<Core>,
    pub(super) wire: Arc<Wire>,
    pub(super) clock: Arc<RunClock>,
    pub(super) https: bool,
    connect: ConnectStamps,
}

impl Shared {
    /// Every change is complete when the lock is released.
    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Core {
    /// Gone once it has ended: only then it tells its streams, whichever way it ended.
    driver: Option<Driver<H2Io, Unsent>>,
    pub(super) sender: SendRequest<Unsent>,
    /// The owner's; lanes poll the connection in its name.
    waker: Waker,
    ping: Option<PingPong>,
    /// A ping is out, and so many frames had come when it left.
    pinged_at: Option<u64>,
    options: H2Options,
    /// Lanes that exist.
    lanes: u32,
    /// Exchanges that have begun and not ended.
    pub(super) active: u32,
    /// Exchanges that have begun.
    begun: u32,
    /// No new exchange may begin.
    closing: bool,
    /// It is over; the library's words, if it had any.
    ended: Option<String>,
}

impl Core {
    /// Drives the connection in its owner's name.
    pub(super) fn drive(&mut self, wire: &Wire, reads: u32, open: bool) {
        let Some(driver) = &mut self.driver else { return };
        wire.begin_poll(reads, open);
        if let Poll::Ready(ended) = Pin::new(driver).poll(&mut Context::from_waker(&self.waker)) {
            self.driver = None;
            self.ended = Some(ended.err().map_or_else(|| "closed".to_owned(), |error| error.to_string()));
        }
        if self.ended.is_some() || wire.lock().go_away.is_some() {
            self.closing = true;
        }
    }

    /// Whether another exchange may begin.
    pub(super) fn is_open(&self) -> bool {
        !self.closing
    }

    pub(super) fn begin(&mut self) {
        self.active += 1;
        self.begun += 1;
        if self.begun >= self.options.exchanges_per_connection.min(MAX_EXCHANGES) {
            self.closing = true;
        }
    }

    pub(super) fn end(&mut self) {
        self.active -= 1;
    }

    /// After a lane drove the connection: its owner is told if it can't go on, for nothing else would.
    pub(super) fn tell_the_end(&self) {
        if self.closing {
            self.waker.wake_by_ref();
        }
    }

    /// No further exchange begins.
    pub(super) fn retire(&mut self) {
        self.closing = true;
        self.waker.wake_by_ref();
    }

    pub(super) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    fn limit(&self) -> u32 {
        let peer = self.driver.as_ref().map_or(0, Driver::max_concurrent_send_streams);
        let peer = u32::try_from(peer).unwrap_or(u32::MAX);
        self.options.streams_per_connection.min(peer)
    }
}

impl H2Connection {
    /// Speaks HTTP/2 over a connected stream: returns when the peer's SETTINGS are there, so that what it allows is known
    /// and it is known to speak HTTP/2 at all.
    pub(crate) async fn over(
        stream: Stream,
        connect: ConnectStamps,
        options: H2Options,
        clock: Arc<RunClock>,
    ) -> Result<H2Connection, ConnectError> {
        let tcp = stream.tcp();
        let (kernel_stamps, local_addr) = (tcp.kernel_stamps(), tcp.local_addr().ok());
        let tls = match &stream {
            Stream::Plain(_) => None,
            Stream::Tls(tls) => Some(Arc::new(tls.facts())),
        };
        let wire = Wire::new();
        let io = H2Io::new(stream, Arc::clone(&wire));
        let handshake = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .data_frame_budget(FRAME_BUDGET_BYTES)
            .max_header_list_size(MAX_HEAD_BYTES)
            .handshake::<_, Unsent>(io)
            .await;
        let (sender, mut driver) = handshake.map_err(|error| refused(&wire, &error.to_string()))?;
        let ping = driver.ping_pong();
        let mut core = Core {
            driver: Some(driver),
            sender,
            waker: Waker::noop().clone(),
            ping,
            pinged_at: None,
            options,
            lanes: 0,
            active: 0,
            begun: 0,
            closing: false,
            ended: None,
        };
        poll_fn(|cx| core.poll_settings(cx, &wire)).await?;
        let shared = Shared { core: Mutex::new(core), wire, clock, https: tls.is_some(), connect };
        Ok(H2Connection { shared: Arc::new(shared), connect, kernel_stamps, local_addr, tls })
    }

    /// Drives the connection; lanes whose streams got something are woken. `Ready` means that it is over: nothing more
    /// comes on any lane, and it must be dropped.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut core = self.shared.core();
        if !core.waker.will_wake(cx.waker()) {
            core.waker = cx.waker().clone();
        }
        core.drive(&self.shared.wire, READS_A_POLL, true);
        if core.ended.is_some() || (core.closing && core.lanes == 0) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Another lane, while there are fewer than chosen and than the peer allows.
    pub fn new_lane(&self) -> Option<H2Lane> {
        let mut core = self.shared.core();
        if core.closing || core.lanes >= core.limit() {
            return None;
        }
        core.lanes += 1;
        Some(H2Lane { shared: Arc::clone(&self.shared), used: core.begun > 0 })
    }

    /// Whether no exchange may begin any more: the peer has announced its end, it is over, or it carried all it may.
    pub fn is_closing(&self) -> bool {
        self.shared.core().closing
    }

    /// Exchanges under way.
    pub fn active(&self) -> u32 {
        self.shared.core().active
    }

    /// Exchanges at once that are allowed now: the smaller of the chosen number and the peer's.
    pub fn limit(&self) -> u32 {
        self.shared.core().limit()
    }

    /// To be called now and then, seconds apart: sends a ping. A connection that brought nothing at all between two such
    /// calls, not even the ping's answer, takes no new exchange; what runs on it is left to run. Returns whether the peer
    /// is alive as far as is known.
    pub fn keep_alive(&self) -> bool {
        let mut core = self.shared.core();
        let frames = self.shared.wire.lock().frames;
        match core.pinged_at {
            Some(at) if at == frames => {
                core.retire();
                return false;
            }
            _ => core.pinged_at = Some(frames),
        }
        let waker = core.waker.clone();
        if let Some(ping) = &mut core.ping {
            // The answer to the ping before it is taken, or is still out: then no second one leaves.
            let _pong = ping.poll_pong(&mut Context::from_waker(&waker));
            let _sent = ping.send_ping(Ping::opaque());
            core.drive(&self.shared.wire, 0, true);
        }
        true
    }

    /// When the connection was made.
    pub fn connect_stamps(&self) -> ConnectStamps {
        self.connect
    }

    /// Whether the kernel stamps what arrives.
    pub fn kernel_stamps(&self) -> bool {
        self.kernel_stamps
    }

    /// What TLS negotiated; `None` without TLS.
    pub fn tls(&self) -> Option<&Arc<TlsFacts>> {
        self.tls.as_ref()
    }

    /// This end's address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local_addr
    }
}

impl Core {
    fn poll_settings(&mut self, cx: &mut Context<'_>, wire: &Wire) -> Poll<Result<(), ConnectError>> {
        self.waker = cx.waker().clone();
        self.drive(wire, READS_A_POLL, true);
        if let Some(ended) = &self.ended {
            return Poll::Ready(Err(refused(wire, ended)));
        }
        if wire.lock().settings { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

/// Why no HTTP/2 connection came to be.
fn refused(wire: &Wire, said: &str) -> ConnectError {
    let state = wire.lock();
    let greeting = &state.greeting;
    let (kind, told) = if greeting.starts_with(b"HTTP/1.") {
        (ConnectErrorKind::Http1Only, shown(greeting))
    } else if matches!(**greeting, [0x15 | 0x16, 3, 0..=4, ..]) {
        (ConnectErrorKind::TlsExpected, shown(greeting))
    } else if let Some(go_away) = state.go_away {
        (ConnectErrorKind::Http2Refused, format!("GOAWAY, {}", code_name(go_away.code)))
    } else if greeting.is_empty() {
        (ConnectErrorKind::Http2Refused, "the peer closed the connection without a word".to_owned())
    } else {
        (ConnectErrorKind::Http2Refused, shown(greeting))
    };
    ConnectError { kind, source: io::Error::other(format!("{told} ({said})")) }
}

/// The name of an error code of RFC 9113, section 7.
pub(super) fn code_name(code: u32) -> String {
    match code {
        0 => "NO_ERROR",
        1 => "PROTOCOL_ERROR",
        2 => "INTERNAL_ERROR",
        3 => "FLOW_CONTROL_ERROR",
        4 => "SETTINGS_TIMEOUT",
        5 => "STREAM_CLOSED",
        6 => "FRAME_SIZE_ERROR",
        7 => "REFUSED_STREAM",
        8 => "CANCEL",
        9 => "COMPRESSION_ERROR",
        10 => "CONNECT_ERROR",
        11 => "ENHANCE_YOUR_CALM",
        12 => "INADEQUATE_SECURITY",
        13 => "HTTP_1_1_REQUIRED",
        other => return format!("code {other}"),
    }
    .to_owned()
}

/// The right to one exchange at a time on an HTTP/2 connection. Dropping it gives the right back.
pub struct H2Lane {
    pub(super) shared: Arc<Shared>,
    /// Its connection had carried an exchange when it was made, or it has.
    used: bool,
}

impl std::fmt::Debug for H2Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H2Lane").field("connect", &self.shared.connect).finish_non_exhaustive()
    }
}

impl H2Lane {
    /// `Ready` means that it is of no use any more. No waker is kept: whoever polls the connection tells its lanes.
    pub fn poll_idle(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        let core = self.shared.core();
        if core.closing || core.lanes > core.limit() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Makes the request ready to be handed over when it is released.
    pub fn arm(mut self, request: PreparedRequest, limits: ExchangeLimits) -> H2Exchange {
        self.used = true;
        H2Exchange::new(self, request, limits)
    }

    /// Whether its connection has carried an exchange.
    pub fn used(&self) -> bool {
        self.used || self.shared.core().begun > 0
    }

    /// Exchanges begun on its connection.
    pub fn exchanges(&self) -> u32 {
        self.shared.core().begun
    }

    /// When its connection was made.
    pub fn connect_stamps(&self) -> ConnectStamps {
        self.shared.connect
    }
}

impl Drop for H2Lane {
    fn drop(&mut self) {
        let mut core = self.shared.core();
        core.lanes -= 1;
        // The connection may end now, or hand out another lane.
        core.waker.wake_by_ref();
    }
}
