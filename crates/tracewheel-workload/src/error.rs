//! Why no plan can be made.

use tracewheel_timeline::TimelineError;

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
        "{count} of {rows} rows have an unknown or zero token count (first rows: {}); \
         leave them out with the rule `--unknown-tokens skip`, or give them counts with `--unknown-tokens fill:INPUT,OUTPUT`",
        list(.first_rows)
    )]
    UnknownTokens {
        /// How many rows of the window.
        count: u64,
        /// How many rows the window has, retries left out.
        rows: u64,
        /// The first few of them.
        first_rows: Vec<u64>,
    },
    /// A fill value of zero fills nothing.
    #[error("the fill value for {which} tokens is 0: give at least 1")]
    ZeroFill {
        /// `input` or `output`.
        which: &'static str,
    },
    /// The window begins at or after its end.
    #[error("the window is empty: it goes from {from_ns} ns to {to_ns} ns")]
    EmptyWindow {
        /// Its start.
        from_ns: i64,
        /// Its end.
        to_ns: i64,
    },
    /// No row is left to plan.
    #[error(
        "nothing to plan: none of the {rows} rows of the timeline is left by the window and the other options"
    )]
    NothingToPlan {
        /// Rows of the timeline.
        rows: u64,
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

fn list(rows: &[u64]) -> String {
    rows.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
