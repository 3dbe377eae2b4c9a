//! A point on the run clock.

/// A point on the run clock: nanoseconds since the run's start, monotonic. Negative before the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunNs(pub i64);

impl RunNs {
    /// The run's start.
    pub const ZERO: Self = Self(0);
    /// The last point that can be named: a deadline that never comes.
    pub const MAX: Self = Self(i64::MAX);

    /// This point moved by `ns` nanoseconds (backwards if negative); stops at the ends of the scale.
    pub const fn plus(self, ns: i64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this point; negative if `earlier` is the later one. Stops at the ends of the
    /// scale.
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_and_measuring_stop_at_the_ends_of_the_scale() {
        assert_eq!(RunNs(5).plus(-7), RunNs(-2));
        assert_eq!(RunNs(5).since(RunNs(7)), -2);
        assert_eq!(RunNs::MAX.plus(1), RunNs::MAX);
        assert_eq!(RunNs(i64::MIN).since(RunNs::MAX), i64::MIN);
    }
}
