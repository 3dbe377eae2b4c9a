//! A bounded set of hashes.

/// A set of 64-bit hashes that takes at most a given number of them: eight bytes a slot, at most three quarters of the
/// slots in use, open addressing. Grows by doubling as it fills.
#[derive(Clone, Debug)]
pub(crate) struct BlockSet {
    /// 0 is an empty slot; whether 0 itself is a member stands beside.
    slots: Vec<u64>,
    has_zero: bool,
    len: usize,
    max_len: usize,
}

/// What became of a hash that was given to a [`BlockSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inserted {
    /// It was not there before.
    New,
    /// It was there.
    Known,
    /// It was not there, and the set takes no more.
    Full,
}

const FIRST_SLOTS: usize = 1024;

impl BlockSet {
    /// An empty set that will take at most `max_len` hashes.
    pub(crate) fn new(max_len: usize) -> BlockSet {
        BlockSet { slots: Vec::new(), has_zero: false, len: 0, max_len }
    }

    /// Whether `hash` is a member.
    pub(crate) fn contains(&self, hash: u64) -> bool {
        match hash {
            0 => self.has_zero,
            _ => !self.slots.is_empty() && self.slots[self.slot_of(hash)] == hash,
        }
    }

    /// Makes `hash` a member, if there is room.
    pub(crate) fn insert(&mut self, hash: u64) -> Inserted {
        if self.contains(hash) {
            return Inserted::Known;
        }
        if self.len >= self.max_len {
            return Inserted::Full;
        }
        self.len += 1;
        if hash == 0 {
            self.has_zero = true;
            return Inserted::New;
        }
        if self.len * 4 > self.slots.len() * 3 {
            self.grow();
        }
        let slot = self.slot_of(hash);
        self.slots[slot] = hash;
        Inserted::New
    }

    /// The slot of `hash`, or the empty one where it belongs. There are slots, and one of them is empty.
    fn slot_of(&self, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        // Hashes may be small numbers of the trace's own: spread them.
        let mut slot = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        while self.slots[slot] != 0 && self.slots[slot] != hash {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(FIRST_SLOTS);
        for hash in std::mem::replace(&mut self.slots, vec![0; slots]) {
            if hash != 0 {
                let slot = self.slot_of(hash);
                self.slots[slot] = hash;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_set_takes_no_more_and_says_so() {
        let mut set = BlockSet::new(2);
        assert!(!set.contains(0));
        assert_eq!(set.insert(0), Inserted::New);
        assert_eq!(set.insert(7), Inserted::New);
        assert_eq!(set.insert(7), Inserted::Known);
        assert_eq!(set.insert(8), Inserted::Full);
        assert_eq!((set.contains(8), set.len), (false, 2));
    }

    #[test]
    fn many_hashes_stay_members_while_it_grows() {
        let mut set = BlockSet::new(usize::MAX);
        for hash in 0..100_000_u64 {
            assert_eq!(set.insert(hash << 32), Inserted::New);
        }
        assert!((0..100_000_u64).all(|hash| set.contains(hash << 32)));
        assert!(!set.contains(1));
    }

    proptest! {
        #[test]
        fn it_equals_a_set_without_bound(hashes in prop::collection::vec(0..500_u64, 0..3000)) {
            let mut set = BlockSet::new(usize::MAX);
            let mut model = HashSet::new();
            for hash in hashes {
                let expected = if model.insert(hash) { Inserted::New } else { Inserted::Known };
                prop_assert_eq!(set.insert(hash), expected);
                prop_assert_eq!(set.len, model.len());
            }
        }
    }
}
