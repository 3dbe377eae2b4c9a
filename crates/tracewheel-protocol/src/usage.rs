//! Token counts as a server reported them, in one normal form.

use serde::Serialize;

/// What the server said about tokens. `None` is unknown, which is not the same as `Some(0)`: a server that never
/// reports cached tokens and one that found nothing in its cache are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// All input tokens, those read from or written to a cache included.
    pub input_tokens: Option<u32>,
    /// Input tokens that came from the server's cache.
    pub cached_tokens: Option<u32>,
    /// Input tokens that were written to the server's cache.
    pub cache_write_tokens: Option<u32>,
    /// All output tokens, reasoning included.
    pub output_tokens: Option<u32>,
    /// Output tokens spent on reasoning.
    pub reasoning_tokens: Option<u32>,
    /// The server counted cached tokens apart from its prompt figure, which showed because there were more of them;
    /// `input_tokens` holds the sum.
    pub input_was_exclusive: bool,
}

impl Usage {
    /// Nothing has been reported.
    pub fn is_unknown(&self) -> bool {
        *self == Usage::default()
    }

    /// Input tokens that were not read from a cache; `None` where either count is unknown.
    pub fn uncached_tokens(&self) -> Option<u32> {
        Some(self.input_tokens?.saturating_sub(self.cached_tokens?))
    }

    /// Takes over every count that `later` knows; what it does not know stays. Reports of one stream are
    /// cumulative, so the last one counts and they are never added up.
    pub(crate) fn update(&mut self, later: &Usage) {
        let take = |mine: &mut Option<u32>, theirs: Option<u32>| *mine = theirs.or(*mine);
        take(&mut self.input_tokens, later.input_tokens);
        take(&mut self.cached_tokens, later.cached_tokens);
        take(&mut self.cache_write_tokens, later.cache_write_tokens);
        take(&mut self.output_tokens, later.output_tokens);
        take(&mut self.reasoning_tokens, later.reasoning_tokens);
        self.input_was_exclusive |= later.input_was_exclusive;
    }

    /// Brings a report to the inclusive form: more cached than input tokens can only mean that the input figure
    /// leaves the cached ones out.
    pub(crate) fn normalised(mut self) -> Usage {
        if let (Some(input), Some(cached)) = (self.input_tokens, self.cached_tokens)
            && cached > input
        {
            self.input_tokens =
                Some(input.saturating_add(cached).saturating_add(self.cache_write_tokens.unwrap_or(0)));
            self.input_was_exclusive = true;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_report_replaces_what_it_knows_and_keeps_the_rest() {
        let mut usage = Usage { input_tokens: Some(10), cached_tokens: Some(0), ..Usage::default() };
        usage.update(&Usage { output_tokens: Some(3), cached_tokens: None, ..Usage::default() });
        assert_eq!(usage.cached_tokens, Some(0));
        assert_eq!(usage.output_tokens, Some(3));
        assert_eq!(usage.uncached_tokens(), Some(10));
    }

    #[test]
    fn more_cached_than_input_tokens_means_the_exclusive_form() {
        let usage = Usage {
            input_tokens: Some(40),
            cached_tokens: Some(4096),
            cache_write_tokens: Some(4),
            ..Usage::default()
        }
        .normalised();
        assert_eq!(usage.input_tokens, Some(4140));
        assert!(usage.input_was_exclusive);
        assert_eq!(usage.uncached_tokens(), Some(44));
    }

    #[test]
    fn unknown_counts_stay_unknown() {
        assert!(Usage::default().is_unknown());
        assert_eq!(Usage { input_tokens: Some(9), ..Usage::default() }.uncached_tokens(), None);
    }
}
