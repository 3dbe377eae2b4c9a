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
    /// How many entries have had this index before.
    generation: u32,
}

/// Values by index. Places lie apart from the values: moving an entry touches twelve bytes of it.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Place>,
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn with_capacity(entries: usize) -> Self {
        Self { places: Vec::with_capacity(entries), values: Vec::with_capacity(entries), free: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len() - self.free.len()
    }

    /// Stores a value; its place is to be set by the caller.
    pub(crate) fn add(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            self.values[index as usize] = Some(value);
            return Key { index, generation: self.places[index as usize].generation };
        }
        let index = u32::try_from(self.values.len()).expect("fewer than 2^32 entries, as documented");
        self.values.push(Some(value));
        self.places.push(Place { home: Home::Front, position: 0, generation: 0 });
        Key { index, generation: 0 }
    }

    /// Takes a value out and retires every key to it.
    pub(crate) fn take(&mut self, index: u32) -> Option<T> {
        let value = self.values[index as usize].take()?;
        let place = &mut self.places[index as usize];
        place.generation = place.generation.wrapping_add(1);
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.place(key)?;
        self.values[key.index as usize].as_ref()
    }

    /// Where the entry under a key lies, if the key still names one.
    pub(crate) fn place(&self, key: Key) -> Option<Place> {
        let place = self.places.get(key.index as usize)?;
        (place.generation == key.generation).then_some(*place)
    }

    pub(crate) fn set_place(&mut self, index: u32, home: Home, position: usize) {
        let place = &mut self.places[index as usize];
        place.home = home;
        place.position = narrow(position);
    }

    pub(crate) fn set_position(&mut self, index: u32, position: usize) {
        self.places[index as usize].position = narrow(position);
    }
}

/// A position fits: no collection holds more entries than there are indices.
fn narrow(position: usize) -> u32 {
    position as u32
}

#[cfg(test)]
impl<T> Slab<T> {
    pub(crate) fn capacity_used(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn place_at(&self, index: u32) -> Place {
        self.places[index as usize]
    }
}
