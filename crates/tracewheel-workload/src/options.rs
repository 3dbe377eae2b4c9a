//! What a person chooses about a plan.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use tracewheel_timeline::vocab::Operation;

use crate::{History, Share, Speed};

/// How a timeline becomes a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PlanOptions {
    /// The part of the timeline to plan; `None` is all of it.
    pub window: Option<Window>,
    /// How much faster than recorded the arrivals come. Think and cancel times stay as recorded.
    pub speed: Speed,
    /// Enters every unique part of a prompt.
    pub seed: u64,
    /// Plan at most this many requests, the first ones of the window.
    pub limit: Option<u64>,
    /// What becomes of rows whose token counts are unknown or zero.
    pub unknown_tokens: UnknownTokens,
    /// Send this model instead of the recorded one.
    pub model: Option<String>,
    /// Ask for a streamed answer where the log does not say; `None` means yes.
    pub stream_if_unknown: Option<bool>,
    /// Keep about this share of the traffic, in whole sessions, drawn by the seed. Arrivals stay where they are.
    pub thin: Option<Share>,
    /// Requests that are sent on schedule and enter no statistics; `None` is no warm-up.
    pub warmup: Option<Warmup>,
    /// Operations that are not planned.
    pub leave_out: Vec<Operation>,
    /// The rows' own methods, paths and bodies are what is sent: the survey then says which rows lack them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub free_form: bool,
    /// What of the rows before the plan's first one is sent ahead, to fill the target's cache; `None` is nothing.
    pub history: Option<History>,
}

/// The beginning of a plan that enters no statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warmup {
    /// How long it lasts by planned time, that is, in the replay, in nanoseconds.
    pub length_ns: i64,
    /// Taken from the rows before the window, so that nothing of the window is lost. Where the timeline begins less
    /// than that before the window, it is shorter.
    pub before_window: bool,
}

/// A half-open part of a timeline, `from_ns <= offset < to_ns`; offsets count from the first arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// First offset inside, in nanoseconds. The plan's time zero.
    pub from_ns: i64,
    /// First offset outside, in nanoseconds; `None` is the end of the timeline.
    pub to_ns: Option<i64>,
}

/// The rule for rows that have no usable input or output token count (unknown, or zero). Written `refuse`, `skip` or
/// `fill:INPUT,OUTPUT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum UnknownTokens {
    /// No plan is made; the error counts the rows, names the first ones and the remedies.
    #[default]
    Refuse,
    /// They are left out, and counted. The load is lower than recorded.
    Skip,
    /// A missing count is replaced, and the rows are counted. A count that is there stays.
    Fill {
        /// Input tokens for rows without.
        input: u32,
        /// Output tokens for rows without.
        output: u32,
    },
}

/// The text is no rule for unknown token counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no rule for unknown token counts: write refuse, skip, or fill:INPUT,OUTPUT with at least 1 each, \
     as in fill:512,128"
)]
pub struct ParseUnknownTokensError {
    text: String,
}

impl FromStr for UnknownTokens {
    type Err = ParseUnknownTokensError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fill = |counts: &str| {
            let (input, output) = counts.split_once(',')?;
            let count = |text: &str| text.trim().parse().ok().filter(|count: &u32| *count > 0);
            Some(UnknownTokens::Fill { input: count(input)?, output: count(output)? })
        };
        match text {
            "refuse" => Some(UnknownTokens::Refuse),
            "skip" => Some(UnknownTokens::Skip),
            _ => text.strip_prefix("fill:").and_then(fill),
        }
        .ok_or_else(|| ParseUnknownTokensError { text: text.chars().take(80).collect() })
    }
}

impl fmt::Display for UnknownTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownTokens::Refuse => f.write_str("refuse"),
            UnknownTokens::Skip => f.write_str("skip"),
            UnknownTokens::Fill { input, output } => write!(f, "fill:{input},{output}"),
        }
    }
}

impl TryFrom<String> for UnknownTokens {
    type Error = ParseUnknownTokensError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<UnknownTokens> for String {
    fn from(rule: UnknownTokens) -> String {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_for_unknown_tokens_are_read_and_written_the_same() {
        for text in ["refuse", "skip", "fill:512,128"] {
            assert_eq!(text.parse::<UnknownTokens>().unwrap().to_string(), text);
        }
        for text in ["", "Skip", "fill", "fill:", "fill:1", "fill:0,1", "fill:1,0", "fill:-1,1", "fill:1,2,3"]
        {
            assert!(text.parse::<UnknownTokens>().is_err(), "{text}");
        }
    }
}
