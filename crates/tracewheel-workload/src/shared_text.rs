//! Text of blocks that prompts have in common, made once.

use std::collections::HashMap;

use bytes::Bytes;
use tracewheel_tokens::block_key;
use xxhash_rust::xxh3::xxh3_128;

use crate::{PromptRenderer, PromptSpec};

/// Blocks are kept in runs of at least so many words, about 9 kB: blocks may be as short as 16 tokens, and what refers to
/// each of them alone would be longer than they are.
const RUN_WORDS: u32 = 1_536;

/// The text of a prompt: the shared pieces, one after the other, then the rest.
#[derive(Clone, Debug, Default)]
pub struct PromptText {
    /// Runs of blocks from the prompt's start, which other prompts with the same beginning refer to as well.
    pub shared: Vec<Bytes>,
    /// What follows them.
    pub rest: String,
    /// Bytes of those runs that were made for this prompt, because they were not kept.
    pub made_bytes: usize,
}

impl PromptText {
    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.shared.iter().map(Bytes::len).sum::<usize>() + self.rest.len()
    }

    /// Whether it has no text.
    pub fn is_empty(&self) -> bool {
        self.shared.is_empty() && self.rest.is_empty()
    }
}

/// Keeps the text of blocks, the recently used, within a bound.
///
/// Two generations of half the bound each: what is found in the older one moves to the younger, and when that is full the
/// older one goes. Text that a body still refers to lives on with the body. One may serve renderers of different words.
#[derive(Debug)]
pub struct SharedText {
    half_bytes: usize,
    young: HashMap<u128, Bytes>,
    young_bytes: usize,
    old: HashMap<u128, Bytes>,
    /// The run that is looked for, and the text of one that is being made.
    run: Vec<u8>,
    text: String,
}

impl SharedText {
    /// Keeps so many bytes of text, and at most one run more.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            half_bytes: max_bytes / 2,
            young: HashMap::new(),
            young_bytes: 0,
            old: HashMap::new(),
            run: Vec::new(),
            text: String::new(),
        }
    }

    /// Bytes of text that are kept.
    pub fn bytes(&self) -> usize {
        self.young_bytes + self.old.values().map(Bytes::len).sum::<usize>()
    }

    fn find(&mut self, key: u128) -> Option<Bytes> {
        if let Some(text) = self.young.get(&key) {
            return Some(text.clone());
        }
        let text = self.old.remove(&key)?;
        self.keep(key, text.clone());
        Some(text)
    }

    fn keep(&mut self, key: u128, text: Bytes) {
        if self.young_bytes + text.len() > self.half_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += text.len();
        self.young.insert(key, text);
    }
}

impl PromptRenderer {
    /// Makes the same text as [`render`](Self::render) with the same prompt and nonce, in pieces: whole runs of blocks are
    /// taken from `kept`, or made and put there. `out` is emptied first. Without `kept` all of it is [`PromptText::rest`].
    pub fn render_pieces(
        &self,
        prompt: &PromptSpec,
        nonce: u64,
        kept: Option<&mut SharedText>,
        out: &mut PromptText,
    ) {
        out.shared.clear();
        out.rest.clear();
        out.made_bytes = 0;
        let parts = self.parts(prompt);
        // The last part makes up for what the prompt has too many or too few.
        let whole = prompt.blocks.len() - usize::from(prompt.tail.is_none() && !prompt.blocks.is_empty());
        let mut shared = 0;
        if let Some(kept) = kept {
            shared = self.render_runs(parts.clone().take(whole), nonce, kept, out);
        }
        for (key, words) in parts.skip(shared) {
            self.maker().block(&mut out.rest, block_key(nonce, key), words);
        }
    }

    /// The runs of these blocks; how many blocks that is.
    fn render_runs(
        &self,
        blocks: impl Iterator<Item = (u64, u32)> + Clone,
        nonce: u64,
        kept: &mut SharedText,
        out: &mut PromptText,
    ) -> usize {
        let (mut begin, mut words_of_run) = (0, 0_u32);
        kept.run.clear();
        for (at, (key, words)) in blocks.clone().enumerate() {
            kept.run.extend_from_slice(&key.to_le_bytes());
            kept.run.extend_from_slice(&words.to_le_bytes());
            words_of_run = words_of_run.saturating_add(words);
            if words_of_run < RUN_WORDS {
                continue;
            }
            kept.run.extend_from_slice(&nonce.to_le_bytes());
            kept.run.extend_from_slice(&self.words_digest().to_le_bytes());
            let run = xxh3_128(&kept.run);
            let text = kept.find(run).unwrap_or_else(|| {
                kept.text.clear();
                for (key, words) in blocks.clone().skip(begin).take(at + 1 - begin) {
                    self.maker().block(&mut kept.text, block_key(nonce, key), words);
                }
                let text = Bytes::copy_from_slice(kept.text.as_bytes());
                out.made_bytes += text.len();
                kept.keep(run, text.clone());
                text
            });
            out.shared.push(text);
            (begin, words_of_run) = (at + 1, 0);
            kept.run.clear();
        }
        begin
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tracewheel_tokens::TextMaker;

    use super::*;
    use crate::{BlockSpec, Calibration, TailSpec};

    fn prompt(blocks: &[(u64, u32)], tail: Option<(u64, u32)>) -> PromptSpec {
        PromptSpec {
            blocks: blocks.iter().map(|&(hash, tokens)| BlockSpec { hash, tokens }).collect(),
            tail: tail.map(|(key, tokens)| TailSpec { key, tokens }),
        }
    }

    fn pieces(spec: &PromptSpec, kept: &mut SharedText) -> PromptText {
        let mut out = PromptText::default();
        PromptRenderer::new().render_pieces(spec, 5, Some(kept), &mut out);
        out
    }

    #[test]
    fn prompts_with_the_same_beginning_refer_to_the_same_text() {
        let mut kept = SharedText::new(1 << 20);
        let of = |hashes: &[u64], tail| {
            prompt(&hashes.iter().map(|hash| (*hash, 512)).collect::<Vec<_>>(), Some((tail, 9)))
        };
        let a = pieces(&of(&[1, 2, 3, 4, 5, 6, 7], 100), &mut kept);
        let b = pieces(&of(&[1, 2, 3, 4, 5, 8, 9], 101), &mut kept);
        // Runs of three blocks: the first is the same, the second parts in its last block; the seventh block is no run.
        assert_eq!((a.shared.len(), b.shared.len()), (2, 2));
        assert_eq!(a.shared[0].as_ptr(), b.shared[0].as_ptr());
        assert_ne!(a.shared[1], b.shared[1]);
        assert_eq!(a.made_bytes, a.len() - a.rest.len());
        assert_eq!(b.made_bytes, b.shared[1].len());
        assert_eq!(kept.bytes(), a.made_bytes + b.made_bytes);
        let again = pieces(&of(&[1, 2, 3, 4, 5, 6], 102), &mut kept);
        assert_eq!((again.made_bytes, again.shared), (0, a.shared));
    }

    #[test]
    fn another_nonce_or_length_is_another_text() {
        let mut kept = SharedText::new(1 << 20);
        let spec = prompt(&[(1, 2_000)], Some((7, 5)));
        let mut texts = Vec::new();
        for (nonce, tokens) in [(5, 2_000), (6, 2_000), (5, 1_999)] {
            let spec = prompt(&[(1, tokens)], spec.tail.map(|tail| (tail.key, tail.tokens)));
            let mut out = PromptText::default();
            PromptRenderer::new().render_pieces(&spec, nonce, Some(&mut kept), &mut out);
            assert!(out.made_bytes > 0);
            texts.push(out.shared[0].clone());
        }
        assert!(texts[0] != texts[1] && texts[0] != texts[2] && texts[0].starts_with(&texts[2]));
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_used_stays() {
        let max_bytes = 1 << 20;
        let mut kept = SharedText::new(max_bytes);
        let hot = prompt(&[(1, 2_000)], Some((7, 5)));
        let first = pieces(&hot, &mut kept);
        for hash in 2..2_000 {
            pieces(&prompt(&[(hash, 2_000)], Some((7, 5))), &mut kept);
            assert!(kept.bytes() <= max_bytes, "{} bytes", kept.bytes());
            if hash % 20 == 0 {
                assert_eq!(pieces(&hot, &mut kept).made_bytes, 0, "used a moment ago");
            }
        }
        assert_eq!(pieces(&hot, &mut kept).shared, first.shared);
        assert!(pieces(&prompt(&[(2, 2_000)], Some((7, 5))), &mut kept).made_bytes > 0, "long unused");
        let mut none = SharedText::new(0);
        assert!(pieces(&hot, &mut none).made_bytes > 0);
    }

    proptest! {
        #[test]
        fn the_pieces_are_the_text_whatever_was_kept_before(
            prompts in prop::collection::vec(
                (
                    prop::collection::vec((1..12_u64, prop_oneof![1..40_u32, 500..520_u32, 1..4_000_u32]), 0..9),
                    prop::option::of((any::<u64>(), 1..700_u32)),
                    0..3_u64,
                ),
                1..6,
            ),
            (overhead_tokens, tokens_per_word) in prop_oneof![
                Just((0, 1.0)),
                (0..200_u32, 0.125..8.0_f64),
            ],
            max_bytes in prop_oneof![Just(0), 0..60_000_usize, Just(1 << 24)],
            keeps in any::<bool>(),
        ) {
            let calibration = Calibration { overhead_tokens, tokens_per_word };
            let renderer = PromptRenderer::over(TextMaker::new(), calibration);
            let mut kept = SharedText::new(max_bytes);
            let (mut whole, mut text) = (String::new(), PromptText::default());
            for (blocks, tail, nonce) in prompts {
                let spec = prompt(&blocks, tail);
                renderer.render(&spec, nonce, &mut whole);
                renderer.render_pieces(&spec, nonce, keeps.then_some(&mut kept), &mut text);
                let joined = [text.shared.concat(), text.rest.clone().into_bytes()].concat();
                prop_assert_eq!(text.len(), joined.len());
                prop_assert_eq!(joined, whole.as_bytes());
                prop_assert!(kept.bytes() <= max_bytes + 4_000 * 8 * 8);
            }
        }
    }
}
