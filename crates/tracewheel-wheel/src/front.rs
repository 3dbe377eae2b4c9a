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
        slab.set_place(spot.index, Home::Front, position);
        self.raise(position, slab);
    }

    /// Takes out the entry at a position.
    ///
    /// # Panics
    /// If there is none: positions come from the slab, which is right about them.
    pub(crate) fn remove<T>(&mut self, position: u32, slab: &mut Slab<T>) -> Spot {
        let position = position as usize;
        let removed = self.heap.swap_remove(position);
        if position < self.heap.len() {
            slab.set_position(self.heap[position].index, position);
            // The entry that filled the gap comes from another branch: it may be too early here or too late.
            let position = self.raise(position, slab);
            self.sink(position, slab);
        }
        removed
    }

    /// Moves an entry towards the root until its parent is earlier; returns where it ends.
    fn raise<T>(&mut self, mut position: usize, slab: &mut Slab<T>) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent] < self.heap[position] {
                break;
            }
            self.swap(parent, position, slab);
            position = parent;
        }
        position
    }

    /// Moves an entry towards the leaves until both children are later.
    fn sink<T>(&mut self, mut position: usize, slab: &mut Slab<T>) {
        loop {
            let (left, right) = (2 * position + 1, 2 * position + 2);
            let Some(left_spot) = self.heap.get(left) else { return };
            let earlier =
                if self.heap.get(right).is_some_and(|spot| spot < left_spot) { right } else { left };
            if self.heap[position] < self.heap[earlier] {
                return;
            }
            self.swap(position, earlier, slab);
            position = earlier;
        }
    }

    fn swap<T>(&mut self, one: usize, other: usize, slab: &mut Slab<T>) {
        self.heap.swap(one, other);
        slab.set_position(self.heap[one].index, one);
        slab.set_position(self.heap[other].index, other);
    }
}

#[cfg(test)]
impl Front {
    pub(crate) fn entries(&self) -> &[Spot] {
        &self.heap
    }
}
