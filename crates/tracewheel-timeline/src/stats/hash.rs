//! Sets and maps of numbers that are hashes already, or small ids.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type U64Set = HashSet<u64, BuildHasherDefault<Mixer>>;
pub(super) type CountOf<K> = HashMap<K, u64, BuildHasherDefault<Mixer>>;

/// One multiplication and one fold: enough for keys that nobody chooses against us, and several times faster than the
/// standard hasher on hundreds of millions of blocks.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        // The fractional part of the golden ratio, odd.
        let product = u128::from(self.0 ^ value) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }
}
