//! Waiting on threads that are not on the hot path: the recorder's flush, a poll of a file, a pause in a campaign.
//! The one place that lifts the ban on `std::thread::sleep`.

use std::time::Duration;

/// Blocks the calling thread for at least `ns` nanoseconds; returns at once if that is zero or negative.
///
/// Never for a worker: it stops the whole runtime. Workers wait with [`crate::PreciseWaiter`].
#[allow(clippy::disallowed_methods)]
pub fn sleep(ns: i64) {
    if let Ok(ns @ 1..) = u64::try_from(ns) {
        std::thread::sleep(Duration::from_nanos(ns));
    }
}

#[cfg(test)]
mod tests {
    use crate::{Clock, RunClock};

    #[test]
    fn it_blocks_at_least_as_long_as_asked_and_not_at_all_for_nothing() {
        let clock = RunClock::start();
        super::sleep(i64::MIN);
        super::sleep(0);
        super::sleep(2_000_000);
        assert!(clock.now().0 >= 2_000_000);
    }
}
