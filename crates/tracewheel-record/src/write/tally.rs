//! Counting requests by how they ended.

use std::collections::BTreeMap;

use tracewheel_timeline::vocab::{Phase, Reason, RequestStatus};

use crate::manifest::{Counts, OutcomeSection};

/// Requests by status and reason.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// Requests of the plan.
    pub(crate) counts: Counts,
    /// Requests beside the plan.
    pub(crate) extra: Counts,
    reasons: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Counts a request.
    pub(crate) fn add(&mut self, phase: Phase, status: RequestStatus, reason: Option<Reason>) {
        if matches!(phase, Phase::Calibrate | Phase::Prime) {
            *slot(&mut self.extra, status) += 1;
            return;
        }
        *slot(&mut self.counts, status) += 1;
        if let Some(reason) = reason {
            *self.reasons.entry(reason.as_str()).or_default() += 1;
        }
    }

    /// Counts requests of the plan that never left and have no row.
    pub(crate) fn add_unsent_without_row(&mut self, requests: u64) {
        self.counts.unsent += requests;
        self.counts.unsent_without_row += requests;
    }

    /// Writes the counts into an outcome.
    pub(crate) fn write_to(&self, outcome: &mut OutcomeSection) {
        outcome.counts = self.counts;
        outcome.extra = self.extra;
        outcome.reasons = self.reasons.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
    }
}

fn slot(counts: &mut Counts, status: RequestStatus) -> &mut u64 {
    match status {
        RequestStatus::Ok => &mut counts.ok,
        RequestStatus::Failed => &mut counts.failed,
        RequestStatus::Cancelled => &mut counts.cancelled,
        RequestStatus::Interrupted => &mut counts.interrupted,
        RequestStatus::Unsent => &mut counts.unsent,
    }
}
