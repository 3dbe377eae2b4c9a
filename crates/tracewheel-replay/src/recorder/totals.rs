//! The running sums of a run, for progress and for its closing word.

use std::collections::{BTreeMap, BTreeSet};

use tracewheel_record::redact::redact_text;
use tracewheel_record::{AttemptRecord, HealthRecord, RequestRecord};
use tracewheel_timeline::vocab::{Phase, Reason, RequestStatus};

use crate::decode::Decoded;
use crate::event::LATE_BOUND_NS;
use crate::histogram::{Histogram, quantiles};
use crate::message::EndedAttempt;
use crate::report::{Counts, FirstFailure, Quantiles};

/// Characters of the first failure's words that are told.
const SAID_CHARS: usize = 300;
/// Rows named of requests without output.
const SILENT_ROWS: usize = 3;
/// Different names kept of models, fingerprints and servers.
const MAX_NAMES: usize = 32;

/// Sums over the plan and over its measured phase, and what is told of the target.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// The plan's requests, those of the warm-up among them.
    pub(crate) counts: Counts,
    pub(crate) reasons: BTreeMap<String, u64>,
    /// From here on of the phase `measure` alone.
    pub(crate) attempts: u64,
    pub(crate) primed: Primed,
    pub(crate) lateness: Histogram,
    pub(crate) late_over_bound: u64,
    pub(crate) ttft: Histogram,
    pub(crate) e2e: Histogram,
    /// Requests in flight, seen by each request at its release.
    pub(crate) in_flight: Histogram,
    pub(crate) in_flight_sum: u64,
    pub(crate) first_release_ns: Option<i64>,
    pub(crate) last_release_ns: Option<i64>,
    pub(crate) last_end_ns: Option<i64>,
    pub(crate) output_tokens: u64,
    /// Cached and input tokens over the requests that report both.
    pub(crate) cached_tokens: u64,
    pub(crate) cached_of_tokens: u64,
    pub(crate) cached_reported_by: u64,
    pub(crate) models_served: BTreeSet<String>,
    pub(crate) fingerprints: BTreeSet<String>,
    pub(crate) servers: BTreeSet<String>,
    pub(crate) local_failures: u64,
    /// Requests that ended well although no output event came.
    pub(crate) silent: u64,
    /// The first rows of them.
    pub(crate) silent_rows: Vec<u64>,
    /// Requests that ended well.
    pub(crate) well: u64,
    /// Whether every read carried a kernel stamp; `None` before the first read.
    pub(crate) kernel_stamps: Option<bool>,
    pub(crate) clock: ClockTrack,
    failures_in_a_row: u64,
    pub(crate) first_failure: Option<FirstFailure>,
}

/// What was sent ahead to fill the target's cache.
#[derive(Debug, Default)]
pub(crate) struct Primed {
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) input_tokens: u64,
    /// `None` while no answer said it.
    pub(crate) cached_tokens: Option<u64>,
    pub(crate) output_tokens: u64,
}

impl Primed {
    fn take(&mut self, record: &RequestRecord) {
        if record.status != RequestStatus::Ok {
            // Those that never left because the run ended did not fail.
            self.failed += u64::from(record.status == RequestStatus::Failed);
            return;
        }
        self.ok += 1;
        self.input_tokens += u64::from(record.input_tokens.unwrap_or(0));
        self.output_tokens += u64::from(record.output_tokens.unwrap_or(0));
        if let Some(cached) = record.cached_tokens {
            *self.cached_tokens.get_or_insert(0) += u64::from(cached);
        }
    }
}

/// The clock's offset over a run.
#[derive(Debug, Default)]
pub(crate) struct ClockTrack {
    pub(crate) bracket_max_ns: Option<i64>,
    pub(crate) steps: u32,
    offsets_ns: Option<(i64, i64)>,
}

impl ClockTrack {
    pub(super) fn note(&mut self, row: &HealthRecord) {
        self.bracket_max_ns = self.bracket_max_ns.max(row.clock_bracket_ns);
        self.steps += u32::from(row.clock_stepped == Some(true));
        if let Some(offset) = row.clock_offset_ns {
            self.offsets_ns = Some((self.offsets_ns.map_or(offset, |(first, _)| first), offset));
        }
    }

    /// Last offset − first offset.
    pub(crate) fn drift_ns(&self) -> Option<i64> {
        self.offsets_ns.map(|(first, last)| last - first)
    }
}

/// What progress shows of the totals.
#[derive(Debug, Clone, Default)]
pub(crate) struct Live {
    pub(crate) counts: Counts,
    pub(crate) late: Quantiles,
    pub(crate) late_over_bound: u64,
    pub(crate) ttft: Quantiles,
    pub(crate) e2e: Quantiles,
    pub(crate) output_tokens: u64,
}

impl Totals {
    pub(super) fn attempt(&mut self, ended: &EndedAttempt, record: &AttemptRecord, decoded: &Decoded) {
        note(&mut self.servers, decoded.server.as_deref());
        note(&mut self.models_served, decoded.model_served.as_deref());
        note(&mut self.fingerprints, decoded.system_fingerprint.as_deref());
        if !record.reads.is_empty() {
            let stamped = record.reads.iter().all(|read| read.kernel_ns.is_some());
            self.kernel_stamps = Some(self.kernel_stamps.unwrap_or(true) && stamped);
        }
        if ended.phase != Phase::Measure {
            return;
        }
        self.attempts += 1;
        if matches!(record.reason, Some(Reason::LocalResources | Reason::LocalDescriptors)) {
            self.local_failures += 1;
        }
        self.last_end_ns = self.last_end_ns.max(Some(ended.end_ns));
        if ended.attempt > 1 {
            return;
        }
        let released = ended.released_ns;
        self.first_release_ns = Some(self.first_release_ns.map_or(released, |first| first.min(released)));
        self.last_release_ns = self.last_release_ns.max(Some(released));
        self.in_flight.record(i64::from(ended.in_flight));
        self.in_flight_sum += u64::from(ended.in_flight);
        if let Some(written) = record.first_write_ns {
            self.lateness.record(written - ended.due_ns);
            self.late_over_bound += u64::from(written - ended.due_ns > LATE_BOUND_NS);
        }
    }

    /// Keeps the first request that failed.
    pub(super) fn note_failure(&mut self, request: &RequestRecord, last: &AttemptRecord) {
        if self.first_failure.is_some()
            || request.phase != Phase::Measure
            || request.status != RequestStatus::Failed
        {
            return;
        }
        let Some(reason) = request.reason else { return };
        self.first_failure = Some(FirstFailure {
            row: request.row,
            reason,
            http_status: last.http_status,
            said: last.error_body.as_deref().map(one_line),
            remedy: reason.remedy(),
        });
    }

    /// Counts a request; the failed ones in a row so far.
    pub(super) fn request(&mut self, record: &RequestRecord, decoded: Option<&Decoded>) -> u64 {
        if matches!(record.phase, Phase::Prime | Phase::Calibrate) {
            if record.phase == Phase::Prime {
                self.primed.take(record);
            }
            return 0;
        }
        let counts = &mut self.counts;
        match record.status {
            RequestStatus::Ok => counts.ok += 1,
            RequestStatus::Failed => counts.failed += 1,
            RequestStatus::Cancelled => counts.cancelled += 1,
            RequestStatus::Interrupted => counts.interrupted += 1,
            RequestStatus::Unsent => counts.unsent += 1,
        }
        if let Some(reason) = record.reason {
            *self.reasons.entry(reason.as_str().to_owned()).or_default() += 1;
        }
        match record.status {
            RequestStatus::Ok => self.failures_in_a_row = 0,
            RequestStatus::Failed => self.failures_in_a_row += 1,
            _ => {}
        }
        if let Some(decoded) = decoded {
            self.answer(record, decoded);
        }
        self.failures_in_a_row
    }

    fn answer(&mut self, record: &RequestRecord, decoded: &Decoded) {
        self.output_tokens += u64::from(decoded.output_tokens().0.unwrap_or(0));
        if record.phase != Phase::Measure {
            return;
        }
        if let (Some(cached), Some(input)) = (decoded.usage.cached_tokens, decoded.usage.input_tokens) {
            self.cached_tokens += u64::from(cached);
            self.cached_of_tokens += u64::from(input);
            self.cached_reported_by += 1;
        }
        if record.status == RequestStatus::Ok {
            self.well += 1;
            if record.first_output_ns.is_none() {
                self.silent += 1;
                if self.silent_rows.len() < SILENT_ROWS {
                    self.silent_rows.push(record.row);
                }
            }
            if let Some(first) = record.first_output_ns {
                self.ttft.record(first - record.due_ns);
            }
            if let Some(last) = record.last_output_ns {
                self.e2e.record(last - record.due_ns);
            }
        }
    }

    pub(crate) fn live(&self) -> Live {
        Live {
            counts: self.counts,
            late: quantiles(&self.lateness),
            late_over_bound: self.late_over_bound,
            ttft: quantiles(&self.ttft),
            e2e: quantiles(&self.e2e),
            output_tokens: self.output_tokens,
        }
    }
}

/// The beginning of a text, redacted, on one line.
pub(crate) fn one_line(text: &str) -> String {
    let line: String = redact_text(text).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(SAID_CHARS) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

fn note(names: &mut BTreeSet<String>, name: Option<&str>) {
    if let Some(name) = name
        && names.len() < MAX_NAMES
        && !names.contains(name)
    {
        names.insert(name.to_owned());
    }
}
