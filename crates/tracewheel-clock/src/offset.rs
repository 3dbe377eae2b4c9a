//! The offset between wall time and the monotonic clock, sampled as bracketed pairs.
//!
//! A sample reads monotonic, wall, monotonic. Whatever the scheduler does between the calls, the wall reading was
//! taken between the two monotonic ones, so the true offset lies in `[wall − after, wall − before]`: an interval, not
//! a guess. The narrowest of a few tries is kept.
//!
//! On Linux both clocks are steered together, so the offset changes only when somebody sets the clock or a leap
//! second is inserted, and two intervals that do not meet prove a step. Systems that calibrate the two clocks apart
//! may drift; the older interval is widened by [`DRIFT_DIVISOR`] before the two are held against each other.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering, fence};

/// Drift that is not taken for a step: one part in this many (5 ppm).
const DRIFT_DIVISOR: i64 = 200_000;
/// Gap between two intervals that is not taken for a step either: rounding of the two clocks, nanoseconds.
const SLACK_NS: i64 = 1_000;

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

/// One reading of the two clocks: monotonic, wall, monotonic. Absolute nanoseconds of either clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WallPair {
    /// Monotonic, just before the wall clock was read.
    pub(crate) before_ns: i64,
    /// Wall time, nanoseconds since 1970.
    pub(crate) wall_ns: i64,
    /// Monotonic, just after.
    pub(crate) after_ns: i64,
}

impl WallPair {
    /// Width of the bracket in nanoseconds: the true offset is known to within half of it either way.
    pub(crate) const fn bracket_ns(&self) -> i64 {
        self.after_ns - self.before_ns
    }

    /// Monotonic time at the middle of the bracket.
    pub(crate) const fn middle_ns(&self) -> i64 {
        self.before_ns + self.bracket_ns() / 2
    }

    /// Wall minus monotonic, at the middle of the bracket.
    pub(crate) const fn offset_ns(&self) -> i64 {
        self.wall_ns - self.middle_ns()
    }
}

/// An offset, how well it is known, and since when it holds. All times monotonic and absolute, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset {
    pub(crate) offset_ns: i64,
    /// The true offset was within this of `offset_ns` when sampled.
    half_bracket_ns: i64,
    sampled_ns: i64,
    /// No wall stamp from before this point may be mapped with this offset.
    holds_from_ns: i64,
}

impl Offset {
    /// The first offset of a run holds for all that came before it.
    pub(crate) const fn first(pair: WallPair) -> Self {
        Self::of(pair, i64::MIN)
    }

    const fn of(pair: WallPair, holds_from_ns: i64) -> Self {
        Self {
            offset_ns: pair.offset_ns(),
            half_bracket_ns: (pair.bracket_ns() + 1) / 2,
            sampled_ns: pair.middle_ns(),
            holds_from_ns,
        }
    }

    /// How far the true offset may be from `offset_ns` at a later point.
    fn tolerance_ns(&self, at_ns: i64) -> i64 {
        self.half_bracket_ns + at_ns.saturating_sub(self.sampled_ns).max(0) / DRIFT_DIVISOR
    }

    /// Whether a reading can have been made under this offset.
    pub(crate) fn agrees(&self, pair: WallPair) -> bool {
        let tolerance_ns = self.tolerance_ns(pair.after_ns) + SLACK_NS;
        let lowest_ns = pair.wall_ns.saturating_sub(pair.after_ns).saturating_sub(tolerance_ns);
        let highest_ns = pair.wall_ns.saturating_sub(pair.before_ns).saturating_add(tolerance_ns);
        (lowest_ns..=highest_ns).contains(&self.offset_ns)
    }

    /// The offset to go on with after a reading, and whether the reading shows a step. Without a step the better
    /// known of the two is kept: one that drifted for long gives way, one read in a quiet moment outlives a reading
    /// that was torn apart by the scheduler.
    pub(crate) fn after(&self, pair: WallPair) -> (Self, bool) {
        if !self.agrees(pair) {
            return (Self::of(pair, pair.after_ns), true);
        }
        let fresh = Self::of(pair, self.holds_from_ns);
        let kept = if fresh.half_bracket_ns <= self.tolerance_ns(pair.after_ns) { fresh } else { *self };
        (kept, false)
    }

    /// A wall stamp on the monotonic clock; `None` if it is from before this offset held.
    pub(crate) fn monotonic_ns(&self, wall_ns: i64) -> Option<i64> {
        let monotonic_ns = wall_ns.checked_sub(self.offset_ns)?;
        (monotonic_ns >= self.holds_from_ns).then_some(monotonic_ns)
    }
}

/// An [`Offset`] that one thread at a time writes and any number read without waiting.
///
/// A sequence lock: odd while a write is under way, and a reader that saw the count change reads again. Writers must
/// be kept apart by the owner.
#[derive(Debug)]
pub(crate) struct SharedOffset {
    sequence: AtomicU64,
    offset_ns: AtomicI64,
    half_bracket_ns: AtomicI64,
    sampled_ns: AtomicI64,
    holds_from_ns: AtomicI64,
}

impl SharedOffset {
    pub(crate) const fn new(offset: Offset) -> Self {
        Self {
            sequence: AtomicU64::new(0),
            offset_ns: AtomicI64::new(offset.offset_ns),
            half_bracket_ns: AtomicI64::new(offset.half_bracket_ns),
            sampled_ns: AtomicI64::new(offset.sampled_ns),
            holds_from_ns: AtomicI64::new(offset.holds_from_ns),
        }
    }

    pub(crate) fn load(&self) -> Offset {
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            let offset = Offset {
                offset_ns: self.offset_ns.load(Ordering::Relaxed),
                half_bracket_ns: self.half_bracket_ns.load(Ordering::Relaxed),
                sampled_ns: self.sampled_ns.load(Ordering::Relaxed),
                holds_from_ns: self.holds_from_ns.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return offset;
            }
            std::hint::spin_loop();
        }
    }

    /// Publishes an offset. Two calls must never overlap.
    pub(crate) fn store(&self, offset: Offset) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.offset_ns.store(offset.offset_ns, Ordering::Relaxed);
        self.half_bracket_ns.store(offset.half_bracket_ns, Ordering::Relaxed);
        self.sampled_ns.store(offset.sampled_ns, Ordering::Relaxed);
        self.holds_from_ns.store(offset.holds_from_ns, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use proptest::prelude::*;

    use super::*;

    const S: i64 = 1_000_000_000;

    /// A reading made when the wall clock was `offset_ns` ahead, `read_after_ns` into a bracket of `bracket_ns`.
    fn reading(at_ns: i64, offset_ns: i64, bracket_ns: i64, read_after_ns: i64) -> WallPair {
        WallPair {
            before_ns: at_ns,
            wall_ns: at_ns + read_after_ns + offset_ns,
            after_ns: at_ns + bracket_ns,
        }
    }

    #[test]
    fn a_reading_knows_the_offset_to_half_its_bracket() {
        let pair = reading(5 * S, 1_700 * S, 100, 90);
        assert_eq!(pair.bracket_ns(), 100);
        assert!((pair.offset_ns() - 1_700 * S).abs() <= 50);
    }

    #[test]
    fn a_clock_set_forward_or_back_by_ten_microseconds_is_a_step() {
        for step_ns in [10_000, -10_000, 3_600 * S, -3_600 * S] {
            let offset = Offset::first(reading(0, 1_700 * S, 60, 30));
            let (next, stepped) = offset.after(reading(S, 1_700 * S + step_ns, 60, 30));
            assert!(stepped, "{step_ns}");
            assert_eq!(next.offset_ns, 1_700 * S + step_ns);
        }
    }

    #[test]
    fn drift_of_a_few_ppm_is_followed_and_is_no_step() {
        let mut offset = Offset::first(reading(0, 1_700 * S, 60, 30));
        for second in 1..1_000 {
            let (next, stepped) = offset.after(reading(second * S, 1_700 * S + second * 4_000, 60, 30));
            assert!(!stepped);
            offset = next;
        }
        assert!((offset.offset_ns - (1_700 * S + 999 * 4_000)).abs() <= 8_000);
    }

    #[test]
    fn a_torn_reading_does_not_displace_a_good_one() {
        let good = Offset::first(reading(0, 1_700 * S, 60, 30));
        let (kept, stepped) = good.after(reading(S, 1_700 * S, 3_000_000, 2_999_999));
        assert!(!stepped);
        assert_eq!(kept, good);
    }

    #[test]
    fn stamps_from_before_a_step_are_void() {
        let first = Offset::first(reading(0, 1_700 * S, 60, 30));
        let (second, _) = first.after(reading(10 * S, 1_760 * S, 60, 30));
        assert_eq!(second.monotonic_ns(9 * S + 1_700 * S), None, "taken before the clock was set forward");
        assert_eq!(second.monotonic_ns(11 * S + 1_760 * S), Some(11 * S));
        assert_eq!(first.monotonic_ns(1_699 * S), Some(-S), "the first offset holds for all before it");
    }

    #[test]
    fn a_reading_disagrees_with_an_offset_from_before_a_step() {
        let offset = Offset::first(reading(0, 1_700 * S, 60, 30));
        assert!(offset.agrees(reading(S, 1_700 * S, 60, 0)));
        assert!(offset.agrees(reading(S, 1_700 * S, 60, 60)));
        assert!(!offset.agrees(reading(S, 1_700 * S + 20_000, 60, 30)));
        assert!(!offset.agrees(reading(S, 1_700 * S - 20_000, 60, 30)));
    }

    proptest! {
        #[test]
        fn without_a_step_no_reading_however_torn_is_taken_for_one(
            readings in prop::collection::vec((0i64..2_000_000, 0.0f64..=1.0), 1..50),
        ) {
            let mut offset = Offset::first(reading(0, 1_700 * S, 200, 10));
            for (second, (bracket_ns, part)) in readings.into_iter().enumerate() {
                let read_after_ns = (bracket_ns as f64 * part) as i64;
                let (next, stepped) =
                    offset.after(reading((second as i64 + 1) * S, 1_700 * S, bracket_ns, read_after_ns));
                prop_assert!(!stepped);
                prop_assert!((next.offset_ns - 1_700 * S).abs() <= next.half_bracket_ns);
                offset = next;
            }
        }
    }

    #[test]
    fn readers_never_see_half_a_write() {
        let whole =
            |n: i64| Offset { offset_ns: n, half_bracket_ns: n + 1, sampled_ns: n + 2, holds_from_ns: n + 3 };
        let shared = Arc::new(SharedOffset::new(whole(0)));
        let done = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let (shared, done) = (Arc::clone(&shared), Arc::clone(&done));
            move || {
                while !done.load(Ordering::Relaxed) {
                    let seen = shared.load();
                    assert_eq!(seen, whole(seen.offset_ns));
                }
            }
        });
        for n in 1..100_000 {
            shared.store(whole(n));
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("the reader saw whole offsets only");
    }
}
