//! The hierarchical timer wheel as a pure data structure: no clock, no waker, no HTTP.

use std::marker::PhantomData;

/// Names one entry of a [`Wheel`] until it is popped or cancelled. Never names another entry afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

/// Deadlines with values, popped in exact order.
#[derive(Debug)]
pub struct Wheel<T> {
    _values: PhantomData<T>,
}

impl<T> Wheel<T> {
    /// An empty wheel whose hand stands at `start_ns`. Any deadline is taken, earlier ones too.
    pub fn new(start_ns: i64) -> Self {
        let _ = start_ns;
        todo!()
    }

    /// Adds a value that is due at `deadline_ns`. Past deadlines are due at once.
    pub fn insert(&mut self, deadline_ns: i64, value: T) -> Key {
        let _ = (deadline_ns, value);
        todo!()
    }

    /// Takes an entry out before it is due. `None` if it was popped or cancelled already.
    pub fn cancel(&mut self, key: Key) -> Option<T> {
        let _ = key;
        todo!()
    }

    /// The earliest deadline, exactly.
    pub fn next_deadline(&mut self) -> Option<i64> {
        todo!()
    }

    /// Takes out the earliest entry if it is due at `now_ns` (deadline ≤ now). Equal deadlines leave in the order in
    /// which they were inserted.
    pub fn pop_due(&mut self, now_ns: i64) -> Option<(i64, T)> {
        let _ = now_ns;
        todo!()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        todo!()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
