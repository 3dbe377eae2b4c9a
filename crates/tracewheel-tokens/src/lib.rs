//! Counting tokens and making text of a given count.
//!
//! One token is one whitespace-separated word: that is the rule by which the mock endpoint counts, and by which
//! synthesised prompts are sized. Texts are made of [`WORDS`], so that a real tokenizer comes close to the same count;
//! with the file of that tokenizer ([`Vocabulary`]) they are made of those words that are one token in it, and the count
//! is exact.
//!
//! A prompt is a row of *blocks*. Each block is a pure function of a 64-bit key and a length: the same key gives the
//! same text wherever it stands, which is what keeps prefix sharing; different keys part within the first
//! [`TAG_WORDS`] words, because those words spell the key out. A nonce re-keys every block ([`block_key`]), so that one
//! run shares nothing with another while the sharing inside the run stays as it was.
//!
//! ```
//! use tracewheel_tokens::{TextMaker, block_key, count};
//!
//! let maker = TextMaker::new();
//! let mut prompt = String::new();
//! maker.block(&mut prompt, block_key(7, 0xfeed), 512);
//! maker.block(&mut prompt, block_key(7, 0xbeef), 88);
//! assert_eq!(count(&prompt), 600);
//! ```

mod count;
mod text;
mod vocabulary;
mod words;

pub use count::{count, words};
pub use text::{LEAST_WORDS, TAG_WORDS, TextMaker, block_key};
pub use vocabulary::{Kind, Vocabulary, VocabularyError};
pub use words::{WORD_BITS, WORD_COUNT, WORD_MAX_BYTES, WORDS};
