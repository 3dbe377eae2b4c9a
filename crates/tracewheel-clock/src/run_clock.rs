//! The clock of a run.

use std::sync::{Arc, Mutex, PoisonError};

use nix::time::{ClockId, clock_gettime};

use crate::offset::{Offset, SharedOffset, WallPair};
use crate::{OffsetSample, RunNs};

/// Readings per sampling; the narrowest bracket is kept.
const TRIES: u32 = 8;
/// A bracket this narrow is taken at once.
const NARROW_NS: i64 = 60;
/// How far apart a caller's reading and the wall reading after it usually lie at most. Beyond it a third reading
/// decides between "was interrupted" and "the clock was set".
const USUAL_GAP_NS: i64 = 2_000;

/// Something that tells run time.
pub trait Clock: Send + Sync {
    /// Now, on the run clock.
    fn now(&self) -> RunNs;

    /// Wall time of a point of the run, nanoseconds since 1970, by the current offset.
    fn wall(&self, at: RunNs) -> i64;
}

/// The run clock: `CLOCK_MONOTONIC` since the run's start, with the tracked offset to wall time.
///
/// Reading it takes no lock and no system call. The offset is sampled at the start and whenever
/// [`Self::sample_offset`] is called, once a second in a run.
#[derive(Debug)]
pub struct RunClock {
    origin_ns: i64,
    offset: SharedOffset,
    /// Keeps samplings apart; readers never take it.
    sampling: Mutex<()>,
}

impl RunClock {
    /// Starts a run's clock: now is [`RunNs::ZERO`].
    pub fn start() -> Arc<Self> {
        let pair = read_pair();
        Arc::new(Self {
            origin_ns: monotonic_ns(),
            offset: SharedOffset::new(Offset::first(pair)),
            sampling: Mutex::new(()),
        })
    }

    /// Absolute `CLOCK_MONOTONIC` of the run's start, nanoseconds; for timers that are armed with absolute times.
    pub fn monotonic_origin_ns(&self) -> i64 {
        self.origin_ns
    }

    /// Samples the offset to wall time and adopts it; once a second is enough. Not for the hot path.
    ///
    /// The sample says whether the wall clock was set since the one before. What the kernel stamped before that is
    /// void from then on.
    pub fn sample_offset(&self) -> OffsetSample {
        let _alone = self.sampling.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = read_pair();
        let (next, stepped) = self.offset.load().after(pair);
        self.offset.store(next);
        OffsetSample {
            at_ns: pair.middle_ns() - self.origin_ns,
            offset_ns: pair.offset_ns() + self.origin_ns,
            bracket_ns: pair.bracket_ns(),
            stepped,
        }
    }

    /// A stamp that the kernel took of the wall clock, on the run clock. `None` if the wall clock was set between
    /// the stamp and now, as far as can be known.
    ///
    /// A step is noticed by the first call after it, not only at the next sampling: the wall clock is read again and
    /// held against the offset. What remains undetected is a stamp taken before a step back, mapped only after the
    /// step was sampled, whose time then looks like one after the step; it lies wrong by less than the time that the
    /// stamp lay unread.
    pub fn wall_to_run(&self, unix_ns: i64) -> Option<RunNs> {
        self.wall_to_run_at(unix_ns, self.now())
    }

    /// As [`Self::wall_to_run`], for a caller that has read this clock just now: spares one reading.
    pub fn wall_to_run_at(&self, unix_ns: i64, just_now: RunNs) -> Option<RunNs> {
        let offset = self.offset.load();
        let before_ns = just_now.0.saturating_add(self.origin_ns);
        let wall_ns = unix_now_ns();
        let mut pair = WallPair { before_ns, wall_ns, after_ns: before_ns.saturating_add(USUAL_GAP_NS) };
        if !offset.agrees(pair) {
            pair.after_ns = monotonic_ns();
            if !offset.agrees(pair) {
                return None;
            }
        }
        let monotonic_ns = offset.monotonic_ns(unix_ns)?;
        Some(RunNs(monotonic_ns.saturating_sub(self.origin_ns)))
    }
}

impl Clock for RunClock {
    fn now(&self) -> RunNs {
        RunNs(monotonic_ns() - self.origin_ns)
    }

    fn wall(&self, at: RunNs) -> i64 {
        at.0.saturating_add(self.origin_ns).saturating_add(self.offset.load().offset_ns)
    }
}

/// Wall time now, nanoseconds since 1970; for manifests and identities, never for durations.
pub fn unix_now_ns() -> i64 {
    read_clock_ns(ClockId::CLOCK_REALTIME)
}

fn monotonic_ns() -> i64 {
    read_clock_ns(ClockId::CLOCK_MONOTONIC)
}

fn read_clock_ns(clock: ClockId) -> i64 {
    let read = clock_gettime(clock).expect("Linux always has its real-time and monotonic clocks");
    read.tv_sec() * 1_000_000_000 + read.tv_nsec()
}

fn read_pair() -> WallPair {
    let mut best: Option<WallPair> = None;
    for _ in 0..TRIES {
        let before_ns = monotonic_ns();
        let wall_ns = unix_now_ns();
        let after_ns = monotonic_ns();
        let pair = WallPair { before_ns, wall_ns, after_ns };
        if best.is_none_or(|best| pair.bracket_ns() < best.bracket_ns()) {
            best = Some(pair);
        }
        if pair.bracket_ns() <= NARROW_NS {
            break;
        }
    }
    best.expect("at least one reading was made")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_starts_at_zero_and_never_goes_back() {
        let clock = RunClock::start();
        let mut last = RunNs::ZERO;
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(clock.monotonic_origin_ns() > 0);
    }

    #[test]
    fn a_wall_reading_maps_between_the_run_readings_around_it() {
        let clock = RunClock::start();
        for _ in 0..100 {
            let sample = clock.sample_offset();
            let before = clock.now();
            let wall_ns = unix_now_ns();
            let after = clock.now();
            // A clock that is set while this test runs would make it fail by right; a torn sample only widens.
            let mapped = clock.wall_to_run(wall_ns).expect("nobody set the clock");
            let slack_ns = sample.bracket_ns + 1_000_000;
            assert!(mapped.since(before) >= -slack_ns && after.since(mapped) >= -slack_ns);
        }
    }

    #[test]
    fn a_sample_lies_in_the_run_and_names_its_bracket() {
        let clock = RunClock::start();
        let before = clock.now();
        let sample = clock.sample_offset();
        let after = clock.now();
        assert!((before.0..=after.0).contains(&sample.at_ns));
        assert!(sample.bracket_ns >= 0 && !sample.stepped);
    }

    #[test]
    fn wall_and_run_time_are_inverse() {
        let clock = RunClock::start();
        let at = clock.now();
        assert_eq!(clock.wall_to_run(clock.wall(at)), Some(at));
    }

    #[test]
    fn a_wall_clock_that_disagrees_with_the_offset_voids_the_stamp() {
        let clock = RunClock::start();
        let held = clock.offset.load();
        let unix_ns = unix_now_ns();
        assert!(clock.wall_to_run(unix_ns).is_some());
        for step_ns in [-3_600_000_000_000, 3_600_000_000_000] {
            // As if the wall clock had been set since the last sampling.
            let (other, stepped) = held.after(WallPair {
                before_ns: clock.origin_ns,
                wall_ns: clock.wall(RunNs::ZERO) - step_ns,
                after_ns: clock.origin_ns,
            });
            assert!(stepped);
            clock.offset.store(other);
            assert_eq!(clock.wall_to_run(unix_ns), None);
            assert!(clock.sample_offset().stepped, "the next sampling finds it too");
            assert_eq!(clock.wall_to_run(unix_ns), None, "stamped before the step was sampled");
            assert!(clock.wall_to_run(clock.wall(clock.now())).is_some(), "stamped after it");
            clock.offset.store(held);
        }
    }
}
