//! The plan: counted once, then streamed.

use crate::{PlanHeader, PlannedRequest, WorkloadError};

/// What a replay sends and when.
#[derive(Debug)]
pub struct Plan {
    header: PlanHeader,
}

impl Plan {
    /// What is known before the first request is read.
    pub fn header(&self) -> &PlanHeader {
        &self.header
    }

    /// The requests in planned order, streamed from the timeline. Owns all it needs, so it can move to a thread.
    pub fn requests(&self) -> Result<PlannedRequests, WorkloadError> {
        Ok(PlannedRequests {})
    }
}

/// The requests of a plan, in planned order.
#[derive(Debug)]
pub struct PlannedRequests {}

impl Iterator for PlannedRequests {
    type Item = Result<PlannedRequest, WorkloadError>;

    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}
