//! A name with stars in it.

use serde::{Deserialize, Serialize};

/// A name to compare recorded ones with; each `*` in it stands for any text, also for none. Every other character stands
/// for itself, in its case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern of that text.
    pub fn new(text: impl Into<String>) -> Pattern {
        Pattern(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `name` is one that it stands for. Takes time in proportion to the lengths of both, multiplied.
    pub fn matches(&self, name: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else { return self.0 == name };
        let Some(mut name) = name.strip_prefix(head) else { return false };
        let mut pieces = rest.split('*');
        // What follows the last star must end the name; the others are found from left to right, each as early as it can be,
        // which leaves the most to those that follow.
        let tail = pieces.next_back().unwrap_or_default();
        for piece in pieces {
            let Some(at) = name.find(piece) else { return false };
            name = &name[at + piece.len()..];
        }
        name.ends_with(tail)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_stands_for_any_text_and_all_else_for_itself() {
        for (pattern, name, matches) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-4o", "GPT-4o", false),
            ("gpt-4o*", "gpt-4o", true),
            ("gpt-4o-*", "gpt-4o", false),
            ("*", "", true),
            ("*", "any", true),
            ("", "", true),
            ("", "a", false),
            ("*mini", "gpt-4o-mini", true),
            ("*mini", "mini-4o", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("aa*aa", "aaa", false),
            ("a.c", "abc", false),
            ("ü*x", "ünïx", true),
        ] {
            assert_eq!(Pattern::new(pattern).matches(name), matches, "{pattern} {name}");
        }
    }

    /// The definition, written down: slow and plain.
    fn by_definition(pattern: &[char], name: &[char]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some(('*', rest)) => (0..=name.len()).any(|skip| by_definition(rest, &name[skip..])),
            Some((first, rest)) => {
                name.split_first().is_some_and(|(c, more)| c == first && by_definition(rest, more))
            }
        }
    }

    proptest! {
        #[test]
        fn patterns_match_as_their_definition_says(pattern in "[abü*]{0,7}", name in "[abü]{0,9}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(
                Pattern::new(pattern.clone()).matches(&name),
                by_definition(&chars(&pattern), &chars(&name))
            );
        }
    }
}
