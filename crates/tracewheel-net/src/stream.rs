//! A TCP stream that stamps.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tracewheel_clock::RunClock;

use crate::{NetError, StreamStamps};

/// A TCP stream whose reads and writes are stamped before anything above sees the bytes. `TCP_NODELAY` always.
#[derive(Debug)]
pub struct StampedStream {
    tcp: TcpStream,
    stamps: StreamStamps,
}

impl StampedStream {
    /// Connects to `addr`.
    ///
    /// # Errors
    /// The peer can't be reached, or the socket can't be set up.
    pub async fn connect(addr: SocketAddr, clock: Arc<RunClock>) -> Result<Self, NetError> {
        let _ = (addr, clock);
        todo!()
    }

    /// Takes over a stream that something else accepted or connected.
    ///
    /// # Errors
    /// The socket can't be set up.
    pub fn from_accepted(tcp: TcpStream, clock: Arc<RunClock>) -> Result<Self, NetError> {
        let _ = (tcp, clock);
        todo!()
    }

    /// A handle to this stream's stamps.
    pub fn stamps(&self) -> StreamStamps {
        self.stamps.clone()
    }

    /// Whether the kernel agreed to stamp what arrives. If not, reads carry the user stamp only.
    pub fn kernel_stamps(&self) -> bool {
        todo!()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The socket is no longer connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// This end's address.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Makes closing the stream reset the connection instead of ending it in order; for scripted faults.
    ///
    /// # Errors
    /// The option is refused.
    pub fn reset_on_close(&self) -> Result<(), NetError> {
        todo!()
    }

    /// As [`AsyncRead::poll_read`] into a plain slice; `Ok(0)` is the end of the stream. Adapters that own their
    /// buffer use it to spare the initialisation that a [`ReadBuf`] may need.
    ///
    /// # Errors
    /// As any read.
    pub fn poll_read_slice(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let _ = (cx, into);
        todo!()
    }
}

impl AsyncRead for StampedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let _ = (cx, buf);
        todo!()
    }
}

impl AsyncWrite for StampedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let _ = (cx, buf);
        todo!()
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}
