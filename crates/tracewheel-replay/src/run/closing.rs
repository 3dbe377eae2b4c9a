//! The end of a run: its manifest completed, its warnings, its report.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use tracewheel_record::manifest::HookSection;
use tracewheel_record::{Manifest, RecordError};
use tracewheel_timeline::vocab::Operation;
use tracewheel_workload::Plan;

use crate::histogram::quantiles;
use crate::manifest::{complete, per_second};
use crate::realtime::SchedulingSeen;
use crate::recorder::{Recorded, Totals};
use crate::shared::Shared;
use crate::{Counts, RunReport, Started, StopLevel};

use super::Conducted;

/// Closes the run and says how it went.
pub(super) fn report(
    recorded: Recorded,
    mut manifest: Manifest,
    conducted: &Conducted,
    shared: &Shared,
    plan: &Plan,
    started: &Started,
) -> Result<RunReport, RecordError> {
    let totals = &recorded.totals;
    complete(&mut manifest, totals, shared, plan, conducted);
    let released = totals.first_release_ns.zip(totals.last_release_ns);
    let span_ns = released.map_or(0, |(first, last)| last - first);
    let header = plan.header();
    let started_ns = shared.measure_start_ns().map(|start| start.saturating_add(header.warmup_ns));
    let mut report = RunReport {
        run_id: started.run_id.clone(),
        run_dir: PathBuf::new(),
        counts: Counts { planned: header.requests, ..totals.counts },
        reasons: totals.reasons.clone(),
        attempts: totals.attempts,
        retries: shared.gauges.retries.load(Ordering::Relaxed),
        primed: totals.primed.ok,
        prime: manifest.outcome.as_ref().and_then(|outcome| outcome.prime),
        warmup: header.requests_warmup,
        thinned: header.thinned.clone(),
        connections: shared.gauges.connections_opened.load(Ordering::Relaxed),
        stale_connections: shared.gauges.stale_connections.load(Ordering::Relaxed),
        connection_life: shared.connections(),
        lateness: quantiles(&totals.lateness),
        ttft: quantiles(&totals.ttft),
        e2e: quantiles(&totals.e2e),
        offered_per_s: per_second(header.requests_measured(), header.measured_span_ns()),
        achieved_per_s: per_second(totals.in_flight.count(), span_ns),
        measured_ns: started_ns.zip(totals.last_end_ns).map_or(0, |(start, end)| (end - start).max(0)),
        stopped: conducted.stopped,
        stopped_after_ns: conducted
            .stopped_ns
            .zip(started_ns)
            .map(|(stopped, start)| stopped - start)
            .filter(|after| *after >= 0),
        gave_up: conducted.gave_up.clone(),
        no_output: None,
        first_failure: totals.first_failure.clone(),
        warnings: Vec::new(),
    };
    manifest.warnings.extend(warnings(&report, totals.local_failures));
    manifest.warnings.extend(hook_warnings(&conducted.hooks));
    manifest.warnings.extend(scheduling_warnings(&shared.scheduling()));
    manifest.warnings.extend(threading_warning(shared));
    if let Some(told) = without_output(totals, plan) {
        report.no_output = (totals.silent == totals.well).then(|| told.clone());
        manifest.warnings.push(told);
    }
    report.warnings.clone_from(&manifest.warnings);
    let summary = recorded.finish(&manifest, shared.clock.as_ref())?;
    let counts = summary.counts;
    report.run_dir = summary.dir;
    report.counts = Counts {
        planned: report.counts.planned,
        ok: counts.ok,
        failed: counts.failed,
        cancelled: counts.cancelled,
        interrupted: counts.interrupted,
        unsent: counts.unsent,
    };
    Ok(report)
}

/// What is wrong with answers that ended well and held nothing, where text was asked for.
fn without_output(totals: &Totals, plan: &Plan) -> Option<String> {
    let bears_none = |operation| matches!(operation, Operation::Embeddings | Operation::Http);
    let text_asked = !plan.survey().operations.iter().any(|found| bears_none(found.operation));
    (totals.silent > 0 && text_asked).then(|| {
        let rows: Vec<String> = totals.silent_rows.iter().map(u64::to_string).collect();
        let more = if totals.silent > rows.len() as u64 { ", ..." } else { "" };
        format!(
            "{} of {} good answers held no output (rows {}{more}): is the endpoint healthy? They count as ok and have no TTFT",
            totals.silent,
            totals.well,
            rows.join(", ")
        )
    })
}

/// Which turns do not hold the live answer before them, although they should.
fn threading_warning(shared: &Shared) -> Option<String> {
    let seen = shared.threading()?;
    let left: u64 = seen.as_planned.values().sum();
    let reasons: Vec<String> =
        seen.as_planned.iter().map(|(reason, turns)| format!("{reason} {turns}")).collect();
    (left > 0).then(|| {
        format!(
            "{left} of {} later turns were sent as planned, without the live answer before them ({})",
            left + seen.turns,
            reasons.join(", ")
        )
    })
}

/// Which hooks did not do their work, or did not prove it.
fn hook_warnings(hooks: &[HookSection]) -> Vec<String> {
    let failing = hooks.iter().filter(|hook| hook.outcome == "failed" || hook.outcome == "unproven");
    let told = failing.map(|hook| {
        let why = hook.why.as_deref().unwrap_or("no reason is known");
        let outcome = if hook.outcome == "failed" { "failed" } else { "proves nothing" };
        format!("the hook {} {} {outcome}: {why}", hook.name, hook.at)
    });
    told.collect()
}

/// What was asked of the system's scheduler and not obtained, or not kept.
fn scheduling_warnings(seen: &SchedulingSeen) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(why) = &seen.refused {
        warnings.push(format!(
            "the real-time class was refused ({why}): sending threads ran in the normal one; give the process CAP_SYS_NICE or raise ulimit -r"
        ));
    }
    if seen.step_downs > 0 {
        warnings.push(format!(
            "sending threads gave the real-time class back {} times so as not to starve others: machine.scheduling_changes says when",
            seen.step_downs
        ));
    }
    if let Some(why) = &seen.unpinned {
        warnings.push(format!("a thread could not be bound to its cores ({why})"));
    }
    warnings
}

fn warnings(report: &RunReport, local_failures: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    if report.stopped != StopLevel::Running {
        let when = match report.stopped_after_ns {
            Some(after) => format!("{:.1} s after its beginning", after as f64 / 1e9),
            None => "before its first measured request".to_owned(),
        };
        warnings.push(format!("the run was stopped {when}: its window ends there"));
    }
    if let Some(prime) = report.prime.filter(|prime| prime.failed > 0) {
        warnings.push(format!(
            "{} of {} requests that were to fill the cache failed: it was not in the state that was asked for",
            prime.failed,
            prime.ok + prime.failed
        ));
    }
    if local_failures > 0 {
        warnings.push(format!(
            "{local_failures} attempts failed because this machine ran out of file descriptors or ports: raise ulimit -n, or lower --connections"
        ));
    }
    warnings
}
