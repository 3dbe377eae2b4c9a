//! Newtypes for time and tokens, for function arguments that cross a crate's wall.
//!
//! Rows and records mirror their columns with plain integers whose names carry the unit; these types keep two
//! integers of different meaning from being swapped on the way.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A wall time: nanoseconds since 1970-01-01T00:00:00 UTC, without leap seconds. Traces without an epoch count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixNs(pub i64);

/// A duration in nanoseconds. Negative where an earlier thing is measured from a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationNs(pub i64);

/// A count of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tokens(pub u32);

impl UnixNs {
    /// The time from `earlier` to this one, saturating at the ends of the range.
    pub fn since(self, earlier: Self) -> DurationNs {
        DurationNs(self.0.saturating_sub(earlier.0))
    }
}

impl DurationNs {
    /// A whole number of seconds, saturating at the ends of the range.
    pub fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// A whole number of milliseconds, saturating at the ends of the range.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// In seconds, for display and statistics only: a float never goes back into a time.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
