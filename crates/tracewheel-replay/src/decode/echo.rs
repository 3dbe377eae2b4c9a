//! Prompt text out of what a target says about an error.
//!
//! Some servers repeat a refused request in their answer. Synthesised prompts are made of one word list, so that a row of
//! its words can be told from what a server says by itself: its sentences soon need a shorter or a longer word.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use tracewheel_tokens::WORDS;

/// So many words of the list in a row are taken for a piece of a prompt.
const ROW: usize = 6;

/// Stands where a piece of a prompt stood.
const REDACTED: &str = "[prompt text]";

static PROMPT_WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| WORDS.iter().copied().collect());

/// `text` without the pieces of a prompt that it repeats.
pub(super) fn without_prompt(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut kept = 0;
    // The row of prompt words that ends here: its begin, its end, its length.
    let (mut begin, mut end, mut row) = (0, 0, 0);
    let mut close = |begin: usize, end: usize, row: usize| {
        if row >= ROW {
            out.push_str(&text[kept..begin]);
            out.push_str(REDACTED);
            kept = end;
        }
    };
    for (at, word) in words(text) {
        let follows = row > 0 && text[end..at].bytes().all(|byte| byte.is_ascii_whitespace());
        if !follows {
            close(begin, end, row);
            row = 0;
        }
        if PROMPT_WORDS.contains(word) {
            begin = if row == 0 { at } else { begin };
            end = at + word.len();
            row += 1;
        } else {
            close(begin, end, row);
            row = 0;
        }
    }
    close(begin, end, row);
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[kept..]);
    Cow::Owned(out)
}

/// The words of a text, each with its first byte.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
        .map(|word| (word.as_ptr().addr() - text.as_ptr().addr(), word))
}

#[cfg(test)]
mod tests {
    use tracewheel_tokens::TextMaker;

    use super::*;

    #[test]
    fn a_repeated_prompt_is_taken_out_and_what_the_server_says_stays() {
        let mut prompt = String::new();
        TextMaker::new().block(&mut prompt, 99, 40);
        let said =
            format!("{{\"error\":{{\"message\":\"Input too long: '{}'\",\"code\":400}}}}", prompt.trim());
        let expected = "{\"error\":{\"message\":\"Input too long: '[prompt text]'\",\"code\":400}}";
        assert_eq!(without_prompt(&said), expected);
        // Cut anywhere, no six words in a row are left.
        for cut in (0..said.len()).step_by(7) {
            let left = without_prompt(&said[..cut]).into_owned();
            assert_eq!(without_prompt(&left), left);
            assert!(!left.contains(&prompt.trim()[..40]), "{left}");
        }
    }

    #[test]
    fn an_ordinary_error_is_not_touched() {
        for said in [
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
            "Rate limit reached for requests. Please try again in 20s.",
            "{\"detail\":[{\"loc\":[\"body\",\"messages\"],\"msg\":\"field required\",\"type\":\"value_error\"}]}",
            "",
            "Überlastet: später noch einmal",
        ] {
            assert!(matches!(without_prompt(said), Cow::Borrowed(_)), "{said}");
        }
    }
}
