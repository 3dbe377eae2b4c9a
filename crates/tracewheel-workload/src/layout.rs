//! From a row's prefix hashes to the blocks and the tail of its prompt.

use tracewheel_timeline::{BlockBasis, RequestRow, TimelineMeta};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{BlockSpec, PromptSpec, TailSpec};

/// Where a timeline counts its blocks in bytes, a token is taken to be this long. The sharing between prompts stays as
/// recorded; only the lengths of the shared parts are an estimate.
const BYTES_A_TOKEN: u32 = 4;

/// How prompts of one timeline are laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    block_tokens: Option<u32>,
    basis: BlockBasis,
    seed: u64,
}

impl Layout {
    pub(crate) fn new(meta: &TimelineMeta, seed: u64) -> Layout {
        Layout {
            block_tokens: meta.block_tokens,
            basis: meta.block_basis.unwrap_or(BlockBasis::Tokens),
            seed,
        }
    }

    /// The prompt of a row: its blocks as far as `input_tokens` reach, then a tail of its own. Blocks whose length the
    /// timeline does not know have no place, nor have those behind them.
    pub(crate) fn prompt(&self, request_id: u64, input_tokens: u32, row: &RequestRow) -> PromptSpec {
        let hashes = row.prefix_hashes.as_deref().unwrap_or_default();
        let mut blocks = Vec::with_capacity(hashes.len());
        let mut left = input_tokens;
        for (index, &hash) in hashes.iter().enumerate() {
            let length = match &row.prefix_block_tokens {
                Some(lengths) => lengths.get(index).copied(),
                None => self.block_tokens,
            };
            let Some(length) = length.map(|length| self.in_tokens(length)) else { break };
            let tokens = length.min(left);
            if tokens == 0 {
                break;
            }
            blocks.push(BlockSpec { hash, tokens });
            left -= tokens;
            if tokens < length {
                break;
            }
        }
        let key = xxh3_64_with_seed(&request_id.to_le_bytes(), self.seed);
        PromptSpec { blocks, tail: (left > 0).then_some(TailSpec { key, tokens: left }) }
    }

    fn in_tokens(&self, length: u32) -> u32 {
        match self.basis {
            BlockBasis::Tokens => length,
            BlockBasis::Bytes => length.div_ceil(BYTES_A_TOKEN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(block_tokens: Option<u32>, basis: BlockBasis) -> Layout {
        Layout { block_tokens, basis, seed: 1 }
    }

    fn lengths(
        layout: Layout,
        input: u32,
        hashes: &[u64],
        block_tokens: Option<Vec<u32>>,
    ) -> (Vec<u32>, u32) {
        let row = RequestRow {
            prefix_hashes: Some(hashes.to_vec()),
            prefix_block_tokens: block_tokens,
            ..RequestRow::default()
        };
        let prompt = layout.prompt(5, input, &row);
        assert_eq!(prompt.tokens(), input);
        let blocks = prompt.blocks.iter().map(|block| block.tokens).collect();
        (blocks, prompt.tail.map_or(0, |tail| tail.tokens))
    }

    #[test]
    fn the_last_block_may_be_partial_and_what_no_block_covers_is_the_tail() {
        let layout = layout(Some(512), BlockBasis::Tokens);
        assert_eq!(lengths(layout, 1200, &[1, 2, 3], None), (vec![512, 512, 176], 0));
        assert_eq!(lengths(layout, 1200, &[1, 2], None), (vec![512, 512], 176));
        assert_eq!(lengths(layout, 1024, &[1, 2], None), (vec![512, 512], 0));
        assert_eq!(lengths(layout, 1200, &[], None), (vec![], 1200));
    }

    #[test]
    fn more_blocks_than_tokens_are_cut() {
        let layout = layout(Some(512), BlockBasis::Tokens);
        assert_eq!(lengths(layout, 600, &[1, 2, 3, 4], None), (vec![512, 88], 0));
        assert_eq!(lengths(layout, 512, &[1, 2], None), (vec![512], 0));
        assert_eq!(lengths(layout, 0, &[1, 2], None), (vec![], 0));
    }

    #[test]
    fn blocks_of_several_sizes_keep_theirs() {
        let layout = layout(Some(512), BlockBasis::Tokens);
        assert_eq!(lengths(layout, 100, &[1, 2, 3], Some(vec![10, 70, 5])), (vec![10, 70, 5], 15));
        assert_eq!(lengths(layout, 100, &[1, 2, 3], Some(vec![10, 70])), (vec![10, 70], 20));
        assert_eq!(lengths(layout, 100, &[1, 2, 3], Some(vec![10, 0, 5])), (vec![10], 90));
    }

    #[test]
    fn blocks_without_a_size_have_no_place() {
        assert_eq!(lengths(layout(None, BlockBasis::Tokens), 100, &[1, 2], None), (vec![], 100));
    }

    #[test]
    fn blocks_counted_in_bytes_are_estimated_the_same_in_every_prompt() {
        let layout = layout(Some(1000), BlockBasis::Bytes);
        assert_eq!(lengths(layout, 600, &[1, 2], None), (vec![250, 250], 100));
        assert_eq!(lengths(layout, 300, &[1, 2], None), (vec![250, 50], 0));
    }
}
