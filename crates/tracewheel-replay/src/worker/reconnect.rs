//! Making connections, and making them again: bounded, backed off, never at the cost of a due send.
//!
//! * A request that is due always tries: what becomes of it is the target's answer, not a guess from the one before.
//! * Ahead of its due time it tries only while connecting works. After a failure, early tries wait for a back-off, from
//!   50 ms doubling to 1 s.
//! * At most [`MAX_CONNECTING`] connections are in the making; further requests queue for them. While nothing but hanging
//!   connects is there, whoever has queued as long as a connection may take fails with them.
//! * All of it are chores: releases go first, and each first poll of a connect is a piece of work of its own.

use std::io;

use tracewheel_clock::Clock;
use tracewheel_timeline::vocab::Reason;
use tracewheel_transport::{ConnectError, ConnectErrorKind, Opening, TlsErrorKind};

use super::flight::Stage;
use super::{Chore, ConnectFailure, Worker};

/// Connections of one worker in the making, at most.
const MAX_CONNECTING: usize = 256;
/// First wait of early tries after a failure.
const FIRST_BACKOFF_NS: i64 = 50_000_000;
/// Longest wait.
const MAX_BACKOFF_NS: i64 = 1_000_000_000;

/// Whether connections are worth trying ahead of time.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Backoff {
    failures: u32,
    until_ns: i64,
}

impl Backoff {
    /// A connection was made.
    pub(super) fn reset(&mut self) {
        *self = Backoff::default();
    }

    /// A connection could not be made. Failures within one wait count once: they are one outage.
    fn fail(&mut self, now_ns: i64) {
        if self.holds(now_ns) {
            return;
        }
        let wait_ns = FIRST_BACKOFF_NS.saturating_mul(1 << self.failures.min(20)).min(MAX_BACKOFF_NS);
        self.failures = self.failures.saturating_add(1);
        self.until_ns = now_ns.saturating_add(wait_ns);
    }

    /// Until when early tries wait.
    pub(super) fn until_ns(&self) -> i64 {
        self.until_ns
    }

    /// Whether early tries wait.
    pub(super) fn holds(&self, now_ns: i64) -> bool {
        now_ns < self.until_ns
    }
}

impl Worker {
    /// Finds a connection for a flight for which none is idle.
    pub(super) fn connect_for(&mut self, number: u32) {
        let now = self.shared.clock.now().0;
        let flight = self.flights.get(number);
        let (pool, released, at) = (flight.pool, flight.released_ns.is_some(), flight.due_ns.max(now));
        let to = &self.pools[pool];
        if !released && to.backoff.holds(now) {
            // It will try when it is due.
            return;
        }
        if to.lanes_are_coming(to.starving.len()) {
            self.wait_for_connection(number);
        } else if self.may_connect() || (self.connecting() < MAX_CONNECTING && self.give_way(pool, at)) {
            self.connect(pool, Some(number));
        } else if self.open() >= self.rules.descriptor_room {
            if released {
                self.connect_in_vain(number);
            }
        } else {
            self.flights.get(number).starved = true;
            self.wait_for_connection(number);
        }
    }

    fn wait_for_connection(&mut self, number: u32) {
        self.flights.get(number).stage = Stage::Starving;
        self.pool_of(number).starving.push_back(number);
    }

    /// Whether another connection may be begun.
    pub(super) fn may_connect(&self) -> bool {
        self.open() < self.rules.max_connections.min(self.rules.descriptor_room)
            && self.connecting() < MAX_CONNECTING
    }

    /// Begins a connection, for a flight or to lie idle.
    pub(super) fn connect(&mut self, pool: usize, flight: Option<u32>) {
        let to = &mut self.pools[pool];
        let slot = to.slots.connect(flight);
        to.connecting += 1;
        let number_of_slot = to.slots.number(slot);
        if let Some(number) = flight {
            self.flights.get(number).stage = Stage::Connecting(slot);
        }
        let deadline = self.shared.clock.now().0.saturating_add(self.rules.connect_timeout_ns);
        self.chores.insert(deadline, Chore::ConnectTimeout { pool, slot, number: number_of_slot });
        self.tend_by(deadline);
    }

    /// Lets a flight fail as it would when the system refused a descriptor, by the same way and not within this call.
    fn connect_in_vain(&mut self, number: u32) {
        let open = self.open();
        let said = format!("{open} connections are open, and the limit of open files is near");
        let error = ConnectError { kind: ConnectErrorKind::Descriptors, source: io::Error::other(said) };
        let to = self.pool_of(number);
        let slot = to.slots.open_with(Opening::failed(error), Some(number));
        to.connecting += 1;
        self.flights.get(number).stage = Stage::Connecting(slot);
    }

    /// No connection came to be, for a flight or for none.
    pub(super) fn connect_failed(
        &mut self,
        pool: usize,
        flight: Option<u32>,
        kind: ConnectErrorKind,
        detail: String,
    ) {
        let now = self.shared.clock.now().0;
        let to = &mut self.pools[pool];
        to.backoff.fail(now);
        to.connect_failure = Some(ConnectFailure { kind, detail: detail.clone() });
        let Some(number) = flight else { return };
        let flight = self.flights.get(number);
        flight.stage = Stage::Unarmed;
        // Where it is not yet due, another connection is tried when it is.
        if flight.released_ns.is_some() {
            self.fail_unconnected(number, connect_reason(kind), detail);
        }
    }

    pub(super) fn connect_timed_out(&mut self, pool: usize, slot: u32, number: u32) {
        let to = &mut self.pools[pool];
        let Some((flight, kind)) = to.slots.give_up_connecting(slot, number) else { return };
        to.connecting -= 1;
        let limit_ms = self.rules.connect_timeout_ns / 1_000_000;
        self.connect_failed(pool, flight, kind, format!("not made within {limit_ms} ms"));
        self.fail_overdue(pool, kind);
        self.feed_starving();
    }

    /// While there is nothing but hanging connects: fails whoever has queued for as long as a connection may take.
    fn fail_overdue(&mut self, pool: usize, kind: ConnectErrorKind) {
        let making = self.pools[pool].connecting;
        if making < self.pools[pool].slots.open() {
            return;
        }
        let now = self.shared.clock.now().0;
        while let Some(number) = self.pools[pool].starving.front().copied() {
            let released = self.flights.get(number).released_ns;
            if released.is_none_or(|at| now - at < self.rules.connect_timeout_ns) {
                return;
            }
            self.pools[pool].starving.pop_front();
            self.flights.get(number).stage = Stage::Unarmed;
            let detail = format!("{making} connections were being made before it, and none stood");
            self.fail_unconnected(number, connect_reason(kind), detail);
        }
    }

    /// Gives connections that came free, or the right to make one, to those who queue.
    pub(super) fn feed_starving(&mut self) {
        // Once around, at most: what stands may not be good for all of them.
        let waiting: usize = self.pools.iter().map(|pool| pool.starving.len()).sum();
        let mut hungry: Vec<usize> = match waiting {
            0 => return,
            _ => self.each_pool().collect(),
        };
        for _ in 0..waiting {
            // Whoever is due first, whatever its target.
            hungry.retain(|pool| self.may_feed(*pool));
            let first = hungry.iter().copied().min_by_key(|pool| self.first_starving_due_ns(*pool));
            let Some(number) = first.and_then(|pool| self.pools[pool].starving.pop_front()) else { return };
            self.flights.get(number).stage = Stage::Unarmed;
            self.arm_again(number);
        }
    }

    /// Whether one who queues in the pool would get a connection, or may make one.
    fn may_feed(&self, pool: usize) -> bool {
        let to = &self.pools[pool];
        if to.starving.is_empty() {
            return false;
        }
        let may_make =
            self.may_connect() || (self.connecting() < MAX_CONNECTING && self.others_have_idle(pool));
        to.slots.has_good(self.shared.clock.now().0)
            || (may_make && !to.lanes_are_coming(to.starving.len().saturating_sub(1)))
    }

    fn first_starving_due_ns(&self, pool: usize) -> i64 {
        let first = self.pools[pool].starving.front();
        first.and_then(|number| self.flights.due_ns(*number)).unwrap_or(i64::MAX)
    }
}

/// What a connection that was not made is called in records.
pub(crate) fn connect_reason(kind: ConnectErrorKind) -> Reason {
    match kind {
        ConnectErrorKind::Refused => Reason::ConnectRefused,
        ConnectErrorKind::TimedOut => Reason::ConnectTimeout,
        ConnectErrorKind::Unreachable => Reason::ConnectUnreachable,
        ConnectErrorKind::Descriptors => Reason::LocalDescriptors,
        ConnectErrorKind::LocalLimit => Reason::LocalResources,
        ConnectErrorKind::TlsTimedOut => Reason::TlsTimeout,
        ConnectErrorKind::Http1Only => Reason::Http1Only,
        ConnectErrorKind::TlsExpected => Reason::HttpsExpected,
        ConnectErrorKind::Http2Refused => Reason::Http2Refused,
        ConnectErrorKind::Http2TimedOut => Reason::Http2Timeout,
        ConnectErrorKind::Tls(kind) => match kind {
            TlsErrorKind::Untrusted => Reason::TlsUntrusted,
            TlsErrorKind::Expired => Reason::TlsExpired,
            TlsErrorKind::WrongName => Reason::TlsWrongName,
            TlsErrorKind::Alert => Reason::TlsAlert,
            TlsErrorKind::Closed => Reason::TlsClosed,
            TlsErrorKind::NoProtocol => Reason::Http2Only,
            TlsErrorKind::NotTls => Reason::TlsNotSpoken,
            TlsErrorKind::Protocol => Reason::Tls,
        },
        ConnectErrorKind::Other => Reason::ConnectOther,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_tries_wait_twice_as_long_after_each_outage_and_a_second_at_most() {
        let mut backoff = Backoff::default();
        assert!(!backoff.holds(0));
        let mut now = 0;
        for wait_ms in [50, 100, 200, 400, 800, 1_000, 1_000] {
            backoff.fail(now);
            backoff.fail(now + 1);
            let end = now + wait_ms * 1_000_000;
            assert!(backoff.holds(end - 1) && !backoff.holds(end), "{wait_ms}");
            now = end;
        }
        backoff.reset();
        assert!(!backoff.holds(now));
        backoff.fail(now);
        assert!(!backoff.holds(now + FIRST_BACKOFF_NS), "from the beginning");
    }
}
