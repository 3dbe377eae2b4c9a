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
