//! Every interleaving of the threads that share a run's small state, by a model checker (loom), memory orders included:
//! the files themselves are compiled here against its atomics and locks.

#![allow(dead_code, unreachable_pub)] // Each file is taken whole.
#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::thread;

use halting::{Abort, Halt, Halting, StartMark};
use ready::{ReadyQueue, SlotWaker};
use stop::{StopLevel, StopSignal};
use sync::{AtomicBool, Ordering, each_interleaving};

#[path = "../src/halting.rs"]
mod halting;
#[path = "../src/ready.rs"]
mod ready;
#[path = "../src/stop.rs"]
mod stop;

/// What the crate's own `sync` names, of the model checker.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, Ordering};
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    pub(crate) fn each_interleaving(test: impl Fn() + Send + Sync + 'static) {
        loom::model(test);
    }
}

/// A parent that remembers that it was woken.
struct Parent(AtomicBool);

impl Wake for Parent {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn what_came_before_a_wake_is_seen_by_the_poll_or_the_slot_is_noted_again() {
    for noted_before in [false, true] {
        each_interleaving(move || {
            let queue = ReadyQueue::new();
            let slot = SlotWaker::new(7, &queue);
            let mut woken = VecDeque::new();
            if noted_before {
                // It was noted and taken, and is about to be polled.
                slot.waker().wake_by_ref();
                queue.take(&mut woken);
                woken.clear();
            }
            let arrived = Arc::new(AtomicBool::new(false));
            let (waker, sender) = (slot.waker().clone(), Arc::clone(&arrived));
            let reactor = thread::spawn(move || {
                sender.store(true, Ordering::Relaxed);
                waker.wake_by_ref();
            });
            slot.begin_poll();
            let seen = arrived.load(Ordering::Relaxed);
            reactor.join().unwrap();
            queue.take(&mut woken);
            assert!(seen || woken.contains(&7), "the wake is lost");
        });
    }
}

#[test]
fn whoever_rests_after_looking_at_the_queue_is_woken_by_what_came_since() {
    each_interleaving(|| {
        let queue = ReadyQueue::new();
        let (one, two) = (SlotWaker::new(1, &queue), SlotWaker::new(2, &queue));
        let wakers = [one.waker().clone(), two.waker().clone()];
        let reactors = wakers.map(|waker| thread::spawn(move || waker.wake_by_ref()));
        let parent = Arc::new(Parent(AtomicBool::new(false)));
        queue.set_parent(&Waker::from(Arc::clone(&parent)));
        let mut woken = VecDeque::new();
        queue.take(&mut woken);
        let seen = woken.len();
        for reactor in reactors {
            reactor.join().unwrap();
        }
        queue.take(&mut woken);
        assert_eq!(woken.len(), 2, "each slot is noted once");
        assert!(seen == 2 || parent.0.load(Ordering::SeqCst), "it would rest for ever");
    });
}

#[test]
fn whoever_sees_that_the_run_stopped_itself_finds_the_one_reason() {
    each_interleaving(|| {
        let halting = Arc::new(Halting::new());
        let others = [Abort::RecorderBehind, Abort::TargetFailing].map(|why| {
            let halting = Arc::clone(&halting);
            thread::spawn(move || halting.abort(why))
        });
        let first = (halting.level() == Halt::Abort).then(|| halting.aborted().unwrap());
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(halting.level(), Halt::Abort);
        assert!(first.is_none_or(|first| halting.aborted() == Some(first)), "the first reason stays");
    });
}

#[test]
fn a_halt_only_goes_further() {
    each_interleaving(|| {
        let halting = Arc::new(Halting::new());
        let others = [Halt::Cut, Halt::Drain].map(|halt| {
            let halting = Arc::clone(&halting);
            thread::spawn(move || halting.raise(halt))
        });
        let (earlier, later) = (halting.level(), halting.level());
        assert!(earlier <= later);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(halting.level(), Halt::Cut);
    });
}

#[test]
fn a_start_that_is_seen_is_seen_whole() {
    each_interleaving(|| {
        let mark = Arc::new(StartMark::new());
        let other = Arc::clone(&mark);
        let conductor = thread::spawn(move || other.set(42));
        assert!(mark.get().is_none_or(|at| at == 42));
        conductor.join().unwrap();
        assert_eq!(mark.get(), Some(42));
    });
}

#[test]
fn two_signals_at_once_drain_and_cut() {
    each_interleaving(|| {
        let signal = StopSignal::new();
        let others = [signal.clone(), signal.clone()].map(|signal| thread::spawn(move || signal.escalate()));
        assert!(signal.level() <= StopLevel::Cut);
        let reached = others.map(|other| other.join().unwrap());
        assert!(reached.contains(&StopLevel::Cut), "{reached:?}");
        assert_eq!(signal.level(), StopLevel::Cut);
    });
}
