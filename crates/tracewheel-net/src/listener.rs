//! A listener whose connections stamp.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tracewheel_clock::RunClock;

use crate::{NetError, StampedStream};

/// A TCP listener that hands out [`StampedStream`]s.
#[derive(Debug)]
pub struct StampedListener {
    tcp: TcpListener,
    clock: Arc<RunClock>,
}

impl StampedListener {
    /// Listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// The address can't be listened on.
    pub fn bind(addr: SocketAddr, clock: Arc<RunClock>) -> Result<Self, NetError> {
        let _ = (addr, clock);
        todo!()
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Waits for the next connection. May be dropped and called again.
    ///
    /// # Errors
    /// No connection can be accepted (out of file descriptors), or its socket can't be set up.
    pub async fn accept(&self) -> Result<(StampedStream, SocketAddr), NetError> {
        let _ = &self.clock;
        todo!()
    }
}
