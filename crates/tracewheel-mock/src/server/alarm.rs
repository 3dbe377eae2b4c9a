//! Alarms for connections: stalls, slow writes, idle times. The pacer's one timer serves them all.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;
use tracewheel_clock::{Clock, RunClock, RunNs};

/// All alarms that are set.
#[derive(Debug)]
pub(crate) struct Alarms {
    clock: Arc<RunClock>,
    set: RefCell<BTreeMap<(RunNs, u64), Waker>>,
    next_number: Cell<u64>,
    /// Told when an alarm is set, as it may be the next one.
    changed: Rc<Notify>,
}

/// Ready at its time. May be dropped before.
#[derive(Debug)]
pub(crate) struct Alarm {
    alarms: Rc<Alarms>,
    at: RunNs,
    number: u64,
}

impl Alarms {
    pub(crate) fn new(clock: Arc<RunClock>, changed: Rc<Notify>) -> Rc<Self> {
        Rc::new(Self { clock, set: RefCell::default(), next_number: Cell::new(0), changed })
    }

    /// An alarm at `at`.
    pub(crate) fn at(self: &Rc<Self>, at: RunNs) -> Alarm {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        Alarm { alarms: Rc::clone(self), at, number }
    }

    /// An alarm so long from now.
    pub(crate) fn after(self: &Rc<Self>, ns: i64) -> Alarm {
        self.at(self.clock.now().plus(ns))
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<RunNs> {
        self.set.borrow().keys().next().map(|(at, _)| *at)
    }

    /// Wakes whoever waits for a time up to `now`.
    pub(crate) fn ring(&self, now: RunNs) {
        loop {
            let due = {
                let mut set = self.set.borrow_mut();
                set.first_entry().filter(|entry| entry.key().0 <= now).map(|entry| entry.remove())
            };
            match due {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }
}

impl Future for Alarm {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let alarms = &self.alarms;
        if alarms.clock.now() >= self.at {
            return Poll::Ready(());
        }
        alarms.set.borrow_mut().insert((self.at, self.number), cx.waker().clone());
        alarms.changed.notify_one();
        Poll::Pending
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.alarms.set.borrow_mut().remove(&(self.at, self.number));
    }
}
