//! The entries beyond the hand: nine levels of 64 slots, and which slots are occupied.

use crate::Spot;
use crate::slab::{Home, Slab};

/// A tick is 2^15 ns.
pub(crate) const TICK_BITS: u32 = 15;
/// A level resolves this many bits of a tick.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Enough levels for the 49 bits of any tick.
const LEVELS: usize = (64 - TICK_BITS).div_ceil(LEVEL_BITS) as usize;
/// A slot that was emptied keeps room for this many entries, so that a steady stream does not allocate; what a burst
/// needed beyond it is given back.
const KEPT_CAPACITY: usize = 256;

/// A slot's number over all levels: level × 64 + slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The slot for a tick beyond the hand.
    pub(crate) const fn of(hand: u64, tick: u64) -> Self {
        let level = (hand ^ tick).ilog2() / LEVEL_BITS;
        Self::at(level as usize, (tick >> (level * LEVEL_BITS)) as usize % SLOTS)
    }

    const fn at(level: usize, slot: usize) -> Self {
        Self((level * SLOTS + slot) as u16)
    }

    pub(crate) const fn level(self) -> usize {
        self.0 as usize / SLOTS
    }

    const fn index(self) -> usize {
        self.0 as usize
    }

    const fn bit(self) -> u64 {
        1 << (self.0 as usize % SLOTS)
    }

    /// The last tick of this slot.
    pub(crate) const fn last_tick(self, hand: u64) -> u64 {
        self.first_tick(hand) | ((1 << (self.level() as u32 * LEVEL_BITS)) - 1)
    }

    /// The first tick of this slot: the hand above this level, the slot's number in it, nothing below.
    pub(crate) const fn first_tick(self, hand: u64) -> u64 {
        let shift = self.level() as u32 * LEVEL_BITS;
        let above = shift + LEVEL_BITS;
        (hand >> above << above) | ((self.0 as usize % SLOTS) as u64) << shift
    }
}

/// The slots of all levels.
#[derive(Debug)]
pub(crate) struct Levels {
    /// One bit a slot, one word a level.
    occupied: [u64; LEVELS],
    slots: Box<[Vec<Spot>]>,
}

impl Levels {
    pub(crate) fn new() -> Self {
        Self { occupied: [0; LEVELS], slots: vec![Vec::new(); LEVELS * SLOTS].into_boxed_slice() }
    }

    /// The first occupied slot of the first occupied level: the earliest.
    pub(crate) fn first_slot(&self) -> Option<Slot> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        Some(Slot::at(level, self.occupied[level].trailing_zeros() as usize))
    }

    pub(crate) fn entries(&self, slot: Slot) -> &[Spot] {
        &self.slots[slot.index()]
    }

    pub(crate) fn push<T>(&mut self, hand: u64, tick: u64, spot: Spot, slab: &mut Slab<T>) {
        let slot = Slot::of(hand, tick);
        let entries = &mut self.slots[slot.index()];
        slab.set_place(spot.index, Home::Slot(slot), entries.len());
        entries.push(spot);
        self.occupied[slot.level()] |= slot.bit();
    }

    /// Takes out the entry at a position of a slot. The order within a slot means nothing.
    pub(crate) fn remove<T>(&mut self, slot: Slot, position: u32, slab: &mut Slab<T>) -> Spot {
        let entries = &mut self.slots[slot.index()];
        let removed = entries.swap_remove(position as usize);
        if let Some(moved) = entries.get(position as usize) {
            slab.set_position(moved.index, position as usize);
        }
        if entries.is_empty() {
            self.occupied[slot.level()] &= !slot.bit();
        }
        removed
    }

    /// Empties a slot. Its list comes back by [`Self::give_back`].
    pub(crate) fn take(&mut self, slot: Slot) -> Vec<Spot> {
        self.occupied[slot.level()] &= !slot.bit();
        std::mem::take(&mut self.slots[slot.index()])
    }

    /// Returns an emptied list, to be filled again.
    pub(crate) fn give_back(&mut self, slot: Slot, mut emptied: Vec<Spot>) {
        emptied.shrink_to(KEPT_CAPACITY);
        self.slots[slot.index()] = emptied;
    }
}

#[cfg(test)]
impl Levels {
    /// Every slot with whether it is marked as occupied.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Slot, bool, &[Spot])> {
        (0..LEVELS * SLOTS).map(|index| {
            let slot = Slot(index as u16);
            (slot, self.occupied[slot.level()] & slot.bit() != 0, self.entries(slot))
        })
    }
}
