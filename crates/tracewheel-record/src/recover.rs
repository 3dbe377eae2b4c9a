//! Closing a run whose writer died.
//!
//! Every step leaves a run that reads the same, so that closing may itself be cut off and begun again: segments
//! become parts one by one, then the interrupted requests get their rows, then the manifest says closed, then the
//! journal goes. A segment goes as soon as its part is there, so that little more space is needed than there was.

mod losses;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tracewheel_timeline::vocab::{AttemptStatus, Phase, Reason, RequestStatus};

use self::losses::Losses;
use crate::columns::Table;
use crate::departures;
use crate::disk::Disk;
use crate::error::{RecordError, Result};
use crate::journal::SegmentReader;
use crate::layout::{self, Slot};
use crate::manifest::{self, EndedBy, RunState};
use crate::part::PartWriter;
use crate::read::Run;
use crate::rows::{AttemptRecord, HealthRecord, ReleaseRecord, RequestRecord, ServerRecord, Strata};
use crate::write::{self, Room, RunSummary, TableWriter, Tally, WriterOptions};

/// Rows named one by one at most.
const NAMED: usize = 10_000;

/// What closing a run whose writer died came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// The closed run.
    pub summary: RunSummary,
    /// Requests that had been released and whose outcome is not known: in flight when the writer died, or ended after
    /// its last flush. By row and copy, the first ten thousand.
    pub missing: Vec<Missing>,
    /// Largest row of the timeline of which a request of the plan is known to have been released or recorded.
    pub last_row: Option<u64>,
    /// The last flush on the run clock: what had ended before is recorded. `None` when the run died before the first.
    pub flushed_ns: Option<i64>,
    /// The last release on the run clock.
    pub released_ns: Option<i64>,
    /// What could not be read or is not there, by file and place; empty unless the disk, a power cut or a person
    /// damaged the journal.
    pub damage: Vec<String>,
    /// Whether what is counted as unsent never left for certain: not so where of what tells which requests left
    /// something is lost.
    pub unsent_certain: bool,
}

/// A request whose outcome was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missing {
    /// The timeline's row.
    pub row: u64,
    /// Which amplified copy of it.
    pub copy: u32,
    /// Its phase.
    pub phase: Phase,
    /// The attempt that had been released last, from 1.
    pub attempt: u16,
    /// When the request was due, on the run clock.
    pub due_ns: i64,
}

/// What is known of a released request that has no row.
struct Released {
    /// By number of the attempt.
    attempts: BTreeMap<u16, ReleaseRecord>,
}

type Key = (u64, u32);

pub(crate) fn recover(
    run: &Run,
    disk: &Arc<dyn Disk>,
    closed_unix_ns: i64,
    strata: &mut dyn FnMut(u64) -> Option<Strata>,
) -> Result<Recovery> {
    let mut losses = losses::survey(run)?;
    roll::<RequestRecord>(run, disk.as_ref(), &mut losses)?;
    roll::<AttemptRecord>(run, disk.as_ref(), &mut losses)?;
    roll::<HealthRecord>(run, disk.as_ref(), &mut losses)?;
    roll::<ServerRecord>(run, disk.as_ref(), &mut losses)?;
    let interrupted = interrupted(run, &mut losses)?;
    write_interrupted(run, disk, &interrupted, strata)?;
    close(run, disk.as_ref(), closed_unix_ns, losses)
}

/// Removes what is left of the journal of a closed run: its writer died between the two steps.
pub(crate) fn sweep(run: &Run, disk: &dyn Disk) -> Result<()> {
    if run.dir().join(layout::JOURNAL).exists() {
        write::remove_journal(disk, run.dir())?;
    }
    Ok(())
}

/// The rows that the released requests without one would get.
pub(crate) fn unended(run: &Run) -> Result<Vec<RequestRecord>> {
    let released = interrupted(run, &mut Losses::default())?;
    Ok(released.values().filter_map(|released| interrupted_request(released, None)).collect())
}

/// Makes parts of a table's journal segments.
fn roll<T: Table>(run: &Run, disk: &dyn Disk, losses: &mut Losses) -> Result<()> {
    for slot in layout::segments(run.dir(), T::NAME)? {
        let path = slot.segment(run.dir(), T::NAME);
        if !slot.part(run.dir(), T::NAME).exists() {
            let segment =
                SegmentReader::open::<T>(&path).map_err(|source| RecordError::io("open", &path, source))?;
            roll_segment(run, disk, T::NAME, slot, segment, losses)?;
        }
        disk.remove(&path).map_err(|source| RecordError::io("remove", &path, source))?;
    }
    Ok(())
}

fn roll_segment(
    run: &Run,
    disk: &dyn Disk,
    table: &str,
    slot: Slot,
    segment: SegmentReader,
    losses: &mut Losses,
) -> Result<()> {
    let mut part: Option<PartWriter> = None;
    for batch in segment {
        match batch {
            Ok(batch) => {
                let open = match &mut part {
                    Some(open) => open,
                    None => part.insert(PartWriter::create(disk, run.dir(), table, slot, &batch.schema())?),
                };
                if let Err(error) = open.write(&batch) {
                    // The rows stay in the journal; the space goes back.
                    part.take().into_iter().for_each(|part| part.abandon(disk));
                    return Err(error);
                }
            }
            Err(error @ (RecordError::Damaged { .. } | RecordError::Arrow { .. })) => {
                losses.add(table, told(&error));
            }
            Err(error) => {
                part.into_iter().for_each(|part| part.abandon(disk));
                return Err(error);
            }
        }
    }
    match part {
        Some(part) => part.finish(disk),
        None => forget_unfinished(run, disk, table, slot),
    }
}

/// Removes the part that the writer had begun of a segment without rows: without its segment it would tell of rows that
/// are lost.
fn forget_unfinished(run: &Run, disk: &dyn Disk, table: &str, slot: Slot) -> Result<()> {
    let path = slot.unfinished_part(run.dir(), table);
    match disk.remove(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| RecordError::io("remove", &path, source)),
    }
}

/// An error with its cause, on one line.
fn told(error: &RecordError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// The released requests that have no row.
fn interrupted(run: &Run, losses: &mut Losses) -> Result<BTreeMap<Key, Released>> {
    let mut released: BTreeMap<Key, Released> = BTreeMap::new();
    let mut note = |release: ReleaseRecord| {
        let known = released.entry((release.row, release.copy));
        known
            .or_insert_with(|| Released { attempts: BTreeMap::new() })
            .attempts
            .insert(release.attempt, release);
    };
    for slot in layout::segments(run.dir(), ReleaseRecord::NAME)? {
        read_releases(run, slot, losses, &mut note)?;
    }
    let departures = departures::read(run.dir())?;
    departures.releases.into_iter().for_each(&mut note);
    departures.damage.into_iter().for_each(|damage| losses.add(losses::DEPARTURES, damage));
    if released.is_empty() {
        return Ok(released);
    }
    for request in run.requests()? {
        let request = request?;
        released.remove(&(request.row, request.copy));
    }
    Ok(released)
}

fn is_planned(phase: Phase) -> bool {
    !matches!(phase, Phase::Calibrate | Phase::Prime)
}

/// The releases of one segment, past what of it is damaged.
fn read_releases(
    run: &Run,
    slot: Slot,
    losses: &mut Losses,
    note: &mut dyn FnMut(ReleaseRecord),
) -> Result<()> {
    let path = slot.segment(run.dir(), ReleaseRecord::NAME);
    let segment = match SegmentReader::open::<ReleaseRecord>(&path) {
        // Its requests have all ended since.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        segment => segment.map_err(|source| RecordError::io("open", &path, source))?,
    };
    for batch in segment {
        match batch {
            Ok(batch) => {
                let bad = |bad| RecordError::batch(&path, bad);
                let view = ReleaseRecord::bind(&batch).map_err(bad)?;
                for row in 0..batch.num_rows() {
                    note(ReleaseRecord::row(&view, row).map_err(bad)?);
                }
            }
            Err(error @ (RecordError::Damaged { .. } | RecordError::Arrow { .. })) => {
                losses.add(ReleaseRecord::NAME, told(&error))
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
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

/// What the rows of a run tell once all of them are in parts.
#[derive(Default)]
struct Count {
    tally: Tally,
    attempts: u64,
    /// Attempts that requests of the status ok took.
    attempts_of_ok: u64,
    missing: Vec<Missing>,
    last_row: Option<u64>,
    last_end_ns: Option<i64>,
    flushed_ns: Option<i64>,
    released_ns: Option<i64>,
}

impl Count {
    fn of(run: &Run) -> Result<Self> {
        let mut count = Self::default();
        for request in run.requests()? {
            count.add(&request?);
        }
        for attempt in run.attempts_without_events()? {
            count.released_ns = count.released_ns.max(attempt?.released_ns);
            count.attempts += 1;
        }
        for second in run.health()? {
            count.flushed_ns = count.flushed_ns.max(Some(second?.at_ns));
        }
        let planned = run.manifest().plan.requests;
        count.tally.add_unsent_without_row(planned.saturating_sub(count.tally.counts.total()));
        write::conserved(run.dir(), planned, count.tally.counts)?;
        count.missing.sort_unstable_by_key(|missing| (missing.row, missing.copy));
        Ok(count)
    }

    fn add(&mut self, request: &RequestRecord) {
        self.tally.add(request.phase, request.status, request.reason);
        if request.status == RequestStatus::Ok {
            self.attempts_of_ok += u64::from(request.attempts);
        }
        self.last_end_ns = self.last_end_ns.max(request.end_ns);
        if is_planned(request.phase) && request.attempts > 0 {
            self.last_row = self.last_row.max(Some(request.row));
        }
        if request.reason == Some(Reason::InterruptedByCrash) && self.missing.len() < NAMED {
            let RequestRecord { row, copy, phase, final_attempt: attempt, due_ns, .. } = *request;
            self.missing.push(Missing { row, copy, phase, attempt, due_ns });
        }
    }
}

/// Counts everything anew, completes the manifest and removes the journal.
fn close(run: &Run, disk: &dyn Disk, closed_unix_ns: i64, mut losses: Losses) -> Result<Recovery> {
    let count = Count::of(run)?;
    losses.check_attempts(run.dir(), count.attempts_of_ok, count.attempts);
    let Losses { named: damage, unsent_certain } = losses;
    let mut manifest = run.manifest().clone();
    let outcome = manifest.outcome.get_or_insert_default();
    count.tally.write_to(outcome);
    outcome.attempts = count.attempts;
    outcome.parts = write::parts(run.dir())?;
    outcome.ended_by = EndedBy::Killed;
    outcome.ended_ns = outcome.ended_ns.or(count.released_ns).or(count.last_end_ns);
    let parts = u32::try_from(outcome.parts.values().sum::<u64>()).unwrap_or(u32::MAX);
    manifest.state = RunState::Recovered;
    manifest.closed_unix_ns = Some(closed_unix_ns);
    manifest.warnings.push("the process that wrote this run died: its last second may be missing".to_owned());
    manifest.warnings.extend(damage.iter().map(|damage| format!("lost for good: {damage}")));
    manifest::file::write(disk, run.dir(), &manifest)?;
    write::remove_journal(disk, run.dir())?;
    let (counts, extra) = (count.tally.counts, count.tally.extra);
    Ok(Recovery {
        summary: RunSummary {
            id: manifest.id,
            dir: run.dir().to_owned(),
            counts,
            extra,
            attempts: count.attempts,
            parts,
        },
        missing: count.missing,
        last_row: count.last_row,
        flushed_ns: count.flushed_ns,
        released_ns: count.released_ns,
        damage,
        unsent_certain,
    })
}
