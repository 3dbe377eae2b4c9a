//! The prefix cache: blocks of the prompt, found by their chained hash, the least recently admitted dropped first.

use std::collections::HashMap;

const NONE: u32 = u32::MAX;

/// A least-recently-used set of block hashes.
///
/// Recency is a list. Admitting a prompt moves its blocks to the front in prompt order, first block first, and cuts the
/// list at the capacity: so a prompt's last blocks go before its first ones, as they must in a chain, and a prompt
/// longer than the cache leaves its beginning.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    capacity: usize,
    block_tokens: u32,
    place: HashMap<u64, u32>,
    slots: Vec<Slot>,
    newest: u32,
    oldest: u32,
    free: Vec<u32>,
    /// Blocks held that nobody will ask for.
    foreign: usize,
}

/// One block, or a run of foreign ones.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u64,
    /// 0 for a block; else how many foreign blocks it stands for.
    foreign: usize,
    newer: u32,
    older: u32,
}

impl PrefixCache {
    /// A cache of `capacity` blocks (0 caches nothing) of `block_tokens` tokens.
    pub(crate) fn new(capacity: u32, block_tokens: u32) -> Self {
        Self {
            // Slot numbers are u32 and the last one means "none".
            capacity: capacity.min(NONE - 1) as usize,
            block_tokens,
            place: HashMap::new(),
            slots: Vec::new(),
            newest: NONE,
            oldest: NONE,
            free: Vec::new(),
            foreign: 0,
        }
    }

    /// Looks a prompt up, enters its blocks, and returns how many of its tokens were found.
    ///
    /// The prompt's last token is never taken from the cache: something must be computed to sample from. So a prompt
    /// whose blocks are all known still computes its last block.
    pub(crate) fn admit(&mut self, blocks: &[u64], prompt_tokens: u32) -> u32 {
        let usable = (prompt_tokens.saturating_sub(1) / self.block_tokens.max(1)) as usize;
        let found = blocks.iter().take(usable).take_while(|hash| self.place.contains_key(hash)).count();
        let kept = &blocks[..blocks.len().min(self.capacity)];
        // What is known comes to the front before anything new can push it out; then all in order, last block first.
        for hash in kept.iter().rev() {
            self.touch(*hash);
        }
        for hash in kept.iter().rev() {
            if !self.touch(*hash) {
                self.enter(*hash);
            }
        }
        found as u32 * self.block_tokens
    }

    /// Enters so many blocks that nobody will ask for again: other tenants' prompts.
    pub(crate) fn press(&mut self, blocks: u64) {
        let blocks = usize::try_from(blocks).unwrap_or(usize::MAX).min(self.capacity);
        if blocks == 0 {
            return;
        }
        self.drop_oldest((self.len() + blocks).saturating_sub(self.capacity));
        self.foreign += blocks;
        match self.slots.get_mut(self.newest as usize) {
            Some(newest) if newest.foreign > 0 => newest.foreign += blocks,
            _ => {
                let slot = self.take_slot(0, blocks);
                self.link_newest(slot);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.capacity as u32, self.block_tokens);
    }

    /// Blocks held.
    pub(crate) fn len(&self) -> usize {
        self.place.len() + self.foreign
    }

    /// Blocks it can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    fn touch(&mut self, hash: u64) -> bool {
        let Some(&slot) = self.place.get(&hash) else { return false };
        self.unlink(slot);
        self.link_newest(slot);
        true
    }

    fn enter(&mut self, hash: u64) {
        self.drop_oldest((self.len() + 1).saturating_sub(self.capacity));
        let slot = self.take_slot(hash, 0);
        self.place.insert(hash, slot);
        self.link_newest(slot);
    }

    fn drop_oldest(&mut self, mut blocks: usize) {
        while blocks > 0 && self.oldest != NONE {
            let oldest = self.oldest;
            let slot = &mut self.slots[oldest as usize];
            let dropped = slot.foreign.min(blocks);
            slot.foreign -= dropped;
            self.foreign -= dropped;
            if dropped > 0 && slot.foreign > 0 {
                return;
            }
            let hash = slot.hash;
            if dropped == 0 {
                self.place.remove(&hash);
            }
            blocks -= dropped.max(1);
            self.unlink(oldest);
            self.free.push(oldest);
        }
    }

    fn take_slot(&mut self, hash: u64, foreign: usize) -> u32 {
        let fresh = Slot { hash, foreign, newer: NONE, older: NONE };
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = fresh;
                slot
            }
            None => {
                self.slots.push(fresh);
                (self.slots.len() - 1) as u32
            }
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Slot { newer, older, .. } = self.slots[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: u32) {
        let second = self.newest;
        self.slots[slot as usize].newer = NONE;
        self.slots[slot as usize].older = second;
        match second {
            NONE => self.oldest = slot,
            second => self.slots[second as usize].newer = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same rule told with a list and no cleverness.
    struct BruteForce {
        capacity: usize,
        block_tokens: u32,
        newest_first: Vec<u64>,
    }

    impl BruteForce {
        fn admit(&mut self, blocks: &[u64], prompt_tokens: u32) -> u32 {
            let mut found = 0;
            for block in blocks {
                let end = (found + 1) * self.block_tokens;
                if !self.newest_first.contains(block) || end >= prompt_tokens {
                    break;
                }
                found += 1;
            }
            let mut list: Vec<u64> = blocks.iter().copied().take(self.capacity).collect();
            let others: Vec<u64> = self.newest_first.iter().copied().filter(|b| !list.contains(b)).collect();
            list.extend(others);
            list.truncate(self.capacity);
            self.newest_first = list;
            found * self.block_tokens
        }
    }

    #[test]
    fn a_repeated_prompt_still_computes_its_last_block() {
        let mut cache = PrefixCache::new(8, 16);
        assert_eq!(cache.admit(&[1, 2], 32), 0);
        // 32 tokens are two whole blocks, both known; one token must be computed, so the last block is.
        assert_eq!(cache.admit(&[1, 2], 32), 16);
        // With one token more the last block may be taken whole.
        assert_eq!(cache.admit(&[1, 2], 33), 32);
    }

    #[test]
    fn the_end_of_the_longest_idle_prompt_goes_first() {
        let mut cache = PrefixCache::new(4, 1);
        cache.admit(&[1, 2, 3], 4);
        // 1 2 3 | 7 8 → newest first 7 8 1 2, block 3 is gone.
        cache.admit(&[7, 8], 3);
        assert_eq!(cache.admit(&[1, 2, 3], 4), 2);
        // 1 2 3 7 now: 8 is gone, 7 is there.
        assert_eq!(cache.admit(&[7, 8], 3), 1);
    }

    #[test]
    fn a_prompt_longer_than_the_cache_leaves_its_beginning() {
        let mut cache = PrefixCache::new(2, 1);
        cache.admit(&[1, 2, 3, 4], 5);
        assert_eq!(cache.len(), 2);
        assert_eq!(cache.admit(&[1, 2, 3, 4], 5), 2);
    }

    #[test]
    fn a_cache_without_room_finds_nothing() {
        let mut cache = PrefixCache::new(0, 16);
        cache.admit(&[1], 20);
        assert_eq!(cache.admit(&[1], 20), 0);
        assert_eq!(cache.len(), 0);
    }

    #[test]
    fn a_cleared_cache_finds_nothing() {
        let mut cache = PrefixCache::new(4, 16);
        cache.admit(&[1], 20);
        cache.clear();
        assert_eq!((cache.len(), cache.capacity()), (0, 4));
        assert_eq!(cache.admit(&[1], 20), 0);
    }

    proptest! {
        #[test]
        fn foreign_blocks_push_out_as_prompts_that_never_come_again_do(
            capacity in 0_u32..12,
            turns in prop::collection::vec((0_u64..4, 0_usize..7, 0_u64..9), 1..60),
        ) {
            let mut cache = PrefixCache::new(capacity, 1);
            let mut brute = BruteForce { capacity: capacity as usize, block_tokens: 1, newest_first: Vec::new() };
            let mut fresh = 1_000_000_u64;
            for (family, length, foreign) in turns {
                let blocks: Vec<u64> = (0..length as u64).map(|n| family * 100 + n).collect();
                prop_assert_eq!(cache.admit(&blocks, length as u32 + 1), brute.admit(&blocks, length as u32 + 1));
                cache.press(foreign);
                for _ in 0..foreign {
                    fresh += 1;
                    brute.admit(&[fresh], 1);
                }
                prop_assert_eq!(cache.len(), brute.newest_first.len());
            }
        }

        #[test]
        fn hits_equal_a_brute_force_cache(
            capacity in 0_u32..12,
            prompts in prop::collection::vec((0_u64..4, 0_u64..4, 0_usize..7, 0_u32..3), 1..60),
        ) {
            let mut cache = PrefixCache::new(capacity, 3);
            let mut brute = BruteForce { capacity: capacity as usize, block_tokens: 3, newest_first: Vec::new() };
            for (family, branch, length, tail) in prompts {
                // Chains that share a beginning of two blocks and then part.
                let blocks: Vec<u64> = (0..length as u64)
                    .map(|n| if n < 2 { family * 100 + n } else { family * 100 + branch * 10 + n })
                    .collect();
                let tokens = length as u32 * 3 + tail;
                prop_assert_eq!(cache.admit(&blocks, tokens), brute.admit(&blocks, tokens));
                prop_assert_eq!(cache.len(), brute.newest_first.len());
                prop_assert!(cache.len() <= capacity as usize);
            }
        }
    }
}
