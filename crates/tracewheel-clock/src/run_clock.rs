//! The clock of a run.

use std::sync::Arc;

use crate::{OffsetSample, RunNs};

/// Something that tells run time.
pub trait Clock: Send + Sync {
    /// Now, on the run clock.
    fn now(&self) -> RunNs;

    /// Wall time of a point of the run, nanoseconds since 1970, by the current offset.
    fn wall(&self, at: RunNs) -> i64;
}

/// The run clock: `CLOCK_MONOTONIC` since the run's start, with the tracked offset to wall time.
#[derive(Debug)]
pub struct RunClock {
    origin_ns: i64,
}

impl RunClock {
    /// Starts a run's clock: now is [`RunNs::ZERO`].
    pub fn start() -> Arc<Self> {
        todo!()
    }

    /// Absolute `CLOCK_MONOTONIC` of the run's start, nanoseconds; for timers that are armed with absolute times.
    pub fn monotonic_origin_ns(&self) -> i64 {
        self.origin_ns
    }

    /// Samples the offset to wall time and adopts it; once a second is enough. Not for the hot path.
    pub fn sample_offset(&self) -> OffsetSample {
        todo!()
    }

    /// A stamp that the kernel took of the wall clock, on the run clock. `None` if the wall clock was set between
    /// the stamp and now, as far as can be known.
    pub fn wall_to_run(&self, unix_ns: i64) -> Option<RunNs> {
        self.wall_to_run_at(unix_ns, self.now())
    }

    /// As [`Self::wall_to_run`], for a caller that has read the clock just now: saves one reading.
    pub fn wall_to_run_at(&self, unix_ns: i64, just_now: RunNs) -> Option<RunNs> {
        let _ = (unix_ns, just_now);
        todo!()
    }
}

impl Clock for RunClock {
    fn now(&self) -> RunNs {
        todo!()
    }

    fn wall(&self, at: RunNs) -> i64 {
        let _ = at;
        todo!()
    }
}

/// Wall time now, nanoseconds since 1970; for manifests and identities, never for durations.
pub fn unix_now_ns() -> i64 {
    todo!()
}
