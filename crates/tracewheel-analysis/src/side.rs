//! One side of a comparison: the requests of a run or of a timeline as plain numbers, and what is said about each side.

pub(crate) mod observed;
mod report;
mod run;
mod streams;
mod timeline;

pub use report::{
    Concurrency, Counts, JitterSummary, RetryReport, SideKind, SideReport, StallSummary, StampShare,
    StreamReport, TokenSources, Window,
};
