//! Prefix sharing: what an infinite cache would have known.

use super::PrefixStats;
use super::hash::U64Set;
use crate::meta::BlockBasis;
use crate::row::RequestRow;

#[derive(Debug)]
pub(super) struct Prefixes {
    block_tokens: Option<u32>,
    block_basis: Option<BlockBasis>,
    seen: U64Set,
    requests: u64,
    blocks: u64,
    hit_blocks: u64,
    hit_tokens: u64,
    prompt_tokens: u64,
    /// Whether every block so far had a length in tokens.
    lengths_known: bool,
}

impl Prefixes {
    pub(super) fn new(block_tokens: Option<u32>, block_basis: Option<BlockBasis>) -> Self {
        Self {
            block_tokens,
            block_basis,
            seen: U64Set::default(),
            requests: 0,
            blocks: 0,
            hit_blocks: 0,
            hit_tokens: 0,
            prompt_tokens: 0,
            lengths_known: block_basis != Some(BlockBasis::Bytes),
        }
    }

    pub(super) fn push(&mut self, row: &RequestRow) {
        let Some(hashes) = row.prefix_hashes.as_deref() else { return };
        self.requests += 1;
        self.blocks += hashes.len() as u64;
        let hits = hashes.iter().take_while(|hash| self.seen.contains(hash)).count();
        self.hit_blocks += hits as u64;
        self.seen.extend(&hashes[hits..]);
        let Some((hit_tokens, block_tokens)) = self.tokens(row, hashes.len(), hits) else {
            self.lengths_known = false;
            return;
        };
        self.hit_tokens += hit_tokens;
        self.prompt_tokens += row.input_tokens.map_or(block_tokens, u64::from);
    }

    /// Tokens of the first `hits` blocks and of all blocks; `None` where a length is unknown.
    fn tokens(&self, row: &RequestRow, blocks: usize, hits: usize) -> Option<(u64, u64)> {
        if let Some(lengths) = row.prefix_block_tokens.as_deref() {
            let sum =
                |count: usize| lengths.get(..count).map(|part| part.iter().copied().map(u64::from).sum());
            return Some((sum(hits)?, sum(blocks)?));
        }
        let block = u64::from(self.block_tokens?);
        // Only the last block may be partial: then it ends where the prompt ends.
        let prompt = row.input_tokens.map_or(u64::MAX, u64::from);
        let end = |count: usize| (count as u64 * block).min(prompt);
        Some((end(hits), end(blocks)))
    }

    pub(super) fn finish(self) -> Option<PrefixStats> {
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        (self.requests > 0).then(|| PrefixStats {
            block_tokens: self.block_tokens,
            block_basis: self.block_basis,
            requests: self.requests,
            blocks: self.blocks,
            distinct_blocks: self.seen.len() as u64,
            hit_blocks: self.hit_blocks,
            block_hit_ratio: ratio(self.hit_blocks, self.blocks),
            token_hit_ratio: ratio(self.hit_tokens, self.prompt_tokens).filter(|_| self.lengths_known),
            definition: PrefixStats::DEFINITION,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(input_tokens: u32, hashes: &[u64]) -> RequestRow {
        RequestRow {
            input_tokens: Some(input_tokens),
            prefix_hashes: Some(hashes.to_vec()),
            ..RequestRow::default()
        }
    }

    fn stats(block_tokens: Option<u32>, rows: &[RequestRow]) -> PrefixStats {
        let mut prefixes = Prefixes::new(block_tokens, Some(BlockBasis::Tokens));
        rows.iter().for_each(|row| prefixes.push(row));
        prefixes.finish().unwrap()
    }

    #[test]
    fn hit_tokens_count_a_partial_last_block_by_its_remainder() {
        let stats = stats(Some(10), &[row(25, &[1, 2, 3]), row(25, &[1, 2, 3]), row(30, &[1, 2, 4])]);
        assert_eq!((stats.blocks, stats.distinct_blocks, stats.hit_blocks), (9, 4, 5));
        assert_eq!(stats.block_hit_ratio, Some(5.0 / 9.0));
        assert_eq!(stats.token_hit_ratio, Some((25.0 + 20.0) / 80.0));
    }

    #[test]
    fn a_hit_needs_every_block_before_it() {
        let stats = stats(Some(10), &[row(20, &[1, 2]), row(20, &[9, 2])]);
        assert_eq!((stats.hit_blocks, stats.distinct_blocks), (0, 3));
    }

    #[test]
    fn lengths_in_the_row_go_before_the_common_length() {
        let varied = RequestRow { prefix_block_tokens: Some(vec![7, 3]), ..row(12, &[1, 2]) };
        let found = stats(None, &[varied.clone(), varied]);
        assert_eq!(found.token_hit_ratio, Some(10.0 / 24.0));
        assert_eq!(stats(None, &[row(12, &[1])]).token_hit_ratio, None);
    }

    #[test]
    fn blocks_cut_by_bytes_have_no_token_ratio() {
        let mut prefixes = Prefixes::new(Some(10), Some(BlockBasis::Bytes));
        prefixes.push(&row(20, &[1, 2]));
        assert_eq!(prefixes.finish().unwrap().token_hit_ratio, None);
        assert_eq!(Prefixes::new(None, None).finish(), None);
    }
}
