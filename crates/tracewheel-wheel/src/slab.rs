//! The values, and where in the wheel each one's entry lies.

use crate::Key;
use crate::levels::Slot;

/// Which collection an entry lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Front,
    Slot(Slot),
}

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) home: Home,
    /// Index within the front's heap or the slot's list.
    pub(crate) position: u32,
}

/// A value with its place beside it: most accesses miss the cache, so one line must do.
#[derive(Debug)]
struct Node<T> {
    place: Place,
    /// How many values have lain here before.
    generation: u32,
    value: Option<T>,
}

/// Values by index.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    nodes: Vec<Node<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn with_capacity(entries: usize) -> Self {
        Self { nodes: Vec::with_capacity(entries), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Stores a value; its place is to be set by the caller.
    pub(crate) fn add(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let node = &mut self.nodes[index as usize];
            node.value = Some(value);
            return Key { index, generation: node.generation };
        }
        let index = u32::try_from(self.nodes.len()).expect("fewer than 2^32 entries, as documented");
        let place = Place { home: Home::Front, position: 0 };
        self.nodes.push(Node { place, generation: 0, value: Some(value) });
        Key { index, generation: 0 }
    }

    /// Takes a value out and retires every key to it.
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        let node = &mut self.nodes[index as usize];
        let value = node.value.take()?;
        node.generation = node.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.node(key)?.value.as_ref()
    }

    /// Where the entry under a key lies, if the key still names one.
    pub(crate) fn place(&self, key: Key) -> Option<Place> {
        self.node(key).map(|node| node.place)
    }

    pub(crate) fn set_place(&mut self, index: u32, home: Home, position: usize) {
        self.nodes[index as usize].place = Place { home, position: narrow(position) };
    }

    pub(crate) fn set_position(&mut self, index: u32, position: usize) {
        self.nodes[index as usize].place.position = narrow(position);
    }

    /// A value that was taken has left the next generation behind, so a live generation means a live value.
    fn node(&self, key: Key) -> Option<&Node<T>> {
        self.nodes.get(key.index as usize).filter(|node| node.generation == key.generation)
    }
}

/// A position fits: no collection holds more entries than there are indices.
fn narrow(position: usize) -> u32 {
    position as u32
}

#[cfg(test)]
impl<T> Slab<T> {
    /// Places that exist, used or free.
    pub(crate) fn places(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn place_at(&self, index: u32) -> Place {
        self.nodes[index as usize].place
    }
}
