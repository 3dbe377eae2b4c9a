//! Which of a read's two stamps counts.

use tracewheel_transport::ReadStamp;

/// The kernel's stamp where it gave one, else the user-space stamp right after the read. Every time that a run derives
/// from reads (headers, first byte, events, end) is this one; both stamps stand in the attempt's `reads`.
pub(crate) fn best_ns(read: &ReadStamp) -> i64 {
    read.kernel_ns.unwrap_or(read.user_ns).0
}
