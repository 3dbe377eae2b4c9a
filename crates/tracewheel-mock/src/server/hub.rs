//! Where the engine meets real time: requests come in with their kernel stamps, tokens go out when the model says.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tracewheel_clock::{PreciseWaiter, RunClock, RunNs};

use crate::engine::{
    Emission, EmissionKind, Engine, EngineCounters, EngineRequest, Refusal, Remaining, Ticket,
};
use crate::server::alarm::Alarms;

/// What the engine has done for one request. Tokens are a count, so a slow reader costs no memory and holds up nobody.
#[derive(Debug, Default)]
pub(crate) struct StreamState {
    admitted: Cell<Option<(RunNs, u32)>>,
    available: Cell<u32>,
    complete: Cell<bool>,
    first_token: Cell<Option<RunNs>>,
    last_token: Cell<Option<RunNs>>,
    waker: RefCell<Option<Waker>>,
}

impl StreamState {
    /// Tokens that the engine has given out.
    pub(crate) fn available(&self) -> u32 {
        self.available.get()
    }

    /// Whether those are all.
    pub(crate) fn complete(&self) -> bool {
        self.complete.get()
    }

    pub(crate) fn cached_tokens(&self) -> Option<u32> {
        self.admitted.get().map(|(_, cached)| cached)
    }

    pub(crate) fn admitted_at(&self) -> Option<RunNs> {
        self.admitted.get().map(|(at, _)| at)
    }

    pub(crate) fn first_token_at(&self) -> Option<RunNs> {
        self.first_token.get()
    }

    pub(crate) fn last_token_at(&self) -> Option<RunNs> {
        self.last_token.get()
    }

    /// Wakes the calling task at the next change.
    pub(crate) fn wake_me(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|held| held.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Ready once all tokens are there.
    pub(crate) fn poll_complete(&self, cx: &Context<'_>) -> Poll<()> {
        if self.complete() {
            return Poll::Ready(());
        }
        self.wake_me(cx);
        Poll::Pending
    }

    fn take(&self, emission: &Emission) {
        match emission.kind {
            EmissionKind::Admitted { cached_tokens } => self.admitted.set(Some((emission.at, cached_tokens))),
            EmissionKind::Token { index, last } => {
                self.available.set(index + 1);
                self.complete.set(last);
                if index == 0 {
                    self.first_token.set(Some(emission.at));
                }
                self.last_token.set(Some(emission.at));
            }
        }
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The engine on a real clock. Lives on one thread.
#[derive(Debug)]
pub(crate) struct Hub {
    engine: RefCell<Engine>,
    streams: RefCell<HashMap<Ticket, Rc<StreamState>>>,
    /// Reused between advances.
    emissions: RefCell<Vec<Emission>>,
    /// The engine's next event, or the next alarm, may have changed.
    changed: Rc<Notify>,
    alarms: Rc<Alarms>,
}

impl Hub {
    pub(crate) fn new(engine: Engine, clock: Arc<RunClock>) -> Rc<Self> {
        let changed = Rc::new(Notify::new());
        Rc::new(Self {
            alarms: Alarms::new(clock, Rc::clone(&changed)),
            engine: RefCell::new(engine),
            streams: RefCell::default(),
            emissions: RefCell::default(),
            changed,
        })
    }

    /// Brings a request in that arrived at `at`.
    pub(crate) fn submit(
        &self,
        at: RunNs,
        request: EngineRequest,
    ) -> Result<(Remaining, Rc<StreamState>), Refusal> {
        self.advance(at);
        let ticket = request.ticket;
        let remaining = self.engine.borrow_mut().submit(at, request)?;
        let stream = Rc::new(StreamState::default());
        self.streams.borrow_mut().insert(ticket, Rc::clone(&stream));
        self.changed.notify_one();
        Ok((remaining, stream))
    }

    /// Alarms that ring while the hub paces.
    pub(crate) fn alarms(&self) -> &Rc<Alarms> {
        &self.alarms
    }

    /// Forgets a request; the engine stops working on it if it still does.
    pub(crate) fn leave(&self, ticket: Ticket) {
        if self.streams.borrow_mut().remove(&ticket).is_some_and(|stream| !stream.complete()) {
            self.engine.borrow_mut().cancel(ticket);
        }
    }

    pub(crate) fn reset_prefix_cache(&self) -> bool {
        self.engine.borrow_mut().reset_prefix_cache()
    }

    pub(crate) fn gauges(&self) -> Gauges {
        let engine = self.engine.borrow();
        Gauges {
            running: engine.running(),
            tenants_running: engine.tenants_running(),
            waiting: engine.waiting(),
            cache_blocks: engine.cache_blocks(),
            counters: engine.counters(),
        }
    }

    /// Lets the engine run at the model's pace, for ever.
    ///
    /// The engine is advanced to its own events and not to the clock, so that a request whose kernel stamp is older
    /// than the last look at the clock still counts from that stamp.
    pub(crate) async fn pace(&self, mut waiter: PreciseWaiter) -> io::Result<()> {
        loop {
            let of_engine = self.engine.borrow().next_event();
            let Some(next) = of_engine.into_iter().chain(self.alarms.next()).min() else {
                self.changed.notified().await;
                continue;
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                woke = waiter.wait_until(next) => {
                    woke?;
                    if of_engine == Some(next) {
                        self.advance(next);
                    }
                    self.alarms.ring(next);
                    // Let the streams write before the next wait may spin.
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    fn advance(&self, to: RunNs) {
        let mut emissions = self.emissions.borrow_mut();
        self.engine.borrow_mut().advance(to, &mut emissions);
        let streams = self.streams.borrow();
        for emission in emissions.drain(..) {
            if let Some(stream) = streams.get(&emission.ticket) {
                stream.take(&emission);
            }
        }
    }
}

/// What the metrics page shows of the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gauges {
    pub(crate) running: usize,
    pub(crate) tenants_running: u32,
    pub(crate) waiting: usize,
    pub(crate) cache_blocks: (usize, usize),
    pub(crate) counters: EngineCounters,
}
