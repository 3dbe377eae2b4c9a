//! One row a second about the generator itself.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use tracewheel_clock::Clock;
use tracewheel_record::HealthRecord;
use tracewheel_record::rows::{LATENESS_BUCKETS, lateness_bucket};

use crate::config::SECOND_NS;
use crate::histogram::Histogram;
use crate::machine::{CpuShare, ThreadTime, Usage, difference, receive_backlog};
use crate::message::EndedAttempt;
use crate::shared::Shared;

/// Collects over a second what its row says.
pub(super) struct HealthSampler {
    released: u32,
    completed: u32,
    lateness: Histogram,
    lateness_counts: [u32; LATENESS_BUCKETS],
    loop_delay: Histogram,
    kernel_lag: Histogram,
    share: CpuShare,
    usage: Usage,
    senders: Option<ThreadTime>,
    connections_opened: u64,
    rendered_late: u64,
    sockets: Sockets,
}

/// Looks into the receive queues, but spends no more than a five-hundredth of a core's time on it: the kernel goes through
/// its whole table of connections for a look, which took 5 ms on a machine with room for many.
struct Sockets {
    targets: Vec<SocketAddr>,
    not_before_ns: i64,
}

/// How many times as long as a look took there is none.
const LOOK_PAUSE: i64 = 500;

impl Sockets {
    fn backlog(&mut self, clock: &dyn Clock) -> Option<i64> {
        let begun_ns = clock.now().0;
        if begun_ns < self.not_before_ns {
            return None;
        }
        let backlog = receive_backlog(&self.targets);
        self.not_before_ns = begun_ns + LOOK_PAUSE * (clock.now().0 - begun_ns);
        backlog
    }
}

impl HealthSampler {
    pub(super) fn new(shared: &Shared, targets: Vec<SocketAddr>) -> Self {
        let share = CpuShare::find();
        HealthSampler {
            released: 0,
            completed: 0,
            lateness: Histogram::default(),
            lateness_counts: [0; LATENESS_BUCKETS],
            loop_delay: Histogram::default(),
            kernel_lag: Histogram::default(),
            usage: Usage::read(&share),
            share,
            senders: shared.sender_time(),
            connections_opened: shared.gauges.connections_opened.load(Ordering::Relaxed),
            rendered_late: 0,
            sockets: Sockets { targets, not_before_ns: 0 },
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
            let late_ns = written.0 - ended.due_ns;
            self.lateness.record(late_ns);
            let count = &mut self.lateness_counts[lateness_bucket(late_ns)];
            *count = count.saturating_add(1);
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
        let usage = Usage::read(&self.share);
        let senders = shared.sender_time();
        let sender_spent = |of: fn(ThreadTime) -> i64| difference(senders.map(of), self.senders.map(of));
        let spent = usage.since(&self.usage);
        let gauges = &shared.gauges;
        let opened = gauges.connections_opened.load(Ordering::Relaxed);
        let rendered_late = gauges.rendered_late.load(Ordering::Relaxed);
        let socket_backlog_bytes = self.sockets.backlog(shared.clock.as_ref());
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
            socket_backlog_bytes,
            in_flight: gauge(gauges.in_flight.load(Ordering::Relaxed)),
            connections_open: gauge(gauges.connections_open.load(Ordering::Relaxed)),
            connections_opened: u32::try_from(opened - self.connections_opened).ok(),
            clock_offset_ns: Some(offset.offset_ns),
            clock_bracket_ns: Some(offset.bracket_ns),
            clock_stepped: Some(offset.stepped),
            lateness_counts: Some(self.lateness_counts),
            rendered_late: u32::try_from(rendered_late - self.rendered_late).ok(),
            send_cpu_ns: sender_spent(|time| time.cpu_ns),
            send_run_delay_ns: sender_spent(|time| time.run_delay_ns),
            machine_capacity_ns: spent.capacity_ns,
            cpu_pressure_ns: spent.share.pressure_ns,
            cpu_throttled_ns: spent.share.throttled_ns,
            cpu_throttled_periods: spent.share.throttled_periods.and_then(|n| u32::try_from(n).ok()),
        };
        (self.released, self.completed) = (0, 0);
        self.lateness.clear();
        self.lateness_counts = [0; LATENESS_BUCKETS];
        self.loop_delay.clear();
        self.kernel_lag.clear();
        (self.usage, self.senders) = (usage, senders);
        (self.connections_opened, self.rendered_late) = (opened, rendered_late);
        row
    }
}
