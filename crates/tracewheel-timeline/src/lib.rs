//! The vocabulary (ids, units, event kinds, states) and the request timeline: versioned Arrow schema, Parquet, validation, statistics.
//!
//! A **timeline** is one Parquet file that says what production did: a row a request, stably sorted by arrival.
//! [`RequestRow`] mirrors its columns, [`vocab`] holds every closed list of words that a column or a record may carry.

mod columns;
pub mod digest;
pub mod error;
pub mod meta;
pub mod pack;
pub mod read;
mod request_headers;
pub mod row;
pub mod schema;
pub mod stats;
pub mod units;
pub mod validate;
pub mod vocab;
pub mod write;

pub use digest::RowDigest;
pub use error::TimelineError;
pub use meta::{BlockBasis, TimelineMeta, VERSION, Version};
pub use pack::RowPacker;
pub use read::{Rows, Timeline};
pub use request_headers::HeaderClass;
pub use row::RequestRow;
pub use stats::{ClockResolution, StatsCollector, TimelineStats};
pub use units::{DurationNs, Tokens, UnixNs};
pub use validate::{Oddity, OddityKind, Validator, validate};
pub use vocab::{
    ArrivalSource, AttemptStatus, BodyState, EventKind, Operation, Phase, Protocol, Reason, RequestStatus,
    Source, TtftKind,
};
pub use write::{TimelineSummary, TimelineWriter};
