//! The stamped stream as hyper wants to see it, with a valve before the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite;
use tracewheel_net::StampedStream;

/// Bytes that one read may bring. A token stream's chunks are far smaller; a flood fills it.
const READ_BYTES: usize = 32 * 1024;

/// Whether bytes may leave. Shared by the adapter inside hyper's connection and the exchange outside; both live in one
/// task, the atomic only satisfies `Send`. (That a large body leaves in slices is the stream's own doing.)
#[derive(Debug, Default)]
pub(crate) struct Valve(AtomicBool);

impl Valve {
    pub(crate) fn open(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn shut(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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
        if !this.valve.is_open() {
            // No waker is kept: whoever opens the valve polls.
            return Poll::Pending;
        }
        Pin::new(&mut this.stream).poll_write(cx, buf)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.valve.is_open() {
            return Poll::Pending;
        }
        Pin::new(&mut this.stream).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
