//! One kept connection, polled by whoever uses it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use tracewheel_clock::{Clock, RunClock, RunNs};
use tracewheel_net::{ReadStamp, StampedStream, StreamStamps};

use crate::error::ConnectError;
use crate::exchange::{Exchange, ExchangeLimits};
use crate::io::{StampedIo, Valve};
use crate::request::PreparedRequest;

pub(crate) type RequestBody = Full<Bytes>;
pub(crate) type Driver = http1::Connection<StampedIo, RequestBody>;

/// When a connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectStamps {
    /// Before the system was asked to connect.
    pub start_ns: RunNs,
    /// When the connection stood.
    pub connected_ns: RunNs,
}

/// An HTTP/1.1 connection between exchanges. Whoever keeps it should poll it ([`Self::poll_idle`]) whenever it is
/// woken, so that a close by the server is seen when it happens and not when the next request is lost on it.
pub struct H1Connection {
    pub(crate) sender: http1::SendRequest<RequestBody>,
    pub(crate) driver: Driver,
    pub(crate) stamps: StreamStamps,
    pub(crate) valve: Arc<Valve>,
    pub(crate) clock: Arc<RunClock>,
    pub(crate) exchanges: u32,
    connect: ConnectStamps,
    kernel_stamps: bool,
    local_addr: Option<SocketAddr>,
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
    /// Connects to `addr`. Must run inside a tokio runtime; may be dropped at any point.
    ///
    /// # Errors
    /// The target can't be reached, or this machine has no port or file descriptor left.
    pub async fn open(addr: SocketAddr, clock: Arc<RunClock>) -> Result<H1Connection, ConnectError> {
        let start_ns = clock.now();
        let stream = StampedStream::connect(addr, Arc::clone(&clock)).await.map_err(|error| {
            let system = error.io();
            let source = match system.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(system.kind(), system.to_string()),
            };
            ConnectError::from(source)
        })?;
        let connect = ConnectStamps { start_ns, connected_ns: clock.now() };
        let (stamps, kernel_stamps, local_addr) =
            (stream.stamps(), stream.kernel_stamps(), stream.local_addr().ok());
        let valve = Arc::new(Valve::default());
        let io = StampedIo::new(stream, Arc::clone(&valve));
        let (sender, driver) = http1::Builder::new()
            .handshake(io)
            .await
            .map_err(|error| ConnectError::from(io::Error::other(error)))?;
        let mut connection = H1Connection {
            sender,
            driver,
            stamps,
            valve,
            clock,
            exchanges: 0,
            connect,
            kernel_stamps,
            local_addr,
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
        self.valve.shut();
        Pin::new(&mut self.driver).poll(cx).map(|_ended| ())
    }

    /// Hands the request to the connection with the valve shut: everything up to the write call can now happen by
    /// [`Exchange::poll_armed`], and nothing leaves before [`Exchange::release`].
    pub fn arm(mut self, request: PreparedRequest, limits: ExchangeLimits) -> Exchange {
        self.valve.shut();
        let mut stray = Vec::<ReadStamp>::new();
        self.stamps.drain_reads(&mut stray);
        self.stamps.begin_exchange();
        self.exchanges = self.exchanges.saturating_add(1);
        let response = Box::pin(self.sender.try_send_request(request.to_http()));
        Exchange::new(self, request, response, limits)
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

    /// This end's address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.local_addr
    }
}
