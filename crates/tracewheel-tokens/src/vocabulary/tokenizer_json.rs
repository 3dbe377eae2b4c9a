//! Hugging Face's `tokenizer.json`, read by the library that defines it.

use tokenizers::Tokenizer;

use super::spaced;
use crate::text::TextMaker;

/// What a `tokenizer.json` says.
pub(super) struct TokenizerJson {
    tokenizer: Tokenizer,
}

impl TokenizerJson {
    /// # Errors
    /// What the library has to say about the file.
    pub(super) fn read(file: &[u8]) -> Result<Self, String> {
        let mut tokenizer = Tokenizer::from_bytes(file).map_err(|error| error.to_string())?;
        // Files are saved with what their last user wanted: neither is a property of the vocabulary.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
        Ok(Self { tokenizer })
    }

    /// The words that are one token each within a text, in the order of the list.
    ///
    /// # Errors
    /// What the library has to say about the text.
    pub(super) fn single_words(&self) -> Result<Vec<&'static str>, String> {
        // Each stands after another: the first word of a text may be cut in a way of its own.
        let mut text = "first".to_owned();
        let start = text.len();
        let mut words: Vec<Spot> = Vec::new();
        for (word, spaced) in spaced() {
            text.push_str(&spaced);
            words.push(Spot { word, end: text.len(), tokens: 0 });
        }
        let encoding = self.tokenizer.encode(text, false).map_err(|error| error.to_string())?;
        for &(begin, end) in encoding.get_offsets() {
            // A token may be the space alone, or reach over words: it is one of each that it touches.
            let first = words.partition_point(|word| word.end <= begin);
            let touched = words[first..].iter_mut().enumerate();
            if end <= start {
                continue;
            }
            for (_, word) in touched.take_while(|(n, word)| *n == 0 || word.end < end) {
                word.tokens += 1 + u32::from(word.end < end);
            }
        }
        Ok(words.iter().filter(|word| word.tokens == 1).map(|word| word.word).collect())
    }

    /// How many tokens a text of the maker's gets, of so many words that follow as many others.
    ///
    /// # Errors
    /// What the library has to say about the text.
    pub(super) fn count_within(&self, maker: &TextMaker, words: u32) -> Result<usize, String> {
        let count = |text: &str| {
            let encoding = self.tokenizer.encode_fast(text, false).map_err(|error| error.to_string())?;
            Ok::<_, String>(encoding.len())
        };
        let mut text = String::new();
        maker.block(&mut text, 1, words);
        let before = count(&text)?;
        maker.block(&mut text, 2, words);
        Ok(count(&text)?.saturating_sub(before))
    }
}

/// A word in the text.
struct Spot {
    word: &'static str,
    /// Where it ends, in bytes.
    end: usize,
    tokens: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::WORDS;

    /// A vocabulary of byte-level pairs with these words whole, and every letter.
    fn byte_level(whole: &[&str]) -> Vec<u8> {
        let letters = ('a'..='z').map(String::from).chain(["Ġ".to_owned()]);
        let pieces = letters.chain(whole.iter().map(|word| format!("Ġ{word}")));
        let vocab: Vec<String> = pieces.zip(0..).map(|(piece, id)| format!("\"{piece}\":{id}")).collect();
        format!(
            r#"{{"version":"1.0","truncation":{{"direction":"Right","max_length":16,"strategy":"LongestFirst","stride":0}},
            "padding":null,"added_tokens":[],"normalizer":null,"post_processor":null,"decoder":null,
            "pre_tokenizer":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}},
            "model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,
            "end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":true,
            "vocab":{{{}}},"merges":[]}}}}"#,
            vocab.join(",")
        )
        .into_bytes()
    }

    /// A vocabulary of pieces with scores in which a space belongs to the piece after it, or to one that holds two words.
    fn pieces(whole: &[&str]) -> Vec<u8> {
        let letters = ('a'..='z').map(|letter| (letter.to_string(), -20.0)).chain([("▁".to_owned(), -20.0)]);
        let pieces = letters.chain(whole.iter().map(|word| (format!("▁{word}"), -5.0)));
        let vocab: Vec<String> = [("<unk>".to_owned(), 0.0)]
            .into_iter()
            .chain(pieces)
            .map(|(piece, score)| format!("[\"{piece}\",{score:.1}]"))
            .collect();
        format!(
            r#"{{"version":"1.0","truncation":null,"padding":null,"added_tokens":[],
            "normalizer":{{"type":"Replace","pattern":{{"String":" "}},"content":"▁"}},"pre_tokenizer":null,
            "post_processor":null,"decoder":null,
            "model":{{"type":"Unigram","unk_id":0,"byte_fallback":false,"vocab":[{}]}}}}"#,
            vocab.join(",")
        )
        .into_bytes()
    }

    #[test]
    fn words_count_that_are_one_token_where_they_stand_in_a_text() {
        let missing = ["able", "june", "table", "zoo"];
        let whole: Vec<&str> = WORDS.iter().copied().filter(|word| !missing.contains(word)).collect();
        for file in [byte_level(&whole), pieces(&whole)] {
            let read = TokenizerJson::read(&file).unwrap();
            assert_eq!(read.single_words().unwrap(), whole);
            let maker = TextMaker::over(&whole).unwrap();
            assert_eq!(read.count_within(&maker, 4096).unwrap(), 4096);
        }
    }

    #[test]
    fn words_that_share_a_token_are_not_single() {
        // The list has "able" and "about" next to each other: here both are one token together.
        let mut whole: Vec<&str> = WORDS.to_vec();
        whole.push("able▁about");
        let single = TokenizerJson::read(&pieces(&whole)).unwrap().single_words().unwrap();
        assert_eq!(single, WORDS[2..]);
    }

    #[test]
    fn what_the_library_cannot_read_is_told_in_its_words() {
        let told = TokenizerJson::read(b"{\"version\":\"1.0\"}").err().unwrap();
        assert!(told.contains("Model missing"), "{told}");
    }
}
