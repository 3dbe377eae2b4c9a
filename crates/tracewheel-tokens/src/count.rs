//! The counting rule.

/// Number of tokens of `text`: its words, separated by ASCII whitespace.
///
/// Saturates at `u32::MAX`.
pub fn count(text: &str) -> u32 {
    let bytes = text.as_bytes();
    let Some(first) = bytes.first() else { return 0 };
    let starts_inside = usize::from(!first.is_ascii_whitespace());
    // A word begins wherever a non-space follows a space; written as a sum over pairs so that it vectorises.
    let begins: usize = bytes
        .iter()
        .zip(&bytes[1..])
        .map(|(before, here)| usize::from(before.is_ascii_whitespace() & !here.is_ascii_whitespace()))
        .sum();
    u32::try_from(starts_inside + begins).unwrap_or(u32::MAX)
}

/// The tokens of `text` in order, by the same rule as [`count`].
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn empty_and_blank_texts_have_no_tokens() {
        assert_eq!(count(""), 0);
        assert_eq!(count(" \t\r\n "), 0);
    }

    #[test]
    fn runs_of_whitespace_separate_once() {
        assert_eq!(count("one"), 1);
        assert_eq!(count("  one\n\ntwo\tthree "), 3);
    }

    #[test]
    fn only_ascii_whitespace_separates() {
        assert_eq!(count("one\u{a0}word here"), 2);
        assert_eq!(count("caf\u{e9} au lait"), 3);
    }

    proptest! {
        #[test]
        fn count_equals_the_number_of_words(text in "[a-c \t\n\u{e9}\u{a0}\u{2003}]{0,64}") {
            prop_assert_eq!(count(&text) as usize, words(&text).count());
        }
    }
}
