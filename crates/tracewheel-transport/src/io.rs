//! What carries the bytes, and the valve before it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use tokio::io::AsyncWrite;
use tracewheel_net::tls::TlsStream;
use tracewheel_net::{ReadStamp, StampedStream, StreamStamps};

use crate::body::Unsent;
use crate::h1;
use crate::request::PreparedRequest;

/// Bytes that one read may bring. A token stream's chunks are far smaller; a flood fills it.
const READ_BYTES: usize = 32 * 1024;

/// Buffers in which the rest of a request is shown to the stream. Every other piece of a body has 4 KiB, so that all of
/// them are more than a slice.
const REST_BUFFERS: usize = 40;

thread_local! {
    /// Where a read's bytes lie until they are told apart: one place for all connections of a thread, because thousands
    /// of them wait at once and each read is used up before the next.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// Lends the thread's room for a read.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    SCRATCH.with_borrow_mut(|scratch| work(scratch))
}

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

    pub(crate) fn poll_read_slice(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(tcp) => tcp.poll_read_slice(cx, into),
            Stream::Tls(tls) => tls.poll_read_slice(cx, into),
        }
    }

    /// As [`Self::poll_read_slice`]. What comes with a stamp is not in the log; what comes with none may be.
    pub(crate) fn poll_read_stamped(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<(usize, Option<ReadStamp>)>> {
        match self {
            Stream::Plain(tcp) => tcp.poll_read_stamped(cx, into),
            Stream::Tls(tls) => Poll::Ready(Ok((ready!(tls.poll_read_slice(cx, into))?, None))),
        }
    }

    /// What waits to be read, left there. `Ready(0)` where that is not to be told: ciphertext tells nothing.
    pub(crate) fn poll_peek_slice(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(tcp) if tcp.kernel_stamps() => tcp.poll_peek_slice(cx, into),
            Stream::Plain(_) | Stream::Tls(_) => Poll::Ready(Ok(0)),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Stream::Tls(tls) => tls.poll_write_slice(cx, bufs),
        }
    }

    /// Writes what was taken and is held back.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(tls) => tls.poll_send(cx),
        }
    }
}

/// A request behind the valve: encoded, and nothing of it written until it is sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    head: Vec<u8>,
    /// Bytes of the head that the stream has taken.
    head_taken: usize,
    /// What it has not taken of the body.
    body: Unsent,
    sent: bool,
}

impl Outgoing {
    pub(crate) fn new(request: &PreparedRequest) -> Self {
        let (head, body) = (h1::encode_head(request), request.body.unsent());
        Outgoing { head, head_taken: 0, body, sent: false }
    }

    /// Whether all of it was written.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent
    }

    /// Does ahead of time what can be done: with TLS the bytes are encrypted, and held.
    pub(crate) fn prepare(&mut self, stream: &mut Stream) -> io::Result<()> {
        let Stream::Tls(tls) = stream else { return Ok(()) };
        while self.left() > 0 {
            match self.with_rest(|rest| tls.poll_accept(rest)) {
                Poll::Ready(taken) => self.take(taken?),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Writes. `Ready` when all is written.
    pub(crate) fn poll_send(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.left() > 0 {
            match ready!(self.with_rest(|rest| stream.poll_write(cx, rest)))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => self.take(taken),
            }
        }
        ready!(stream.poll_flush(cx))?;
        *self = Outgoing { head: Vec::new(), head_taken: 0, body: Unsent::default(), sent: true };
        Poll::Ready(Ok(()))
    }

    fn left(&self) -> usize {
        self.head.len() - self.head_taken + self.body.remaining()
    }

    /// Shows what is left, as far as it fits: always more than the stream takes at once, so that it knows of more to come.
    fn with_rest<T>(&self, work: impl FnOnce(&[IoSlice<'_>]) -> T) -> T {
        let mut rest = [IoSlice::new(&[]); REST_BUFFERS];
        rest[0] = IoSlice::new(&self.head[self.head_taken..]);
        let pieces = self.body.chunks_vectored(&mut rest[1..]);
        work(&rest[..=pieces])
    }

    fn take(&mut self, bytes: usize) {
        let of_head = bytes.min(self.head.len() - self.head_taken);
        self.head_taken += of_head;
        self.body.advance(bytes - of_head);
    }
}
