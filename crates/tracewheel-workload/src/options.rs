//! What a person chooses about a plan.

use serde::{Deserialize, Serialize};

use crate::Speed;

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

/// The rule for rows that have no usable input or output token count (unknown, or zero).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
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
