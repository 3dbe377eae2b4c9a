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
    /// Median of first byte written − due, over the attempts first written in the second.
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
    /// Bytes received by the kernel and not yet read.
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
