//! What a prefix cache of endless size would have held.

use crate::BlockSpec;
use crate::block_set::{BlockSet, Inserted};

/// The most blocks that are remembered: 2^23, at 11 bytes each 88 MiB.
pub const MAX_BLOCKS: usize = 1 << 23;

/// A prefix cache of endless size that forgets nothing, filled by prompts in the order of a plan: as far as its memory
/// reaches.
///
/// Endless in what it models, not in memory. It remembers at most a given number of distinct blocks, N. When as many as
/// N/2 were used since it last looked, it forgets those that were not among them. So it holds at least the N/2 distinct
/// blocks used last, and is exact until the first block had to go ([`PrefixCache::forgot`]), which is after N/2
/// distinct blocks at the earliest. From then on what it says is a lower bound: it can miss a block, never make one up.
#[derive(Clone, Debug)]
pub struct PrefixCache {
    blocks: BlockSet,
    max_blocks: usize,
    forgot: bool,
}

impl Default for PrefixCache {
    fn default() -> Self {
        PrefixCache::with_max_blocks(MAX_BLOCKS)
    }
}

impl PrefixCache {
    /// An empty cache that remembers at most `max_blocks` (at least two).
    pub fn with_max_blocks(max_blocks: usize) -> PrefixCache {
        let max_blocks = max_blocks.max(2);
        PrefixCache { blocks: BlockSet::new(max_blocks + 1), max_blocks, forgot: false }
    }

    /// How many tokens of a prompt that begins with `blocks` are there already, and puts the prompt in. Hashes are
    /// chained, so these are the blocks before the first unknown one.
    pub fn visit(&mut self, blocks: &[BlockSpec]) -> u32 {
        self.visit_of(0, blocks)
    }

    /// The same for a prompt that finds the cache of this number, which shares nothing with another: all of them are
    /// remembered in the one room.
    pub fn visit_of(&mut self, cache: u64, blocks: &[BlockSpec]) -> u32 {
        let own = apart(cache);
        let mut hit = true;
        let mut cached_tokens = 0;
        for block in blocks {
            match self.insert(block.hash ^ own) {
                Inserted::Known if hit => cached_tokens += block.tokens,
                Inserted::Known => {}
                Inserted::New | Inserted::Full => hit = false,
            }
        }
        cached_tokens
    }

    /// Whether a block was forgotten: from then on the cache is one of bounded size.
    pub fn forgot(&self) -> bool {
        self.forgot
    }

    /// Blocks that it remembers.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    fn insert(&mut self, hash: u64) -> Inserted {
        if self.blocks.young() >= self.max_blocks / 2 {
            self.forgot |= self.blocks.age() > 0;
        }
        self.blocks.insert(hash)
    }
}

/// What keeps equal hashes apart in different caches; nothing in the cache of number 0.
pub(crate) fn apart(cache: u64) -> u64 {
    cache.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn blocks(hashes: &[u64]) -> Vec<BlockSpec> {
        hashes.iter().map(|&hash| BlockSpec { hash, tokens: 10 }).collect()
    }

    #[test]
    fn a_prompt_hits_the_blocks_before_its_first_unknown_one() {
        let mut cache = PrefixCache::default();
        assert_eq!(cache.visit(&blocks(&[1, 2, 3])), 0);
        assert_eq!(cache.visit(&blocks(&[1, 2, 3])), 30);
        assert_eq!(cache.visit(&blocks(&[1, 2, 4, 5])), 20);
        assert_eq!(cache.visit(&blocks(&[9, 2, 3])), 0);
        assert_eq!(cache.visit(&[]), 0);
    }

    #[test]
    fn beyond_its_memory_it_forgets_what_was_not_used_of_late_and_says_so() {
        let mut cache = PrefixCache::with_max_blocks(8);
        for hash in 1..=6 {
            assert_eq!(cache.visit(&blocks(&[hash])), 0);
            // One block is used all along.
            assert_eq!(cache.visit(&blocks(&[1])), 10);
        }
        assert!(!cache.forgot(), "these fit");
        for hash in 7..=40 {
            assert_eq!(cache.visit(&blocks(&[hash])), 0);
            assert_eq!(cache.visit(&blocks(&[1])), 10, "what is in use stays");
            assert!(cache.blocks() <= 8);
        }
        assert!(cache.forgot());
        assert_eq!(cache.visit(&blocks(&[2])), 0, "long ago");
        assert_eq!(cache.visit(&blocks(&[40])), 10, "just now");
    }

    proptest! {
        #[test]
        fn it_is_exact_until_it_forgets_and_a_lower_bound_afterwards(
            prompts in prop::collection::vec(prop::collection::vec(1..60_u64, 0..6), 0..200),
            max_blocks in 2..80_usize,
        ) {
            let mut cache = PrefixCache::with_max_blocks(max_blocks);
            let mut endless: HashSet<u64> = HashSet::new();
            // The blocks in the order of their last use, the last one last.
            let mut order: Vec<u64> = Vec::new();
            for prompt in prompts {
                let recent: HashSet<u64> =
                    order.iter().rev().take((max_blocks / 2).saturating_sub(prompt.len())).copied().collect();
                let lead = |known: &HashSet<u64>| prompt.iter().take_while(|hash| known.contains(hash)).count() as u32;
                let (least, most) = (lead(&recent), lead(&endless));
                let said = cache.visit(&blocks(&prompt)) / 10;
                prop_assert!(said <= most);
                prop_assert!(said >= least, "the last blocks used are remembered");
                prop_assert!(cache.blocks() <= max_blocks);
                if !cache.forgot() {
                    prop_assert_eq!(said, most);
                }
                for hash in prompt {
                    endless.insert(hash);
                    order.retain(|other| *other != hash);
                    order.push(hash);
                }
                if endless.len() <= max_blocks / 2 {
                    prop_assert!(!cache.forgot());
                }
            }
        }
    }
}
