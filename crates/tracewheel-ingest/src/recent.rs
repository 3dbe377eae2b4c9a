//! What was seen lately, in bounded memory.

use std::collections::HashMap;

/// Entries of one generation: what a table of 2^19 places holds. The value of `docs/design/import.md`.
const GENERATION: usize = (1 << 19) / 8 * 7;

/// Values by hash, in two generations. Once the younger one is full, the older one is forgotten: so at least the last
/// [`GENERATION`] entries that were put in or asked for are known, and never more than twice as many.
#[derive(Debug)]
pub(crate) struct Recent<V> {
    young: HashMap<u64, V>,
    old: HashMap<u64, V>,
    generation: usize,
    forgotten: u64,
}

impl<V> Recent<V> {
    pub(crate) fn new() -> Self {
        Self::of(GENERATION)
    }

    fn of(generation: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), generation, forgotten: 0 }
    }

    /// The value of a key that is known.
    pub(crate) fn get(&mut self, key: u64) -> Option<&mut V> {
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key)?;
            return Some(self.insert(key, value));
        }
        self.young.get_mut(&key)
    }

    /// Puts a value in, or in another's place.
    pub(crate) fn insert(&mut self, key: u64, value: V) -> &mut V {
        self.old.remove(&key);
        if self.young.len() >= self.generation && !self.young.contains_key(&key) {
            self.forgotten += self.old.len() as u64;
            self.old = std::mem::take(&mut self.young);
        }
        self.young.entry(key).insert_entry(value).into_mut()
    }

    /// How many entries were forgotten.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_known_and_the_number_is_bounded() {
        let mut recent = Recent::of(100);
        for key in 0..1_000_u64 {
            recent.insert(key, key);
            assert!(recent.young.len() + recent.old.len() <= 200);
            let lately = key.saturating_sub(99);
            assert!(recent.young.contains_key(&lately) || recent.old.contains_key(&lately), "{key}");
        }
        assert_eq!(recent.get(5), None);
        assert_eq!(recent.forgotten() + (recent.young.len() + recent.old.len()) as u64, 1_000);
    }

    #[test]
    fn what_is_asked_for_stays() {
        let mut recent = Recent::of(10);
        recent.insert(7, "seven");
        for key in 100..200 {
            recent.insert(key, "other");
            assert_eq!(recent.get(7), Some(&mut "seven"));
        }
        recent.insert(7, "again");
        assert_eq!(recent.get(7), Some(&mut "again"));
    }
}
