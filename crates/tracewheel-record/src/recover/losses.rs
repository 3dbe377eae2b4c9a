//! What is missing from the journal of a run whose writer died.
//!
//! Files have numbers without gaps, each part is begun along with its segment, an attempt is released before it ends,
//! and departure logs are there before anything is recorded: what does not fit that is lost, and is named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tracewheel_timeline::vocab::AttemptStatus;

use crate::columns::Table;
use crate::error::Result;
use crate::layout::{self, JOURNAL, Slot};
use crate::read::Run;
use crate::rows::{AttemptRecord, HealthRecord, ReleaseRecord, RequestRecord};
use crate::write::TABLES;

/// What stands for the departure logs where a table is named.
pub(super) const DEPARTURES: &str = "departures";

/// What of a journal is lost.
#[derive(Debug)]
pub(super) struct Losses {
    /// By file and place.
    pub(super) named: Vec<String>,
    /// Whether all that tells which requests left is there.
    pub(super) unsent_certain: bool,
}

impl Default for Losses {
    fn default() -> Self {
        Self { named: Vec::new(), unsent_certain: true }
    }
}

impl Losses {
    /// Notes what is lost of a table.
    pub(super) fn add(&mut self, table: &str, loss: String) {
        self.named.push(loss);
        let tells_who_left = [RequestRecord::NAME, ReleaseRecord::NAME, DEPARTURES].contains(&table);
        self.unsent_certain &= !tells_who_left;
    }

    /// Attempts that requests with a row took are on disk before that row is.
    pub(super) fn check_attempts(&mut self, run: &Path, taken: u64, recorded: u64) {
        let known = self.named.iter().any(|loss| loss.contains(AttemptRecord::NAME));
        if taken > recorded && !known {
            let (missing, folder) = (taken - recorded, run.join(AttemptRecord::NAME));
            self.add(AttemptRecord::NAME, format!("{}: {missing} attempts have no row", folder.display()));
        }
    }

    fn add_files(&mut self, table: &str, first: &Path, last: &Path) {
        let loss = if first == last {
            format!("{} is missing", first.display())
        } else {
            format!("{} to {} are missing", first.display(), last.display())
        };
        self.add(table, loss);
    }
}

/// Looks for what is missing, before the journal is made into parts.
pub(super) fn survey(run: &Run) -> Result<Losses> {
    let mut losses = Losses::default();
    let journal = run.dir().join(JOURNAL);
    // The lock at least is there before the manifest is.
    if layout::names(&journal)?.is_empty() {
        let state = if journal.exists() { "empty" } else { "missing" };
        let loss = format!(
            "{} is {state}: the rows that were in no part yet, and which requests left",
            journal.display()
        );
        losses.add(DEPARTURES, loss);
        return Ok(losses);
    }
    let mut recorded = BTreeMap::new();
    for table in TABLES {
        let slots: BTreeSet<Slot> = layout::slots(run.dir(), table)?.into_keys().collect();
        let begun = layout::unfinished(run.dir(), table)?;
        gaps(&slots, &begun, true, |first, last| {
            losses.add_files(table, &first.segment(run.dir(), table), &last.segment(run.dir(), table));
        });
        recorded.insert(table, slots);
    }
    requests(run, &recorded, &mut losses)?;
    releases(run, &recorded[AttemptRecord::NAME], &mut losses)?;
    departures(run, &recorded, &mut losses)?;
    Ok(losses)
}

/// Calls `missing` with the first and the last of each row of numbers that are missing; from 0 on where `from_zero`.
fn gaps(
    slots: &BTreeSet<Slot>,
    begun: &BTreeSet<Slot>,
    from_zero: bool,
    mut missing: impl FnMut(Slot, Slot),
) {
    let shards: BTreeSet<u32> = slots.union(begun).map(|slot| slot.shard).collect();
    for shard in shards {
        let mut next = from_zero.then_some(0);
        for slot in slots.iter().filter(|slot| slot.shard == shard) {
            if let Some(next) = next.filter(|next| *next < slot.number) {
                missing(Slot { shard, number: next }, Slot { shard, number: slot.number - 1 });
            }
            next = slot.number.checked_add(1);
        }
        let last = begun.iter().filter(|slot| slot.shard == shard).map(|slot| slot.number).max();
        if let (Some(next), Some(last)) = (next, last)
            && next <= last
        {
            missing(Slot { shard, number: next }, Slot { shard, number: last });
        }
    }
}

/// A flush that came after a request's end has its row.
fn requests(run: &Run, recorded: &BTreeMap<&str, BTreeSet<Slot>>, losses: &mut Losses) -> Result<()> {
    let of = |table| &recorded[table];
    let known =
        !of(RequestRecord::NAME).is_empty() || losses.named.iter().any(|loss| loss.contains(".requests-"));
    if known || of(AttemptRecord::NAME).is_empty() || of(HealthRecord::NAME).is_empty() {
        return Ok(());
    }
    // What is damaged is named when it is made into a part.
    let flushed_ns = run.health()?.map_while(Result::ok).map(|second| second.at_ns).max();
    let mut attempts = run.attempts_without_events()?.map_while(Result::ok);
    if attempts.any(|attempt| attempt.status == AttemptStatus::Ok && attempt.end_ns < flushed_ns) {
        let slot = Slot { shard: first_shard(of(AttemptRecord::NAME)), number: 0 };
        let path = slot.segment(run.dir(), RequestRecord::NAME);
        losses.add_files(RequestRecord::NAME, &path, &path);
    }
    Ok(())
}

/// Segments of releases go oldest first, and the last one stays.
fn releases(run: &Run, attempts: &BTreeSet<Slot>, losses: &mut Losses) -> Result<()> {
    let slots = layout::segments(run.dir(), ReleaseRecord::NAME)?;
    let path = |slot: Slot| slot.segment(run.dir(), ReleaseRecord::NAME);
    gaps(&slots, &BTreeSet::new(), false, |first, last| {
        losses.add_files(ReleaseRecord::NAME, &path(first), &path(last));
    });
    if slots.is_empty() && ended_in_the_run(run, attempts)? {
        let first = path(Slot { shard: first_shard(attempts), number: 0 });
        losses.add_files(ReleaseRecord::NAME, &first, &first);
    }
    Ok(())
}

/// Whether the run itself recorded an attempt. A recovery that was killed has given those that only a departure log
/// knew of their rows, and they never had a release in the journal.
fn ended_in_the_run(run: &Run, attempts: &BTreeSet<Slot>) -> Result<bool> {
    if attempts.is_empty() {
        return Ok(false);
    }
    // What is damaged is named when it is made into a part.
    let mut rows = run.attempts_without_events()?.map_while(Result::ok);
    Ok(rows.any(|attempt| attempt.status != AttemptStatus::Interrupted))
}

/// Every sending thread of a shard that recorded anything has its log.
fn departures(run: &Run, recorded: &BTreeMap<&str, BTreeSet<Slot>>, losses: &mut Losses) -> Result<()> {
    let mut shards: BTreeSet<u32> = recorded.values().flatten().map(|slot| slot.shard).collect();
    shards.extend(layout::segments(run.dir(), ReleaseRecord::NAME)?.iter().map(|slot| slot.shard));
    let logs = layout::senders(run.dir())?;
    for shard in &shards {
        let last = logs.iter().filter(|log| log.0 == *shard).map(|log| log.1).max();
        let workers = run.manifest().machine.workers.filter(|_| shards.len() == 1).unwrap_or(1);
        let least = last.map_or(1, |last| last.saturating_add(1)).max(workers);
        let missing = (0..least).filter(|sender| !logs.contains(&(*shard, *sender)));
        for sender in missing.take(NAMED) {
            let path = layout::departures(run.dir(), *shard, sender);
            losses.add_files(DEPARTURES, &path, &path);
        }
    }
    Ok(())
}

/// Departure logs named one by one at most.
const NAMED: usize = 1000;

fn first_shard(slots: &BTreeSet<Slot>) -> u32 {
    slots.first().map_or(0, |slot| slot.shard)
}
