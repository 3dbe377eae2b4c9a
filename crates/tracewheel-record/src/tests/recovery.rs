use std::fs;
use std::path::PathBuf;

use tracewheel_timeline::vocab::{AttemptStatus, Operation, Phase, Reason, RequestStatus};

use super::samples::{orderly, release};
use super::*;
use crate::RecordError;
use crate::manifest::{EndedBy, RunState};
use crate::rows::{EXTRA_COPY, Strata};

/// 10 requests ended, rows 10 and 11 are in flight (11 with one failed attempt behind it), of a plan of 20.
fn killed_in_flight(runs_dir: &Path) -> Run {
    let mut entries = orderly(10);
    entries.push(Entry::Release(release(10, 1)));
    entries.push(Entry::Release(release(11, 1)));
    entries.push(Entry::Attempt(AttemptRecord {
        row: 11,
        status: AttemptStatus::Failed,
        reason: Some(Reason::RateLimited),
        ..AttemptRecord::default()
    }));
    entries.push(Entry::Release(ReleaseRecord { due_ns: 99_000_000, ..release(11, 2) }));
    let mut manifest = manifest_for(&entries);
    manifest.plan.requests = 20;
    let mut writer = writer_on(Arc::new(FileSystem), runs_dir, manifest, WriterOptions::default()).unwrap();
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    writer.flush().unwrap();
    record(&mut writer, &Entry::Release(release(12, 1))).unwrap();
    let dir = writer.dir().to_owned();
    writer.die();
    Run::open(&dir).unwrap()
}

#[test]
fn a_killed_run_reads_what_was_flushed_and_closes_with_its_interrupted_requests() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed_in_flight(dir.path());
    assert!(!run.is_closed());
    assert_eq!(run.requests().unwrap().count(), 10);
    let strata =
        |row| Strata { operation: Some(Operation::Chat), turn: Some(row as u32), ..Strata::default() };
    let recovery = Run::recover(run.dir(), 77, &mut |row| Some(strata(row))).unwrap();
    let missing: Vec<_> = recovery.missing.iter().map(|m| (m.row, m.copy, m.attempt)).collect();
    assert_eq!((missing, recovery.last_row), (vec![(10, 0, 1), (11, 0, 2)], Some(11)));
    assert!(recovery.damage.is_empty());
    let summary = recovery.summary;
    assert_eq!((summary.counts.ok, summary.counts.interrupted, summary.counts.unsent), (10, 2, 8));
    assert_eq!(summary.counts.unsent_without_row, 8);

    let run = Run::open(run.dir()).unwrap();
    assert!(run.is_closed() && !run.dir().join("journal").exists());
    let manifest = run.manifest();
    assert_eq!((manifest.state, manifest.closed_unix_ns), (RunState::Recovered, Some(77)));
    let outcome = manifest.outcome.as_ref().unwrap();
    assert_eq!((outcome.ended_by, outcome.counts), (EndedBy::Killed, summary.counts));
    assert_eq!(outcome.reasons["interrupted_by_crash"], 2);
    assert!(!manifest.warnings.is_empty());
    let exchanges: Vec<_> = run.exchanges().unwrap().map(Result::unwrap).collect();
    let (request, attempts) = &exchanges[11];
    assert_eq!((request.row, request.status, request.due_ns), (11, RequestStatus::Interrupted, 11_000_000));
    assert_eq!((request.attempts, request.strata.clone()), (2, strata(11)));
    let kinds: Vec<_> = attempts.iter().map(|a| (a.attempt, a.status, a.due_ns)).collect();
    assert_eq!(kinds, [(1, AttemptStatus::Failed, 0), (2, AttemptStatus::Interrupted, 99_000_000)]);
    assert_eq!(outcome.attempts, run.attempts().unwrap().count() as u64);
}

/// Of a plan of 5, rows 3 and 1 have left and nothing was flushed yet.
fn killed_before_a_flush(runs_dir: &Path) -> PathBuf {
    let mut manifest = manifest_for(&[]);
    manifest.plan.requests = 5;
    let writer = writer_on(Arc::new(FileSystem), runs_dir, manifest, WriterOptions::default()).unwrap();
    let mut departures = writer.departures(0, 100).unwrap();
    for row in [3, 1] {
        departures.note(&release(row, 1)).unwrap();
    }
    let run = writer.dir().to_owned();
    writer.die();
    run
}

/// What a run was before it was recovered.
struct Saved {
    manifest: Vec<u8>,
    journal: Vec<(PathBuf, Vec<u8>)>,
}

impl Saved {
    fn of(run: &Path) -> Self {
        let folder = run.join("journal");
        let paths = crate::layout::names(&folder).unwrap().into_iter().map(|name| folder.join(name));
        let journal = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
        Saved { manifest: fs::read(run.join("manifest.json")).unwrap(), journal }
    }

    /// As if the recovery had died just before it removed the journal.
    fn restore(&self, run: &Path) {
        fs::write(run.join("manifest.json"), &self.manifest).unwrap();
        fs::create_dir(run.join("journal")).unwrap();
        self.journal.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
    }
}

#[test]
fn recovering_may_be_cut_off_and_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed_in_flight(dir.path());
    let saved = Saved::of(run.dir());
    let first = Run::recover(run.dir(), 1, &mut |_| None).unwrap();
    saved.restore(run.dir());
    let second = Run::recover(run.dir(), 1, &mut |_| None).unwrap();
    assert_eq!(first, second);
}

#[test]
fn recovering_may_be_cut_off_between_the_rows_that_only_a_departure_log_gave() {
    let dir = tempfile::tempdir().unwrap();
    let run = killed_before_a_flush(dir.path());
    let saved = Saved::of(&run);
    let first = Run::recover(&run, 1, &mut |_| None).unwrap();
    saved.restore(&run);
    // The attempts have their rows already, the requests had none yet.
    fs::remove_file(run.join("requests/part-0-0.parquet")).unwrap();
    let second = Run::recover(&run, 1, &mut |_| None).unwrap();
    assert_eq!((&first, first.damage.len()), (&second, 0));
}

#[test]
fn only_a_dead_open_run_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let writer = writer(dir.path(), &[], WriterOptions::default());
    let run_dir = writer.dir().to_owned();
    let recover = |dir: &Path| Run::recover(dir, 1, &mut |_| None);
    assert!(matches!(recover(&run_dir), Err(RecordError::InUse { .. })));
    writer.finish(&manifest_for(&[]), &clock()).unwrap();
    assert!(matches!(recover(&run_dir), Err(RecordError::AlreadyClosed { .. })));
    assert!(matches!(recover(dir.path()), Err(RecordError::NotARun { .. })));
}

#[test]
fn a_run_that_does_not_add_up_is_not_closed() {
    let dir = tempfile::tempdir().unwrap();
    let entries = orderly(10);
    let mut manifest = manifest_for(&entries);
    manifest.plan.requests = 11;
    let mut writer =
        writer_on(Arc::new(FileSystem), dir.path(), manifest.clone(), WriterOptions::default()).unwrap();
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    let run_dir = writer.dir().to_owned();
    let error = writer.finish(&manifest, &clock()).unwrap_err();
    assert!(matches!(&error, RecordError::NotConserved { planned: 11, counts, .. } if counts.total() == 10));
    assert!(error.to_string().contains("planned 11 requests but recorded 10"), "{error}");
    let run = Run::open(&run_dir).unwrap();
    assert!(!run.is_closed());
    assert_eq!(Content::read(&run).unwrap(), Content::of(&entries));
    assert_eq!(Run::recover(&run_dir, 1, &mut |_| None).unwrap().summary.counts.unsent, 1);
}

#[test]
fn requests_beside_the_plan_and_unsent_ones_without_a_row_are_counted_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut entries = orderly(3);
    entries.push(Entry::Request(RequestRecord {
        copy: EXTRA_COPY,
        phase: Phase::Prime,
        status: RequestStatus::Failed,
        reason: Some(Reason::Overloaded),
        ..RequestRecord::default()
    }));
    let mut manifest = manifest_for(&entries);
    manifest.plan.requests = 8;
    let mut writer = writer(dir.path(), &entries, WriterOptions::default());
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    writer.unsent_without_row(5);
    let summary = writer.finish(&manifest, &clock()).unwrap();
    assert_eq!((summary.counts.ok, summary.counts.unsent, summary.extra.failed), (3, 5, 1));
    let run = Run::open(&summary.dir).unwrap();
    let outcome = run.manifest().outcome.clone().unwrap();
    assert!(outcome.reasons.is_empty() && outcome.extra.total() == 1 && outcome.attempts == 4);
}

#[test]
fn a_writer_that_is_dropped_keeps_what_it_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let entries: Vec<Entry> = orderly(4).into_iter().filter(|entry| !matches!(entry, Entry::Flush)).collect();
    let mut writer = writer(dir.path(), &entries, WriterOptions::default());
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    let run_dir = writer.dir().to_owned();
    drop(writer);
    let run = Run::open(&run_dir).unwrap();
    assert!(!run.is_closed());
    assert_eq!(Content::read(&run).unwrap(), Content::of(&entries));
}

#[test]
fn a_request_on_disk_has_its_attempts_there_even_between_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let entries: Vec<Entry> =
        orderly(9_000).into_iter().filter(|entry| !matches!(entry, Entry::Flush)).collect();
    let mut writer = writer(dir.path(), &entries, WriterOptions::default());
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    let run_dir = writer.dir().to_owned();
    writer.die();
    let run = Run::open(&run_dir).unwrap();
    let exchanges: Vec<_> = run.exchanges().unwrap().map(Result::unwrap).collect();
    assert!(exchanges.len() > 8_000 && exchanges.len() < 9_000, "{}", exchanges.len());
    assert!(exchanges.iter().all(|(request, attempts)| attempts.len() == usize::from(request.attempts)));
}

#[test]
fn a_released_request_cannot_be_passed_off_as_unsent() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = manifest_for(&[]);
    manifest.plan.requests = 1;
    let mut writer = writer(dir.path(), &[], WriterOptions::default());
    let run_dir = writer.dir().to_owned();
    writer.released(&release(0, 1)).unwrap();
    writer.unsent_without_row(1);
    let error = writer.finish(&manifest, &clock()).unwrap_err();
    assert!(matches!(error, RecordError::Unended { released: 1, .. }), "{error}");
    assert!(!Run::open(&run_dir).unwrap().is_closed());
}

#[test]
fn a_release_that_was_not_flushed_is_known_from_the_departure_log() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = killed_before_a_flush(dir.path());
    let recovery = Run::recover(&run_dir, 1, &mut |_| None).unwrap();
    let counts = recovery.summary.counts;
    assert_eq!((counts.interrupted, counts.unsent), (2, 3));
    assert_eq!(recovery.missing.iter().map(|missing| missing.row).collect::<Vec<_>>(), [1, 3]);
    assert_eq!((recovery.last_row, recovery.flushed_ns), (Some(3), None));
}

#[test]
fn leftovers_of_the_journal_of_a_closed_run_are_swept_away() {
    let dir = tempfile::tempdir().unwrap();
    let summary =
        writer(dir.path(), &[], WriterOptions::default()).finish(&manifest_for(&[]), &clock()).unwrap();
    fs::create_dir(summary.dir.join("journal")).unwrap();
    fs::write(summary.dir.join("journal/0.lock"), "1\n").unwrap();
    assert!(matches!(Run::recover(&summary.dir, 1, &mut |_| None), Err(RecordError::AlreadyClosed { .. })));
    assert!(!summary.dir.join("journal").exists());
}

#[test]
fn a_run_that_lost_a_folder_or_a_part_is_not_opened_as_if_it_were_whole() {
    let dir = tempfile::tempdir().unwrap();
    let entries = orderly(40);
    let options = WriterOptions { part_rows: 10, ..WriterOptions::default() };
    let mut writer = writer(dir.path(), &entries, options);
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    let run_dir = writer.finish(&manifest_for(&entries), &clock()).unwrap().dir;
    fs::rename(run_dir.join("attempts/part-0-1.parquet"), dir.path().join("kept")).unwrap();
    let error = Run::open(&run_dir).unwrap_err();
    assert!(
        matches!(&error, RecordError::PartsMissing { .. }) && error.to_string().contains("attempts"),
        "{error}"
    );
    fs::rename(dir.path().join("kept"), run_dir.join("attempts/part-0-1.parquet")).unwrap();
    assert!(Run::open(&run_dir).is_ok());
    fs::remove_dir_all(run_dir.join("health")).unwrap();
    assert!(Run::open(&run_dir).unwrap_err().to_string().contains("health"));
}
