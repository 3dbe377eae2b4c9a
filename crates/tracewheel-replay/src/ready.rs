//! Which connections want to be polled: one waker a slot, made once, and one queue for all.
//!
//! The worker is one task that polls its connections itself. A reactor event wakes a slot's waker, which notes the slot
//! and wakes the worker: no spawned task, no second queue, no allocation.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};

use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

/// The slots that were woken and not yet polled. Taken and filled by one thread, nearly always: the lock is free.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    woken: Vec<u32>,
    parent: Option<Waker>,
}

impl ReadyQueue {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Who is woken when a slot is. Spent by the first wake.
    pub(crate) fn set_parent(&self, waker: &Waker) {
        let mut state = self.lock();
        if !state.parent.as_ref().is_some_and(|parent| parent.will_wake(waker)) {
            state.parent = Some(waker.clone());
        }
    }

    /// Moves all woken slots to the end of `into`, in the order in which they were woken.
    pub(crate) fn take(&self, into: &mut VecDeque<u32>) {
        into.extend(self.lock().woken.drain(..));
    }

    fn wake(&self, slot: u32) {
        let parent = {
            let mut state = self.lock();
            state.woken.push(slot);
            state.parent.take()
        };
        if let Some(parent) = parent {
            parent.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of one slot, and whether it is noted already.
#[derive(Debug, Clone)]
pub(crate) struct SlotWaker {
    shared: Arc<SlotWake>,
    waker: Waker,
}

#[derive(Debug)]
struct SlotWake {
    slot: u32,
    noted: AtomicBool,
    queue: Arc<ReadyQueue>,
}

impl SlotWaker {
    pub(crate) fn new(slot: u32, queue: &Arc<ReadyQueue>) -> Self {
        let shared = Arc::new(SlotWake { slot, noted: AtomicBool::new(false), queue: Arc::clone(queue) });
        let waker = Waker::from(Arc::clone(&shared));
        SlotWaker { shared, waker }
    }

    /// The waker for polling the slot. From now on a wake is noted again.
    pub(crate) fn begin_poll(&self) -> &Waker {
        // A swap, not a store: a wake that found the slot noted still must have its bytes seen by the coming poll.
        self.shared.noted.swap(false, Ordering::AcqRel);
        &self.waker
    }

    /// The waker, to be woken by.
    #[cfg(test)]
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl Wake for SlotWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.noted.swap(true, Ordering::AcqRel) {
            self.queue.wake(self.slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_noted_once_until_it_is_polled() {
        crate::sync::each_interleaving(|| {
            let queue = ReadyQueue::new();
            let (one, two) = (SlotWaker::new(1, &queue), SlotWaker::new(2, &queue));
            let mut woken = VecDeque::new();
            for waker in [&two, &one, &two] {
                waker.waker().wake_by_ref();
            }
            queue.take(&mut woken);
            assert_eq!(woken, [2, 1]);
            two.waker().wake_by_ref();
            queue.take(&mut woken);
            assert_eq!(woken, [2, 1], "still noted");
            two.begin_poll();
            two.waker().wake_by_ref();
            queue.take(&mut woken);
            assert_eq!(woken, [2, 1, 2]);
        });
    }

    #[test]
    fn the_parent_is_woken_once_for_many_slots() {
        crate::sync::each_interleaving(|| {
            struct Count(std::sync::atomic::AtomicU32);
            impl Wake for Count {
                fn wake(self: Arc<Self>) {
                    self.0.fetch_add(1, Ordering::SeqCst);
                }
            }
            let count = Arc::new(Count(Default::default()));
            let queue = ReadyQueue::new();
            let (one, two) = (SlotWaker::new(1, &queue), SlotWaker::new(2, &queue));
            queue.set_parent(&Waker::from(Arc::clone(&count)));
            one.waker().wake_by_ref();
            two.waker().wake_by_ref();
            assert_eq!(count.0.load(Ordering::SeqCst), 1);
        });
    }
}
