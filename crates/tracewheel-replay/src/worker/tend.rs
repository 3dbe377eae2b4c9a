//! Keeping connections ready: taking those out of use that the target is about to close, and making those that the next
//! requests will need, ahead of their due times. A chore like any other, so it never delays a release.

use tracewheel_clock::Clock;
use tracewheel_record::manifest::ConnectionOutcome;
use tracewheel_wheel::Key;

use crate::config::ConnectionUse;
use crate::shared::Halt;

use super::forecast::Cost;
use super::{Chore, Pace, Worker};

/// Time between two looks, at least: what changes in between is looked at together.
const PAUSE_NS: i64 = 5_000_000;
/// And at most, as long as there are connections: how long they stand is what is learned from.
const MAX_PAUSE_NS: i64 = 1_000_000_000;
/// Connections begun in one piece of work.
const BEGUN_AT_ONCE: usize = 8;
/// Time of the sending thread for one connection, and with TLS.
const CONNECT_COST_NS: i64 = 100_000;
const CONNECT_TLS_COST_NS: i64 = 2_000_000;
/// Time between two pings on an HTTP/2 connection. One that brought nothing between two takes no new requests.
const PING_NS: i64 = 15_000_000_000;
/// How long a peak of connections in use is remembered, once or twice.
const PEAK_NS: i64 = 10_000_000_000;
/// Spares beyond the known need: an eighth of the recent peak, within these.
const MIN_SPARES: usize = 2;
const MAX_SPARES: usize = 32;

/// When connections are looked after next, and what was seen of late.
#[derive(Debug, Default)]
pub(super) struct Tending {
    next: Option<(i64, Key)>,
    last_ns: i64,
    pinged_ns: i64,
    peak: Peak,
    /// What is counted for the manifest.
    pub(super) counts: ConnectionOutcome,
}

/// The most connections in use at once lately.
#[derive(Debug, Default)]
struct Peak {
    since_ns: i64,
    current: usize,
    before: usize,
}

impl Peak {
    fn note(&mut self, now_ns: i64, in_use: usize) {
        if now_ns - self.since_ns >= PEAK_NS {
            let long_ago = now_ns - self.since_ns >= 2 * PEAK_NS;
            self.before = if long_ago { 0 } else { self.current };
            (self.since_ns, self.current) = (now_ns, 0);
        }
        self.current = self.current.max(in_use);
    }

    fn recent(&self) -> usize {
        self.current.max(self.before)
    }
}

/// Connections kept ready beyond the known need, after so many in use at once.
pub(super) fn spares(peak: usize) -> usize {
    peak.div_ceil(8).clamp(MIN_SPARES, MAX_SPARES)
}

impl Worker {
    /// Looks after the connections at `at_ns`, if not before.
    pub(super) fn tend_by(&mut self, at_ns: i64) {
        self.tend_at(at_ns.max(self.tending.last_ns.saturating_add(PAUSE_NS)));
    }

    fn tend_at(&mut self, at_ns: i64) {
        match self.tending.next {
            Some((planned, _)) if planned <= at_ns => return,
            Some((_, key)) => _ = self.chores.cancel(key),
            None => {}
        }
        self.tending.next = Some((at_ns, self.chores.insert(at_ns, Chore::Tend)));
    }

    /// One look: retires, makes, and says when to look again.
    pub(super) fn tend(&mut self) {
        let now = self.shared.clock.now().0;
        (self.tending.next, self.tending.last_ns) = (None, now);
        if self.halt > Halt::Running {
            self.forecast.clear();
            return;
        }
        self.tending.peak.note(now, self.slots.in_use(self.connecting));
        self.tending.counts.retired += self.slots.retire(now, self.may_connect());
        self.forecast.pass(now.saturating_add(self.lead_ns()));
        let (missing, mut next_ns) = self.outlook(now);
        // Of connections; what is missing is room for requests.
        let missing = missing.div_ceil(self.slots.lanes_each());
        self.keep_alive(now);
        if missing > 0 {
            if self.backoff.holds(now) {
                next_ns = next_ns.min(self.backoff.until_ns());
            } else {
                self.make_ready(missing);
                if missing > BEGUN_AT_ONCE && self.may_connect() {
                    // The rest is another piece of work.
                    return self.tend_at(now);
                }
                next_ns = next_ns.min(now.saturating_add(PAUSE_NS));
            }
        }
        if self.slots.open() > 0 || next_ns < i64::MAX {
            let retirement_ns = self.slots.next_retirement_ns().unwrap_or(i64::MAX);
            self.tend_by(next_ns.min(retirement_ns).min(now.saturating_add(MAX_PAUSE_NS)));
        }
    }

    /// Connections that are to be begun now, and when to ask again.
    fn outlook(&self, now_ns: i64) -> (usize, i64) {
        let spares = self.rules.spares.unwrap_or_else(|| spares(self.tending.peak.recent()));
        match self.pace {
            Pace::Open => {
                let cost = Cost {
                    handshake_ns: self.handshake_ns,
                    each_ns: if self.target.tls.is_some() { CONNECT_TLS_COST_NS } else { CONNECT_COST_NS },
                    good_for_ns: self.slots.unused_good_for_ns(),
                };
                let making = self.slots.making_for_nobody() * self.slots.lanes_each();
                let outlook = self.forecast.look(now_ns, self.slots.count_good(), making, spares, cost);
                (outlook.missing, outlook.next_ns)
            }
            Pace::Closed { at_once } => {
                // Answers free the connections of the next requests, unless each has one of its own.
                let wanted = match self.rules.connection_use {
                    ConnectionUse::Reuse => spares,
                    ConnectionUse::PerRequest => spares.max(at_once),
                };
                let ready = self.slots.count_good()(now_ns)
                    + self.slots.making_for_nobody() * self.slots.lanes_each();
                (wanted.min(self.line.len()).saturating_sub(ready), i64::MAX)
            }
        }
    }

    /// Now and then: pings to the connections that carry many requests each.
    fn keep_alive(&mut self, now_ns: i64) {
        if self.slots.carriers() > 0 && now_ns - self.tending.pinged_ns >= PING_NS {
            self.tending.pinged_ns = now_ns;
            self.slots.keep_alive();
        }
    }

    fn make_ready(&mut self, missing: usize) {
        for _ in 0..missing.min(BEGUN_AT_ONCE) {
            // At the limit one that will be too old makes room for one that will not.
            let due_ns = self.forecast.first_ns().unwrap_or(i64::MIN);
            let room = self.may_connect() || (self.connecting == 0 && self.slots.give_way(due_ns));
            if !room {
                return;
            }
            self.connect(None);
        }
    }

    /// Adds what this worker saw of its connections to the run's account.
    pub(super) fn account_for_connections(&self) {
        self.shared.note_connections(&self.slots.learned(self.tending.counts.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spares_follow_the_recent_peak_within_bounds() {
        assert_eq!([0, 16, 17, 100, 10_000].map(spares), [2, 2, 3, 13, 32]);
        let mut peak = Peak::default();
        peak.note(0, 80);
        peak.note(PEAK_NS, 8);
        assert_eq!(peak.recent(), 80, "remembered for one more window");
        peak.note(2 * PEAK_NS, 8);
        assert_eq!(peak.recent(), 8);
        peak.note(9 * PEAK_NS, 0);
        assert_eq!(peak.recent(), 0, "nothing was in use for long");
    }
}
