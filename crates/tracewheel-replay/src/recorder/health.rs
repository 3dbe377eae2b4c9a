//! One row a second about the generator itself.

use std::sync::atomic::Ordering;

use tracewheel_record::HealthRecord;

use crate::config::SECOND_NS;
use crate::histogram::Histogram;
use crate::machine::Usage;
use crate::message::EndedAttempt;
use crate::shared::Shared;

/// Collects over a second what its row says.
pub(super) struct HealthSampler {
    released: u32,
    completed: u32,
    lateness: Histogram,
    loop_delay: Histogram,
    kernel_lag: Histogram,
    usage: Usage,
    connections_opened: u64,
}

impl HealthSampler {
    pub(super) fn new(shared: &Shared) -> Self {
        HealthSampler {
            released: 0,
            completed: 0,
            lateness: Histogram::default(),
            loop_delay: Histogram::default(),
            kernel_lag: Histogram::default(),
            usage: Usage::read(),
            connections_opened: shared.gauges.connections_opened.load(Ordering::Relaxed),
        }
    }

    pub(super) fn released(&mut self) {
        self.released += 1;
    }

    pub(super) fn completed(&mut self) {
        self.completed += 1;
    }

    pub(super) fn attempt(&mut self, ended: &EndedAttempt) {
        self.loop_delay.record(ended.released_ns - ended.due_ns);
        let Some(outcome) = &ended.outcome else { return };
        if let Some(written) = outcome.writes.first_ns {
            self.lateness.record(written.0 - ended.due_ns);
        }
        for read in &outcome.reads {
            if let Some(kernel) = read.kernel_ns {
                self.kernel_lag.record(read.user_ns.since(kernel));
            }
        }
    }

    /// The row of the time from the last one to `at_ns`. Samples the clock's offset, once a second.
    pub(super) fn row(&mut self, shared: &Shared, at_ns: i64) -> HealthRecord {
        let offset = shared.clock.sample_offset();
        let usage = Usage::read();
        let spent = usage.since(&self.usage);
        let gauges = &shared.gauges;
        let opened = gauges.connections_opened.load(Ordering::Relaxed);
        let gauge = |value: i64| u32::try_from(value.max(0)).ok();
        let row = HealthRecord {
            second: u32::try_from(at_ns / SECOND_NS).unwrap_or(u32::MAX),
            at_ns,
            released: Some(self.released),
            completed: Some(self.completed),
            lateness_p50_ns: self.lateness.quantile(0.5),
            lateness_p99_ns: self.lateness.quantile(0.99),
            lateness_max_ns: self.lateness.max(),
            loop_delay_p99_ns: self.loop_delay.quantile(0.99),
            loop_delay_max_ns: self.loop_delay.max(),
            kernel_lag_p50_ns: self.kernel_lag.quantile(0.5),
            kernel_lag_p99_ns: self.kernel_lag.quantile(0.99),
            kernel_lag_max_ns: self.kernel_lag.max(),
            cpu_ns: spent.process_ns,
            machine_busy_ns: spent.busy_ns,
            steal_ns: spent.steal_ns,
            rss_bytes: usage.rss_bytes,
            prefetch_queue: gauge(gauges.rendered.load(Ordering::Relaxed)),
            wheel_queue: gauge(gauges.wheel_entries.load(Ordering::Relaxed)),
            recorder_queue: gauge(gauges.recorder_messages.load(Ordering::Relaxed)),
            socket_backlog_bytes: None,
            in_flight: gauge(gauges.in_flight.load(Ordering::Relaxed)),
            connections_open: gauge(gauges.connections_open.load(Ordering::Relaxed)),
            connections_opened: u32::try_from(opened - self.connections_opened).ok(),
            clock_offset_ns: Some(offset.offset_ns),
            clock_bracket_ns: Some(offset.bracket_ns),
            clock_stepped: Some(offset.stepped),
        };
        (self.released, self.completed) = (0, 0);
        self.lateness.clear();
        self.loop_delay.clear();
        self.kernel_lag.clear();
        (self.usage, self.connections_opened) = (usage, opened);
        row
    }
}
