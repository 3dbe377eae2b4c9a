//! A TCP stream that stamps.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};
use tracewheel_clock::{Clock, RunClock, RunNs};

use crate::receive::{ControlBuffer, Received, peek, receive, stamp_received};
use crate::{NetError, ReadStamp, StreamStamps};

/// The most that one call gives to the kernel. Copying takes some 15 µs then, and the next call waits until the other
/// tasks have had their turn, so that a large body does not make another request late.
const WRITE_SLICE_BYTES: usize = 64 * 1024;
/// Buffers that one vectored call takes.
const WRITE_BUFFERS: usize = 16;
/// A kernel stamp this far after the user stamp is put down to the mapping; further off, to a step of the wall clock.
const MAPPING_SLACK_NS: i64 = 50_000;

/// A TCP stream whose reads and writes are stamped before anything above sees the bytes. `TCP_NODELAY` always.
///
/// The stamps are taken from [`Self::stamps`], also while something else owns the stream.
#[derive(Debug)]
pub struct StampedStream {
    tcp: TcpStream,
    clock: Arc<RunClock>,
    stamps: StreamStamps,
    /// Whether the kernel stamps what arrives.
    kernel_stamps: bool,
    control: ControlBuffer,
    /// Whether the last write took a whole slice of more: then the next one lets others go first.
    slice_taken: bool,
}

impl StampedStream {
    /// Connects to `addr`. Stamps are asked for before, so that the first bytes carry them.
    ///
    /// # Errors
    /// The peer can't be reached, or the socket can't be set up.
    pub async fn connect(addr: SocketAddr, clock: Arc<RunClock>) -> Result<Self, NetError> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() };
        let socket = socket.map_err(|source| NetError::Connect { addr, source })?;
        stamp_received(&socket);
        let tcp = socket.connect(addr).await.map_err(|source| NetError::Connect { addr, source })?;
        Self::from_accepted(tcp, clock)
    }

    /// Takes over a stream that something else accepted or connected.
    ///
    /// # Errors
    /// The socket can't be set up.
    pub fn from_accepted(tcp: TcpStream, clock: Arc<RunClock>) -> Result<Self, NetError> {
        let kernel_stamps = stamp_received(&tcp);
        Self::over(tcp, clock, kernel_stamps)
    }

    fn over(tcp: TcpStream, clock: Arc<RunClock>, kernel_stamps: bool) -> Result<Self, NetError> {
        tcp.set_nodelay(true).map_err(|source| NetError::Option { option: "TCP_NODELAY", source })?;
        Ok(Self {
            tcp,
            clock,
            stamps: StreamStamps::default(),
            kernel_stamps,
            control: ControlBuffer::new(),
            slice_taken: false,
        })
    }

    /// A handle to this stream's stamps.
    pub fn stamps(&self) -> StreamStamps {
        self.stamps.clone()
    }

    /// Whether the kernel agreed to stamp what arrives. If not, reads carry the user stamp only.
    pub fn kernel_stamps(&self) -> bool {
        self.kernel_stamps
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
        self.tcp.set_zero_linger().map_err(|source| NetError::Option { option: "SO_LINGER", source })
    }

    /// As [`AsyncRead::poll_read`] into a plain slice; `Ok(0)` is the end of the stream, or no room. Adapters that own
    /// their buffer use it to spare the initialisation that a [`ReadBuf`] may need.
    ///
    /// # Errors
    /// As any read.
    pub fn poll_read_slice(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let (bytes, stamp) = ready!(self.poll_read_stamped(cx, into))?;
        stamp.into_iter().for_each(|stamp| self.stamps.note_read(stamp));
        Poll::Ready(Ok(bytes))
    }

    /// As [`Self::poll_read_slice`], but the read is not logged: its stamp is handed out, if it brought bytes. For a caller
    /// that keeps its stamps itself, one read after the other.
    ///
    /// # Errors
    /// As any read.
    pub fn poll_read_stamped(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<(usize, Option<ReadStamp>)>> {
        if into.is_empty() {
            return Poll::Ready(Ok((0, None)));
        }
        loop {
            ready!(self.tcp.poll_read_ready(cx))?;
            if let Some(received) = self.try_receive(into).transpose() {
                return Poll::Ready(received);
            }
        }
    }

    /// Looks at what waits in the socket, as far as `into` has room, and leaves it there: how many bytes. No stamp is
    /// taken, and what it finds says nothing of the end of the stream: a read does.
    ///
    /// # Errors
    /// As any read.
    pub fn poll_peek_slice(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.tcp.poll_read_ready(cx))?;
            let fd = self.tcp.as_raw_fd();
            match self.tcp.try_io(Interest::READABLE, || peek(fd, into)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                looked => return Poll::Ready(looked),
            }
        }
    }

    /// One read with its stamp; `None` if nothing waits.
    fn try_receive(&mut self, into: &mut [u8]) -> io::Result<Option<(usize, Option<ReadStamp>)>> {
        let Self { tcp, clock, control, .. } = self;
        let mut found: Option<(Received, RunNs)> = None;
        let outcome = tcp.try_io(Interest::READABLE, || {
            let received = receive(tcp, into, control)?;
            found = Some((received, clock.now()));
            // A read that left room emptied the socket. Saying so here spares the call that would find it empty; what
            // arrives from now on raises a new event, which this answer does not take back.
            if (1..into.len()).contains(&received.bytes) {
                Err(io::ErrorKind::WouldBlock.into())
            } else {
                Ok(())
            }
        });
        match (found, outcome) {
            (Some((received, user_ns)), _) => Ok(Some((received.bytes, self.stamp(received, user_ns)))),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            (None, outcome) => outcome.map(|()| None),
        }
    }

    /// Notes that the layer above has found the end of its stream.
    pub(crate) fn note_end(&self) {
        self.stamps.note_eof(self.clock.now());
    }

    /// What is known of a read's time; `None` for one that found the end, which is noted.
    fn stamp(&self, received: Received, user_ns: RunNs) -> Option<ReadStamp> {
        if received.bytes == 0 {
            self.stamps.note_eof(user_ns);
            return None;
        }
        let kernel_ns = received
            .kernel_unix_ns
            .filter(|_| self.kernel_stamps)
            .and_then(|unix_ns| self.clock.wall_to_run_at(unix_ns, user_ns))
            .filter(|kernel_ns| kernel_ns.since(user_ns) <= MAPPING_SLACK_NS)
            .map(|kernel_ns| kernel_ns.min(user_ns));
        let bytes = u32::try_from(received.bytes).unwrap_or(u32::MAX);
        Some(ReadStamp { user_ns, kernel_ns, bytes })
    }

    /// After a whole slice of a larger body: lets all other tasks run, and the event loop look for events, before the
    /// next. A bare wake would not do: the runtime polls a task that wakes itself dozens of times between two looks.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.slice_taken) {
            return pin!(tokio::task::yield_now()).poll(cx);
        }
        Poll::Ready(())
    }

    fn poll_write_slice(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
        whole: bool,
    ) -> Poll<io::Result<usize>> {
        let call_ns = self.clock.now();
        let tcp = Pin::new(&mut self.tcp);
        let written = ready!(match buffers {
            [buffer] => tcp.poll_write(cx, buffer),
            _ => tcp.poll_write_vectored(cx, buffers),
        })?;
        if written > 0 {
            self.stamps.note_write(call_ns, self.clock.now(), written);
        }
        self.slice_taken = !whole && written == buffers.iter().map(|buffer| buffer.len()).sum();
        Poll::Ready(Ok(written))
    }
}

impl AsyncRead for StampedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let bytes = ready!(self.get_mut().poll_read_slice(cx, buf.initialize_unfilled()))?;
        buf.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StampedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_turn(cx));
        let mut slice = [IoSlice::new(&[]); WRITE_BUFFERS];
        let (buffers, whole) = one_slice(bufs, &mut slice);
        if buffers == 0 {
            return Poll::Ready(Ok(0));
        }
        this.poll_write_slice(cx, &slice[..buffers], whole)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

/// Fills `slice` with what one call may write of `bufs`. Returns how many buffers that is, and whether it is all.
fn one_slice<'a>(bufs: &'a [IoSlice<'a>], slice: &mut [IoSlice<'a>; WRITE_BUFFERS]) -> (usize, bool) {
    let mut room = WRITE_SLICE_BYTES;
    let mut taken = 0;
    for buf in bufs.iter().filter(|buf| !buf.is_empty()) {
        if room == 0 || taken == WRITE_BUFFERS {
            return (taken, false);
        }
        let part = &buf[..buf.len().min(room)];
        slice[taken] = IoSlice::new(part);
        taken += 1;
        room -= part.len();
        if part.len() < buf.len() {
            return (taken, false);
        }
    }
    (taken, true)
}

#[cfg(test)]
mod tests;
