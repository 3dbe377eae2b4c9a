//! One kept connection, polled by whoever uses it.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use tracewheel_clock::{RunClock, RunNs};
use tracewheel_net::tls::{TlsClient, TlsFacts};
use tracewheel_net::{ReadStamp, StreamStamps};

use crate::error::ConnectError;
use crate::exchange::{ExchangeLimits, H1Exchange};
use crate::h1::HeadReader;
use crate::io::{Outgoing, Stream, with_scratch};
use crate::opening;
use crate::request::PreparedRequest;

/// When a connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectStamps {
    /// Before the system was asked to connect.
    pub start_ns: RunNs,
    /// When the TCP connection stood.
    pub connected_ns: RunNs,
    /// When TLS stood; `None` without TLS.
    pub tls_ns: Option<RunNs>,
}

impl ConnectStamps {
    /// When requests could be sent.
    pub fn ready_ns(&self) -> RunNs {
        self.tls_ns.unwrap_or(self.connected_ns)
    }
}

/// An HTTP/1.1 connection between exchanges. Whoever keeps it should poll it ([`Self::poll_idle`]) whenever it is
/// woken, so that a close by the server is seen when it happens and not when the next request is lost on it.
pub struct H1Connection {
    pub(crate) stream: Stream,
    pub(crate) stamps: StreamStamps,
    /// Gathers the head of the present answer.
    pub(crate) head: HeadReader,
    pub(crate) clock: Arc<RunClock>,
    pub(crate) exchanges: u32,
    /// Bytes of the body and reads of the latest answer.
    pub(crate) usual: (usize, usize),
    connect: ConnectStamps,
    kernel_stamps: bool,
    local_addr: Option<SocketAddr>,
    tls: Option<Arc<TlsFacts>>,
}

impl std::fmt::Debug for H1Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H1Connection")
            .field("connect", &self.connect)
            .field("exchanges", &self.exchanges)
            .finish()
    }
}

impl H1Connection {
    /// Connects to `addr`, without TLS. Must run inside a tokio runtime; may be dropped at any point.
    ///
    /// # Errors
    /// The target can't be reached, or this machine has no port or file descriptor left.
    pub async fn open(addr: SocketAddr, clock: Arc<RunClock>) -> Result<H1Connection, ConnectError> {
        let (stream, connect) = opening::connect(addr, None, &clock, &opening::Progress::default()).await?;
        H1Connection::over(stream, connect, clock).await
    }

    /// Connects to `addr` and shakes hands. As [`Self::open`] otherwise.
    ///
    /// # Errors
    /// As [`Self::open`]; besides, the handshake failed.
    pub async fn open_tls(
        addr: SocketAddr,
        tls: TlsClient,
        clock: Arc<RunClock>,
    ) -> Result<H1Connection, ConnectError> {
        let (stream, connect) =
            opening::connect(addr, Some(&tls), &clock, &opening::Progress::default()).await?;
        H1Connection::over(stream, connect, clock).await
    }

    pub(crate) async fn over(
        stream: Stream,
        connect: ConnectStamps,
        clock: Arc<RunClock>,
    ) -> Result<H1Connection, ConnectError> {
        let tcp = stream.tcp();
        let (kernel_stamps, local_addr) = (tcp.kernel_stamps(), tcp.local_addr().ok());
        let stamps = stream.stamps();
        let tls = match &stream {
            Stream::Plain(_) => None,
            Stream::Tls(tls) => Some(Arc::new(tls.facts())),
        };
        let mut connection = H1Connection {
            stream,
            stamps,
            head: HeadReader::default(),
            clock,
            exchanges: 0,
            usual: (0, 0),
            connect,
            kernel_stamps,
            local_addr,
            tls,
        };
        // One turn, so that the connection is watched and ready to take a request.
        poll_fn(|cx| {
            let _closed = connection.poll_idle(cx);
            Poll::Ready(())
        })
        .await;
        Ok(connection)
    }

    /// Drives an idle connection. `Ready` means that it is closed (or that the server sent what nobody asked for) and
    /// must be dropped; `Pending` that it waits and will wake the task.
    pub fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        with_scratch(|scratch| self.stream.poll_read_slice(cx, scratch)).map(|_ended_or_unasked| ())
    }

    /// Hands the request to the connection with the valve shut: everything up to the write call can now happen by
    /// [`H1Exchange::poll_armed`], and nothing leaves before [`H1Exchange::release`].
    pub fn arm(mut self, request: PreparedRequest, limits: ExchangeLimits) -> H1Exchange {
        let mut stray = Vec::<ReadStamp>::new();
        self.stamps.drain_reads(&mut stray);
        self.stamps.begin_exchange();
        self.head.clear();
        self.exchanges = self.exchanges.saturating_add(1);
        let outgoing = Outgoing::new(&request);
        H1Exchange::new(self, request, outgoing, limits)
    }

    /// When the connection was made.
    pub fn connect_stamps(&self) -> ConnectStamps {
        self.connect
    }

    /// Exchanges begun on it.
    pub fn exchanges(&self) -> u32 {
        self.exchanges
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
