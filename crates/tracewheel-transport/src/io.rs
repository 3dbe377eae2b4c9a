//! The stamped stream as hyper wants to see it, with a valve before the socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite;
use tracewheel_net::StampedStream;

/// Bytes that one read may bring. A token stream's chunks are far smaller; a flood fills it.
const READ_BYTES: usize = 32 * 1024;

/// How many bytes may still be written before the owner must be asked again. Shared by the adapter inside hyper's
/// connection and the exchange outside; both live in one task, the atomics only satisfy `Send`.
#[derive(Debug, Default)]
pub(crate) struct Valve {
    budget: AtomicUsize,
    held: AtomicBool,
}

impl Valve {
    /// Lets up to `bytes` through from now on; zero closes.
    pub(crate) fn set(&self, bytes: usize) {
        self.budget.store(bytes, Ordering::Relaxed);
        self.held.store(false, Ordering::Relaxed);
    }

    /// Whether a write was held back since [`Self::set`].
    pub(crate) fn held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    fn admit(&self, wanted: usize) -> usize {
        let admitted = wanted.min(self.budget.load(Ordering::Relaxed));
        if admitted < wanted {
            self.held.store(true, Ordering::Relaxed);
        }
        admitted
    }

    fn spend(&self, bytes: usize) {
        let left = self.budget.load(Ordering::Relaxed).saturating_sub(bytes);
        self.budget.store(left, Ordering::Relaxed);
    }
}

/// hyper's view of a [`StampedStream`].
#[derive(Debug)]
pub(crate) struct StampedIo {
    stream: StampedStream,
    valve: Arc<Valve>,
    scratch: Box<[u8]>,
}

impl StampedIo {
    pub(crate) fn new(stream: StampedStream, valve: Arc<Valve>) -> Self {
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
        let limit = buf.remaining().min(this.scratch.len());
        let into = &mut this.scratch[..limit];
        match this.stream.poll_read_slice(cx, into) {
            Poll::Ready(Ok(read)) => {
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
        let this = self.get_mut();
        let admitted = this.valve.admit(buf.len());
        if admitted == 0 && !buf.is_empty() {
            // No waker is kept: whoever opens the valve polls.
            return Poll::Pending;
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, &buf[..admitted]);
        if let Poll::Ready(Ok(bytes)) = &written {
            this.valve.spend(*bytes);
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
