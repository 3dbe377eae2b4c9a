//! How exactly the plan was sent: a latency that a late generator measured is its own, not the target's.

use serde::{Deserialize, Serialize};

use crate::quantile::{Percentile, nearest_rank};

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
    /// Requests of the window.
    pub planned: u64,
    /// Requests of which a byte was written.
    pub sent: u64,
    /// Attempts of which a byte was written.
    pub attempts_sent: u64,
    /// Planned requests per second, from the first to the last planned send of the window; null for fewer than two.
    pub offered_per_second: Option<f64>,
    /// Sent requests per second, from the first to the last first byte of a first attempt; null for fewer than two.
    pub achieved_per_second: Option<f64>,
    /// First byte written − due, over first attempts. What the target cannot be blamed for.
    pub lateness: DurationSummary,
    /// Due − planned, over gated requests: how far waiting for previous turns moved the schedule.
    pub gate_drift: DurationSummary,
    /// Largest delay of a worker's loop in any second; null when not recorded.
    pub loop_delay_max_ns: Option<i64>,
    /// Largest lag of a user-space stamp behind the kernel's in any second; null when not recorded.
    pub kernel_lag_max_ns: Option<i64>,
    /// Seconds in which wall time stepped.
    pub clock_steps: u64,
    /// Whether the generator kept the schedule, as the replay judged it; null when it did not judge.
    pub faithful: Option<bool>,
}
