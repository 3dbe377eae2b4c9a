use std::collections::BTreeSet;

use super::samples::{Dice, orderly};
use super::*;
use crate::columns::Table;
use crate::layout::{self, Place};

fn places<T: Table>(run: &Run) -> (usize, usize) {
    let slots = layout::slots(run.dir(), T::NAME).unwrap();
    let parts = slots.values().filter(|place| **place == Place::Part).count();
    (parts, slots.len() - parts)
}

#[test]
fn parts_roll_by_rows_and_the_journal_keeps_only_what_is_in_no_part() {
    let dir = tempfile::tempdir().unwrap();
    let entries = orderly(40);
    let mut writer =
        writer(dir.path(), &entries, WriterOptions { part_rows: 10, ..WriterOptions::default() });
    for (done, entry) in entries.iter().enumerate() {
        record(&mut writer, entry).unwrap();
        if !matches!(entry, Entry::Flush) {
            continue;
        }
        // Looked at by another reader while it is written: nothing is missing, nothing is there twice.
        let run = Run::open(writer.dir()).unwrap();
        assert_eq!(Content::read(&run).unwrap(), Content::of(&entries[..=done]));
        let (parts, segments) = places::<RequestRecord>(&run);
        assert!(segments <= 1 && parts == writer.counts().total() as usize / 10, "{parts} {segments}");
    }
    let summary = writer.finish(&manifest_for(&entries), &clock()).unwrap();
    let run = Run::open(&summary.dir).unwrap();
    assert_eq!(places::<RequestRecord>(&run), (4, 0));
    assert_eq!(Content::read(&run).unwrap(), Content::of(&entries));
}

#[test]
fn parts_roll_by_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice::new(4);
    let entries: Vec<Entry> = (0..3000).map(|_| dice.entry()).collect();
    let mut writer =
        writer(dir.path(), &entries, WriterOptions { part_bytes: 20_000, ..WriterOptions::default() });
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    let summary = writer.finish(&manifest_for(&entries), &clock()).unwrap();
    let run = Run::open(&summary.dir).unwrap();
    assert!(places::<AttemptRecord>(&run).0 > 1, "{:?}", places::<AttemptRecord>(&run));
    for slot in layout::slots(run.dir(), "attempts").unwrap().into_keys() {
        let bytes = std::fs::metadata(slot.part(run.dir(), "attempts")).unwrap().len();
        assert!(bytes < 80_000, "{slot:?} has {bytes} bytes");
    }
    assert_eq!(Content::read(&run).unwrap(), Content::of(&entries));
}

#[test]
fn releases_go_when_their_requests_have_ended_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), &[], WriterOptions::default());
    let segments = |writer: &RunWriter| layout::slots(writer.dir(), "releases").unwrap().len();
    let rows = 3 << 16;
    for row in 0..rows {
        writer.released(&samples::release(row, 1)).unwrap();
    }
    writer.flush().unwrap();
    assert_eq!((segments(&writer), writer.in_flight()), (3, rows as usize));
    // All but the very first end: nothing may go, because a later segment may hold its retry.
    for row in 1..rows {
        writer.request(&RequestRecord { row, ..RequestRecord::default() }).unwrap();
    }
    writer.flush().unwrap();
    assert_eq!((segments(&writer), writer.in_flight()), (3, 1));
    writer.released(&samples::release(0, 2)).unwrap();
    writer.flush().unwrap();
    let run = Run::open(writer.dir()).unwrap();
    let kept: BTreeSet<_> = run.releases().unwrap().map(Result::unwrap).map(|r| (r.row, r.attempt)).collect();
    assert!(kept.contains(&(0, 1)) && kept.contains(&(0, 2)));
    writer.request(&RequestRecord { row: 0, ..RequestRecord::default() }).unwrap();
    writer.flush().unwrap();
    assert_eq!((segments(&writer), writer.in_flight()), (1, 0));
}

#[test]
fn two_writers_never_share_a_shard_and_ids_are_new_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let clock = clock();
    let first = RunWriter::create(dir.path(), "Azure 2024/Code..", &Manifest::default(), &clock).unwrap();
    let second = RunWriter::create(dir.path(), "Azure 2024/Code..", &Manifest::default(), &clock).unwrap();
    assert_ne!(first.id(), second.id());
    assert!(first.id().ends_with("-azure-2024-code"), "{}", first.id());
    // The id begins with the wall time: 48 bits of milliseconds.
    let millis = u64::from_str_radix(&first.id().replace('-', "")[..12], 16).unwrap();
    assert_eq!(millis, 1_790_000_000_000);
    assert!(matches!(layout::lock(first.dir(), 0), Err(crate::RecordError::InUse { .. })));
    assert!(layout::lock(first.dir(), 1).is_ok());
}
