//! Text of an exact token count, keyed so that prefix sharing can be laid out block by block.

use std::str::from_utf8;

use crate::words::{WORD_BITS, WORD_COUNT, WORD_MAX_BYTES, WORDS};

/// Words of the whole list that spell a block's key out: 6 × 11 bits hold the 64. See [`TextMaker::tag_words`].
pub const TAG_WORDS: u32 = 64_u32.div_ceil(WORD_BITS);

/// The fewest words that a maker works with.
pub const LEAST_WORDS: usize = 256;

/// A word with its leading space, padded, and the length of both.
const SLOT: usize = 8;
const LENGTH_AT: usize = SLOT - 1;
/// Bytes gathered before they are checked and appended in one go.
const CHUNK: usize = 4096;

const _: () = assert!(WORD_COUNT == 1 << WORD_BITS && WORD_MAX_BYTES + 2 <= SLOT);

/// Makes text of an exact number of tokens.
///
/// Holds the word list in the shape in which words are copied fastest; make one and share it.
#[derive(Debug, Clone)]
pub struct TextMaker {
    words: Box<[&'static str]>,
    slots: Box<[[u8; SLOT]]>,
    /// Bits that one word carries.
    bits: u32,
}

impl Default for TextMaker {
    fn default() -> Self {
        Self::new()
    }
}

impl TextMaker {
    /// A maker over [`WORDS`].
    pub fn new() -> Self {
        Self::over(&WORDS).expect("the whole list is more than enough")
    }

    /// A maker over some of [`WORDS`], for a vocabulary that cuts the others in pieces: as many of `words` as the largest
    /// power of two among them, spread over the list. `None` for fewer than [`LEAST_WORDS`].
    pub(crate) fn over(words: &[&'static str]) -> Option<Self> {
        let bits = words.len().checked_ilog2().filter(|_| words.len() >= LEAST_WORDS)?;
        let taken = 1 << bits;
        let words: Box<[&'static str]> = (0..taken).map(|n| words[n * words.len() / taken]).collect();
        let slots = words.iter().map(|word| {
            let mut slot = [0; SLOT];
            slot[0] = b' ';
            slot[1..=word.len()].copy_from_slice(word.as_bytes());
            slot[LENGTH_AT] = word.len() as u8 + 1;
            slot
        });
        Some(Self { slots: slots.collect(), words, bits })
    }

    /// The words that texts are made of, sorted: a power of two.
    pub fn words(&self) -> &[&'static str] {
        &self.words
    }

    /// Words that spell a block's key out: [`TAG_WORDS`] of the whole list, up to eight of a shorter one.
    pub fn tag_words(&self) -> u32 {
        64_u32.div_ceil(self.bits)
    }

    /// Appends exactly `tokens` words, each with a leading space, to `out`.
    ///
    /// The text depends on `key` alone, and a shorter text of the same key is a prefix of a longer one. The first
    /// [`tag_words`](Self::tag_words) words spell the whole key, bijectively mixed: two keys part within them, and nearly
    /// always (of the whole list, 2047 times in 2048) at the first. A block shorter than that carries only the key's
    /// leading bits.
    pub fn block(&self, out: &mut String, key: u64, tokens: u32) {
        let mixed = mix(key);
        let (bits, tag_words) = (self.bits, self.tag_words());
        let mut filler = Filler { state: mixed };
        let mut chunk = [0; CHUNK];
        let mut used = 0;
        out.reserve(tokens as usize * 6);
        for n in 0..tokens {
            let index = if n < tag_words { tag_word(mixed, n, bits) } else { filler.next(bits) };
            let slot = &self.slots[index];
            if used + SLOT > CHUNK {
                out.push_str(ascii(&chunk[..used]));
                used = 0;
            }
            // Whole slots are copied, a fixed size; the next word overwrites the padding.
            chunk[used..used + SLOT].copy_from_slice(slot);
            used += slot[LENGTH_AT] as usize;
        }
        out.push_str(ascii(&chunk[..used]));
    }

    /// The word number `n` (from 0) of the text of `key`, without a leading space: what a generator would emit as its
    /// n-th token. Needs no state, so streams can be resumed anywhere; not a part of any [`block`](Self::block).
    pub fn word(&self, key: u64, n: u32) -> &'static str {
        self.words[(mix(key ^ mix(u64::from(n))) & mask(self.bits)) as usize]
    }
}

/// The key of a block under a nonce: a bijection of `hash` for each nonce, unrelated between nonces.
pub fn block_key(nonce: u64, hash: u64) -> u64 {
    mix(hash ^ mix(nonce ^ 0x7261_6365_7768_6565))
}

fn ascii(bytes: &[u8]) -> &str {
    from_utf8(bytes).expect("the word list is ASCII")
}

fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Word `n` of the tag, of so many bits: the key's bits from the top down, the last word those that remain.
fn tag_word(mixed: u64, n: u32, bits: u32) -> usize {
    let taken = n * bits;
    let word = if taken + bits <= 64 { mixed >> (64 - bits - taken) } else { mixed << (taken + bits - 64) };
    (word & mask(bits)) as usize
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection in which every input bit reaches every output bit.
fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A multiplicative congruential generator whose high bits choose the words: one multiplication a word.
struct Filler {
    state: u64,
}

impl Filler {
    fn next(&mut self, bits: u32) -> usize {
        self.state = self.state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.state >> (64 - bits)) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::count::{count, words};

    fn text(key: u64, tokens: u32) -> String {
        static MAKER: LazyLock<TextMaker> = LazyLock::new(TextMaker::new);
        let mut out = String::new();
        MAKER.block(&mut out, key, tokens);
        out
    }

    /// Undoes the spelling: what the tag words say about the mixed key.
    fn spelled(text: &str) -> u64 {
        let place: HashMap<&str, u64> = WORDS.iter().zip(0..).map(|(word, n)| (*word, n)).collect();
        let tag: Vec<u64> = words(text).take(TAG_WORDS as usize).map(|word| place[word]).collect();
        let head = tag[..5].iter().fold(0, |bits, word| bits << WORD_BITS | word);
        head << 9 | tag[5] >> 2
    }

    fn unmix(mixed: u64) -> u64 {
        let mut z = mixed ^ (mixed >> 31) ^ (mixed >> 62);
        z = z.wrapping_mul(0x3196_42b2_d24d_8ec3);
        z = z ^ (z >> 27) ^ (z >> 54);
        z = z.wrapping_mul(0x96de_1b17_3f11_9089);
        z = z ^ (z >> 30) ^ (z >> 60);
        z.wrapping_sub(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn the_word_list_is_distinct_sorted_short_lower_case_ascii() {
        assert!(WORDS.is_sorted_by(|a, b| a < b));
        assert!(WORDS.iter().all(|word| (2..=WORD_MAX_BYTES).contains(&word.len())));
        assert!(WORDS.iter().all(|word| word.bytes().all(|b| b.is_ascii_lowercase())));
    }

    #[test]
    fn sibling_blocks_part_within_the_tag_words() {
        let tags: HashSet<String> = (0..100_000).map(|key| text(key, TAG_WORDS)).collect();
        assert_eq!(tags.len(), 100_000, "neighbouring keys have different tags");
        let firsts: HashSet<String> = (0..2048).map(|key| text(key, 1)).collect();
        assert!(firsts.len() > 1200, "neighbouring keys usually part at the first word: {}", firsts.len());
    }

    #[test]
    fn the_text_of_a_key_never_changes() {
        // Plans and recorded runs depend on these bytes: a change here is a version change.
        assert_eq!(text(0, 8), " them anger become waste system stress fellow depart");
        assert_eq!(block_key(1, 2), 0xe239_4764_77b4_44a4);
    }

    #[test]
    fn streamed_words_depend_on_key_and_place_only() {
        let maker = TextMaker::new();
        let first: Vec<&str> = (0..64).map(|n| maker.word(3, n)).collect();
        assert_eq!(first, (0..64).map(|n| maker.word(3, n)).collect::<Vec<_>>());
        assert_ne!(first, (0..64).map(|n| maker.word(4, n)).collect::<Vec<_>>());
        assert_eq!(count(&first.join(" ")), 64);
    }

    #[test]
    fn a_shorter_list_gives_texts_of_its_own_words_that_spell_keys_as_well() {
        assert!(TextMaker::over(&WORDS[..LEAST_WORDS - 1]).is_none());
        for (given, taken, tag_words) in [(256, 256, 8), (511, 256, 8), (2047, 1024, 7), (2048, 2048, 6)] {
            let maker = TextMaker::over(&WORDS[..given]).unwrap();
            assert_eq!((maker.words().len(), maker.tag_words()), (taken, tag_words));
            assert!(maker.words().is_sorted_by(|a, b| a < b));
            let own: HashSet<&str> = maker.words().iter().copied().collect();
            let block = |key, tokens| {
                let mut out = String::new();
                maker.block(&mut out, key, tokens);
                out
            };
            let long = block(7, 5000);
            assert!(words(&long).all(|word| own.contains(word)) && own.contains(maker.word(7, 3)));
            assert_eq!(count(&long), 5000);
            let tags: HashSet<String> = (0..20_000).map(|key| block(key, tag_words)).collect();
            assert_eq!(tags.len(), 20_000, "{given} words");
        }
        assert_eq!(WORDS.len(), TextMaker::new().words().len());
    }

    #[test]
    fn no_tokens_make_no_text() {
        assert_eq!(text(5, 0), "");
    }

    proptest! {
        #[test]
        fn a_block_has_exactly_its_tokens(key: u64, tokens in 0_u32..5000) {
            prop_assert_eq!(count(&text(key, tokens)), tokens);
        }

        #[test]
        fn blocks_join_without_merging_words(a: u64, b: u64, m in 0_u32..40, n in 0_u32..40) {
            let joined = text(a, m) + &text(b, n);
            prop_assert_eq!(count(&joined), m + n);
        }

        #[test]
        fn the_tag_words_spell_the_key_bijectively(key: u64) {
            prop_assert_eq!(unmix(spelled(&text(key, TAG_WORDS))), key);
        }

        #[test]
        fn a_shorter_block_is_a_prefix_of_a_longer_one(key: u64, short in 0_u32..900, more in 0_u32..900) {
            prop_assert!(text(key, short + more).starts_with(&text(key, short)));
        }

        #[test]
        fn a_nonce_re_keys_without_collisions(nonce: u64, a: u64, b: u64) {
            prop_assert_eq!(a == b, block_key(nonce, a) == block_key(nonce, b));
            prop_assert_ne!(block_key(nonce, a), block_key(nonce ^ 1, a));
        }
    }
}
