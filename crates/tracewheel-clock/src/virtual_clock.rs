//! A clock that stands still until it is told otherwise.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::{Clock, RunNs};

/// A [`Clock`] for tests and simulations: it moves only when told to, never backwards, and its wall time is a fixed
/// offset away.
#[derive(Debug, Default)]
pub struct VirtualClock {
    now_ns: AtomicI64,
    wall_offset_ns: i64,
}

impl VirtualClock {
    /// A clock that stands at the run's start, which is also 1970-01-01T00:00:00Z.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that stands at the run's start, which fell on `start_unix_ns`.
    pub fn started_at(start_unix_ns: i64) -> Self {
        Self { now_ns: AtomicI64::new(0), wall_offset_ns: start_unix_ns }
    }

    /// Moves to `at`, or stays where it is if that is in the past.
    pub fn advance_to(&self, at: RunNs) {
        self.now_ns.fetch_max(at.0, Ordering::AcqRel);
    }

    /// Moves forward by `ns` nanoseconds (not at all if negative) and returns where it then stands.
    pub fn advance_by(&self, ns: i64) -> RunNs {
        let step = ns.max(0);
        let before = self
            .now_ns
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| Some(now.saturating_add(step)))
            .unwrap_or_else(|now| now);
        RunNs(before).plus(step)
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> RunNs {
        RunNs(self.now_ns.load(Ordering::Acquire))
    }

    fn wall(&self, at: RunNs) -> i64 {
        at.0.saturating_add(self.wall_offset_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stands_still_until_told_and_never_goes_back() {
        let clock = VirtualClock::started_at(1_700_000_000_000_000_000);
        assert_eq!((clock.now(), clock.now()), (RunNs::ZERO, RunNs::ZERO));
        assert_eq!(clock.advance_by(5), RunNs(5));
        clock.advance_to(RunNs(3));
        assert_eq!(clock.now(), RunNs(5));
        assert_eq!(clock.advance_by(-2), RunNs(5));
        clock.advance_to(RunNs(9));
        assert_eq!(clock.wall(clock.now()), 1_700_000_000_000_000_009);
        assert_eq!(clock.advance_by(i64::MAX), RunNs::MAX);
    }
}
