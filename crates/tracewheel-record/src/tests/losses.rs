use std::fs;
use std::path::PathBuf;

use super::samples::{orderly, release};
use super::*;
use crate::{RecordError, Recovery, layout};

/// A run of 20 requests of which 12 ended and were flushed, to parts and a segment; row 12 is in flight.
fn killed(runs_dir: &Path) -> PathBuf {
    let mut entries = orderly(12);
    entries.push(Entry::Release(release(12, 1)));
    let mut manifest = manifest_for(&entries);
    manifest.plan.requests = 20;
    let options = WriterOptions { part_rows: 6, ..WriterOptions::default() };
    let mut writer = writer_on(Arc::new(FileSystem), runs_dir, manifest, options).unwrap();
    let mut logs = [writer.departures(0, 100).unwrap(), writer.departures(1, 100).unwrap()];
    for entry in &entries {
        if let Entry::Release(release) = entry {
            logs[release.row as usize % 2].note(release).unwrap();
        }
        record(&mut writer, entry).unwrap();
    }
    writer.flush().unwrap();
    let dir = writer.dir().to_owned();
    writer.die();
    dir
}

fn recovered(dir: &Path) -> Recovery {
    let recovery = Run::recover(dir, 1, &mut |_| None).unwrap();
    assert_eq!(recovery.summary.counts.total(), 20);
    assert!(Run::open(dir).unwrap().is_closed() && !dir.join("journal").exists());
    recovery
}

/// The run after files of its journal were removed, with whether what is unsent is certain.
fn without(removed: &[&str]) -> (Vec<String>, bool) {
    let dir = tempfile::tempdir().unwrap();
    let run = killed(dir.path());
    removed.iter().for_each(|name| fs::remove_file(run.join("journal").join(name)).unwrap());
    let Recovery { damage, unsent_certain, .. } = recovered(&run);
    let journal = format!("{}/journal/", run.display());
    (damage.iter().map(|damage| damage.replace(&journal, "")).collect(), unsent_certain)
}

#[test]
fn a_journal_that_is_whole_loses_nothing() {
    assert_eq!(without(&[]), (vec![], true));
}

#[test]
fn a_missing_file_of_the_journal_is_named() {
    let named = |file: &str| vec![format!("{file} is missing")];
    let dir = tempfile::tempdir().unwrap();
    let last = |table: &str| {
        let run = killed(&dir.path().join(table));
        let slot = layout::segments(&run, table).unwrap().pop_last().unwrap();
        slot.segment(&run, table).file_name().unwrap().to_str().unwrap().to_owned()
    };
    let (requests, attempts, releases) = (last("requests"), last("attempts"), last("releases"));
    assert_eq!(without(&[&requests]), (named(&requests), false));
    assert_eq!(without(&[&attempts]), (named(&attempts), true));
    assert_eq!(without(&[&releases]), (named(&releases), false));
    assert_eq!(without(&["0.departures-0"]), (named("0.departures-0"), false));
    let (both, certain) = without(&["0.departures-0", "0.departures-1"]);
    assert_eq!((both, certain), (named("0.departures-0"), false));
}

#[test]
fn attempts_that_are_gone_with_the_part_that_was_begun_of_them_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed(dir.path());
    let slot = layout::segments(&run, "attempts").unwrap().pop_last().unwrap();
    fs::remove_file(slot.segment(&run, "attempts")).unwrap();
    fs::remove_file(slot.unfinished_part(&run, "attempts")).unwrap();
    let damage = recovered(&run).damage;
    assert!(damage.len() == 1 && damage[0].ends_with("attempts have no row"), "{damage:?}");
}

#[test]
fn a_gap_in_the_numbers_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed(dir.path());
    fs::remove_file(run.join("requests/part-0-0.parquet")).unwrap();
    let recovery = recovered(&run);
    assert_eq!(recovery.damage, [format!("{}/journal/0.requests-0.arrows is missing", run.display())]);
    assert!(!recovery.unsent_certain);
}

#[test]
fn a_journal_that_is_gone_or_emptied_is_named_and_the_run_closes_at_once() {
    let harms: [fn(&Path); 2] = [
        |journal| fs::remove_dir_all(journal).unwrap(),
        |journal| {
            fs::remove_dir_all(journal).unwrap();
            fs::create_dir(journal).unwrap();
        },
    ];
    for (harm, state) in harms.into_iter().zip(["missing", "empty"]) {
        let dir = tempfile::tempdir().unwrap();
        let run = killed(dir.path());
        harm(&run.join("journal"));
        let recovery = recovered(&run);
        let damage = recovery.damage;
        assert!(damage[0].contains(&format!("journal is {state}")), "{damage:?}");
        assert!(!recovery.unsent_certain);
    }
}

#[test]
fn broken_bytes_of_a_departure_log_are_named_and_the_other_releases_count() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed(dir.path());
    let log = run.join("journal/0.departures-0");
    let mut bytes = fs::read(&log).unwrap();
    let slots = bytes.len() / 64;
    bytes[64..128].fill(0x5a);
    bytes.extend([7; 10]);
    fs::write(&log, bytes).unwrap();
    let recovery = recovered(&run);
    let said = format!("2 of the {} releases in {} are damaged, from byte 64 on", slots + 1, log.display());
    assert_eq!(recovery.damage, [said]);
    assert!(!recovery.unsent_certain);
    assert_eq!(recovery.summary.counts.interrupted, 1);
}

#[test]
fn a_run_without_its_manifest_is_never_said_to_be_empty() {
    let dir = tempfile::tempdir().unwrap();
    let lost = |run: &Path| matches!(Run::is_stillborn(run), Err(RecordError::ManifestLost { .. }));
    let open = killed(dir.path());
    assert!(!Run::is_stillborn(&open).unwrap());
    fs::rename(open.join("manifest.json"), dir.path().join("kept.json")).unwrap();
    assert!(lost(&open));
    fs::copy(dir.path().join("kept.json"), open.join("manifest.json")).unwrap();
    recovered(&open);
    fs::remove_file(open.join("manifest.json")).unwrap();
    assert!(lost(&open));
}

#[test]
fn only_what_a_writer_makes_before_its_manifest_is_an_empty_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut live = writer(dir.path(), &[], WriterOptions::default());
    live.flush().unwrap();
    let run = live.dir().to_owned();
    fs::remove_file(run.join("journal/0.departures-0")).unwrap();
    fs::rename(run.join("manifest.json"), run.join("manifest.tmp")).unwrap();
    assert!(matches!(Run::is_stillborn(&run), Err(RecordError::InUse { .. })));
    live.die();
    assert!(Run::is_stillborn(&run).unwrap());
    fs::write(run.join("notes.txt"), "mine").unwrap();
    assert!(matches!(Run::is_stillborn(&run), Err(RecordError::NotARun { .. })));
    for other in [dir.path(), Path::new("nowhere"), &run.join("notes.txt")] {
        let error = Run::is_stillborn(other).unwrap_err();
        assert!(error.to_string().contains("is no run directory"), "{error}");
    }
}

/// A closed run of so many requests, in parts of four rows.
fn closed(runs_dir: &Path, id: &str, requests: u64) -> PathBuf {
    let entries = orderly(requests);
    let manifest = Manifest { id: id.to_owned(), ..manifest_for(&entries) };
    let options = WriterOptions { part_rows: 4, ..WriterOptions::default() };
    let mut writer = RunWriter::begin(runs_dir, manifest.clone(), options, Arc::new(FileSystem)).unwrap();
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    writer.finish(&manifest, &clock()).unwrap().dir
}

#[test]
fn parts_of_another_run_and_parts_that_are_one_too_many_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (run, other) = (closed(dir.path(), "one", 20), closed(dir.path(), "two", 20));
    let part = |run: &Path, number| run.join(format!("requests/part-0-{number}.parquet"));
    let told = |run: &Path| Run::open(run).unwrap_err().to_string();
    let whole = fs::read(part(&run, 1)).unwrap();
    fs::copy(part(&other, 1), part(&run, 1)).unwrap();
    assert!(told(&run).contains("requests/part-0-1.parquet is a part of the run two"), "{}", told(&run));
    fs::write(part(&run, 1), &whole).unwrap();
    fs::write(part(&run, 77), &whole).unwrap();
    assert!(told(&run).contains("requests/part-0-77.parquet is none of the parts"), "{}", told(&run));
    fs::remove_file(part(&run, 77)).unwrap();
    fs::remove_file(part(&run, 1)).unwrap();
    assert!(told(&run).contains("part-0-1.parquet is not there"), "{}", told(&run));
    fs::write(part(&run, 1), &whole).unwrap();
    assert_eq!(Run::open(&run).unwrap().requests().unwrap().count(), 20);
}

#[test]
fn rows_that_the_manifest_does_not_tell_of_are_refused_with_both_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let run = closed(dir.path(), "one", 20);
    let part = run.join("requests/part-0-0.parquet");
    let manifest = fs::read_to_string(run.join("manifest.json")).unwrap();
    fs::write(run.join("manifest.json"), manifest.replace("\"ok\": 20", "\"ok\": 21")).unwrap();
    let error = Run::open(&run).unwrap_err().to_string();
    assert!(error.contains("requests holds 20 rows, its manifest says 21"), "{error}");
    fs::write(run.join("manifest.json"), manifest).unwrap();
    assert!(Run::open(&run).is_ok());
    fs::write(&part, "no part").unwrap();
    let error = Run::open(&run).unwrap_err().to_string();
    assert!(error.contains("broken part") && error.contains("part-0-0"), "{error}");
}

#[test]
fn whoever_recovers_a_run_is_named_to_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed(dir.path());
    fs::write(run.join("journal/0.lock"), "1\n").unwrap();
    let locks = layout::take_locks(&run).unwrap().unwrap();
    layout::own(&run).unwrap();
    let error = Run::recover(&run, 1, &mut |_| None).unwrap_err();
    let own = Some(std::process::id());
    assert!(matches!(error, RecordError::InUse { process, .. } if process == own), "{error}");
    drop(locks);
    assert!(recovered(&run).damage.is_empty());
}
