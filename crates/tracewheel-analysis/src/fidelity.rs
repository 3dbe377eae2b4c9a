//! How exactly the plan was sent: a latency that a late generator measured is its own, not the target's.
//!
//! The verdict is made from the run alone, by bounds that the run's manifest holds ([`FidelityBounds`]). Formulas and rules
//! stand in `docs/reference/metrics.md`.

mod causes;
mod gaps;
mod judge;

use serde::{Deserialize, Serialize};
pub use tracewheel_record::manifest::FidelityBounds;

use crate::quantile::{Percentile, nearest_rank};

pub use causes::{Cause, CauseKind};
pub(crate) use causes::{Departure, HealthFigures, Scene, Unsent, find as find_causes};
pub use gaps::{GapReport, MIN_GAPS, gap_distance};
pub(crate) use judge::{Evidence, judge};
pub use judge::{FidelityCriteria, FidelityVerdict, Judged};

/// Nearest-rank percentiles of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DurationSummary {
    /// Number of values; without any, the figures are null.
    pub n: u64,
    /// Median.
    pub p50_ns: Option<i64>,
    /// 90th percentile.
    pub p90_ns: Option<i64>,
    /// 95th percentile.
    pub p95_ns: Option<i64>,
    /// 99th percentile.
    pub p99_ns: Option<i64>,
    /// Maximum.
    pub max_ns: Option<i64>,
}

impl DurationSummary {
    /// Of durations in any order.
    pub fn of(mut values: Vec<i64>) -> Self {
        values.sort_unstable();
        Self {
            n: values.len() as u64,
            p50_ns: nearest_rank(&values, Percentile::P50),
            p90_ns: nearest_rank(&values, Percentile::P90),
            p95_ns: nearest_rank(&values, Percentile::P95),
            p99_ns: nearest_rank(&values, Percentile::P99),
            max_ns: values.last().copied(),
        }
    }
}

/// How exactly the plan was sent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Fidelity {
    /// Whether the schedule was kept; null where there is none to keep (closed loop) or nothing was planned.
    pub verdict: Option<FidelityVerdict>,
    /// Why, in one sentence without figures.
    pub reason: String,
    /// What the verdict rests on: it is the worst of these.
    pub criteria: FidelityCriteria,
    /// What held requests up or kept them from leaving, the most frequent first; empty for a faithful run.
    pub causes: Vec<Cause>,
    /// The bounds that the criteria are made from.
    pub bounds: FidelityBounds,
    /// Requests of the window.
    pub planned: u64,
    /// Requests of which a byte was written.
    pub sent: u64,
    /// Requests that never left for a reason of the generator's, those among them that found no local resource.
    pub unsent: u64,
    /// First attempts later than the bound of a faithful run.
    pub late: u64,
    /// Attempts of which a byte was written.
    pub attempts_sent: u64,
    /// Planned requests per second, from the first to the last planned send of the window; null for fewer than two.
    pub offered_per_second: Option<f64>,
    /// Sent requests per second, from the first to the last first byte of a first attempt; null for fewer than two.
    pub achieved_per_second: Option<f64>,
    /// First byte written − due, over first attempts. What the target cannot be blamed for.
    pub lateness: DurationSummary,
    /// The same over later attempts; in no criterion, since their due times follow from answers.
    pub retry_lateness: DurationSummary,
    /// Last byte written − first byte written, over first attempts: how long the kernel took to accept a request.
    pub write_time: DurationSummary,
    /// The gaps between departures, planned and written.
    pub gaps: GapReport,
    /// Due − planned, over gated requests: how far waiting for previous turns moved the schedule.
    pub gate_drift: DurationSummary,
    /// Largest delay of a worker's loop in any second; null when not recorded.
    pub loop_delay_max_ns: Option<i64>,
    /// Largest lag of a user-space stamp behind the kernel's in any second; null when not recorded.
    pub kernel_lag_max_ns: Option<i64>,
    /// Seconds in which wall time stepped.
    pub clock_steps: u64,
    /// How far a kernel stamp may be off on the run clock: half of the widest bracket around the clock's offset, rounded
    /// up; null when not recorded.
    pub stamp_uncertainty_ns: Option<i64>,
}

impl Fidelity {
    /// Whether the run's latencies are partly the generator's own.
    pub fn is_unfaithful(&self) -> bool {
        self.verdict == Some(FidelityVerdict::Unfaithful)
    }
}
