//! Prompts: planned as blocks and a tail, rendered as text of exactly the planned length.
//!
//! A block's text depends on its hash alone, so two prompts that share their first k hashes share exactly the text
//! of these k blocks; and the first words of the next block spell its hash out, so they part right after it.

use tracewheel_tokens::{TextMaker, block_key};

/// What a prompt is made of: the blocks that the timeline knows by hash, then text that no other request has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptSpec {
    /// The known blocks from the prompt's start. Only the last may be shorter than the trace's block size, unless
    /// the trace has blocks of several sizes.
    pub blocks: Vec<BlockSpec>,
    /// What follows them; `None` if the blocks are the whole prompt.
    pub tail: Option<TailSpec>,
}

/// A block that other prompts may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    /// Chained hash: equal hashes mean that everything up to and including this block is equal.
    pub hash: u64,
    /// Its length, at least 1.
    pub tokens: u32,
}

/// Text of one request alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailSpec {
    /// Made from the plan's seed and the request's id.
    pub key: u64,
    /// Its length, at least 1.
    pub tokens: u32,
}

impl PromptSpec {
    /// Length of the whole prompt.
    pub fn tokens(&self) -> u32 {
        let blocks: u32 = self.blocks.iter().map(|block| block.tokens).sum();
        blocks + self.tail.map_or(0, |tail| tail.tokens)
    }
}

/// Makes the text of prompts. Costs some tens of kilobytes; make one and keep it.
#[derive(Debug, Clone, Default)]
pub struct PromptRenderer {
    maker: TextMaker,
}

impl PromptRenderer {
    /// A renderer over the common word list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes the text of `prompt` into `out`, which is cleared first and keeps its capacity: exactly
    /// [`PromptSpec::tokens`] words, each with a leading space.
    ///
    /// `nonce` re-keys every block and the tail. Under one nonce the sharing of the trace holds; two prompts under
    /// different nonces share nothing.
    pub fn render(&self, prompt: &PromptSpec, nonce: u64, out: &mut String) {
        out.clear();
        for block in &prompt.blocks {
            self.maker.block(out, block_key(nonce, block.hash), block.tokens);
        }
        if let Some(tail) = prompt.tail {
            self.maker.block(out, block_key(nonce, tail.key), tail.tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tracewheel_tokens::{TAG_WORDS, count};

    use super::*;

    fn prompt(hashes: &[(u64, u32)], tail: Option<(u64, u32)>) -> PromptSpec {
        PromptSpec {
            blocks: hashes.iter().map(|&(hash, tokens)| BlockSpec { hash, tokens }).collect(),
            tail: tail.map(|(key, tokens)| TailSpec { key, tokens }),
        }
    }

    fn text(prompt: &PromptSpec, nonce: u64) -> String {
        let mut out = "left over".to_owned();
        PromptRenderer::new().render(prompt, nonce, &mut out);
        out
    }

    fn shared_words(a: &str, b: &str) -> u32 {
        a.split_ascii_whitespace().zip(b.split_ascii_whitespace()).take_while(|(a, b)| a == b).count() as u32
    }

    #[test]
    fn prompts_share_exactly_the_text_of_their_shared_blocks() {
        let a = text(&prompt(&[(1, 64), (2, 64), (3, 64)], Some((100, 9))), 5);
        let b = text(&prompt(&[(1, 64), (2, 64), (4, 64)], Some((101, 9))), 5);
        let shared = shared_words(&a, &b);
        assert!((128..128 + TAG_WORDS).contains(&shared), "{shared}");
        let c = text(&prompt(&[(1, 64), (2, 64), (3, 64)], Some((102, 9))), 5);
        assert!((192..192 + TAG_WORDS).contains(&shared_words(&a, &c)));
    }

    #[test]
    fn another_nonce_changes_the_prompt_from_its_first_words_and_keeps_its_length() {
        let spec = prompt(&[(1, 64), (2, 30)], Some((100, 9)));
        assert_eq!(text(&spec, 5), text(&spec, 5));
        let (a, b) = (text(&spec, 5), text(&spec, 6));
        assert!(shared_words(&a, &b) < TAG_WORDS);
        assert_eq!((count(&a), count(&b)), (103, 103));
    }

    #[test]
    fn a_short_last_block_is_the_beginning_of_the_whole_one() {
        let whole = text(&prompt(&[(1, 64), (2, 64)], None), 5);
        let short = text(&prompt(&[(1, 64), (2, 20)], None), 5);
        assert!(whole.starts_with(&short));
    }

    proptest! {
        #[test]
        fn a_prompt_has_exactly_its_tokens(
            blocks in prop::collection::vec((any::<u64>(), 1..700_u32), 0..6),
            tail in prop::option::of((any::<u64>(), 1..700_u32)),
            nonce in any::<u64>(),
        ) {
            let spec = prompt(&blocks, tail);
            let expected: u32 = blocks.iter().map(|block| block.1).chain(tail.map(|tail| tail.1)).sum();
            prop_assert_eq!(spec.tokens(), expected);
            prop_assert_eq!(count(&text(&spec, nonce)), expected);
        }
    }
}
