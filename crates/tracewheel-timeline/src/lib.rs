//! The vocabulary (ids, units, event kinds, states) and the request timeline: versioned Arrow schema, Parquet, validation, statistics.
//!
//! A **timeline** is one Parquet file that says what production did: a row a request, stably sorted by arrival.
//! [`RequestRow`] mirrors its columns, [`vocab`] holds every closed list of words that a column or a record may carry.

pub mod row;
pub mod units;
pub mod vocab;

pub use row::RequestRow;
pub use units::{DurationNs, Tokens, UnixNs};
pub use vocab::{
    ArrivalSource, AttemptStatus, BodyState, EventKind, Operation, Phase, Protocol, Reason, RequestStatus,
    Source, TtftKind,
};
