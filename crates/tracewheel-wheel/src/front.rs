//! The entries that the hand has reached: a binary heap whose entries know their position, so that any can be removed.

use crate::Spot;
use crate::slab::{Home, Slab};

/// A min-heap by (deadline, insertion).
#[derive(Debug, Default)]
pub(crate) struct Front {
    heap: Vec<Spot>,
}

impl Front {
    pub(crate) fn first(&self) -> Option<&Spot> {
        self.heap.first()
    }

    pub(crate) fn push<T>(&mut self, spot: Spot, slab: &mut Slab<T>) {
        let position = self.heap.len();
        self.heap.push(spot);
        let position = self.raise(position, spot, slab);
        slab.set_place(spot.index, Home::Front, position);
    }

    /// Takes out the entry at a position.
    ///
    /// # Panics
    /// If there is none: positions come from the slab, which is right about them.
    pub(crate) fn remove<T>(&mut self, position: u32, slab: &mut Slab<T>) -> Spot {
        let position = position as usize;
        let removed = self.heap.swap_remove(position);
        if let Some(&filler) = self.heap.get(position) {
            // What fills the gap comes from another branch: it may be too early for this place, or too late.
            let position = self.raise(position, filler, slab);
            let position = self.sink(position, filler, slab);
            slab.set_position(filler.index, position);
        }
        removed
    }

    /// Moves `spot` from a position towards the root until its parent is earlier; returns where it ends. The position
    /// in the slab of all that made way is right afterwards, that of `spot` itself is the caller's.
    fn raise<T>(&mut self, mut position: usize, spot: Spot, slab: &mut Slab<T>) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent] < spot {
                break;
            }
            self.shift(parent, position, slab);
            position = parent;
        }
        self.heap[position] = spot;
        position
    }

    /// As [`Self::raise`], towards the leaves until both children are later.
    fn sink<T>(&mut self, mut position: usize, spot: Spot, slab: &mut Slab<T>) -> usize {
        loop {
            let (left, right) = (2 * position + 1, 2 * position + 2);
            let Some(left_spot) = self.heap.get(left) else { break };
            let earlier =
                if self.heap.get(right).is_some_and(|right| right < left_spot) { right } else { left };
            if spot < self.heap[earlier] {
                break;
            }
            self.shift(earlier, position, slab);
            position = earlier;
        }
        self.heap[position] = spot;
        position
    }

    fn shift<T>(&mut self, from: usize, to: usize, slab: &mut Slab<T>) {
        let moved = self.heap[from];
        self.heap[to] = moved;
        slab.set_position(moved.index, to);
    }
}

#[cfg(test)]
impl Front {
    pub(crate) fn entries(&self) -> &[Spot] {
        &self.heap
    }
}
