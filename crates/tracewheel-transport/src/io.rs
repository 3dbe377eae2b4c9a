//! The stamped stream as hyper wants to see it, with a valve before the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite;
use tracewheel_net::tls::TlsStream;
use tracewheel_net::{StampedStream, StreamStamps};

/// Bytes that one read may bring. A token stream's chunks are far smaller; a flood fills it.
const READ_BYTES: usize = 32 * 1024;
/// First bytes of an answer that are kept, to say what came where HTTP was expected.
const GREETING_BYTES: usize = 64;
/// Bytes that may come before an answer's head is whole, informational answers included.
const HEAD_BYTES: usize = 1 << 20;

/// Reads within one poll before an answer's head is there. hyper reads on by itself as long as what came is no answer
/// yet: a flood of interim answers (100, 103) would keep it, and with it every time-out and due send of its task, up to
/// the bound on a head. An honest head comes with one read.
const READS_FOR_A_HEAD: u32 = 2;
/// Reads within one poll afterwards.
const READS_FOR_A_BODY: u32 = 32;

/// What the adapter inside hyper's connection and the exchange outside share: whether bytes may leave, how many
/// reads are left in this poll, and how the answer began. Both live in one task; atomics and lock only satisfy `Send`.
/// (That a large body leaves in slices is the stream's own doing.)
#[derive(Debug, Default)]
pub(crate) struct Valve {
    open: AtomicBool,
    reads_left: AtomicU32,
    /// The head of the answer is whole. Outside the lock: each read of a body asks for it.
    head_done: AtomicBool,
    arrivals: Mutex<Arrivals>,
}

/// How the answer of the present exchange began.
#[derive(Debug, Default)]
struct Arrivals {
    greeting: Vec<u8>,
    /// Bytes that came while the head was not whole.
    head_bytes: usize,
}

impl Valve {
    /// Begins a poll in which bytes may leave. `answered`: the answer's head is there.
    pub(crate) fn open(&self, answered: bool) {
        self.set(true, if answered { READS_FOR_A_BODY } else { READS_FOR_A_HEAD });
    }

    /// Begins a poll in which none may.
    pub(crate) fn shut(&self) {
        self.set(false, READS_FOR_A_HEAD);
    }

    fn set(&self, open: bool, reads: u32) {
        self.open.store(open, Ordering::Relaxed);
        self.reads_left.store(reads, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Takes one of the poll's reads; false when none is left.
    fn take_read(&self) -> bool {
        let left = self.reads_left.load(Ordering::Relaxed);
        self.reads_left.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    /// A new exchange begins: nothing of its answer has come.
    pub(crate) fn begin_exchange(&self) {
        let mut arrivals = self.arrivals();
        arrivals.greeting.clear();
        arrivals.head_bytes = 0;
        self.head_done.store(false, Ordering::Relaxed);
    }

    /// The answer's head is whole: what follows is counted by others.
    pub(crate) fn head_done(&self) {
        self.head_done.store(true, Ordering::Relaxed);
    }

    /// The first bytes of the answer.
    pub(crate) fn greeting(&self) -> Vec<u8> {
        self.arrivals().greeting.clone()
    }

    /// Notes what came; refuses a head without end.
    fn note(&self, bytes: &[u8]) -> io::Result<()> {
        if self.head_done.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut arrivals = self.arrivals();
        let missing = GREETING_BYTES - arrivals.greeting.len();
        arrivals.greeting.extend_from_slice(&bytes[..bytes.len().min(missing)]);
        arrivals.head_bytes += bytes.len();
        if arrivals.head_bytes > HEAD_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, EndlessHead));
        }
        Ok(())
    }

    fn arrivals(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// More than 1 MiB came and the answer's head is not whole.
#[derive(Debug, thiserror::Error)]
#[error("more than {HEAD_BYTES} bytes came before the answer's head was whole")]
pub(crate) struct EndlessHead;

/// What carries the bytes.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(StampedStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(crate) fn tcp(&self) -> &StampedStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.tcp(),
        }
    }

    pub(crate) fn stamps(&self) -> StreamStamps {
        self.tcp().stamps()
    }

    fn poll_read_slice(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(tcp) => tcp.poll_read_slice(cx, into),
            Stream::Tls(tls) => tls.poll_read_slice(cx, into),
        }
    }
}

/// hyper's view of a [`Stream`].
#[derive(Debug)]
pub(crate) struct StampedIo {
    stream: Stream,
    valve: Arc<Valve>,
    scratch: Box<[u8]>,
}

impl StampedIo {
    pub(crate) fn new(stream: Stream, valve: Arc<Valve>) -> Self {
        StampedIo { stream, valve, scratch: vec![0; READ_BYTES].into_boxed_slice() }
    }
}

impl Read for StampedIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.valve.take_read() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let limit = buf.remaining().min(this.scratch.len());
        let into = &mut this.scratch[..limit];
        match this.stream.poll_read_slice(cx, into) {
            Poll::Ready(Ok(read)) => {
                this.valve.note(&this.scratch[..read])?;
                buf.put_slice(&this.scratch[..read]);
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Write for StampedIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match (&mut this.stream, this.valve.is_open()) {
            (Stream::Plain(tcp), true) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            // No waker is kept: whoever opens the valve polls.
            (Stream::Plain(_), false) => Poll::Pending,
            (Stream::Tls(tls), true) => tls.poll_write_slice(cx, bufs),
            // What can be done ahead of time is: the bytes are encrypted, and held.
            (Stream::Tls(tls), false) => tls.poll_accept(bufs),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match (&mut this.stream, this.valve.is_open()) {
            (Stream::Plain(tcp), _) => Pin::new(tcp).poll_flush(cx),
            (Stream::Tls(tls), true) => tls.poll_send(cx),
            (Stream::Tls(tls), false) if tls.holds_bytes() => Poll::Pending,
            (Stream::Tls(_), false) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}
