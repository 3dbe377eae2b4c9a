//! Prompts: planned as blocks and a tail, rendered as text of exactly the planned length.
//!
//! A block's text depends on its hash alone, so two prompts that share their first k hashes share exactly the text
//! of these k blocks; and the first words of the next block spell its hash out, so they part right after it.

use tracewheel_tokens::{TextMaker, block_key};
use xxhash_rust::xxh3::Xxh3;

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

/// What the target makes of the words of a prompt, as measured: `tokens = overhead_tokens + tokens_per_word × words`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Tokens that each prompt costs before its first word: a chat template, mostly.
    pub overhead_tokens: u32,
    /// Tokens of a word, above 0: 1 where each word is a token.
    pub tokens_per_word: f64,
}

impl Default for Calibration {
    /// One word, one token, and nothing else.
    fn default() -> Self {
        Self { overhead_tokens: 0, tokens_per_word: 1.0 }
    }
}

impl Calibration {
    /// The line through two prompts, each of so many words that the target counted as so many tokens. `None` where they
    /// are none: equal lengths, a longer text with no more tokens, or more than eight tokens a word.
    pub fn through(a: (u32, u32), b: (u32, u32)) -> Option<Self> {
        let (short, long) = if a.0 <= b.0 { (a, b) } else { (b, a) };
        let words = long.0.checked_sub(short.0).filter(|words| *words > 0)?;
        let tokens_per_word = f64::from(long.1.checked_sub(short.1)?) / f64::from(words);
        if !(0.125..=8.0).contains(&tokens_per_word) {
            return None;
        }
        let overhead = f64::from(short.1) - tokens_per_word * f64::from(short.0);
        Some(Self { overhead_tokens: overhead.round().max(0.0) as u32, tokens_per_word })
    }

    /// Words for so many tokens, at least one.
    fn words(&self, tokens: u32) -> u32 {
        (f64::from(tokens) / self.tokens_per_word).round().max(1.0) as u32
    }

    /// Words of the last part of a prompt of so many tokens whose other parts are so many words: what brings the whole to
    /// its length. At least one, so that every part stands for itself.
    fn last_words(&self, prompt: u32, others: u32) -> u32 {
        let all = f64::from(prompt.saturating_sub(self.overhead_tokens)) / self.tokens_per_word;
        (all.round() as u32).saturating_sub(others).max(1)
    }
}

/// Makes the text of prompts. Costs some tens of kilobytes; make one and keep it.
#[derive(Debug, Clone)]
pub struct PromptRenderer {
    maker: TextMaker,
    calibration: Calibration,
    /// Tells the words of one vocabulary from those of another.
    words_digest: u64,
}

impl Default for PromptRenderer {
    fn default() -> Self {
        Self::over(TextMaker::default(), Calibration::default())
    }
}

impl PromptRenderer {
    /// A renderer over the common word list.
    pub fn new() -> Self {
        Self::default()
    }

    /// A renderer over the words of a vocabulary, for a target of which something is known.
    pub fn over(maker: TextMaker, calibration: Calibration) -> Self {
        let mut hasher = Xxh3::new();
        maker.words().iter().for_each(|word| hasher.update(word.as_bytes()));
        Self { maker, calibration, words_digest: hasher.digest() }
    }

    /// Writes the text of `prompt` into `out`, which is cleared first and keeps its capacity: as many words as the
    /// target should count as [`PromptSpec::tokens`], exactly as many without a calibration, each with a leading space.
    /// The last part, a tail or a block, makes up for what the prompt has too many or too few; any other block has the same
    /// words in every prompt. A shorter block is the beginning of a longer one, so that only what is cut off is not shared.
    ///
    /// `nonce` re-keys every block and the tail. Under one nonce the sharing of the trace holds; two prompts under
    /// different nonces share nothing.
    pub fn render(&self, prompt: &PromptSpec, nonce: u64, out: &mut String) {
        out.clear();
        for (key, words) in self.parts(prompt) {
            self.maker.block(out, block_key(nonce, key), words);
        }
    }

    /// The key and the words of each block, then of the tail.
    pub(crate) fn parts<'a>(
        &'a self,
        prompt: &'a PromptSpec,
    ) -> impl Iterator<Item = (u64, u32)> + Clone + 'a {
        let blocks = prompt.blocks.iter().map(|block| (block.hash, block.tokens));
        let parts = blocks.chain(prompt.tail.map(|tail| (tail.key, tail.tokens)));
        let (mut left, mut written) = (prompt.blocks.len() + usize::from(prompt.tail.is_some()), 0_u32);
        parts.map(move |(key, tokens)| {
            left -= 1;
            let words = match left {
                0 => self.calibration.last_words(prompt.tokens(), written),
                _ => self.calibration.words(tokens),
            };
            written = written.saturating_add(words);
            (key, words)
        })
    }

    pub(crate) fn maker(&self) -> &TextMaker {
        &self.maker
    }

    pub(crate) fn words_digest(&self) -> u64 {
        self.words_digest
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

    #[test]
    fn a_calibration_is_the_line_through_two_prompts() {
        // 32 words are 60 tokens, 512 words 636: 1.2 tokens a word, 21.6 before the first.
        let line = Calibration { overhead_tokens: 22, tokens_per_word: 1.2 };
        assert_eq!(Calibration::through((32, 60), (512, 636)), Some(line));
        assert_eq!(Calibration::through((512, 636), (32, 60)), Some(line));
        assert_eq!(Calibration::through((32, 32), (512, 512)), Some(Calibration::default()));
        // A target that counts fewer tokens than words for the short one has no overhead below nothing.
        assert_eq!(Calibration::through((32, 30), (512, 510)).map(|line| line.overhead_tokens), Some(0));
        for (a, b) in [((5, 9), (5, 12)), ((5, 9), (50, 9)), ((5, 9), (50, 8)), ((5, 9), (6, 90))] {
            assert_eq!(Calibration::through(a, b), None, "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_calibrated_prompt_keeps_its_blocks_and_gives_its_last_part_what_is_left() {
        let calibration = Calibration { overhead_tokens: 20, tokens_per_word: 1.25 };
        let renderer = PromptRenderer::over(TextMaker::new(), calibration);
        let words = |spec: &PromptSpec| {
            let mut out = String::new();
            renderer.render(spec, 5, &mut out);
            count(&out)
        };
        // 64 tokens are 51 words; (64 + 64 + 100 − 20) / 1.25 = 166, of which the tail gets 64.
        assert_eq!(words(&prompt(&[(1, 64), (2, 64)], Some((100, 100)))), 166);
        // Without a tail the last block gives: (64 + 64 − 20) / 1.25 = 86, of which it gets 35.
        assert_eq!(words(&prompt(&[(1, 64), (2, 64)], None)), 86);
        assert_eq!(words(&prompt(&[], Some((100, 15)))), 1, "the overhead alone is more");
        assert_eq!(words(&prompt(&[(1, 64)], Some((100, 10)))), 52, "the tail keeps a word of its own");
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
