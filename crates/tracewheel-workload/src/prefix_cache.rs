//! What a prefix cache of endless size would have held.

use crate::BlockSpec;
use crate::block_set::{BlockSet, Inserted};

/// The most blocks that are remembered: 2^24, at 256 MiB. Two million requests of eight blocks of their own.
const MAX_BLOCKS: usize = 1 << 24;

/// A prefix cache of endless size that forgets nothing, filled by prompts in the order of a plan.
///
/// Endless in what it models, not in memory: once more distinct blocks came than it can remember, it answers nothing
/// any more, because a partial memory would answer wrongly.
#[derive(Clone, Debug)]
pub struct PrefixCache {
    blocks: BlockSet,
    overrun: bool,
}

impl Default for PrefixCache {
    fn default() -> Self {
        PrefixCache::with_max_blocks(MAX_BLOCKS)
    }
}

impl PrefixCache {
    /// An empty cache that remembers at most `max_blocks`.
    pub fn with_max_blocks(max_blocks: usize) -> PrefixCache {
        PrefixCache { blocks: BlockSet::new(max_blocks), overrun: false }
    }

    /// How many tokens of a prompt that begins with `blocks` are there already, and puts the prompt in. Hashes are
    /// chained, so these are the blocks before the first unknown one. `None` once memory ran out.
    pub fn visit(&mut self, blocks: &[BlockSpec]) -> Option<u32> {
        if self.overrun {
            return None;
        }
        let mut hit = true;
        let mut cached_tokens = 0;
        for block in blocks {
            match self.blocks.insert(block.hash) {
                Inserted::Known if hit => cached_tokens += block.tokens,
                Inserted::Known => {}
                Inserted::New => hit = false,
                Inserted::Full => {
                    *self = PrefixCache { blocks: BlockSet::new(0), overrun: true };
                    return None;
                }
            }
        }
        Some(cached_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(hashes: &[u64]) -> Vec<BlockSpec> {
        hashes.iter().map(|&hash| BlockSpec { hash, tokens: 10 }).collect()
    }

    #[test]
    fn a_prompt_hits_the_blocks_before_its_first_unknown_one() {
        let mut cache = PrefixCache::default();
        assert_eq!(cache.visit(&blocks(&[1, 2, 3])), Some(0));
        assert_eq!(cache.visit(&blocks(&[1, 2, 3])), Some(30));
        assert_eq!(cache.visit(&blocks(&[1, 2, 4, 5])), Some(20));
        assert_eq!(cache.visit(&blocks(&[9, 2, 3])), Some(0));
        assert_eq!(cache.visit(&[]), Some(0));
    }

    #[test]
    fn once_it_cannot_remember_all_it_says_nothing() {
        let mut cache = PrefixCache::with_max_blocks(3);
        assert_eq!(cache.visit(&blocks(&[1, 2, 3])), Some(0));
        assert_eq!(cache.visit(&blocks(&[1, 2, 3])), Some(30));
        assert_eq!(cache.visit(&blocks(&[1, 4])), None);
        assert_eq!(cache.visit(&blocks(&[1])), None);
    }
}
