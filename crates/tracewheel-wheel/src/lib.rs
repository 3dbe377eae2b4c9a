//! The hierarchical timer wheel as a pure data structure: no clock, no waker, no HTTP.
//!
//! A [`Wheel`] holds values under deadlines and gives them back in exact order: by deadline, and by insertion among
//! equal deadlines. It equals a list kept sorted (design invariant 5); it only costs less. Insert and cancel take
//! constant time, and an entry is moved at most nine times between its insertion and its deadline, however many others
//! wait; those due within a millisecond or two of each other are ordered by a small heap.
//!
//! # How it works
//!
//! A deadline is any `i64` of nanoseconds. Its **tick** is the deadline, shifted so that the order of signed numbers
//! becomes that of unsigned ones, divided by 2^15 ns (33 µs): a number of 49 bits that never decreases with the
//! deadline. A tick read as nine groups of six bits is an address. The **hand** is a tick. An entry lies
//!
//! * in the **front**, a heap, if its tick is not beyond the hand;
//! * else at level *L*, where *L* is the highest group in which its tick differs from the hand, in the slot that is
//!   that group's value. Nine levels of 64 slots cover every tick, so there is no list of overflows and no lap to count.
//!
//! Opening a slot moves the hand to the slot's first tick and lays its entries out anew; a narrow slot with few entries
//! goes to the front whole, with the hand at its last tick. Entries are kept by index into a slab, which knows for each
//! where it lies; there are no intrusive lists and no pointers.
//!
//! # Why the order is exact
//!
//! 1. *Every entry outside the front is later than every entry in it*: its tick is beyond the hand, those of the front
//!    are not, and ticks never decrease with the deadline. So a front that is not empty holds the earliest entry, and a
//!    heap ordered by (deadline, insertion) finds it.
//! 2. *A lower level is earlier than a higher one.* Let `a` lie at level *L* and `b` at *M* > *L*. In group *M* and
//!    above `a` agrees with the hand. `b` agrees above *M* and is larger in *M*, as it is beyond the hand and differs
//!    from it there first. So `a < b`. Within a level a lower slot is earlier for the same reason. Hence the earliest
//!    entry outside the front lies in the first occupied slot of the first occupied level, found by two counts of
//!    trailing zeros.
//! 3. *Opening the first slot keeps all others right.* The hand goes to that slot's first tick, `h`. An entry of the
//!    same level in a later slot, or of a higher level, still differs from `h` first in the group in which it differed
//!    from the old hand: the two hands agree above the opened level, and in that level's group a later slot is larger
//!    than the opened one. The opened entries agree with `h` in the opened level's group, so they go to lower levels
//!    or to the front: that ends after nine steps.
//! 4. *The hand may be moved to any tick before the first occupied slot* by the same argument: such a tick lies between
//!    the old hand and every entry outside the front, so it shares with them what they share. That covers the slot that
//!    goes to the front whole: once it is taken out, its last tick is such a tick.
//!
//! Nothing above asks that the hand be the present. [`Wheel::next_deadline`] may run it ahead to split a crowded slot,
//! [`Wheel::pop_due`] lets it follow the time that it is given, and an entry inserted behind it goes to the front, in
//! its exact place. Past deadlines need no rule of their own.

mod front;
mod levels;
mod slab;
#[cfg(test)]
mod tests;

use crate::front::Front;
use crate::levels::Levels;
use crate::slab::{Home, Slab};

/// A first slot with more entries than this is split rather than searched when the next deadline is asked for.
const SEARCHED_ENTRIES: usize = 32;

/// A slot of so low a level (2 ms wide at most) with so few entries goes to the front as a whole: a small heap orders
/// them sooner than another level would. Wider slots don't, lest a lonely far deadline send all that is inserted before
/// it to the front.
const LEVELS_TO_FRONT: usize = 2;
const ENTRIES_TO_FRONT: usize = 64;

/// Names one entry of a [`Wheel`] until it is popped or cancelled.
///
/// Afterwards it names nothing: the place may be used again, but under another generation. (After 2^32 uses of one
/// place a key that was kept all the while would name the wrong entry.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    index: u32,
    generation: u32,
}

/// Deadlines with values, popped in exact order. See the crate's page for how and why.
#[derive(Debug)]
pub struct Wheel<T> {
    /// The tick up to which everything lies in the front.
    hand: u64,
    front: Front,
    levels: Levels,
    slab: Slab<T>,
    /// Insertions so far: orders equal deadlines.
    inserted: u64,
}

/// An entry as it lies in the front or in a slot: all that ordering and moving need, so that neither touches the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    deadline_ns: i64,
    sequence: u64,
    index: u32,
}

/// The tick of a deadline: order-preserving, 49 bits.
const fn tick_of(deadline_ns: i64) -> u64 {
    (deadline_ns.cast_unsigned() ^ (1 << 63)) >> levels::TICK_BITS
}

impl<T> Wheel<T> {
    /// An empty wheel whose hand stands at `start_ns`. Any deadline is taken, earlier ones too: the start only saves
    /// work when deadlines lie beyond it.
    pub fn new(start_ns: i64) -> Self {
        Self::with_capacity(start_ns, 0)
    }

    /// As [`Self::new`], with room for `entries` before the slab allocates.
    pub fn with_capacity(start_ns: i64, entries: usize) -> Self {
        Self {
            hand: tick_of(start_ns),
            front: Front::default(),
            levels: Levels::new(),
            slab: Slab::with_capacity(entries),
            inserted: 0,
        }
    }

    /// Adds a value that is due at `deadline_ns`. Past deadlines are due at once. Constant time, or logarithmic in the
    /// number of entries in the front if the deadline lies behind the hand.
    ///
    /// # Panics
    /// With 2^32 entries in the wheel.
    pub fn insert(&mut self, deadline_ns: i64, value: T) -> Key {
        let key = self.slab.add(value);
        let spot = Spot { deadline_ns, sequence: self.inserted, index: key.index };
        self.inserted += 1;
        self.lay(spot);
        key
    }

    /// Takes an entry out before it is due. `None` if it was popped or cancelled already. Constant time, or logarithmic
    /// in the front.
    pub fn cancel(&mut self, key: Key) -> Option<T> {
        let place = self.slab.place(key)?;
        match place.home {
            Home::Front => self.front.remove(place.position, &mut self.slab),
            Home::Slot(slot) => self.levels.remove(slot, place.position, &mut self.slab),
        };
        self.slab.take(key.index)
    }

    /// The value under a key, as long as it is neither popped nor cancelled.
    pub fn get(&self, key: Key) -> Option<&T> {
        self.slab.get(key)
    }

    /// The earliest deadline, exactly.
    ///
    /// Takes `&mut self` because it splits a slot that is too crowded to be searched each time; what it answers and
    /// what is popped later do not change by that.
    pub fn next_deadline(&mut self) -> Option<i64> {
        loop {
            if let Some(first) = self.front.first() {
                return Some(first.deadline_ns);
            }
            let slot = self.levels.first_slot()?;
            let entries = self.levels.entries(slot);
            if entries.len() <= SEARCHED_ENTRIES {
                return entries.iter().map(|spot| spot.deadline_ns).min();
            }
            self.open(slot);
        }
    }

    /// Takes out the earliest entry if it is due at `now_ns` (deadline ≤ now). Equal deadlines leave in the order in
    /// which they were inserted.
    ///
    /// `now_ns` may go back between calls; entries are held against what is given.
    pub fn pop_due(&mut self, now_ns: i64) -> Option<(i64, T)> {
        let now = tick_of(now_ns);
        loop {
            if let Some(first) = self.front.first() {
                if first.deadline_ns > now_ns {
                    return None;
                }
                let Spot { deadline_ns, index, .. } = self.front.remove(0, &mut self.slab);
                return self.slab.take(index).map(|value| (deadline_ns, value));
            }
            match self.levels.first_slot() {
                Some(slot) if slot.first_tick(self.hand) <= now => self.open(slot),
                _ => {
                    self.hand = self.hand.max(now);
                    return None;
                }
            }
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an entry where it belongs as the hand stands.
    fn lay(&mut self, spot: Spot) {
        let tick = tick_of(spot.deadline_ns);
        if tick <= self.hand {
            self.front.push(spot, &mut self.slab);
        } else {
            self.levels.push(self.hand, tick, spot, &mut self.slab);
        }
    }

    /// Moves the hand to the first occupied slot, its beginning or its end, and lays its entries out anew.
    fn open(&mut self, slot: levels::Slot) {
        let mut entries = self.levels.take(slot);
        self.hand = if slot.level() < LEVELS_TO_FRONT && entries.len() <= ENTRIES_TO_FRONT {
            slot.last_tick(self.hand)
        } else {
            slot.first_tick(self.hand)
        };
        for spot in entries.drain(..) {
            self.lay(spot);
        }
        self.levels.give_back(slot, entries);
    }
}
