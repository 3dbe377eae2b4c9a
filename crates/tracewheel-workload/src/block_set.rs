//! A bounded, compact set of hashes that can forget those not used of late.

/// A set of 64-bit hashes that takes at most a given number of them. Exact: no two hashes are taken for one.
///
/// Eight bytes a slot and one bit that says whether the hash was used since the last [`BlockSet::age`]. Open addressing
/// in 64 shards that grow by a quarter, each by itself, at three quarters full: 11 to 14 bytes a hash while it
/// grows, 11 at its bound, and growing never holds the old and the new set at once.
#[derive(Clone, Debug)]
pub(crate) struct BlockSet {
    shards: Vec<Shard>,
    /// 0 is an empty slot; whether 0 itself is a member stands here. It is never forgotten.
    has_zero: bool,
    len: usize,
    /// Members used since the last ageing, 0 not among them.
    young: usize,
    max_len: usize,
}

#[derive(Clone, Debug, Default)]
struct Shard {
    slots: Vec<u64>,
    /// A bit a slot: used since the last ageing.
    young: Vec<u64>,
    len: usize,
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

const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;
const FIRST_SLOTS: usize = 16;

impl BlockSet {
    /// An empty set that will take at most `max_len` hashes.
    pub(crate) fn new(max_len: usize) -> BlockSet {
        BlockSet { shards: Vec::new(), has_zero: false, len: 0, young: 0, max_len }
    }

    /// Members.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Members used since the last [`age`](Self::age).
    pub(crate) fn young(&self) -> usize {
        self.young
    }

    /// Makes `hash` a member, if there is room, and marks it as used.
    pub(crate) fn insert(&mut self, hash: u64) -> Inserted {
        let mixed = mix(hash);
        if mixed == 0 {
            return self.insert_zero();
        }
        if self.shards.is_empty() {
            self.shards.resize_with(SHARDS, Shard::default);
        }
        let full = self.len >= self.max_len;
        let shard = &mut self.shards[(mixed >> (64 - SHARD_BITS)) as usize];
        match shard.find(mixed) {
            Some(slot) => self.young += usize::from(shard.touch(slot)),
            None if full => return Inserted::Full,
            None => {
                shard.add(mixed, self.max_len / SHARDS);
                self.len += 1;
                self.young += 1;
                return Inserted::New;
            }
        }
        Inserted::Known
    }

    fn insert_zero(&mut self) -> Inserted {
        if self.has_zero {
            return Inserted::Known;
        }
        if self.len >= self.max_len {
            return Inserted::Full;
        }
        self.has_zero = true;
        self.len += 1;
        Inserted::New
    }

    /// Forgets every hash that was not used since the last ageing; all others count as not used from now on. How many
    /// were forgotten.
    pub(crate) fn age(&mut self) -> usize {
        let before = self.len;
        self.shards.iter_mut().for_each(Shard::age);
        self.len = self.shards.iter().map(|shard| shard.len).sum::<usize>() + usize::from(self.has_zero);
        self.young = 0;
        before - self.len
    }

    /// Bytes that it holds.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| (shard.slots.capacity() + shard.young.capacity()) * 8).sum()
    }
}

impl Shard {
    /// The slot of a member.
    fn find(&self, mixed: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slot_of(mixed);
        (self.slots[slot] == mixed).then_some(slot)
    }

    /// The slot of `mixed`, or the empty one where it belongs. There are slots, and one of them is empty.
    fn slot_of(&self, mixed: u64) -> usize {
        // The top bits chose the shard; the ones after them choose the place, over any number of slots.
        let place = u128::from(mixed << SHARD_BITS) * self.slots.len() as u128;
        let mut slot = (place >> 64) as usize;
        while self.slots[slot] != 0 && self.slots[slot] != mixed {
            slot += 1;
            if slot == self.slots.len() {
                slot = 0;
            }
        }
        slot
    }

    /// Marks a slot as used; whether it was not before.
    fn touch(&mut self, slot: usize) -> bool {
        let (word, bit) = (slot / 64, 1 << (slot % 64));
        let fresh = self.young[word] & bit == 0;
        self.young[word] |= bit;
        fresh
    }

    /// Adds what is no member. `most` is about how many members the shard will have in the end.
    fn add(&mut self, mixed: u64, most: usize) {
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.grow(most);
        }
        let slot = self.slot_of(mixed);
        self.slots[slot] = mixed;
        self.touch(slot);
        self.len += 1;
    }

    fn grow(&mut self, most: usize) {
        let now = self.slots.len();
        let next = (now + now / 4 + 1).max(FIRST_SLOTS);
        // The last step leads to what the set's bound needs, and a little for shards that get more than their part.
        let last = most + most / 3 + most / 64 + 8;
        let slots = if now < last { next.min(last) } else { next };
        self.rebuild(slots.max(now + 1), |_| true, true);
    }

    fn age(&mut self) {
        if !self.slots.is_empty() {
            self.rebuild(self.slots.len(), |young| young, false);
        }
    }

    /// Makes the shard anew of the members that `keeps` takes, by whether they are young. Marks stay, or are taken off.
    fn rebuild(&mut self, slots: usize, keeps: impl Fn(bool) -> bool, marks: bool) {
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        let young = std::mem::replace(&mut self.young, vec![0; slots.div_ceil(64)]);
        self.len = 0;
        for (at, mixed) in old.into_iter().enumerate().filter(|(_, mixed)| *mixed != 0) {
            let is_young = young[at / 64] & (1 << (at % 64)) != 0;
            if keeps(is_young) {
                let slot = self.slot_of(mixed);
                self.slots[slot] = mixed;
                self.len += 1;
                if is_young && marks {
                    self.touch(slot);
                }
            }
        }
    }
}

/// Spreads hashes, which may be small numbers of the trace's own. One to one (MurmurHash3's finaliser), so that the set
/// can keep the mixed value in the place of the hash.
fn mix(hash: u64) -> u64 {
    let mut mixed = hash;
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_set_takes_no_more_and_says_so() {
        let mut set = BlockSet::new(2);
        assert_eq!(set.insert(0), Inserted::New);
        assert_eq!(set.insert(7), Inserted::New);
        assert_eq!(set.insert(7), Inserted::Known);
        assert_eq!(set.insert(0), Inserted::Known);
        assert_eq!(set.insert(8), Inserted::Full);
        assert_eq!(set.len(), 2);
        assert_eq!(BlockSet::new(0).insert(0), Inserted::Full);
    }

    #[test]
    fn a_hash_costs_less_than_fourteen_bytes_at_any_size_and_twelve_at_the_bound() {
        let most = 300_000;
        let mut set = BlockSet::new(most);
        for hash in 0..most {
            assert_eq!(set.insert((hash as u64) << 32), Inserted::New);
            if hash >= 20_000 && hash % 1_000 == 0 {
                assert!(set.bytes() < hash * 14, "{} bytes for {hash}", set.bytes());
            }
        }
        assert!(set.bytes() < most * 12, "{} bytes for {most}", set.bytes());
        assert!((0..most).all(|hash| set.insert((hash as u64) << 32) == Inserted::Known));
        assert_eq!(set.insert(1), Inserted::Full);
        assert_eq!((set.len(), set.young()), (most, most - 1), "zero has no age");
    }

    proptest! {
        #[test]
        fn it_equals_a_set_that_remembers_when_each_hash_was_used(
            hashes in prop::collection::vec(0..500_u64, 0..3000),
            every in 50..600_usize,
        ) {
            let mut set = BlockSet::new(usize::MAX >> 8);
            let mut model: HashMap<u64, usize> = HashMap::new();
            for (at, hash) in hashes.into_iter().enumerate() {
                let expected = if model.contains_key(&hash) { Inserted::Known } else { Inserted::New };
                model.insert(hash, at / every);
                prop_assert_eq!(set.insert(hash), expected);
                prop_assert_eq!(set.len(), model.len());
                if (at + 1) % every == 0 {
                    let before = model.len();
                    model.retain(|hash, used| *hash == 0 || *used == at / every);
                    prop_assert_eq!(set.age(), before - model.len());
                }
            }
        }

        #[test]
        fn mixing_is_one_to_one(hashes in prop::collection::hash_set(any::<u64>(), 0..200)) {
            let mixed: HashSet<u64> = hashes.iter().map(|hash| mix(*hash)).collect();
            prop_assert_eq!(mixed.len(), hashes.len());
        }
    }
}
