//! What is known of a plan before its first request is read.

use serde::{Deserialize, Serialize};

use crate::{HistorySurvey, PlanOptions, Thinned};

/// Counts and identities of a plan, gathered by one cheap pass over the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanHeader {
    /// Requests in the plan.
    pub requests: u64,
    /// Those of them that warm up: they are sent on schedule and enter no statistics.
    pub requests_warmup: u64,
    /// From time zero to the last planned send, in nanoseconds.
    pub span_ns: i64,
    /// From time zero to the end of the warm-up, by planned time in nanoseconds; 0 without one.
    pub warmup_ns: i64,
    /// Digest of the timeline's logical content, as its metadata has it.
    pub timeline_digest: String,
    /// Tokens in a block of a prefix hash, where the timeline has one size for all.
    pub block_tokens: Option<u32>,
    /// The options that made the plan, the seed among them.
    pub options: PlanOptions,
    /// Recorded arrival that is time zero: the first arrival plus the window's start (less a warm-up that goes before
    /// it), in Unix nanoseconds (from 0 in a timeline without an epoch).
    pub origin_unix_ns: i64,
    /// Whether recorded arrivals count from 1970 UTC, rather than from the trace's own start.
    pub has_epoch: bool,
    /// Rows of the timeline.
    pub rows: u64,
    /// Rows before the window (and before a warm-up that goes ahead of it).
    pub rows_before_window: u64,
    /// Rows after the window; 0 where the limit was reached before its end.
    pub rows_after_window: u64,
    /// Rows inside the window that are logged retries of an earlier row: never planned, since the replay makes its own.
    pub rows_retries: u64,
    /// Rows inside the window left out because a token count is unknown or zero.
    pub rows_unknown_tokens: u64,
    /// Rows behind the last planned one where the limit was reached, whatever they are: they are not looked at.
    pub rows_beyond_limit: u64,
    /// Rows inside the window whose operation is left out.
    pub rows_left_out: u64,
    /// What thinning did; `None` where nothing was to be thinned.
    pub thinned: Option<Thinned>,
    /// Planned requests with a token count that was filled in.
    pub requests_filled: u64,
    /// What is sent ahead of the plan to bring back the cache that its window began with; `None` where nothing was to be.
    pub history: Option<HistorySurvey>,
    /// Sums over the prompts.
    pub prompts: PromptStats,
}

impl PlanHeader {
    /// Requests of the phase `measure`.
    pub fn requests_measured(&self) -> u64 {
        self.requests - self.requests_warmup
    }

    /// From the end of the warm-up to the last planned send, in nanoseconds.
    pub fn measured_span_ns(&self) -> i64 {
        (self.span_ns - self.warmup_ns).max(0)
    }
}

/// Sums over the prompts of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptStats {
    /// Input tokens of all requests.
    pub input_tokens: u64,
    /// Output tokens of all requests.
    pub output_tokens: u64,
    /// The largest input of one request.
    pub max_input_tokens: u32,
    /// The largest output of one request.
    pub max_output_tokens: u32,
}

impl PromptStats {
    pub(crate) fn take(&mut self, input_tokens: u32, output_tokens: u32) {
        self.input_tokens += u64::from(input_tokens);
        self.output_tokens += u64::from(output_tokens);
        self.max_input_tokens = self.max_input_tokens.max(input_tokens);
        self.max_output_tokens = self.max_output_tokens.max(output_tokens);
    }
}
