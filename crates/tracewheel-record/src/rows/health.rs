//! One row a second: how the generator itself is doing; and what was scraped from the target.

use std::sync::Arc;

/// The generator's own state over one second. A figure over "the second" covers the time since the row before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HealthRecord {
    /// Number of the second since the run's start, from 0.
    pub second: u32,
    /// When the row was taken.
    pub at_ns: i64,
    /// Attempts released in the second.
    pub released: Option<u32>,
    /// Requests ended in the second, however they ended.
    pub completed: Option<u32>,
    /// Median of first byte written − due, over the attempts that ended in the second.
    pub lateness_p50_ns: Option<i64>,
    /// Its 99th percentile (nearest rank).
    pub lateness_p99_ns: Option<i64>,
    /// Its maximum.
    pub lateness_max_ns: Option<i64>,
    /// 99th percentile of how late the workers' loops woke against their timers.
    pub loop_delay_p99_ns: Option<i64>,
    /// Its maximum.
    pub loop_delay_max_ns: Option<i64>,
    /// Median of user stamp − kernel stamp of the reads.
    pub kernel_lag_p50_ns: Option<i64>,
    /// Its 99th percentile.
    pub kernel_lag_p99_ns: Option<i64>,
    /// Its maximum.
    pub kernel_lag_max_ns: Option<i64>,
    /// CPU time of the generator's process in the second (may exceed one second).
    pub cpu_ns: Option<i64>,
    /// Busy time of the whole machine in the second, summed over cores.
    pub machine_busy_ns: Option<i64>,
    /// Time stolen by the hypervisor in the second, summed over cores.
    pub steal_ns: Option<i64>,
    /// Resident memory of the generator's process.
    pub rss_bytes: Option<i64>,
    /// Requests rendered ahead and waiting in the prefetch queue.
    pub prefetch_queue: Option<u32>,
    /// Entries in the workers' wheels.
    pub wheel_queue: Option<u32>,
    /// Messages waiting for the recorder.
    pub recorder_queue: Option<u32>,
    /// Bytes received by the kernel and not yet read, over this machine's connections to the target's address.
    pub socket_backlog_bytes: Option<i64>,
    /// Requests in flight.
    pub in_flight: Option<u32>,
    /// Connections open.
    pub connections_open: Option<u32>,
    /// Connections opened in the second.
    pub connections_opened: Option<u32>,
    /// Wall time − run clock.
    pub clock_offset_ns: Option<i64>,
    /// Width of the bracket around the offset sample: its uncertainty.
    pub clock_bracket_ns: Option<i64>,
    /// Whether wall time stepped since the row before: kernel stamps across a step are void.
    pub clock_stepped: Option<bool>,
    /// Histogram of first byte written − due, over the attempts that ended in the second: [`LATENESS_BUCKETS`] counts.
    /// Count 0 is of what lies below 1,024 ns, count `i` of what lies from 2^(9+i) ns up to 2^(10+i) ns, the last one of all
    /// from 2^32 ns (4.3 s) on.
    pub lateness_counts: Option<[u32; LATENESS_BUCKETS]>,
    /// Requests that were rendered only after they were due, while none waited that had been rendered before.
    pub rendered_late: Option<u32>,
    /// CPU time of the sending threads in the second, summed.
    pub send_cpu_ns: Option<i64>,
    /// Time in the second for which the sending threads could have run and waited for a CPU (the run queue), summed.
    pub send_run_delay_ns: Option<i64>,
    /// Time that all cores of the machine had in the second: busy, idle, waiting for disks and stolen.
    pub machine_capacity_ns: Option<i64>,
    /// Time in the second for which some task waited for a CPU: pressure (PSI) of the process's own cgroup (v2), else of
    /// the machine.
    pub cpu_pressure_ns: Option<i64>,
    /// Time in the second for which the process's own cgroup (v2) was held back because its CPU quota was used up.
    pub cpu_throttled_ns: Option<i64>,
    /// Periods in which that happened.
    pub cpu_throttled_periods: Option<u32>,
}

/// Counts of a lateness histogram.
pub const LATENESS_BUCKETS: usize = 24;

/// The count of [`HealthRecord::lateness_counts`] that a lateness falls into.
pub const fn lateness_bucket(late_ns: i64) -> usize {
    if late_ns < 1 << 10 {
        return 0;
    }
    let bucket = late_ns.ilog2() as usize - 9;
    if bucket < LATENESS_BUCKETS { bucket } else { LATENESS_BUCKETS - 1 }
}

/// One sample of one metric scraped from the target.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerRecord {
    /// When the scrape was answered.
    pub at_ns: i64,
    /// Which scraped address (without secrets).
    pub source: Option<Arc<str>>,
    /// The metric's name.
    pub name: Arc<str>,
    /// Its labels as `name="value"` text, as scraped.
    pub labels: Option<Arc<str>>,
    /// Its value.
    pub value: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_of_the_histogram_covers_a_doubling() {
        for (late_ns, bucket) in [
            (i64::MIN, 0),
            (-5, 0),
            (1_023, 0),
            (1_024, 1),
            (2_047, 1),
            (2_048, 2),
            (1_000_000, 10),
            ((1 << 32) - 1, 22),
            (1 << 32, 23),
            (i64::MAX, 23),
        ] {
            assert_eq!(lateness_bucket(late_ns), bucket, "{late_ns}");
        }
    }
}
