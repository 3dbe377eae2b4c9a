//! Keeping connections ready: taking those out of use that the target is about to close, and making those that the next
//! requests will need, ahead of their due times. A chore like any other, so it never delays a release.

use tracewheel_clock::Clock;
use tracewheel_record::manifest::ConnectionOutcome;
use tracewheel_wheel::Key;

use crate::config::ConnectionUse;
use crate::shared::Halt;

use super::forecast::Cost;
use super::pool::Pool;
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
/// Closed loop: requests of the line that are looked at for which target they go to.
const LOOKED_AT_IN_LINE: usize = 1_024;
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
    /// What is counted for the manifest.
    pub(super) counts: ConnectionOutcome,
}

/// The most connections in use at once lately.
#[derive(Debug, Default)]
pub(super) struct Peak {
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

impl Pool {
    /// Now and then: pings to the connections that carry many requests each.
    fn keep_alive(&mut self, now_ns: i64) {
        if self.slots.carriers() > 0 && now_ns - self.pinged_ns >= PING_NS {
            self.pinged_ns = now_ns;
            self.slots.keep_alive();
        }
    }
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
            self.pools.iter_mut().for_each(|pool| pool.forecast.clear());
            return;
        }
        let mut next_ns = i64::MAX;
        for pool in self.each_pool() {
            match self.tend_pool(pool, now) {
                // The rest is another piece of work.
                None => return self.tend_at(now),
                Some(at_ns) => next_ns = next_ns.min(at_ns),
            }
        }
        if self.open() > 0 || next_ns < i64::MAX {
            self.tend_by(next_ns.min(now.saturating_add(MAX_PAUSE_NS)));
        }
    }

    /// Looks after one target's connections; when to look again. `None` where more of them are to be begun than one piece
    /// of work may.
    fn tend_pool(&mut self, pool: usize, now_ns: i64) -> Option<i64> {
        let may_connect = self.may_connect();
        let of = &mut self.pools[pool];
        of.peak.note(now_ns, of.slots.in_use(of.connecting));
        self.tending.counts.retired += of.slots.retire(now_ns, may_connect);
        of.forecast.pass(now_ns.saturating_add(of.lead_ns()));
        of.keep_alive(now_ns);
        let (missing, mut next_ns) = self.outlook(pool, now_ns);
        let of = &self.pools[pool];
        // Of connections; what is missing is room for requests.
        let missing = missing.div_ceil(of.slots.lanes_each());
        if missing > 0 && of.backoff.holds(now_ns) {
            next_ns = next_ns.min(of.backoff.until_ns());
        } else if missing > 0 {
            self.make_ready(pool, missing);
            if missing > BEGUN_AT_ONCE && self.may_connect() {
                return None;
            }
            next_ns = next_ns.min(now_ns.saturating_add(PAUSE_NS));
        }
        Some(next_ns.min(self.pools[pool].slots.next_retirement_ns().unwrap_or(i64::MAX)))
    }

    /// Connections that are to be begun now, and when to ask again.
    fn outlook(&self, pool: usize, now_ns: i64) -> (usize, i64) {
        let of = &self.pools[pool];
        let spares = self.rules.spares.unwrap_or_else(|| spares(of.peak.recent()));
        match self.pace {
            Pace::Open => {
                let cost = Cost {
                    handshake_ns: of.handshake_ns,
                    each_ns: if of.target.tls.is_some() { CONNECT_TLS_COST_NS } else { CONNECT_COST_NS },
                    good_for_ns: of.slots.unused_good_for_ns(),
                };
                let making = of.slots.making_for_nobody() * of.slots.lanes_each();
                let outlook = of.forecast.look(now_ns, of.slots.count_good(), making, spares, cost);
                (outlook.missing, outlook.next_ns)
            }
            Pace::Closed { at_once } => {
                // Answers free the connections of the next requests, unless each has one of its own.
                let wanted = match self.rules.connection_use {
                    ConnectionUse::Reuse => spares,
                    ConnectionUse::PerRequest => spares.max(at_once),
                };
                let ready =
                    of.slots.count_good()(now_ns) + of.slots.making_for_nobody() * of.slots.lanes_each();
                (self.in_line(pool, wanted).saturating_sub(ready), i64::MAX)
            }
        }
    }

    /// Of the next ones in the closed loop's line, how many go to the pool's target: `most` at most.
    fn in_line(&self, pool: usize, most: usize) -> usize {
        if self.pools.len() == 1 {
            return most.min(self.line.len());
        }
        let next = self.line.iter().take(most.saturating_mul(self.pools.len()).min(LOOKED_AT_IN_LINE));
        next.filter(|number| self.flights.pool(**number) == Some(pool)).count().min(most)
    }

    fn make_ready(&mut self, pool: usize, missing: usize) {
        for _ in 0..missing.min(BEGUN_AT_ONCE) {
            // At the limit one that will be too old makes room for one that will not.
            let due_ns = self.pools[pool].forecast.first_ns().unwrap_or(i64::MIN);
            let room =
                self.may_connect() || (self.connecting() == 0 && self.pools[pool].slots.give_way(due_ns));
            if !room {
                return;
            }
            self.connect(pool, None);
        }
    }

    /// Adds what this worker saw of its connections to the run's account.
    pub(super) fn account_for_connections(&self) {
        self.shared.note_connections(&self.tending.counts);
        for pool in &self.pools {
            self.shared.note_connections(&pool.slots.learned(ConnectionOutcome::default()));
        }
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
