use std::collections::BTreeSet;
use std::fs;

use super::samples::{Dice, orderly};
use super::*;
use crate::columns::Table;
use crate::journal::SegmentReader;
use crate::layout::Slot;

const FIRST: Slot = Slot { shard: 0, number: 0 };

/// An open run whose writer died after the last flush.
fn killed(runs_dir: &Path, entries: &[Entry]) -> Run {
    let mut writer = writer(runs_dir, entries, WriterOptions::default());
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    writer.flush().unwrap();
    let dir = writer.dir().to_owned();
    writer.die();
    Run::open(&dir).unwrap()
}

/// Cuts a table's segment at every `step`th byte, from the end, and reads what is left.
fn cut_everywhere<T: Table + Clone + PartialEq + std::fmt::Debug>(
    run: &Run,
    whole: &[T],
    batches: usize,
    step: usize,
) {
    let file = fs::OpenOptions::new().write(true).open(FIRST.segment(run.dir(), T::NAME)).unwrap();
    let bytes = file.metadata().unwrap().len();
    let mut lengths = BTreeSet::new();
    for cut in (0..=bytes).rev().step_by(step) {
        file.set_len(cut).unwrap();
        let rows: Vec<T> = crate::read::rows::all(run.dir()).unwrap().collect::<Result<_>>().unwrap();
        assert!(whole.starts_with(&rows), "cut at {cut} of {bytes}");
        lengths.insert(rows.len());
    }
    assert_eq!(lengths.len(), batches + 1, "one prefix a batch: {lengths:?}");
    assert_eq!(lengths.last(), Some(&whole.len()));
}

#[test]
fn a_journal_cut_anywhere_reads_its_whole_batches_and_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(1);
    let mut entries = Vec::new();
    for row in 0..2 {
        entries.push(Entry::Release(samples::release(row, 1)));
        entries.push(Entry::Health(dice.health()));
        entries.push(Entry::Attempt(dice.attempt()));
        entries.push(Entry::Attempt(dice.attempt()));
        entries.push(Entry::Flush);
    }
    let run = killed(dir.path(), &entries);
    let content = Content::of(&entries);
    cut_everywhere(&run, &content.attempts, 2, 29);
    cut_everywhere(&run, &content.health, 2, 23);
    let releases: Vec<ReleaseRecord> = run.releases().unwrap().collect::<Result<_>>().unwrap();
    cut_everywhere(&run, &releases, 2, 1);
}

#[test]
fn a_cut_journal_closes_with_what_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let entries = orderly(12);
    let bytes = {
        let run = killed(&dir.path().join("model"), &entries);
        fs::read(FIRST.segment(run.dir(), "requests")).unwrap()
    };
    for (trial, cut) in (0..bytes.len()).step_by(bytes.len() / 9).enumerate() {
        let run = killed(&dir.path().join(trial.to_string()), &entries);
        fs::write(FIRST.segment(run.dir(), "requests"), &bytes[..cut]).unwrap();
        let kept = run.requests().unwrap().count() as u64;
        let summary = Run::recover(run.dir(), 5, &mut |_| None).unwrap().summary;
        assert_eq!(summary.counts.total(), 12);
        assert_eq!((summary.counts.ok, summary.counts.interrupted), (kept, 12 - kept));
        let read = Content::read(&Run::open(run.dir()).unwrap()).unwrap();
        assert_eq!(read.requests.len(), 12);
        assert_eq!(read.attempts, Content::of(&entries).attempts);
    }
}

#[test]
fn a_journal_with_broken_bytes_is_refused_or_read_in_part_and_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed(dir.path(), &orderly(10));
    let path = FIRST.segment(run.dir(), "attempts");
    let bytes = fs::read(&path).unwrap();
    let mut dice = Dice::new(2);
    let mut refused = 0;
    for _ in 0..2000 {
        let mut broken = bytes.clone();
        for _ in 0..=dice.below(3) {
            let at = dice.below(bytes.len() as u64) as usize;
            broken[at] = dice.next() as u8;
        }
        fs::write(&path, &broken).unwrap();
        refused += usize::from(run.attempts().unwrap().any(|row| row.is_err()));
    }
    assert!(refused > 0);
}

#[test]
fn a_journal_of_another_table_or_major_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed(dir.path(), &orderly(10));
    let path = FIRST.segment(run.dir(), "requests");
    fs::copy(FIRST.segment(run.dir(), "attempts"), &path).unwrap();
    let error = run.requests().unwrap().next().unwrap().unwrap_err();
    assert!(matches!(error, crate::RecordError::NotATable { table: "requests", .. }), "{error}");
    assert!(SegmentReader::open::<AttemptRecord>(&path).unwrap().all(|batch| batch.is_ok()));
    assert!(SegmentReader::open::<AttemptRecord>(Path::new("nowhere")).is_err());
}

/// Damages some of a segment, and tells which bytes were hit.
type Harm = fn(&mut Vec<u8>, &mut Dice);

fn zeroed_tail(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let from = dice.below(bytes.len() as u64) as usize;
    bytes[from..].fill(0);
    bytes.resize(bytes.len() + 4096, 0);
}

#[allow(clippy::ptr_arg, reason = "one of two of a kind")]
fn garbage(bytes: &mut Vec<u8>, dice: &mut Dice) {
    let from = dice.below(bytes.len() as u64) as usize;
    let to = (from + 1 + dice.below(900) as usize).min(bytes.len());
    bytes[from..to].iter_mut().for_each(|byte| *byte = dice.next() as u8);
}

#[test]
fn a_journal_that_a_power_cut_damaged_closes_with_every_row_that_is_whole_and_names_what_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let entries = orderly(30);
    let content = Content::of(&entries);
    let mut dice = Dice::new(9);
    let mut named = 0;
    for trial in 0..60 {
        let run = killed(&dir.path().join(trial.to_string()), &entries);
        let harm: Harm = if trial % 2 == 0 { zeroed_tail } else { garbage };
        for table in ["requests", "attempts", "releases"] {
            let path = FIRST.segment(run.dir(), table);
            let mut bytes = fs::read(&path).unwrap();
            harm(&mut bytes, &mut dice);
            fs::write(&path, bytes).unwrap();
        }
        let recovery = Run::recover(run.dir(), 5, &mut |_| None).unwrap();
        named += usize::from(!recovery.damage.is_empty());
        assert_eq!(recovery.summary.counts.total(), 30);
        let manifest = Run::open(run.dir()).unwrap().manifest().clone();
        assert_eq!(manifest.warnings.len(), 1 + recovery.damage.len());
        let read = Content::read(&Run::open(run.dir()).unwrap()).unwrap();
        for request in &read.requests {
            let known = content.requests.contains(request);
            assert!(known || request.status.as_str() == "interrupted", "{request:?}");
        }
        assert!(read.attempts.iter().all(|attempt| {
            content.attempts.contains(attempt) || attempt.status.as_str() == "interrupted"
        }));
        assert!(read.requests.len() < 30 || !recovery.damage.is_empty() || read.requests == content.requests);
    }
    assert!(named > 50, "{named} of 60 named their damage");
}

#[test]
fn rows_behind_damage_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let entries = orderly(30);
    let run = killed(dir.path(), &entries);
    let path = FIRST.segment(run.dir(), "requests");
    let mut bytes = fs::read(&path).unwrap();
    let whole = run.requests().unwrap().count();
    let frames: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(b"\xf1twframe")).collect();
    assert!(frames.len() > 3, "a schema and some batches");
    for frame in [0, frames[2]] {
        bytes[frame + 40] ^= 1;
    }
    fs::write(&path, bytes).unwrap();
    assert!(matches!(run.requests().unwrap().next(), Some(Err(crate::RecordError::Damaged { from: 0, .. }))));
    let recovery = Run::recover(run.dir(), 5, &mut |_| None).unwrap();
    let counts = recovery.summary.counts;
    // The batches are read by the schema of this version where the segment's own is damaged.
    assert_eq!(recovery.damage.len(), 2);
    assert!(counts.ok > 0 && counts.ok < whole as u64 && counts.total() == 30, "{counts:?}");
}
