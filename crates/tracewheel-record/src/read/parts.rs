//! Whether the parts of a run are its own, and all of them.
//!
//! Only the ends of the files are read: each says of which run it is and how many rows it holds.

use std::collections::BTreeSet;

use super::Run;
use crate::columns::Table;
use crate::error::{RecordError, Result};
use crate::layout::{self, Slot};
use crate::manifest::OutcomeSection;
use crate::part;
use crate::rows::{AttemptRecord, RequestRecord};
use crate::write::TABLES;

/// Refuses parts of another run and, of a closed run, others than it was closed with: a table without its folder would
/// read as one without rows, and nothing would say so.
pub(super) fn check(run: &Run) -> Result<()> {
    let outcome = run.manifest.outcome.as_ref().filter(|_| run.is_closed());
    for table in TABLES {
        let parts = layout::parts(&run.dir, table)?;
        let rows = rows(run, table, &parts)?;
        if let Some(outcome) = outcome {
            check_closed(run, outcome, table, &parts, rows)?;
        }
    }
    Ok(())
}

/// Rows of a table's parts, all of which are of this run.
fn rows(run: &Run, table: &str, parts: &BTreeSet<Slot>) -> Result<u64> {
    let ours = &run.manifest.id;
    let mut rows: u64 = 0;
    for slot in parts {
        let path = slot.part(&run.dir, table);
        let stamp = part::stamp(&path)?;
        if let Some(found) =
            stamp.run_id.filter(|found| found != ours && !found.is_empty() && !ours.is_empty())
        {
            return Err(RecordError::OtherRun { path, found, expected: ours.clone() });
        }
        rows = rows.saturating_add(stamp.rows);
    }
    Ok(rows)
}

fn check_closed(
    run: &Run,
    outcome: &OutcomeSection,
    table: &str,
    parts: &BTreeSet<Slot>,
    rows: u64,
) -> Result<()> {
    let counts = &outcome.counts;
    let requests =
        counts.total().saturating_sub(counts.unsent_without_row).saturating_add(outcome.extra.total());
    let told = match table {
        RequestRecord::NAME => Some(requests),
        AttemptRecord::NAME => Some(outcome.attempts),
        _ => None,
    };
    let listed = outcome.parts.get(table).copied();
    let (path, found) = (run.dir.join(table), parts.len() as u64);
    let expected = listed.unwrap_or(told.unwrap_or(0).min(1));
    if found < expected {
        return Err(RecordError::PartsMissing { missing: first_missing(parts), path, found, expected });
    }
    if let (Some(last), true) = (parts.last(), listed.is_some_and(|listed| found > listed)) {
        return Err(RecordError::PartUnknown { path: last.part(&run.dir, table), found, expected });
    }
    match told {
        Some(told) if told != rows => Err(RecordError::RowsDiffer { path, rows, told }),
        _ => Ok(()),
    }
}

/// The name of the first part that is not there, by the numbers.
fn first_missing(parts: &BTreeSet<Slot>) -> String {
    let shard = parts.first().map_or(0, |slot| slot.shard);
    let mut slot = Slot { shard, number: 0 };
    while parts.contains(&slot) {
        slot = slot.next();
    }
    slot.part_name()
}
