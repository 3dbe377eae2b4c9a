//! What carries the bytes, and the valve before it.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tracewheel_net::tls::TlsStream;
use tracewheel_net::{ReadStamp, StampedStream, StreamStamps};

use crate::h1;
use crate::request::PreparedRequest;

/// Bytes that one read may bring. A token stream's chunks are far smaller; a flood fills it.
const READ_BYTES: usize = 32 * 1024;

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
    body: Bytes,
    /// Bytes of head and body that the stream has taken.
    taken: usize,
    sent: bool,
}

impl Outgoing {
    pub(crate) fn new(request: &PreparedRequest) -> Self {
        let (head, body) = (h1::encode_head(request), request.body.clone());
        Outgoing { head, body, taken: 0, sent: false }
    }

    /// Whether all of it was written.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent
    }

    /// Does ahead of time what can be done: with TLS the bytes are encrypted, and held.
    pub(crate) fn prepare(&mut self, stream: &mut Stream) -> io::Result<()> {
        let Stream::Tls(tls) = stream else { return Ok(()) };
        while self.taken < self.len() {
            match tls.poll_accept(&self.rest()) {
                Poll::Ready(taken) => self.taken += taken?,
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    /// Writes. `Ready` when all is written.
    pub(crate) fn poll_send(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.taken < self.len() {
            match ready!(stream.poll_write(cx, &self.rest()))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                taken => self.taken += taken,
            }
        }
        ready!(stream.poll_flush(cx))?;
        (self.head, self.body, self.taken, self.sent) = (Vec::new(), Bytes::new(), 0, true);
        Poll::Ready(Ok(()))
    }

    fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    fn rest(&self) -> [IoSlice<'_>; 2] {
        let in_body = self.taken.saturating_sub(self.head.len());
        let head = &self.head[self.taken.min(self.head.len())..];
        [IoSlice::new(head), IoSlice::new(&self.body[in_body..])]
    }
}
