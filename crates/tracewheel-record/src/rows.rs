//! The rows of a run: one struct a table, one field a column (`docs/reference/run.md`).
//!
//! Times that end in `_ns` without `unix` are nanoseconds since the start of the run on its monotonic clock.
//! `None` means unknown; unknown is never 0.

mod attempt;
mod health;
mod request;

pub use attempt::{AttemptRecord, EventRow, ReadStampRow, ReleaseRecord};
pub use health::{HealthRecord, LATENESS_BUCKETS, ServerRecord, lateness_bucket};
pub use request::{RequestRecord, Strata};

/// Copies from this number on are requests that are not in the plan (phases `calibrate` and `prime`), so that
/// `(row, copy)` names one request in a run.
pub const EXTRA_COPY: u32 = 0x8000_0000;
