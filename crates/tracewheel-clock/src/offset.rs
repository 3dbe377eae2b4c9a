//! The offset between wall time and the monotonic clock, sampled as bracketed pairs.
//!
//! A sample reads monotonic, wall, monotonic. Whatever the scheduler does between the calls, the wall reading was
//! taken between the two monotonic ones, so the true offset lies in `[wall − after, wall − before]`: an interval, not
//! a guess. The narrowest of a few tries is kept.
//!
//! On Linux both clocks are steered together, so the offset changes only when somebody sets the clock (or a leap
//! second is inserted). Two intervals that do not meet therefore prove a step; a small allowance covers systems that
//! calibrate the two clocks separately.

/// One reading of the two clocks: monotonic, wall, monotonic. Absolute nanoseconds of either clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WallPair {
    /// `CLOCK_MONOTONIC` just before the wall clock was read.
    pub before_ns: i64,
    /// `CLOCK_REALTIME`, nanoseconds since 1970.
    pub wall_ns: i64,
    /// `CLOCK_MONOTONIC` just after.
    pub after_ns: i64,
}

impl WallPair {
    /// Width of the bracket in nanoseconds: the true offset is known to within half of it either way.
    pub const fn bracket_ns(&self) -> i64 {
        self.after_ns.saturating_sub(self.before_ns)
    }

    /// Wall minus monotonic at the middle of the bracket, nanoseconds.
    pub const fn offset_ns(&self) -> i64 {
        self.wall_ns.saturating_sub(self.before_ns.saturating_add(self.bracket_ns() / 2))
    }
}

/// What one sampling of the offset found; a row of the run's clock track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetSample {
    /// When, on the run clock, nanoseconds.
    pub at_ns: i64,
    /// Wall time minus run clock, nanoseconds: `unix = run + offset`.
    pub offset_ns: i64,
    /// Width of the bracket, nanoseconds: the true offset lies within half of it of `offset_ns`.
    pub bracket_ns: i64,
    /// Whether the wall clock was set between the sample before and this one. Kernel stamps across it are void.
    pub stepped: bool,
}

/// The offset as followed over a run.
#[derive(Clone, Copy, Debug)]
pub struct OffsetTrack {
    last: WallPair,
    /// Monotonic time from which the current offset is known to hold.
    holds_from_ns: i64,
}
