//! One HTTP exchange as its witness sees it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use tracewheel_clock::{Clock, RunClock, RunNs};

use crate::log::{AttemptLog, LogSink};
use crate::server::hub::StreamState;

/// What a piece of a response body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    /// The head; given only where somebody waits for it to be taken.
    Head,
    /// A chunk without a token.
    Other,
    /// A token's chunk.
    Token,
    /// The last piece; whatever it is, the answer is complete with it.
    Last,
}

/// Counts over all exchanges.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    /// By status of the answer; those without one are under 0.
    pub(crate) statuses: BTreeMap<u16, u64>,
}

/// Follows one exchange from its arrival to its end and, when the last holder lets go, hands it to the log.
#[derive(Debug)]
pub(crate) struct Exchange {
    clock: Arc<RunClock>,
    sink: LogSink,
    log: RefCell<AttemptLog>,
    stream: RefCell<Option<Rc<StreamState>>>,
    /// Whether the engine's tokens are an answer.
    generates: Cell<bool>,
    /// Pieces that the body gave out and the kernel has not taken yet.
    unflushed: RefCell<Vec<Piece>>,
    ended: Cell<Option<RunNs>>,
    /// Who waits for the kernel to have everything.
    flush_waker: RefCell<Option<Waker>>,
    tally: Rc<RefCell<Tally>>,
    /// Whether the mock is being stopped.
    stopping: Rc<Cell<bool>>,
}

impl Exchange {
    pub(crate) fn new(
        clock: Arc<RunClock>,
        sink: LogSink,
        stopping: Rc<Cell<bool>>,
        tally: Rc<RefCell<Tally>>,
        log: AttemptLog,
    ) -> Rc<Self> {
        Rc::new(Self {
            clock,
            sink,
            log: RefCell::new(log),
            stream: RefCell::default(),
            generates: Cell::new(true),
            unflushed: RefCell::default(),
            ended: Cell::new(None),
            flush_waker: RefCell::default(),
            tally,
            stopping,
        })
    }

    /// Changes what will be logged.
    pub(crate) fn note(&self, change: impl FnOnce(&mut AttemptLog)) {
        change(&mut self.log.borrow_mut());
    }

    /// Ties the exchange to its request in the engine, which `generates` an answer, or computes the prompt only.
    pub(crate) fn follow(&self, stream: Rc<StreamState>, generates: bool) {
        self.generates.set(generates);
        *self.stream.borrow_mut() = Some(stream);
    }

    /// The body gave a piece to the connection.
    pub(crate) fn gave(&self, piece: Piece) {
        self.unflushed.borrow_mut().push(piece);
    }

    /// The kernel has taken everything that was given, at `at`. Returns whether the exchange is complete.
    pub(crate) fn flushed(&self, at: RunNs) -> bool {
        let mut unflushed = self.unflushed.borrow_mut();
        if !unflushed.is_empty() {
            let mono_ns = self.mono_ns(at);
            let mut log = self.log.borrow_mut();
            let only_head = unflushed.iter().all(|piece| *piece == Piece::Head);
            if log.first_chunk_mono_ns.is_none() && !only_head {
                log.first_chunk_mono_ns = Some(mono_ns);
                log.first_chunk_unix_ns = Some(self.clock.wall(at));
            }
            for piece in unflushed.drain(..) {
                match piece {
                    Piece::Token => log.token_mono_ns.push(mono_ns),
                    Piece::Last => self.ended.set(Some(at)),
                    Piece::Head | Piece::Other => {}
                }
            }
        }
        if let Some(waker) = self.flush_waker.take() {
            waker.wake();
        }
        self.ended.get().is_some()
    }

    /// Wakes the calling task once the kernel has everything that was given.
    pub(crate) fn wake_when_flushed(&self, cx: &Context<'_>) {
        *self.flush_waker.borrow_mut() = Some(cx.waker().clone());
    }

    /// Whether something was given and not taken yet.
    pub(crate) fn has_unflushed(&self) -> bool {
        !self.unflushed.borrow().is_empty()
    }

    fn mono_ns(&self, at: RunNs) -> i64 {
        at.0.saturating_add(self.clock.monotonic_origin_ns())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let end = self.ended.get().unwrap_or_else(|| self.clock.now());
        let mut log = self.log.take();
        let cut = self.ended.get().is_none();
        log.client_gone = cut && !self.stopping.get();
        log.server_stopped = cut && self.stopping.get();
        log.end_mono_ns = self.mono_ns(end);
        log.end_unix_ns = self.clock.wall(end);
        if let Some(stream) = self.stream.take() {
            log.cached_tokens = stream.cached_tokens();
            log.admitted_mono_ns = stream.admitted_at().map(|at| self.mono_ns(at));
            log.completion_tokens = Some(0);
            if self.generates.get() {
                log.completion_tokens = Some(stream.available());
                log.first_token_model_mono_ns = stream.first_token_at().map(|at| self.mono_ns(at));
                log.last_token_model_mono_ns = stream.last_token_at().map(|at| self.mono_ns(at));
            }
        }
        let mut tally = self.tally.borrow_mut();
        tally.requests += 1;
        *tally.statuses.entry(log.status.unwrap_or(0)).or_default() += 1;
        self.sink.send(log);
    }
}
