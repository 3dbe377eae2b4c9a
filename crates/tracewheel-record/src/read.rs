//! Reading a run, closed or not.

use std::path::Path;

use tracewheel_timeline::RequestRow;

use crate::error::Result;
use crate::manifest::Manifest;
use crate::rows::{AttemptRecord, HealthRecord, ReleaseRecord, RequestRecord, ServerRecord};
use crate::write::RunSummary;

/// A run on disk. Rows come in the order in which they were recorded, batch by batch in bounded memory.
#[derive(Debug)]
pub struct Run {}

/// A streaming iterator over one table of a run.
pub struct Rows<T> {
    _row: std::marker::PhantomData<T>,
}

impl<T> Iterator for Rows<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}

/// A streaming iterator over requests, each with its attempts in order.
pub struct Exchanges {}

impl Iterator for Exchanges {
    type Item = Result<(RequestRecord, Vec<AttemptRecord>)>;

    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}

/// A streaming iterator over a run seen as a timeline.
pub struct TimelineView {}

impl Iterator for TimelineView {
    type Item = Result<RequestRow>;

    fn next(&mut self) -> Option<Self::Item> {
        unimplemented!()
    }
}

impl Run {
    /// Opens a run's directory. A run of another major version is refused.
    pub fn open(dir: &Path) -> Result<Self> {
        let _ = dir;
        unimplemented!()
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        unimplemented!()
    }

    /// The run's manifest.
    pub fn manifest(&self) -> &Manifest {
        unimplemented!()
    }

    /// Whether the run was closed; an open one is still being written or its writer died.
    pub fn is_closed(&self) -> bool {
        unimplemented!()
    }

    /// The requests, in the order in which they ended.
    pub fn requests(&self) -> Result<Rows<RequestRecord>> {
        unimplemented!()
    }

    /// The attempts, in the order in which they ended.
    pub fn attempts(&self) -> Result<Rows<AttemptRecord>> {
        unimplemented!()
    }

    /// The generator's health, second by second.
    pub fn health(&self) -> Result<Rows<HealthRecord>> {
        unimplemented!()
    }

    /// The metrics scraped from the target; empty when nothing was scraped.
    pub fn server(&self) -> Result<Rows<ServerRecord>> {
        unimplemented!()
    }

    /// The releases still in the journal; empty for a closed run.
    pub fn releases(&self) -> Result<Rows<ReleaseRecord>> {
        unimplemented!()
    }

    /// Requests with their attempts, joined in one pass; memory is bounded by the requests in flight at once.
    pub fn exchanges(&self) -> Result<Exchanges> {
        unimplemented!()
    }

    /// The run as a timeline (a baseline for `compare`): the phase `measure`, with what the replay measured in the
    /// place of what production recorded.
    pub fn timeline_view(&self) -> Result<TimelineView> {
        unimplemented!()
    }

    /// Closes a run whose writer died: released requests without a row become `interrupted`, the rest of the plan
    /// is counted as unsent, the journal becomes parts.
    pub fn recover(dir: &Path, closed_unix_ns: i64) -> Result<RunSummary> {
        let _ = (dir, closed_unix_ns);
        unimplemented!()
    }
}
