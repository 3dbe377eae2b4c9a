//! A run as one side: requests first, then their attempts, each table read once from front to back.

use std::collections::{BTreeMap, HashMap, HashSet};

use tracewheel_record::manifest::EndedBy;
use tracewheel_record::{AttemptRecord, RequestRecord, Run};
use tracewheel_timeline::vocab::{
    AttemptStatus, Operation, Phase, Reason, RequestStatus, Source as TokensFrom,
};

use super::observed::{Ended, Key, Observed, Roster};
use super::report::{Counts, SideKind};
use super::streams::{OutputStream, StreamTally};
use super::wave::{Resend, RetryWave};
use super::{Side, Source, load_level, throttled_status};
use crate::error::{AnalysisError, Result};
use crate::fidelity::{
    self, Departure, DurationSummary, Evidence, Fidelity, FidelityBounds, GapReport, HealthFigures, Scene,
    Unsent,
};
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

/// Reads the measured requests of a run; judges its sending by `bounds`, or by its own.
pub(crate) fn load(run: &Run, stall_ns: i64, bounds: Option<FidelityBounds>) -> Result<Side<'_>> {
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
    let unsent = unsent(&table.counts, without_row, attempts.without_resource(&table.stuck), cut);
    let health = read_health(run, &mut fidelity)?;
    judge(&mut fidelity, run, bounds, Found { departures: &attempts.departures, health: &health, unsent });
    let mut side = Side::new(SideKind::Run, run.manifest().id.clone(), Source::Run(run), attempts.roster);
    side.set_streams(attempts.tally);
    side.report.counts = table.counts;
    side.report.retries.wave = RetryWave::of(attempts.resends);
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
    /// Requests that failed because the generator had no connection for them.
    stuck: HashSet<Key>,
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
        if lacked_connection(record.reason) {
            self.stuck.insert((record.row, record.copy));
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

/// Whether the answer was asked for as a stream of output; unknown counts as one where output is text. Embeddings never
/// are one.
fn is_streamed(record: &RequestRecord) -> bool {
    match record.strata.operation {
        Some(Operation::Embeddings) => false,
        Some(Operation::Http) => record.strata.stream == Some(true),
        _ => record.strata.stream.unwrap_or(true),
    }
}

/// Whether an attempt failed for want of what the generator's own machine or its limits did not give.
fn lacked_connection(reason: Option<Reason>) -> bool {
    matches!(reason, Some(Reason::LocalResources | Reason::LocalDescriptors | Reason::ConnectionLimit))
}

fn observed(record: &RequestRecord) -> Observed {
    Observed {
        key: (record.row, record.copy),
        order_ns: record.planned_ns,
        status: Ended(record.status),
        operation: record.strata.operation,
        sent_route: record.sent_route.clone(),
        streamed: is_streamed(record),
        start_ns: record.due_ns,
        end_ns: record.end_ns,
        asked_input_tokens: record
            .asked_input_tokens
            .filter(|_| record.input_tokens_source == Some(TokensFrom::Reported)),
        input_tokens: record.input_tokens,
        cached_tokens: record.cached_tokens,
        predicted_cached_tokens: record.predicted_cached_tokens,
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
    departures: Vec<Departure>,
    retry_lateness: Vec<i64>,
    resends: Vec<Resend>,
    /// Due time and end of the latest attempt of each request that has a later one.
    tried: HashMap<Key, (i64, i64)>,
    body_tail: Vec<i64>,
    sent: u64,
}

impl AttemptTable {
    fn new(roster: Roster, whole: HashSet<Key>, stall_ns: i64) -> Self {
        Self {
            roster,
            whole,
            tally: StreamTally::new(stall_ns),
            stream: OutputStream::default(),
            departures: Vec::new(),
            retry_lateness: Vec::new(),
            resends: Vec::new(),
            tried: HashMap::new(),
            body_tail: Vec::new(),
            sent: 0,
        }
    }

    fn add(&mut self, attempt: &AttemptRecord) {
        let key = (attempt.row, attempt.copy);
        let Some(at) = self.roster.position(key) else { return };
        let tried = self.tried.remove(&key);
        let request = &mut self.roster.requests[at];
        if let Some(end_ns) = attempt.end_ns.filter(|_| attempt.attempt < request.attempts) {
            self.tried.insert(key, (attempt.due_ns, end_ns));
        }
        if let Some(written) = attempt.first_write_ns {
            self.sent += 1;
            request.sent = true;
            if attempt.attempt == 1 {
                self.departures.push(Departure {
                    due_ns: attempt.due_ns,
                    written_ns: written,
                    released_ns: attempt.released_ns,
                    write_ns: attempt.last_write_ns.map(|last| last - written),
                    ready_ns: attempt
                        .tls_ns
                        .or(attempt.connected_ns)
                        .filter(|_| attempt.connection_reused == Some(false)),
                });
            } else {
                self.retry_lateness.push(written - attempt.due_ns);
                if let Some((due_ns, end_ns)) = tried {
                    self.resends.push(Resend {
                        at_ns: written,
                        wait_ns: (attempt.due_ns - end_ns).max(0),
                        period_ns: attempt.due_ns - due_ns,
                    });
                }
            }
        }
        request.throttled |= throttled_status(attempt.http_status)
            || matches!(attempt.reason, Some(Reason::RateLimited | Reason::Overloaded));
        let counted = u64::from(attempt.attempt) == request.counted;
        if !(counted && request.is_ok() && attempt.status == AttemptStatus::Ok) {
            return;
        }
        self.stream.load(attempt);
        // An answer that began before the whole request was there says nothing of how long the server took for it.
        request.service_start_ns = attempt
            .last_write_ns
            .filter(|written| attempt.first_byte_ns.is_none_or(|began| *written <= began));
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

    /// How many of these requests sent no byte in any attempt.
    fn without_resource(&self, stuck: &HashSet<Key>) -> u64 {
        self.roster.requests.iter().filter(|r| !r.sent && stuck.contains(&r.key)).count() as u64
    }

    fn fidelity(&mut self, counts: &Counts, gate_drift: Vec<i64>) -> Fidelity {
        let requests = &self.roster.requests;
        let planned = requests.first().zip(requests.last());
        let planned_span = planned.map_or(0, |(first, last)| last.order_ns - first.order_ns);
        let of = |figure: fn(&Departure) -> i64| self.departures.iter().map(figure).collect::<Vec<i64>>();
        let written = of(|d| d.written_ns);
        let written_span =
            written.iter().max().zip(written.iter().min()).map_or(0, |(last, first)| last - first);
        Fidelity {
            planned: counts.planned,
            offered_per_second: load_level::per_second(requests.len(), planned_span),
            achieved_per_second: load_level::per_second(written.len(), written_span),
            sent: requests.iter().filter(|r| r.sent).count() as u64,
            attempts_sent: self.sent,
            lateness: DurationSummary::of(of(Departure::late_ns)),
            retry_lateness: DurationSummary::of(std::mem::take(&mut self.retry_lateness)),
            write_time: DurationSummary::of(self.departures.iter().filter_map(|d| d.write_ns).collect()),
            gaps: GapReport::of(requests.iter().map(|r| r.start_ns).collect(), of(|d| d.due_ns), written),
            gate_drift: DurationSummary::of(gate_drift),
            ..Fidelity::default()
        }
    }
}

/// What the tables yield of the sending.
struct Found<'a> {
    departures: &'a [Departure],
    health: &'a [HealthFigures],
    unsent: Unsent,
}

/// The window's requests that never left, by what kept them.
fn unsent(counts: &Counts, without_row: u64, stuck: u64, cut: Cut) -> Unsent {
    let of = |reason: Reason| counts.reasons.get(reason.as_str()).copied().unwrap_or(0);
    // Requests without a row have no reason: they are the rest of a plan that was broken off.
    let aborted = of(Reason::RunAborted) + if cut.early { 0 } else { without_row };
    // A turn has no due time when the one before it failed, which follows from an answer.
    // And what a budget was asked not to let through was not to be sent.
    let not_to_be = of(Reason::PreviousTurnFailed) + of(Reason::BudgetExceeded);
    let limits = counts.unsent.saturating_sub(aborted + not_to_be);
    Unsent { aborted, stuck, limits }
}

/// Adds the verdict and its causes to the figures.
fn judge(fidelity: &mut Fidelity, run: &Run, bounds: Option<FidelityBounds>, found: Found<'_>) {
    let manifest = run.manifest();
    fidelity.unsent = found.unsent.total();
    fidelity.bounds = bounds.or(manifest.fidelity).unwrap_or_default();
    let evidence = Evidence {
        has_schedule: !manifest.plan.mode.as_deref().is_some_and(|mode| mode.starts_with("closed")),
        planned: fidelity.planned,
        unsent: fidelity.unsent,
        lateness_p99_ns: fidelity.lateness.p99_ns,
        gaps: fidelity.gaps,
    };
    (fidelity.criteria, fidelity.verdict, fidelity.reason) = fidelity::judge(&evidence, &fidelity.bounds);
    let faithful_ns = fidelity.criteria.lateness_p99_ns.degraded_above;
    fidelity.late = found.departures.iter().filter(|d| d.late_ns() > faithful_ns).count() as u64;
    fidelity.causes = fidelity::find_causes(&Scene {
        departures: found.departures,
        health: found.health,
        late_above_ns: fidelity.criteria.late_above_ns(),
        limited: manifest.policy.connections.limit.is_some(),
        // In a closed loop nothing is judged, and nothing needs a cause.
        unsent: if evidence.has_schedule { found.unsent } else { Unsent::default() },
        ended_by: manifest.outcome.as_ref().map_or(EndedBy::Unknown, |outcome| outcome.ended_by),
    });
}

fn read_health(run: &Run, fidelity: &mut Fidelity) -> Result<Vec<HealthFigures>> {
    let mut rows = Vec::new();
    for record in run.health()? {
        let record = record.map_err(AnalysisError::from)?;
        fidelity.loop_delay_max_ns = fidelity.loop_delay_max_ns.max(record.loop_delay_max_ns);
        fidelity.kernel_lag_max_ns = fidelity.kernel_lag_max_ns.max(record.kernel_lag_max_ns);
        fidelity.clock_steps += u64::from(record.clock_stepped == Some(true));
        let half = record.clock_bracket_ns.map(|bracket| bracket / 2 + bracket % 2);
        fidelity.stamp_uncertainty_ns = fidelity.stamp_uncertainty_ns.max(half);
        rows.push(HealthFigures::from(&record));
    }
    rows.sort_by_key(HealthFigures::at_ns);
    Ok(rows)
}
