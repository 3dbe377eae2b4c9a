//! The vocabulary of a target, read from a file: which words are one token in it.
//!
//! A made-up text has exactly as many tokens as words where every word, with the space before it, is a token of its own.
//! So no prompt is ever cut into tokens while a plan is rendered: the words are chosen once, when the file is read.

mod tiktoken;
#[cfg(feature = "tokenizer-json")]
mod tokenizer_json;

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::text::{LEAST_WORDS, TextMaker};
use crate::words::{WORD_COUNT, WORDS};

/// Largest file that is read: ten times the usual ones.
const MAX_BYTES: u64 = 256 << 20;

/// Why a vocabulary cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VocabularyError {
    /// It cannot be read.
    #[error("cannot read the tokenizer {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is none of the known kinds, or damaged.
    #[error("{} is no tokenizer that is known here: {problem}; give a tokenizer.json or a .tiktoken file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line where there are lines.
        problem: String,
    },
    /// This build does not read `tokenizer.json`.
    #[error(
        "{} is a tokenizer.json, and this program was built without what reads these; build it with \
         --features tokenizer-json, or give a .tiktoken file",
        path.display()
    )]
    NotBuilt {
        /// The file.
        path: PathBuf,
    },
    /// Too few of the words are one token each.
    #[error(
        "only {single} of the {WORD_COUNT} words that prompts are made of are one token each in {}, {LEAST_WORDS} are \
         needed: prompts of exact lengths cannot be made for it; leave the tokenizer out, then one word counts as one token",
        path.display()
    )]
    TooFew {
        /// The file.
        path: PathBuf,
        /// Words that are one token each.
        single: usize,
    },
    /// A text of these words does not have as many tokens as words.
    #[error(
        "{} cuts a text of {words} words into {tokens} tokens, although each word by itself is one: prompts of exact \
         lengths cannot be made for it; leave the tokenizer out, then one word counts as one token",
        path.display()
    )]
    NotAdditive {
        /// The file.
        path: PathBuf,
        /// Words of the text.
        words: u32,
        /// Tokens of it.
        tokens: usize,
    },
}

/// The words of the list that are one token each in a vocabulary.
#[derive(Clone)]
pub struct Vocabulary {
    kind: Kind,
    digest: String,
    single: usize,
    maker: TextMaker,
}

/// What kind of file a vocabulary was read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Byte pairs with their ranks, as tiktoken keeps them.
    Tiktoken,
    /// A Hugging Face `tokenizer.json`.
    TokenizerJson,
}

impl Kind {
    /// As it stands in a run's manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Tiktoken => "tiktoken",
            Kind::TokenizerJson => "tokenizer.json",
        }
    }
}

impl Vocabulary {
    /// Reads a vocabulary: a `tokenizer.json` (a file that begins with a brace), else a `.tiktoken` file.
    ///
    /// # Errors
    /// [`VocabularyError`], each with the remedy.
    pub fn open(path: &Path) -> Result<Self, VocabularyError> {
        let bytes = read(path).map_err(|source| VocabularyError::Read { path: path.to_owned(), source })?;
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{') {
            return Self::of_tokenizer_json(path, &bytes);
        }
        let single = tiktoken::single_words(&bytes).map_err(|problem| malformed(path, problem))?;
        Self::of_words(path, Kind::Tiktoken, &bytes, &single)
    }

    #[cfg(feature = "tokenizer-json")]
    fn of_tokenizer_json(path: &Path, bytes: &[u8]) -> Result<Self, VocabularyError> {
        const WORDS: u32 = 4096;
        let understood = |problem| malformed(path, problem);
        let read = tokenizer_json::TokenizerJson::read(bytes).map_err(understood)?;
        let single = read.single_words().map_err(understood)?;
        let vocabulary = Self::of_words(path, Kind::TokenizerJson, bytes, &single)?;
        match read.count_within(&vocabulary.maker, WORDS).map_err(understood)? {
            tokens if tokens == WORDS as usize => Ok(vocabulary),
            tokens => Err(VocabularyError::NotAdditive { path: path.to_owned(), words: WORDS, tokens }),
        }
    }

    #[cfg(not(feature = "tokenizer-json"))]
    fn of_tokenizer_json(path: &Path, _: &[u8]) -> Result<Self, VocabularyError> {
        Err(VocabularyError::NotBuilt { path: path.to_owned() })
    }

    fn of_words(
        path: &Path,
        kind: Kind,
        bytes: &[u8],
        single: &[&'static str],
    ) -> Result<Self, VocabularyError> {
        let few = || VocabularyError::TooFew { path: path.to_owned(), single: single.len() };
        let maker = TextMaker::over(single).ok_or_else(few)?;
        let digest = format!("blake3:{}", blake3::hash(bytes).to_hex());
        Ok(Self { kind, digest, single: single.len(), maker })
    }

    /// The kind of file.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Digest of the file: `blake3:` and 64 hex digits.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// How many words of the whole list are one token each; texts are made of the largest power of two of these.
    pub fn single_words(&self) -> usize {
        self.single
    }

    /// Makes texts that have as many tokens in this vocabulary as they have words.
    pub fn maker(&self) -> &TextMaker {
        &self.maker
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary")
            .field("kind", &self.kind)
            .field("single", &self.single)
            .finish_non_exhaustive()
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let length = File::open(path)?.metadata()?.len();
    if length > MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has {length} bytes, {MAX_BYTES} are read at most"),
        ));
    }
    fs::read(path)
}

fn malformed(path: &Path, problem: String) -> VocabularyError {
    VocabularyError::Malformed { path: path.to_owned(), problem }
}

/// The words with the space before each, as they stand in a text.
fn spaced() -> impl Iterator<Item = (&'static str, String)> {
    WORDS.iter().map(|word| (*word, format!(" {word}")))
}

#[cfg(test)]
mod tests {
    use base64::Engine;

    use super::*;

    fn vocabulary(pieces: impl Iterator<Item = String>) -> Result<Vocabulary, VocabularyError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let encode = |piece| base64::engine::general_purpose::STANDARD.encode(piece);
        let lines: String =
            pieces.zip(0..).map(|(piece, rank)| format!("{} {rank}\n", encode(piece))).collect();
        fs::write(file.path(), lines).unwrap();
        Vocabulary::open(file.path())
    }

    #[test]
    fn texts_are_made_of_the_words_that_are_one_token() {
        let most = spaced().map(|(_, spaced)| spaced).filter(|spaced| !spaced.ends_with('e'));
        let most: Vec<String> = most.collect();
        let vocabulary = vocabulary(most.iter().cloned()).unwrap();
        assert_eq!((vocabulary.kind(), vocabulary.single_words()), (Kind::Tiktoken, most.len()));
        assert_eq!(vocabulary.maker().words().len(), 1024);
        assert!(vocabulary.maker().words().iter().all(|word| !word.ends_with('e')));
    }

    #[test]
    fn a_vocabulary_with_too_few_of_the_words_and_files_of_other_kinds_are_refused_with_the_remedy() {
        let told = |error: VocabularyError| error.to_string();
        let few = told(vocabulary(spaced().map(|(_, spaced)| spaced).take(LEAST_WORDS - 1)).unwrap_err());
        assert!(
            few.contains("only 255 of the 2048 words") && few.contains("leave the tokenizer out"),
            "{few}"
        );
        assert!(vocabulary(spaced().map(|(_, spaced)| spaced).take(LEAST_WORDS)).is_ok());
        let file = tempfile::NamedTempFile::new().unwrap();
        for (content, expected) in [("GGUF\u{3}", "line 1 is not a base64"), ("", "holds no line"), ("{", "")]
        {
            fs::write(file.path(), content).unwrap();
            let error = told(Vocabulary::open(file.path()).unwrap_err());
            assert!(error.contains(expected) && error.contains(".tiktoken file"), "{error}");
        }
        let missing = told(Vocabulary::open(Path::new("nowhere.tiktoken")).unwrap_err());
        assert!(missing.contains("cannot read the tokenizer nowhere.tiktoken"), "{missing}");
    }
}
