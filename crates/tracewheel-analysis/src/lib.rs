//! Pure functions from timelines and runs to metrics, intervals and comparisons.
//!
//! [`compare()`] sets a replay against a baseline (a timeline that production recorded, or another run), [`summarise`] and
//! [`inspect_run`] say what a single run measured. Every metric has one definition ([`metric`], at length in
//! `docs/reference/metrics.md`), every quantile one method ([`quantile`]), every interval one construction ([`interval`]),
//! every ratio and verdict one rule ([`ratio`]). Nothing here prints, reads a clock or draws a random number.

mod alignment;
pub mod cache;
pub mod compare;
pub mod comparison;
pub mod environment;
pub mod error;
pub mod fidelity;
pub mod interval;
mod latencies;
pub mod metric;
mod pooled;
pub mod quantile;
pub mod ratio;
mod side;
pub mod summary;
mod warnings;

/// What a timeline holds, as the crate of timelines counts it: what `inspect` shows, for those who render it.
pub mod timeline {
    pub use tracewheel_timeline::stats::{LatencyStats, ProductionStats, TimelineStats, TokenStats};
}

pub use compare::{Baseline, CompareOptions, compare};
pub use comparison::Comparison;
pub use error::{AnalysisError, Result};
pub use summary::{ReplaySummary, RunInspection, SummaryOptions, inspect_run, summarise};
