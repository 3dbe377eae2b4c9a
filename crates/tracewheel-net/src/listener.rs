//! A listener whose connections stamp.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};
use tracewheel_clock::RunClock;

use crate::receive::stamp_received;
use crate::{NetError, StampedStream};

/// Connections that may wait for `accept`; the kernel may allow fewer.
const BACKLOG: u32 = 4096;

/// A TCP listener that hands out [`StampedStream`]s.
#[derive(Debug)]
pub struct StampedListener {
    tcp: TcpListener,
    clock: Arc<RunClock>,
}

impl StampedListener {
    /// Listens on `addr`; port 0 takes a free one. Connections inherit the stamping, so that what arrives before
    /// [`Self::accept`] is stamped too.
    ///
    /// # Errors
    /// The address can't be listened on.
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub fn bind(addr: SocketAddr, clock: Arc<RunClock>) -> Result<Self, NetError> {
        let tcp = listen(addr).map_err(|source| NetError::Listen { addr, source })?;
        Ok(Self { tcp, clock })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Waits for the next connection. May be dropped and called again.
    ///
    /// # Errors
    /// No connection can be accepted (out of file descriptors, say), or its socket can't be set up.
    pub async fn accept(&self) -> Result<(StampedStream, SocketAddr), NetError> {
        let (tcp, peer) = self.tcp.accept().await.map_err(|source| NetError::Accept { source })?;
        Ok((StampedStream::from_accepted(tcp, Arc::clone(&self.clock))?, peer))
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    stamp_received(&socket);
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}
