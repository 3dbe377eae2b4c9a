//! Rows for tests, made from numbers: any shape that the types allow, extremes included.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracewheel_timeline::vocab::{
    AttemptStatus, EventKind, Operation, Phase, Protocol, Reason, RequestStatus, Source,
};

use super::Entry;
use crate::rows::{
    AttemptRecord, EventRow, HealthRecord, ReadStampRow, ReleaseRecord, RequestRecord, ServerRecord, Strata,
};

/// A small generator of its own, so that a row is a function of one number.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn bool(&mut self) -> bool {
        self.below(2) == 0
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.below(3) == 0 { None } else { Some(make(self)) }
    }

    fn u64(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::MAX,
            1 => 0,
            2 => self.next(),
            _ => self.below(1_000_000),
        }
    }

    fn i64(&mut self) -> i64 {
        match self.below(10) {
            0 => i64::MAX,
            1 => i64::MIN,
            2 => self.next() as i64,
            3 => -(self.below(1_000_000) as i64),
            _ => self.below(100_000_000_000) as i64,
        }
    }

    fn u32(&mut self) -> u32 {
        self.u64() as u32
    }

    fn u16(&mut self) -> u16 {
        self.u64() as u16
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn text(&mut self) -> Arc<str> {
        let all = ["", "a", "gpt-small", "ünïcode 🦀", "line\nbreak", "quote\"\\", "NULL"];
        match self.below(10) {
            0 => format!("name-{}", self.next()).into(),
            _ => self.of(&all).into(),
        }
    }

    fn tags(&mut self) -> BTreeMap<Arc<str>, Arc<str>> {
        let count = self.below(3);
        (0..count).map(|_| (self.text(), self.text())).collect()
    }

    fn strata(&mut self) -> Strata {
        Strata {
            operation: self.maybe(|dice| dice.of(Operation::ALL)),
            method: self.maybe(Self::text),
            path: self.maybe(Self::text),
            endpoint: self.maybe(Self::text),
            model: self.maybe(Self::text),
            model_served: self.maybe(Self::text),
            provider: self.maybe(Self::text),
            route: self.maybe(Self::text),
            stream: self.maybe(Self::bool),
            session_hash: self.maybe(Self::u64),
            turn: self.maybe(Self::u32),
            tenant_hash: self.maybe(Self::u64),
            user_hash: self.maybe(Self::u64),
            tags: self.maybe(Self::tags),
        }
    }

    pub(super) fn request(&mut self) -> RequestRecord {
        RequestRecord {
            row: self.u64(),
            copy: self.u32(),
            phase: self.of(&[Phase::Warmup, Phase::Measure, Phase::Drain]),
            planned_ns: self.i64(),
            due_ns: self.i64(),
            gated: self.bool(),
            trace_unix_ns: self.maybe(Self::i64),
            status: self.of(RequestStatus::ALL),
            reason: self.maybe(|dice| dice.of(Reason::ALL)),
            attempts: self.u16(),
            final_attempt: self.u16(),
            budget_wait_ns: self.i64(),
            backoff_ns: self.i64(),
            asked_input_tokens: self.maybe(Self::u32),
            predicted_cached_tokens: self.maybe(Self::u32),
            cached_tokens: self.maybe(Self::u32),
            cached_tokens_source: self.maybe(|dice| dice.of(Source::ALL)),
            input_tokens: self.maybe(Self::u32),
            input_tokens_source: self.maybe(|dice| dice.of(Source::ALL)),
            output_tokens: self.maybe(Self::u32),
            output_tokens_source: self.maybe(|dice| dice.of(Source::ALL)),
            first_output_ns: self.maybe(Self::i64),
            first_visible_ns: self.maybe(Self::i64),
            last_output_ns: self.maybe(Self::i64),
            end_ns: self.maybe(Self::i64),
            sent_route: self.maybe(Self::text),
            strata: self.strata(),
        }
    }

    fn read(&mut self) -> ReadStampRow {
        ReadStampRow { user_ns: self.i64(), kernel_ns: self.maybe(Self::i64), bytes: self.u32() }
    }

    fn event(&mut self) -> EventRow {
        EventRow {
            read: self.u32(),
            kind: self.of(EventKind::ALL),
            tokens: self.maybe(Self::u16),
            bytes: self.u32(),
            choice: self.u64() as u8,
        }
    }

    pub(super) fn attempt(&mut self) -> AttemptRecord {
        let (reads, events) = (self.below(5), self.below(7));
        AttemptRecord {
            row: self.u64(),
            copy: self.u32(),
            attempt: self.u16(),
            due_ns: self.i64(),
            released_ns: self.maybe(Self::i64),
            connect_start_ns: self.maybe(Self::i64),
            connected_ns: self.maybe(Self::i64),
            tls_ns: self.maybe(Self::i64),
            first_write_ns: self.maybe(Self::i64),
            last_write_ns: self.maybe(Self::i64),
            headers_ns: self.maybe(Self::i64),
            first_byte_ns: self.maybe(Self::i64),
            end_ns: self.maybe(Self::i64),
            connection: self.maybe(Self::u32),
            connection_reused: self.maybe(Self::bool),
            protocol: self.maybe(|dice| dice.of(Protocol::ALL)),
            status: self.of(AttemptStatus::ALL),
            reason: self.maybe(|dice| dice.of(Reason::ALL)),
            http_status: self.maybe(Self::u16),
            retry_after_ns: self.maybe(Self::i64),
            reads: (0..reads).map(|_| self.read()).collect(),
            events: (0..events).map(|_| self.event()).collect(),
            usage_input_tokens: self.maybe(Self::u32),
            usage_cached_tokens: self.maybe(Self::u32),
            usage_cache_write_tokens: self.maybe(Self::u32),
            usage_output_tokens: self.maybe(Self::u32),
            usage_reasoning_tokens: self.maybe(Self::u32),
            server_ms: self.maybe(Self::i64),
            request_id: self.maybe(Self::text),
            system_fingerprint: self.maybe(Self::text),
            rate_limit_requests_limit: self.maybe(Self::i64),
            rate_limit_requests_remaining: self.maybe(Self::i64),
            rate_limit_requests_reset_ns: self.maybe(Self::i64),
            rate_limit_tokens_limit: self.maybe(Self::i64),
            rate_limit_tokens_remaining: self.maybe(Self::i64),
            rate_limit_tokens_reset_ns: self.maybe(Self::i64),
            error_body: self.maybe(Self::text),
        }
    }

    pub(super) fn health(&mut self) -> HealthRecord {
        HealthRecord {
            second: self.u32(),
            at_ns: self.i64(),
            released: self.maybe(Self::u32),
            completed: self.maybe(Self::u32),
            lateness_p50_ns: self.maybe(Self::i64),
            lateness_p99_ns: self.maybe(Self::i64),
            lateness_max_ns: self.maybe(Self::i64),
            loop_delay_p99_ns: self.maybe(Self::i64),
            loop_delay_max_ns: self.maybe(Self::i64),
            kernel_lag_p50_ns: self.maybe(Self::i64),
            kernel_lag_p99_ns: self.maybe(Self::i64),
            kernel_lag_max_ns: self.maybe(Self::i64),
            cpu_ns: self.maybe(Self::i64),
            machine_busy_ns: self.maybe(Self::i64),
            steal_ns: self.maybe(Self::i64),
            rss_bytes: self.maybe(Self::i64),
            prefetch_queue: self.maybe(Self::u32),
            wheel_queue: self.maybe(Self::u32),
            recorder_queue: self.maybe(Self::u32),
            socket_backlog_bytes: self.maybe(Self::i64),
            in_flight: self.maybe(Self::u32),
            connections_open: self.maybe(Self::u32),
            connections_opened: self.maybe(Self::u32),
            clock_offset_ns: self.maybe(Self::i64),
            clock_bracket_ns: self.maybe(Self::i64),
            clock_stepped: self.maybe(Self::bool),
            lateness_counts: self.maybe(|dice| std::array::from_fn(|_| dice.u32())),
            rendered_late: self.maybe(Self::u32),
            send_cpu_ns: self.maybe(Self::i64),
            send_run_delay_ns: self.maybe(Self::i64),
            machine_capacity_ns: self.maybe(Self::i64),
            cpu_pressure_ns: self.maybe(Self::i64),
            cpu_throttled_ns: self.maybe(Self::i64),
            cpu_throttled_periods: self.maybe(Self::u32),
        }
    }

    pub(super) fn server(&mut self) -> ServerRecord {
        ServerRecord {
            at_ns: self.i64(),
            source: self.maybe(Self::text),
            name: self.text(),
            labels: self.maybe(Self::text),
            value: self.i64() as f64 / 7.0,
        }
    }

    pub(super) fn entry(&mut self) -> Entry {
        match self.below(12) {
            0..4 => Entry::Attempt(self.attempt()),
            4..8 => Entry::Request(self.request()),
            8 => Entry::Health(self.health()),
            9 => Entry::Server(self.server()),
            _ => Entry::Flush,
        }
    }
}

/// A well-behaved run: request `n` is released at `n` milliseconds, makes one or two attempts and ends well.
pub(super) fn orderly(requests: u64) -> Vec<Entry> {
    let mut entries = Vec::new();
    for row in 0..requests {
        let due_ns = row as i64 * 1_000_000;
        let attempts = 1 + (row % 3 == 2) as u16;
        for attempt in 1..=attempts {
            entries.push(Entry::Release(release(row, attempt)));
            entries.push(Entry::Attempt(answered(row, attempt, attempt == attempts)));
        }
        entries.push(Entry::Request(RequestRecord {
            row,
            planned_ns: due_ns,
            due_ns,
            status: RequestStatus::Ok,
            attempts,
            final_attempt: attempts,
            end_ns: Some(due_ns + 9_000_000),
            ..RequestRecord::default()
        }));
        if row % 5 == 4 {
            entries.push(Entry::Health(HealthRecord { second: row as u32, ..HealthRecord::default() }));
            entries.push(Entry::Flush);
        }
    }
    entries
}

pub(super) fn release(row: u64, attempt: u16) -> ReleaseRecord {
    let due_ns = row as i64 * 1_000_000;
    ReleaseRecord {
        row,
        attempt,
        planned_ns: due_ns,
        due_ns,
        released_ns: due_ns + 5_000,
        ..ReleaseRecord::default()
    }
}

fn answered(row: u64, attempt: u16, ok: bool) -> AttemptRecord {
    let due_ns = row as i64 * 1_000_000;
    let status = if ok { AttemptStatus::Ok } else { AttemptStatus::Failed };
    let reads = (0..4).map(|read| ReadStampRow { user_ns: due_ns + read * 1000, kernel_ns: None, bytes: 90 });
    let event = |read| EventRow { read, kind: EventKind::Text, tokens: Some(1), bytes: 4, choice: 0 };
    AttemptRecord {
        row,
        attempt,
        due_ns,
        status,
        reason: (!ok).then_some(Reason::RateLimited),
        http_status: Some(if ok { 200 } else { 429 }),
        reads: reads.collect(),
        events: (0..4).map(event).collect(),
        ..AttemptRecord::default()
    }
}
