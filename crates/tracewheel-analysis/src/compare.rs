//! A replay against a baseline.

use tracewheel_record::Run;
use tracewheel_timeline::Timeline;

use crate::comparison::Comparison;
use crate::error::{AnalysisError, Result};
use crate::interval::DEFAULT_LEVEL;
use crate::metric::{Metric, Population};
use crate::quantile::Percentile;

/// What a replay is compared with.
#[derive(Clone, Copy)]
pub enum Baseline<'a> {
    /// What production recorded.
    Timeline(&'a Timeline),
    /// Another replay of the same timeline.
    Run(&'a Run),
}

/// How to compare.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareOptions {
    /// Level of every interval, between 0.5 and 0.999; 0.95 by default.
    pub level: f64,
    /// Relative difference that still counts as agreement; 0.1 by default.
    pub tolerance: f64,
    /// Absolute difference that still counts as agreement, in nanoseconds; 1 ms by default.
    pub floor_ns: i64,
    /// A gap longer than this is a stall, in nanoseconds; 500 ms by default.
    pub stall_ns: i64,
    /// The percentiles that the overall verdict rests on, in population `user`; p50 and p95 of TTFT and E2E by default.
    pub gates: Vec<(Metric, Percentile)>,
}

impl Default for CompareOptions {
    fn default() -> Self {
        let percentiles = [Percentile::P50, Percentile::P95];
        Self {
            level: DEFAULT_LEVEL,
            tolerance: 0.1,
            floor_ns: 1_000_000,
            stall_ns: 500_000_000,
            gates: [Metric::Ttft, Metric::E2e]
                .into_iter()
                .flat_map(|m| percentiles.map(|p| (m, p)))
                .collect(),
        }
    }
}

/// Compares a replay with a baseline. Pure: the same inputs give the same comparison.
///
/// # Errors
/// Unreadable inputs, options out of range, a run without measured requests, or no common request.
pub fn compare(replay: &Run, baseline: Baseline<'_>, options: &CompareOptions) -> Result<Comparison> {
    let _ = (replay, baseline, options);
    Err(AnalysisError::Empty { run: String::new() })
}
