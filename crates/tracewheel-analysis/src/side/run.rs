//! A run as one side: requests first, then their attempts, each table read once from front to back.

use std::collections::{BTreeMap, HashSet};

use tracewheel_record::manifest::EndedBy;
use tracewheel_record::{AttemptRecord, RequestRecord, Run};
use tracewheel_timeline::vocab::{AttemptStatus, Operation, Phase, Reason, RequestStatus};

use super::observed::{Ended, Key, Observed, Roster};
use super::report::{Counts, SideKind};
use super::streams::{OutputStream, StreamTally};
use super::{Side, Source, load_level, throttled_status};
use crate::error::{AnalysisError, Result};
use crate::fidelity::{DurationSummary, Fidelity};
use crate::metric::Metric;

/// How many requests of each phase and status a run holds.
pub(crate) type PhaseCounts = BTreeMap<(Phase, RequestStatus), u64>;

/// Where a person (or a crash) cut the window.
#[derive(Debug, Clone, Copy, Default)]
struct Cut {
    /// Sends planned from here on are outside.
    at_ns: Option<i64>,
    early: bool,
}

impl Cut {
    fn of(run: &Run) -> Self {
        match &run.manifest().outcome {
            None => Self { at_ns: None, early: true },
            Some(outcome) => match outcome.ended_by {
                EndedBy::Drained | EndedBy::Cut | EndedBy::Killed => {
                    Self { at_ns: outcome.ended_ns, early: true }
                }
                _ => Self::default(),
            },
        }
    }

    /// Whether a request lies after the end of the window: planned later, or never released because of that end.
    fn leaves_out(self, record: &RequestRecord) -> bool {
        let not_reached = matches!(record.reason, Some(Reason::StoppedByUser | Reason::RunCrashed));
        not_reached || self.at_ns.is_some_and(|end| record.planned_ns >= end)
    }
}

/// Reads the measured requests of a run.
pub(crate) fn load(run: &Run, stall_ns: i64) -> Result<Side<'_>> {
    let cut = Cut::of(run);
    let mut table = RequestTable::default();
    for record in run.requests()? {
        table.add(&record?, cut);
    }
    if !run.is_closed() {
        table.add_what_has_no_row(run, cut)?;
    }
    let without_row = run.manifest().outcome.as_ref().map_or(0, |o| o.counts.unsent_without_row);
    if cut.early {
        table.counts.after_window += without_row;
    } else {
        table.counts.unsent += without_row;
        table.counts.planned += without_row;
    }
    let roster = Roster::new(table.requests);
    let mut attempts = AttemptTable::new(roster, table.whole, stall_ns);
    for attempt in run.attempts()? {
        attempts.add(&attempt?);
    }
    let mut fidelity = attempts.fidelity(&table.counts, table.gate_drift);
    read_health(run, &mut fidelity)?;
    fidelity.faithful = run.manifest().outcome.as_ref().and_then(|o| o.faithful);
    let mut side = Side::new(SideKind::Run, run.manifest().id.clone(), Source::Run(run), attempts.roster);
    side.set_streams(attempts.tally);
    side.report.counts = table.counts;
    let window = &mut side.report.window;
    window.from_ns = side.roster.requests.first().map(|r| r.order_ns);
    window.to_ns = side.roster.requests.last().map(|r| cut.at_ns.unwrap_or(r.order_ns));
    window.ended_early = cut.early;
    (window.trace_from_unix_ns, window.trace_to_unix_ns) = table.trace.unzip();
    side.unsent_without_row = if cut.early { 0 } else { without_row };
    side.fidelity = Some(fidelity);
    side.body_tail = DurationSummary::of(attempts.body_tail);
    side.phases = table.phases;
    Ok(side)
}

/// Visits the output stream of every successful request of the roster that has gaps, in the order in which they ended.
pub(crate) fn visit_streams(
    run: &Run,
    roster: &Roster,
    visit: &mut dyn FnMut(usize, &OutputStream),
) -> Result<()> {
    let mut stream = OutputStream::default();
    for attempt in run.attempts()? {
        let attempt = attempt?;
        let Some(at) = roster.position((attempt.row, attempt.copy)) else { continue };
        let request = &roster.requests[at];
        if request.knows(Metric::Gap) && u64::from(attempt.attempt) == request.counted {
            stream.load(&attempt);
            visit(at, &stream);
        }
    }
    Ok(())
}

/// What the table of requests yields.
#[derive(Default)]
struct RequestTable {
    requests: Vec<Observed>,
    /// Requests whose answer is no stream of output.
    whole: HashSet<Key>,
    counts: Counts,
    phases: PhaseCounts,
    gate_drift: Vec<i64>,
    /// First and last recorded arrival.
    trace: Option<(i64, i64)>,
}

impl RequestTable {
    fn add(&mut self, record: &RequestRecord, cut: Cut) {
        *self.phases.entry((record.phase, record.status)).or_default() += 1;
        if record.phase != Phase::Measure {
            self.counts.other_phases += 1;
            return;
        }
        if cut.leaves_out(record) {
            self.counts.after_window += 1;
            return;
        }
        self.counts.add(record.status);
        if let Some(reason) = record.reason {
            *self.counts.reasons.entry(reason.as_str().to_owned()).or_default() += 1;
        }
        if record.gated && record.status != RequestStatus::Unsent {
            self.gate_drift.push(record.due_ns - record.planned_ns);
        }
        if let Some(at) = record.trace_unix_ns {
            let (from, to) = self.trace.unwrap_or((at, at));
            self.trace = Some((from.min(at), to.max(at)));
        }
        if !is_streamed(record) {
            self.whole.insert((record.row, record.copy));
        }
        self.requests.push(observed(record));
    }
}

impl RequestTable {
    /// Of an open run (its writer died, or lives): what was released and has not ended is interrupted, as it will be
    /// when the run is recovered, and what was not released lies after the window. Left out, the slow ones would be
    /// missing from the counts and nothing would say so.
    fn add_what_has_no_row(&mut self, run: &Run, cut: Cut) -> Result<()> {
        for record in run.unended()? {
            self.add(&record, cut);
        }
        let of_plan = |phase: Phase| !matches!(phase, Phase::Calibrate | Phase::Prime);
        let known: u64 =
            self.phases.iter().filter(|((phase, _), _)| of_plan(*phase)).map(|(_, count)| count).sum();
        self.counts.after_window += run.manifest().plan.requests.saturating_sub(known);
        Ok(())
    }
}

/// Whether the answer was asked for as a stream of output; unknown counts as one where output is text.
fn is_streamed(record: &RequestRecord) -> bool {
    let text = !matches!(record.strata.operation, Some(Operation::Embeddings | Operation::Http));
    record.strata.stream.unwrap_or(text) && text
}

fn observed(record: &RequestRecord) -> Observed {
    Observed {
        key: (record.row, record.copy),
        order_ns: record.planned_ns,
        status: Ended(record.status),
        start_ns: record.due_ns,
        end_ns: record.end_ns,
        input_tokens: record.input_tokens,
        cached_tokens: record.cached_tokens,
        output_tokens: record.output_tokens,
        attempts: record.attempts,
        counted: u64::from(record.final_attempt),
        backoff_ns: record.backoff_ns,
        budget_wait_ns: record.budget_wait_ns,
        ..Observed::default()
    }
}

/// What the table of attempts yields.
struct AttemptTable {
    roster: Roster,
    whole: HashSet<Key>,
    tally: StreamTally,
    stream: OutputStream,
    lateness: Vec<i64>,
    body_tail: Vec<i64>,
    sent: u64,
    /// First and last first byte of a first attempt.
    written: Option<(i64, i64)>,
}

impl AttemptTable {
    fn new(roster: Roster, whole: HashSet<Key>, stall_ns: i64) -> Self {
        Self {
            roster,
            whole,
            tally: StreamTally::new(stall_ns),
            stream: OutputStream::default(),
            lateness: Vec::new(),
            body_tail: Vec::new(),
            sent: 0,
            written: None,
        }
    }

    fn add(&mut self, attempt: &AttemptRecord) {
        let key = (attempt.row, attempt.copy);
        let Some(at) = self.roster.position(key) else { return };
        let request = &mut self.roster.requests[at];
        if let Some(written) = attempt.first_write_ns {
            self.sent += 1;
            request.sent = true;
            if attempt.attempt == 1 {
                self.lateness.push(written - attempt.due_ns);
                let (from, to) = self.written.unwrap_or((written, written));
                self.written = Some((from.min(written), to.max(written)));
            }
        }
        request.throttled |= throttled_status(attempt.http_status)
            || matches!(attempt.reason, Some(Reason::RateLimited | Reason::Overloaded));
        let counted = u64::from(attempt.attempt) == request.counted;
        if !(counted && request.is_ok() && attempt.status == AttemptStatus::Ok) {
            return;
        }
        self.stream.load(attempt);
        request.service_start_ns = attempt.last_write_ns;
        request.headers_ns = attempt.headers_ns;
        request.first_byte_ns = attempt.first_byte_ns;
        request.first_output_ns = self.stream.first_ns();
        request.first_visible_ns = self.stream.first_visible_ns();
        let body_end =
            attempt.reads.last().map(|read| read.kernel_ns.unwrap_or(read.user_ns)).or(attempt.end_ns);
        request.end_ns = request.end_ns.or(attempt.end_ns);
        if self.whole.contains(&key) {
            request.last_ns = body_end;
            return;
        }
        request.last_ns = self.stream.last_ns();
        request.spread = true;
        request.gaps = self.stream.len().saturating_sub(1) as u32;
        self.tally.add(&self.stream);
        if let (Some(last), Some(end)) = (request.last_ns, body_end) {
            self.body_tail.push(end - last);
        }
        if let Some((tpot_ns, source)) = self.stream.per_token(attempt.usage_output_tokens) {
            request.tpot_ns = Some(tpot_ns);
            request.token_source = Some(source);
        }
    }

    fn fidelity(&mut self, counts: &Counts, gate_drift: Vec<i64>) -> Fidelity {
        let planned = self.roster.requests.first().zip(self.roster.requests.last());
        let planned_span = planned.map_or(0, |(first, last)| last.order_ns - first.order_ns);
        let written_span = self.written.map_or(0, |(from, to)| to - from);
        Fidelity {
            planned: counts.planned,
            offered_per_second: load_level::per_second(self.roster.requests.len(), planned_span),
            achieved_per_second: load_level::per_second(self.lateness.len(), written_span),
            sent: self.roster.requests.iter().filter(|r| r.sent).count() as u64,
            attempts_sent: self.sent,
            lateness: DurationSummary::of(std::mem::take(&mut self.lateness)),
            gate_drift: DurationSummary::of(gate_drift),
            ..Fidelity::default()
        }
    }
}

fn read_health(run: &Run, fidelity: &mut Fidelity) -> Result<()> {
    for record in run.health()? {
        let record = record.map_err(AnalysisError::from)?;
        fidelity.loop_delay_max_ns = fidelity.loop_delay_max_ns.max(record.loop_delay_max_ns);
        fidelity.kernel_lag_max_ns = fidelity.kernel_lag_max_ns.max(record.kernel_lag_max_ns);
        fidelity.clock_steps += u64::from(record.clock_stepped == Some(true));
    }
    Ok(())
}
