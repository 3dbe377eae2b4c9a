//! Why no plan can be made.

use std::fmt;

use tracewheel_timeline::TimelineError;

use crate::human::duration;

/// Why no plan can be made of a timeline, or a plan cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// The file is a baseline: it has no arrivals to replay.
    #[error(
        "the file is a baseline, not a timeline: its rows have no arrivals to replay (use it with `compare`)"
    )]
    Baseline,
    /// Rows without usable token counts, under [`UnknownTokens::Refuse`](crate::UnknownTokens::Refuse).
    #[error(
        "{count} of {rows} rows to plan have an unknown or zero token count, and no count is guessed (first: {}); \
         leave them out with `--unknown-tokens skip`, or give them counts with `--unknown-tokens fill:INPUT,OUTPUT`",
        list(.first_rows)
    )]
    UnknownTokens {
        /// How many of the rows that would be planned.
        count: u64,
        /// How many rows would be planned.
        rows: u64,
        /// The first few of them.
        first_rows: Vec<RowPlace>,
    },
    /// A fill value of zero fills nothing.
    #[error("the fill value for {which} tokens is 0: give at least 1")]
    ZeroFill {
        /// `input` or `output`.
        which: &'static str,
    },
    /// The window begins at or after its end.
    #[error(
        "the window is empty: it goes from {} to {}, counted from the first request (`--from` must lie before `--to`)",
        duration(*.from_ns), duration(*.to_ns)
    )]
    EmptyWindow {
        /// Its start.
        from_ns: i64,
        /// Its end.
        to_ns: i64,
    },
    /// A warm-up ahead of the window, and the window begins with the timeline.
    #[error(
        "no row lies before the window for a warm-up: it begins with the timeline; let it begin later (`--from`), or take \
         the warm-up from the window's own beginning"
    )]
    NothingBeforeWindow,
    /// A history is to be sent ahead, and the plan begins with the timeline.
    #[error(
        "no row lies before the plan to prime the cache from: it begins with the timeline; let it begin later (`--from`), or \
         leave the history out"
    )]
    NoHistory,
    /// All that is planned is warm-up.
    #[error(
        "nothing would be measured: the warm-up of {} takes all {requests} requests, which end {} after its start; make it \
         shorter, or the window longer",
        duration(*.warmup_ns), duration(*.span_ns)
    )]
    OnlyWarmup {
        /// The warm-up's length by planned time.
        warmup_ns: i64,
        /// Requests planned.
        requests: u64,
        /// Planned time of the last of them.
        span_ns: i64,
    },
    /// The window lies beyond the timeline's last row.
    #[error(
        "the window begins {} after the first request, and the timeline ends {} after it",
        duration(*.from_ns), duration(*.span_ns)
    )]
    BeyondTimeline {
        /// The window's start.
        from_ns: i64,
        /// From the first arrival to the last.
        span_ns: i64,
    },
    /// No row is left to plan.
    #[error("nothing to plan: {what}")]
    NothingToPlan {
        /// What became of the rows.
        what: String,
    },
    /// An offset divided by the speed does not fit into 63 bits of nanoseconds.
    #[error("the arrival of row {row} is beyond 292 years after the start at this speed")]
    BeyondTime {
        /// The row.
        row: u64,
    },
    /// The timeline could not be read.
    #[error("the timeline cannot be read")]
    Timeline(#[from] TimelineError),
}

/// A row, and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPlace {
    /// Position in the timeline.
    pub row: u64,
    /// The log that it was read from, and its byte offset there; `None` where the timeline does not say.
    pub source: Option<(String, u64)>,
}

impl fmt::Display for RowPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some((file, offset)) => write!(f, "row {} from {file} at byte {offset}", self.row),
            None => write!(f, "row {}", self.row),
        }
    }
}

fn list(rows: &[RowPlace]) -> String {
    rows.iter().map(RowPlace::to_string).collect::<Vec<_>>().join(", ")
}
