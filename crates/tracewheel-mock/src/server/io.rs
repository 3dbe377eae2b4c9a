//! The stamped stream as hyper wants it, telling the connection's exchanges when the kernel has their bytes.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite;
use tokio::sync::Notify;
use tracewheel_clock::{Clock, RunClock, RunNs};
use tracewheel_net::tls::TlsStream;
use tracewheel_net::{ReadStamp, StampedStream, StreamStamps};

use crate::server::alarm::{Alarm, Alarms};
use crate::server::exchange::Exchange;
use crate::server::tamper::Cut;
use crate::server::wire::Wire;

/// Bytes taken from the kernel at a time.
const READ_BYTES: usize = 16 * 1024;

/// A connection: its number, its stamps and the exchanges that it has not finished.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    clock: Arc<RunClock>,
    stamps: StreamStamps,
    reads: RefCell<Vec<ReadStamp>>,
    exchanges: RefCell<Vec<Rc<Exchange>>>,
    /// When it last received something or had sent an answer's end.
    active: Cell<RunNs>,
    answers: Cell<u32>,
    http2: Cell<bool>,
    /// The latest read that was asked for.
    latest: Cell<Option<Arrival>>,
    /// HTTP/2: the connection is to end in order.
    goodbye: Notify,
    pub(crate) wire: Wire,
}

/// When something was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) kernel: Option<RunNs>,
    pub(crate) user: RunNs,
}

impl Arrival {
    /// The kernel's stamp where there is one.
    pub(crate) fn best(self) -> RunNs {
        self.kernel.unwrap_or(self.user)
    }
}

impl Connection {
    pub(crate) fn new(number: u64, stamps: StreamStamps, clock: Arc<RunClock>) -> Rc<Self> {
        Rc::new(Self {
            number,
            active: Cell::new(clock.now()),
            clock,
            stamps,
            reads: RefCell::default(),
            exchanges: RefCell::default(),
            answers: Cell::new(0),
            http2: Cell::new(false),
            latest: Cell::new(None),
            goodbye: Notify::new(),
            wire: Wire::default(),
        })
    }

    /// From now on it speaks HTTP/2.
    pub(crate) fn speak_http2(&self) {
        self.http2.set(true);
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.http2.get()
    }

    /// HTTP/2: ends the connection in order, once what runs on it has ended.
    pub(crate) fn say_goodbye(&self) {
        self.goodbye.notify_one();
    }

    /// Ready when the connection is to end.
    pub(crate) async fn goodbye(&self) {
        self.goodbye.notified().await;
    }

    /// Ends an answer here; without HTTP/2 the whole connection ends with it.
    pub(crate) fn cut(&self, resets: bool) -> Cut {
        if resets && !self.is_http2() {
            self.wire.reset_at_end();
        }
        if resets { Cut::Reset } else { Cut::Close }
    }

    /// Counts one more answer and returns how many that makes.
    pub(crate) fn count_answer(&self) -> u32 {
        self.answers.set(self.answers.get() + 1);
        self.answers.get()
    }

    /// Ready once no request was under way for so long.
    pub(crate) async fn idle_for(&self, alarms: &Rc<Alarms>, idle_ns: i64) {
        loop {
            let busy = !self.exchanges.borrow().is_empty();
            let since = if busy { self.clock.now() } else { self.active.get() };
            let until = since.plus(idle_ns);
            if self.clock.now() >= until {
                return;
            }
            alarms.at(until).await;
        }
    }

    /// When the latest bytes arrived. `None` if nothing was read since this was asked last, which happens when a
    /// request lay in the same read as the one before. With HTTP/2 that is the usual case: then it is that read again, and
    /// for a request that came before others were read an upper bound.
    pub(crate) fn latest_read(&self) -> Option<Arrival> {
        let mut reads = self.reads.borrow_mut();
        reads.clear();
        self.stamps.drain_reads(&mut reads);
        let latest = reads.last().map(|read| Arrival { kernel: read.kernel_ns, user: read.user_ns });
        if latest.is_some() {
            self.latest.set(latest);
        }
        latest.or_else(|| self.latest.get().filter(|_| self.is_http2()))
    }

    /// Now, for a request whose read is not known.
    pub(crate) fn now(&self) -> Arrival {
        Arrival { kernel: None, user: self.clock.now() }
    }

    /// Has the exchange told when the kernel takes its bytes.
    pub(crate) fn add(&self, exchange: Rc<Exchange>) {
        self.exchanges.borrow_mut().push(exchange);
    }

    /// hyper has given everything it held to the kernel.
    fn flushed(&self) {
        let mut exchanges = self.exchanges.borrow_mut();
        if exchanges.iter().any(|exchange| exchange.has_unflushed()) {
            let at = self.stamps.write_marks().last_ns.unwrap_or_else(|| self.clock.now());
            exchanges.retain(|exchange| !exchange.flushed(at));
            self.active.set(at);
        }
    }
}

/// What carries the bytes.
pub(crate) enum Stream {
    Plain(StampedStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    pub(crate) fn tcp(&self) -> &StampedStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.tcp(),
        }
    }

    fn poll_read_slice(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => tcp.poll_read_slice(cx, into),
            Self::Tls(tls) => tls.poll_read_slice(cx, into),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Tls(tls) => tls.poll_write_slice(cx, &[IoSlice::new(bytes)]),
        }
    }
}

/// What every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// hyper's side of a connection.
pub(crate) struct ConnectionIo {
    stream: Stream,
    /// Bytes that were read to see what they are.
    sniffed: Vec<u8>,
    connection: Rc<Connection>,
    buffer: Box<[u8; READ_BYTES]>,
    alarms: Rc<Alarms>,
    /// The pause after a write.
    pause: Option<Alarm>,
}

impl ConnectionIo {
    pub(crate) fn new(stream: Stream, connection: Rc<Connection>, alarms: Rc<Alarms>) -> Self {
        let buffer = Box::new([0; READ_BYTES]);
        Self { stream, sniffed: Vec::new(), connection, buffer, alarms, pause: None }
    }

    /// Reads until it is known whether the client begins with HTTP/2; `false` also where it leaves.
    pub(crate) async fn begins_with_http2(&mut self) -> bool {
        poll_fn(|cx| {
            loop {
                let known = self.sniffed.len().min(PREFACE.len());
                if self.sniffed[..known] != PREFACE[..known] {
                    return Poll::Ready(false);
                }
                if known == PREFACE.len() {
                    return Poll::Ready(true);
                }
                match ready!(self.stream.poll_read_slice(cx, &mut self.buffer[..])) {
                    // hyper finds the same when it reads.
                    Ok(0) | Err(_) => return Poll::Ready(false),
                    Ok(read) => self.sniffed.extend_from_slice(&self.buffer[..read]),
                }
                self.connection.active.set(self.connection.clock.now());
            }
        })
        .await
    }
}

impl Drop for ConnectionIo {
    fn drop(&mut self) {
        if self.connection.wire.resets() {
            // A socket that refuses the option is closed in order; nothing better is left to do.
            let _ = self.stream.tcp().reset_on_close();
        }
        // The connection's state may be held by a handler still; its exchanges end with the stream.
        self.connection.exchanges.borrow_mut().clear();
    }
}

impl Read for ConnectionIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.sniffed.is_empty() {
            let given = into.remaining().min(this.sniffed.len());
            into.put_slice(&this.sniffed[..given]);
            this.sniffed.drain(..given);
            return Poll::Ready(Ok(()));
        }
        let most = into.remaining().min(READ_BYTES);
        let read = ready!(this.stream.poll_read_slice(cx, &mut this.buffer[..most]))?;
        this.connection.active.set(this.connection.clock.now());
        into.put_slice(&this.buffer[..read]);
        Poll::Ready(Ok(()))
    }
}

impl Write for ConnectionIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(pause) = &mut this.pause {
            ready!(Pin::new(pause).poll(cx));
            this.pause = None;
        }
        let wire = &this.connection.wire;
        let (taken, gap_ns) = wire.cut(bytes);
        let stream = &mut this.stream;
        let written = match wire.corrupted(&bytes[..taken]) {
            Some(wrong) => ready!(stream.poll_write(cx, &wrong)),
            None => ready!(stream.poll_write(cx, &bytes[..taken])),
        }?;
        wire.written(written);
        if gap_ns > 0 {
            this.pause = Some(this.alarms.after(gap_ns));
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes its stream only once its own buffer is empty.
        match &mut self.stream {
            Stream::Plain(tcp) => ready!(Pin::new(tcp).poll_flush(cx))?,
            Stream::Tls(tls) => ready!(tls.poll_send(cx))?,
        }
        self.connection.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}
