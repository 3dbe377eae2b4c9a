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
