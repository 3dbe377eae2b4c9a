//! Closing a run whose writer died.
//!
//! Every step leaves a run that reads the same, so that closing may itself be cut off and begun again: segments
//! become parts one by one, then the interrupted requests get their rows, then the manifest says closed, then the
//! journal goes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracewheel_timeline::vocab::{AttemptStatus, Reason, RequestStatus};

use crate::columns::Table;
use crate::disk::{Disk, FileSystem};
use crate::error::{RecordError, Result};
use crate::journal::SegmentReader;
use crate::layout::{self, Place, Slot};
use crate::manifest::{self, EndedBy, RunState};
use crate::part::PartWriter;
use crate::read::Run;
use crate::rows::{AttemptRecord, HealthRecord, ReleaseRecord, RequestRecord, ServerRecord, Strata};
use crate::write::{self, Room, RunSummary, TableWriter, Tally, WriterOptions};

/// What is known of a released request that has no row.
struct Released {
    /// By number of the attempt.
    attempts: BTreeMap<u16, ReleaseRecord>,
}

type Key = (u64, u32);

pub(crate) fn recover(
    run: &Run,
    closed_unix_ns: i64,
    strata: &mut dyn FnMut(u64) -> Option<Strata>,
) -> Result<RunSummary> {
    let disk: Arc<dyn Disk> = Arc::new(FileSystem);
    let mut warnings = Vec::new();
    roll::<RequestRecord>(run, disk.as_ref(), &mut warnings)?;
    roll::<AttemptRecord>(run, disk.as_ref(), &mut warnings)?;
    roll::<HealthRecord>(run, disk.as_ref(), &mut warnings)?;
    roll::<ServerRecord>(run, disk.as_ref(), &mut warnings)?;
    let interrupted = interrupted(run, &mut warnings)?;
    write_interrupted(run, &disk, &interrupted, strata)?;
    close(run, disk.as_ref(), closed_unix_ns, warnings)
}

/// The rows that the released requests without one would get.
pub(crate) fn unended(run: &Run) -> Result<Vec<RequestRecord>> {
    let released = interrupted(run, &mut Vec::new())?;
    Ok(released.values().filter_map(|released| interrupted_request(released, None)).collect())
}

/// Makes parts of a table's journal segments.
fn roll<T: Table>(run: &Run, disk: &dyn Disk, warnings: &mut Vec<String>) -> Result<()> {
    for (slot, place) in layout::slots(run.dir(), T::NAME)? {
        if place == Place::Part {
            continue;
        }
        let path = slot.segment(run.dir(), T::NAME);
        let segment =
            SegmentReader::open::<T>(&path).map_err(|source| RecordError::io("open", &path, source))??;
        let Some(schema) = segment.schema() else { continue };
        let mut part = PartWriter::create(disk, run.dir(), T::NAME, slot, &schema)?;
        let mut rows = 0;
        for batch in segment {
            match batch {
                Ok(batch) => {
                    rows += batch.num_rows();
                    part.write(&batch)?;
                }
                Err(error @ RecordError::Arrow { .. }) => {
                    warnings.push(format!("what follows row {rows} of a journal was lost: {error}"));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if rows == 0 {
            part.abandon(disk);
        } else {
            part.finish(disk)?;
        }
    }
    Ok(())
}

/// The released requests that have no row.
fn interrupted(run: &Run, warnings: &mut Vec<String>) -> Result<BTreeMap<Key, Released>> {
    let mut released: BTreeMap<Key, Released> = BTreeMap::new();
    for release in run.releases()? {
        match release {
            Ok(release) => {
                let key = (release.row, release.copy);
                let known = released.entry(key).or_insert_with(|| Released { attempts: BTreeMap::new() });
                known.attempts.insert(release.attempt, release);
            }
            Err(error @ RecordError::Arrow { .. }) => {
                warnings.push(format!("some releases were lost: {error}"));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    if released.is_empty() {
        return Ok(released);
    }
    for request in run.requests()? {
        let request = request?;
        released.remove(&(request.row, request.copy));
    }
    Ok(released)
}

/// Gives the interrupted requests, and those of their attempts that did not end, their rows.
fn write_interrupted(
    run: &Run,
    disk: &Arc<dyn Disk>,
    interrupted: &BTreeMap<Key, Released>,
    strata: &mut dyn FnMut(u64) -> Option<Strata>,
) -> Result<()> {
    if interrupted.is_empty() {
        return Ok(());
    }
    let mut unrecorded: BTreeMap<(Key, u16), &ReleaseRecord> = BTreeMap::new();
    for (key, released) in interrupted {
        unrecorded.extend(released.attempts.iter().map(|(attempt, release)| ((*key, *attempt), release)));
    }
    for attempt in run.attempts_without_events()? {
        let attempt = attempt?;
        unrecorded.remove(&((attempt.row, attempt.copy), attempt.attempt));
    }
    let mut attempts = table::<AttemptRecord>(run, disk)?;
    for release in unrecorded.into_values() {
        attempts.push(&interrupted_attempt(release))?;
    }
    attempts.finish()?;
    let mut requests = table::<RequestRecord>(run, disk)?;
    for ((row, _), released) in interrupted {
        if let Some(request) = interrupted_request(released, strata(*row)) {
            requests.push(&request)?;
        }
    }
    requests.finish()
}

fn interrupted_attempt(release: &ReleaseRecord) -> AttemptRecord {
    AttemptRecord {
        row: release.row,
        copy: release.copy,
        attempt: release.attempt,
        due_ns: release.due_ns,
        released_ns: Some(release.released_ns),
        status: AttemptStatus::Interrupted,
        reason: Some(Reason::InterruptedByCrash),
        ..AttemptRecord::default()
    }
}

fn interrupted_request(released: &Released, strata: Option<Strata>) -> Option<RequestRecord> {
    let (_, first) = released.attempts.first_key_value()?;
    let (last, _) = released.attempts.last_key_value()?;
    Some(RequestRecord {
        row: first.row,
        copy: first.copy,
        phase: first.phase,
        planned_ns: first.planned_ns,
        due_ns: first.due_ns,
        gated: first.gated,
        trace_unix_ns: first.trace_unix_ns,
        status: RequestStatus::Interrupted,
        reason: Some(Reason::InterruptedByCrash),
        attempts: *last,
        final_attempt: *last,
        strata: strata.unwrap_or_default(),
        ..RequestRecord::default()
    })
}

/// A writer behind the last part of a table.
fn table<T: Table>(run: &Run, disk: &Arc<dyn Disk>) -> Result<TableWriter<T>> {
    let last = layout::slots(run.dir(), T::NAME)?.into_keys().next_back();
    let slot = last.map_or(Slot { shard: 0, number: 0 }, Slot::next);
    let WriterOptions { part_rows, part_bytes, .. } = WriterOptions::default();
    let room = Room { disk: Arc::clone(disk), run: run.dir().to_owned(), part_rows, part_bytes };
    Ok(TableWriter::new(room, slot, &run.manifest().id, &run.manifest().tool_version))
}

/// Counts everything anew, completes the manifest and removes the journal.
fn close(run: &Run, disk: &dyn Disk, closed_unix_ns: i64, warnings: Vec<String>) -> Result<RunSummary> {
    let mut tally = Tally::default();
    let mut last_ns = None;
    for request in run.requests()? {
        let request = request?;
        tally.add(request.phase, request.status, request.reason);
        last_ns = last_ns.max(request.end_ns);
    }
    let mut manifest = run.manifest().clone();
    let planned = manifest.plan.requests;
    tally.add_unsent_without_row(planned.saturating_sub(tally.counts.total()));
    write::conserved(run.dir(), planned, tally.counts)?;
    let mut attempts = 0;
    for attempt in run.attempts_without_events()? {
        attempt?;
        attempts += 1;
    }
    let outcome = manifest.outcome.get_or_insert_default();
    tally.write_to(outcome);
    outcome.attempts = attempts;
    outcome.ended_by = EndedBy::Killed;
    outcome.ended_ns = outcome.ended_ns.or(last_ns);
    manifest.state = RunState::Recovered;
    manifest.closed_unix_ns = Some(closed_unix_ns);
    manifest.warnings.push("the process that wrote this run died: its last second may be missing".to_owned());
    manifest.warnings.extend(warnings);
    manifest::file::write(disk, run.dir(), &manifest)?;
    let mut parts = 0;
    for table in write::TABLES {
        parts += layout::slots(run.dir(), table)?.into_values().filter(|place| *place == Place::Part).count();
    }
    write::remove_journal(disk, run.dir())?;
    Ok(RunSummary {
        id: manifest.id,
        dir: run.dir().to_owned(),
        counts: tally.counts,
        extra: tally.extra,
        attempts,
        parts: parts as u32,
    })
}
