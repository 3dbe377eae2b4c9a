//! The run directory, written and read, versioned and crash-safe; a run as a timeline.

mod columns;
mod departures;
mod disk;
pub mod error;
mod journal;
mod layout;
pub mod manifest;
mod metadata;
mod part;
pub mod read;
mod recover;
pub mod redact;
pub mod rows;
#[cfg(test)]
mod tests;
pub mod write;

pub use departures::DepartureLog;
pub use error::{RecordError, Result};
pub use manifest::Manifest;
pub use read::Run;
pub use recover::{Missing, Recovery};
pub use rows::{
    AttemptRecord, EventRow, HealthRecord, ReadStampRow, ReleaseRecord, RequestRecord, ServerRecord, Strata,
};
pub use write::{RunSummary, RunWriter, WriterOptions};

/// Version of the run format that this crate writes; it reads every `1.x`.
pub const RUN_VERSION: &str = "1.0";
