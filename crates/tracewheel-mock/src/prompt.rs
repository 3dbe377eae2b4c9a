//! The prompt as the engine sees it: a count, and the chained hashes of its full blocks.

use xxhash_rust::xxh3::xxh3_64;

/// A prompt's size and identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// Tokens.
    pub tokens: u32,
    /// One hash for each full block; equal when the block and everything before it are equal.
    pub blocks: Vec<u64>,
    /// Hash of the whole prompt.
    pub digest: u64,
}

/// Reads a prompt's tokens and makes its block hashes.
///
/// A text's tokens are its words ([`tracewheel_tokens::words`]); parts that follow each other do not merge words.
#[derive(Debug, Clone)]
pub struct PromptHasher {
    block_tokens: u32,
    until_block_end: u32,
    chain: u64,
    tokens: u32,
    blocks: Vec<u64>,
}

impl PromptHasher {
    /// Starts a prompt. `salt` keeps prompts apart that must not share, whatever their text: vLLM's `cache_salt`, the
    /// model's name.
    pub fn new(block_tokens: u32, salt: &[&str]) -> Self {
        let chain = salt.iter().fold(0, |chain, part| link(chain, xxh3_64(part.as_bytes())));
        let block_tokens = block_tokens.max(1);
        Self { block_tokens, until_block_end: block_tokens, chain, tokens: 0, blocks: Vec::new() }
    }

    /// Appends a text.
    pub fn text(&mut self, text: &str) {
        for word in tracewheel_tokens::words(text) {
            self.push(xxh3_64(word.as_bytes()));
        }
    }

    /// Appends one token of a prompt that is given as numbers.
    pub fn token_id(&mut self, id: u32) {
        self.push(xxh3_64(&id.to_le_bytes()));
    }

    /// The prompt.
    pub fn finish(self) -> Prompt {
        Prompt { tokens: self.tokens, blocks: self.blocks, digest: self.chain }
    }

    fn push(&mut self, token: u64) {
        self.chain = link(self.chain, token);
        self.tokens = self.tokens.saturating_add(1);
        self.until_block_end -= 1;
        if self.until_block_end == 0 {
            self.until_block_end = self.block_tokens;
            self.blocks.push(self.chain);
        }
    }
}

/// One link of the chain: the finaliser of SplitMix64 over the sum of what was and what comes.
fn link(chain: u64, token: u64) -> u64 {
    let mut z = (chain ^ token).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prompt(texts: &[&str]) -> Prompt {
        let mut hasher = PromptHasher::new(4, &[]);
        texts.iter().for_each(|text| hasher.text(text));
        hasher.finish()
    }

    #[test]
    fn only_full_blocks_have_a_hash() {
        assert_eq!(prompt(&["a b c"]).blocks.len(), 0);
        assert_eq!(prompt(&["a b c d"]).blocks.len(), 1);
        assert_eq!(prompt(&["a b c d e f g"]).blocks.len(), 1);
        assert_eq!(prompt(&["a b c d e f g"]).tokens, 7);
    }

    #[test]
    fn blocks_are_equal_only_with_all_that_came_before() {
        let a = prompt(&["a b c d e f g h"]);
        let b = prompt(&["a b c d e f g x"]);
        let c = prompt(&["x b c d e f g h"]);
        assert_eq!(a.blocks[0], b.blocks[0]);
        assert_ne!(a.blocks[1], b.blocks[1]);
        assert_ne!(a.blocks[0], c.blocks[0]);
        assert_ne!(a.blocks[1], c.blocks[1], "the same words after another beginning");
    }

    #[test]
    fn a_salt_keeps_equal_texts_apart() {
        let salted = |salt: &[&str]| {
            let mut hasher = PromptHasher::new(1, salt);
            hasher.text("a");
            hasher.finish().blocks
        };
        assert_eq!(salted(&["x"]), salted(&["x"]));
        assert_ne!(salted(&["x"]), salted(&["y"]));
        assert_ne!(salted(&["x", "y"]), salted(&["y", "x"]));
    }

    #[test]
    fn token_numbers_count_one_each() {
        let mut hasher = PromptHasher::new(2, &[]);
        [1, 2, 3].into_iter().for_each(|id| hasher.token_id(id));
        let prompt = hasher.finish();
        assert_eq!((prompt.tokens, prompt.blocks.len()), (3, 1));
    }

    proptest! {
        #[test]
        fn whitespace_and_parts_do_not_matter(words in prop::collection::vec("[a-z]{1,4}", 0..40), cut in 0_usize..40) {
            let cut = cut.min(words.len());
            let whole = prompt(&[&words.join(" ")]);
            let parts = prompt(&[&words[..cut].join("\n\t"), &words[cut..].join("  ")]);
            prop_assert_eq!(whole.tokens as usize, words.len());
            prop_assert_eq!(whole, parts);
        }
    }
}
