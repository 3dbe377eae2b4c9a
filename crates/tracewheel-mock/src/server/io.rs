//! The stamped stream as hyper wants it, telling the connection's exchanges when the kernel has their bytes.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::AsyncWrite;
use tracewheel_clock::{Clock, RunClock, RunNs};
use tracewheel_net::{ReadStamp, StampedStream, StreamStamps};

use crate::server::alarm::{Alarm, Alarms};
use crate::server::exchange::Exchange;
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
    pub(crate) fn new(number: u64, stream: &StampedStream, clock: Arc<RunClock>) -> Rc<Self> {
        Rc::new(Self {
            number,
            active: Cell::new(clock.now()),
            clock,
            stamps: stream.stamps(),
            reads: RefCell::default(),
            exchanges: RefCell::default(),
            answers: Cell::new(0),
            wire: Wire::default(),
        })
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
    /// request lay in the same read as the one before.
    pub(crate) fn latest_read(&self) -> Option<Arrival> {
        let mut reads = self.reads.borrow_mut();
        reads.clear();
        self.stamps.drain_reads(&mut reads);
        reads.last().map(|read| Arrival { kernel: read.kernel_ns, user: read.user_ns })
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

/// hyper's side of a connection.
pub(crate) struct ConnectionIo {
    stream: StampedStream,
    connection: Rc<Connection>,
    buffer: Box<[u8; READ_BYTES]>,
    alarms: Rc<Alarms>,
    /// The pause after a write.
    pause: Option<Alarm>,
}

impl ConnectionIo {
    pub(crate) fn new(stream: StampedStream, connection: Rc<Connection>, alarms: Rc<Alarms>) -> Self {
        Self { stream, connection, buffer: Box::new([0; READ_BYTES]), alarms, pause: None }
    }
}

impl Drop for ConnectionIo {
    fn drop(&mut self) {
        if self.connection.wire.resets() {
            // A socket that refuses the option is closed in order; nothing better is left to do.
            let _ = self.stream.reset_on_close();
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
        let stream = Pin::new(&mut this.stream);
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
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.connection.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
