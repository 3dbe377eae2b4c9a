//! Making connections, whichever HTTP is spoken on them.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use tracewheel_clock::{Clock, RunClock};
use tracewheel_net::StampedStream;
use tracewheel_net::tls::{TlsClient, TlsErrorKind, TlsFacts, TlsStream};

use crate::connection::{ConnectStamps, H1Connection};
use crate::error::{ConnectError, ConnectErrorKind};
use crate::h2::{H2Connection, H2Options};
use crate::io::Stream;

/// Which HTTP is to be spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpChoice {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: over TLS if the peer agrees by ALPN, else the connection fails; without TLS by prior knowledge.
    Http2,
    /// Over TLS what the peer chooses by ALPN, without TLS HTTP/1.1.
    #[default]
    Auto,
}

impl HttpChoice {
    /// What is offered by ALPN, the liked most first.
    pub fn alpn(self) -> &'static [&'static str] {
        match self {
            HttpChoice::Http1 => &["http/1.1"],
            HttpChoice::Http2 => &["h2"],
            HttpChoice::Auto => &["h2", "http/1.1"],
        }
    }
}

/// Where to and how.
#[derive(Debug, Clone)]
pub struct Way {
    /// The peer.
    pub addr: SocketAddr,
    /// `None`: without TLS. What it offers by ALPN must be [`HttpChoice::alpn`]'s.
    pub tls: Option<TlsClient>,
    /// Which HTTP.
    pub http: HttpChoice,
    /// How HTTP/2 is used, where it is.
    pub h2: H2Options,
}

/// A connection that was made.
#[derive(Debug)]
pub enum Opened {
    /// It carries one exchange at a time.
    H1(Box<H1Connection>),
    /// It carries one exchange on each of its lanes.
    H2(H2Connection),
}

impl Opened {
    /// When it was made.
    pub fn connect_stamps(&self) -> ConnectStamps {
        match self {
            Opened::H1(connection) => connection.connect_stamps(),
            Opened::H2(connection) => connection.connect_stamps(),
        }
    }

    /// What TLS negotiated; `None` without TLS.
    pub fn tls(&self) -> Option<&Arc<TlsFacts>> {
        match self {
            Opened::H1(connection) => connection.tls(),
            Opened::H2(connection) => connection.tls(),
        }
    }
}

type OpeningFuture = Pin<Box<dyn Future<Output = Result<Opened, ConnectError>> + Send>>;

/// How far a connection in the making has come.
#[derive(Debug, Default)]
pub(crate) struct Progress(AtomicU8);

const TCP_STANDS: u8 = 1;
const TLS_STANDS: u8 = 2;

/// A connection being made. Dropping it gives it up.
pub struct Opening {
    future: OpeningFuture,
    progress: Arc<Progress>,
    tls: bool,
}

impl std::fmt::Debug for Opening {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opening").field("progress", &self.progress).finish_non_exhaustive()
    }
}

impl Opening {
    /// Begins to connect. Must be polled inside a tokio runtime; may be dropped at any point. It fails where the target
    /// can't be reached, this machine has no port or file descriptor left, the TLS handshake fails, or the peer does not
    /// speak the HTTP that was asked for.
    pub fn new(way: Way, clock: Arc<RunClock>) -> Self {
        let progress = Arc::new(Progress::default());
        let tls = way.tls.is_some();
        let future = Box::pin(open(way, clock, Arc::clone(&progress)));
        Opening { future, progress, tls }
    }

    /// One that fails with `error`: for a caller that knows that it would.
    pub fn failed(error: ConnectError) -> Self {
        Opening { future: Box::pin(std::future::ready(Err(error))), progress: Arc::default(), tls: false }
    }

    /// What it is called when it is given up now for want of time.
    pub fn timed_out_as(&self) -> ConnectErrorKind {
        match self.progress.0.load(Ordering::Relaxed) {
            TCP_STANDS if self.tls => ConnectErrorKind::TlsTimedOut,
            TCP_STANDS | TLS_STANDS => ConnectErrorKind::Http2TimedOut,
            _ => ConnectErrorKind::TimedOut,
        }
    }
}

impl Future for Opening {
    type Output = Result<Opened, ConnectError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.future.as_mut().poll(cx)
    }
}

async fn open(way: Way, clock: Arc<RunClock>, progress: Arc<Progress>) -> Result<Opened, ConnectError> {
    let Way { addr, tls, http, h2 } = way;
    let (stream, connect) = connect(addr, tls.as_ref(), &clock, &progress).await.map_err(|mut error| {
        if http == HttpChoice::Http2 && error.kind == ConnectErrorKind::Tls(TlsErrorKind::NoProtocol) {
            error.kind = ConnectErrorKind::Http1Only;
        }
        error
    })?;
    let chosen = match &stream {
        Stream::Plain(_) => None,
        Stream::Tls(tls) => tls.facts().alpn,
    };
    let is_h2 = match (&stream, chosen.as_deref()) {
        (Stream::Plain(_), _) => http == HttpChoice::Http2,
        (Stream::Tls(_), Some("h2")) => http != HttpChoice::Http1,
        (Stream::Tls(_), other) if http == HttpChoice::Http2 => {
            let said = format!("by ALPN the peer chose {}", other.unwrap_or("nothing"));
            return Err(ConnectError { kind: ConnectErrorKind::Http1Only, source: io::Error::other(said) });
        }
        (Stream::Tls(_), _) => false,
    };
    if is_h2 {
        return H2Connection::over(stream, connect, h2, clock).await.map(Opened::H2);
    }
    H1Connection::over(stream, connect, clock).await.map(|connection| Opened::H1(Box::new(connection)))
}

/// TCP, and TLS where it is wanted.
pub(crate) async fn connect(
    addr: SocketAddr,
    tls: Option<&TlsClient>,
    clock: &Arc<RunClock>,
    progress: &Progress,
) -> Result<(Stream, ConnectStamps), ConnectError> {
    let start_ns = clock.now();
    let stream = StampedStream::connect(addr, Arc::clone(clock)).await.map_err(|error| {
        let system = error.io();
        let source = match system.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(system.kind(), system.to_string()),
        };
        ConnectError::from(source)
    })?;
    progress.0.store(TCP_STANDS, Ordering::Relaxed);
    let mut connect = ConnectStamps { start_ns, connected_ns: clock.now(), tls_ns: None };
    let stream = match tls {
        None => Stream::Plain(stream),
        Some(client) => {
            let tls = TlsStream::connect(stream, client).await.map_err(ConnectError::from)?;
            connect.tls_ns = Some(clock.now());
            Stream::Tls(Box::new(tls))
        }
    };
    progress.0.store(if tls.is_some() { TLS_STANDS } else { TCP_STANDS }, Ordering::Relaxed);
    Ok((stream, connect))
}
