//! The blocks of many prompts as a forest, with the row that used each one last.

use std::collections::{BTreeMap, HashMap};

use crate::BlockSpec;

/// Distinct blocks, each with its parent and its last use.
///
/// Hashes are chained: a block stands for all before it, so its parent is always the same. A prompt uses a block's
/// parent whenever it uses the block. Therefore what was used last, parents before children, is closed under parents:
/// cutting the order of use anywhere leaves whole prefixes.
#[derive(Debug)]
pub(super) struct Forest {
    nodes: HashMap<u64, Node>,
    max_blocks: usize,
    forgot: bool,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Hash of the block before it; means nothing at depth 0.
    parent: u64,
    /// Blocks before it.
    depth: u32,
    tokens: u32,
    /// The row that used it last.
    row: u64,
    marked: bool,
}

impl Forest {
    /// An empty one that keeps the `max_blocks` used last at least, and twice as many at most.
    pub(super) fn new(max_blocks: usize) -> Self {
        Forest { nodes: HashMap::new(), max_blocks: max_blocks.max(1), forgot: false }
    }

    /// Puts in the prompt of `row`, which is not before any row put in so far.
    pub(super) fn visit(&mut self, row: u64, blocks: &[BlockSpec]) {
        let mut parent = 0;
        for (depth, block) in blocks.iter().enumerate() {
            let node = Node { parent, depth: depth as u32, tokens: block.tokens, row, marked: false };
            self.nodes
                .entry(block.hash)
                .and_modify(|known| {
                    known.row = row;
                    known.tokens = known.tokens.max(block.tokens);
                })
                .or_insert(node);
            parent = block.hash;
        }
        if self.nodes.len() > self.max_blocks.saturating_mul(2) {
            self.forgot = true;
            self.keep_last(u64::MAX, self.max_blocks);
        }
    }

    /// Keeps the blocks used last, as many as hold `max_tokens` together and no more than `max_blocks`: what a cache of
    /// that size that forgets what was used longest ago holds.
    pub(super) fn keep_last(&mut self, max_tokens: u64, max_blocks: usize) {
        self.forgot |= self.nodes.len() > max_blocks;
        let mut order: Vec<(u64, u32, u64, u32)> =
            self.nodes.iter().map(|(hash, node)| (!node.row, node.depth, *hash, node.tokens)).collect();
        order.sort_unstable();
        let mut tokens = 0_u64;
        let kept = order.iter().take(max_blocks).take_while(|(.., of_block)| {
            tokens = tokens.saturating_add(u64::from(*of_block));
            tokens <= max_tokens
        });
        let kept = kept.count();
        for (_, _, hash, _) in &order[kept..] {
            self.nodes.remove(hash);
        }
    }

    /// Marks the blocks that a prompt finds here: those before the first one that is not here.
    pub(super) fn mark(&mut self, blocks: &[BlockSpec]) {
        for block in blocks {
            match self.nodes.get_mut(&block.hash) {
                Some(node) => node.marked = true,
                None => break,
            }
        }
    }

    /// Keeps what is marked.
    pub(super) fn keep_marked(&mut self) {
        self.nodes.retain(|_, node| node.marked);
    }

    /// Whether blocks had to go because there were too many.
    pub(super) fn forgot(&self) -> bool {
        self.forgot
    }

    /// Distinct blocks, and the tokens in them.
    pub(super) fn size(&self) -> (u64, u64) {
        let tokens = self.nodes.values().map(|node| u64::from(node.tokens)).sum();
        (self.nodes.len() as u64, tokens)
    }

    /// For each row that used a leaf last: how many of its blocks lead there, the leaf among them.
    pub(super) fn leaves(&self) -> BTreeMap<u64, u32> {
        let parents: std::collections::HashSet<u64> =
            self.nodes.values().filter(|node| node.depth > 0).map(|node| node.parent).collect();
        let mut leaves = BTreeMap::new();
        for (_, node) in self.nodes.iter().filter(|(hash, _)| !parents.contains(hash)) {
            let blocks = leaves.entry(node.row).or_insert(0);
            *blocks = node.depth.saturating_add(1).max(*blocks);
        }
        leaves
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn blocks(hashes: &[u64]) -> Vec<BlockSpec> {
        hashes.iter().map(|&hash| BlockSpec { hash, tokens: 10 }).collect()
    }

    fn forest(prompts: &[&[u64]]) -> Forest {
        let mut forest = Forest::new(1_000);
        for (row, prompt) in prompts.iter().enumerate() {
            forest.visit(row as u64, &blocks(prompt));
        }
        forest
    }

    #[test]
    fn a_prompt_that_begins_another_needs_no_request_of_its_own() {
        let forest = forest(&[&[1, 2, 3], &[1, 2], &[1, 4], &[9]]);
        assert_eq!(forest.leaves(), BTreeMap::from([(0, 3), (2, 2), (3, 1)]));
        assert_eq!(forest.size(), (5, 50));
    }

    #[test]
    fn a_cache_of_a_size_holds_what_was_used_last_in_whole_prefixes() {
        let mut forest = forest(&[&[1, 2, 3], &[1, 4, 5], &[1, 2]]);
        // The order of use, last first: 1, 2 (row 2), 4, 5 (row 1), 3 (row 0).
        forest.keep_last(39, usize::MAX);
        assert_eq!(forest.size(), (3, 30));
        assert_eq!(forest.leaves(), BTreeMap::from([(1, 2), (2, 2)]));
        forest.keep_last(u64::MAX, 1);
        assert_eq!(forest.leaves(), BTreeMap::from([(2, 1)]));
        assert!(forest.forgot());
    }

    #[test]
    fn only_what_the_window_finds_is_kept_where_that_is_asked_for() {
        let mut forest = forest(&[&[1, 2, 3], &[1, 4], &[7, 8]]);
        forest.mark(&blocks(&[1, 2, 6, 3]));
        forest.mark(&blocks(&[5, 7]));
        forest.keep_marked();
        assert_eq!(forest.leaves(), BTreeMap::from([(0, 2)]), "nothing is found behind an unknown block");
    }

    /// A prompt whose hashes are chained: each is made of the choice and the one before.
    fn chained(choices: &[u64]) -> Vec<u64> {
        let mut parent = 0_u64;
        choices
            .iter()
            .map(|choice| {
                parent = parent.wrapping_mul(11).wrapping_add(choice + 1);
                parent
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_leaves_bring_back_exactly_what_an_lru_cache_of_that_size_holds(
            choices in prop::collection::vec(prop::collection::vec(0..3_u64, 1..6), 1..40),
            max_tokens in 0..600_u64,
        ) {
            let prompts: Vec<Vec<u64>> = choices.iter().map(|choices| chained(choices)).collect();
            let mut forest = Forest::new(1_000);
            // By itself: a list, the block used last in front, the beginning of a prompt before its end.
            let mut list: Vec<u64> = Vec::new();
            for (row, prompt) in prompts.iter().enumerate() {
                forest.visit(row as u64, &blocks(prompt));
                for hash in prompt.iter().rev() {
                    list.retain(|known| known != hash);
                    list.insert(0, *hash);
                }
            }
            list.truncate((max_tokens / 10) as usize);
            forest.keep_last(max_tokens, usize::MAX);
            let sent: BTreeSet<u64> = forest
                .leaves()
                .iter()
                .flat_map(|(row, blocks)| prompts[*row as usize][..*blocks as usize].to_vec())
                .collect();
            prop_assert_eq!(sent, list.into_iter().collect::<BTreeSet<_>>());
            prop_assert!(forest.leaves().len() <= prompts.len());
        }
    }
}
