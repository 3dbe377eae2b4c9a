//! Death at every single step of a run's life and of its recovery.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tracewheel_timeline::vocab::RequestStatus;

use super::samples::orderly;
use super::*;
use crate::Recovery;
use crate::disk::DiskFile;

const ID: &str = "01a22a71-d369-7267-b46a-c14fed992dfe-t";
const REQUESTS: u64 = 20;

/// A disk whose process dies after so many steps: what it had written by then stays.
#[derive(Debug, Clone)]
struct Mortal {
    left: Arc<AtomicUsize>,
    dead: Arc<AtomicBool>,
}

struct MortalFile {
    disk: Mortal,
    file: fs::File,
}

impl Mortal {
    fn new(steps: usize) -> Arc<Self> {
        Arc::new(Self { left: Arc::new(AtomicUsize::new(steps)), dead: Arc::default() })
    }

    fn step(&self) -> io::Result<()> {
        let lived = self.lives();
        self.dead.fetch_or(!lived, Ordering::Relaxed);
        if lived { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    }

    fn lives(&self) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

impl Write for MortalFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.disk.lives() {
            return self.file.write(bytes);
        }
        // Its last act may be half a write.
        if !self.disk.dead.swap(true, Ordering::Relaxed) {
            self.file.write_all(&bytes[..bytes.len() / 2])?;
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DiskFile for MortalFile {
    fn sync(&mut self) -> io::Result<()> {
        self.disk.step()
    }
}

impl Disk for Mortal {
    fn create_dir(&self, path: &Path, parents: bool) -> io::Result<()> {
        self.step().and_then(|()| FileSystem.create_dir(path, parents))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.step()?;
        Ok(Box::new(MortalFile { disk: self.clone(), file: fs::File::create(path)? }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step().and_then(|()| FileSystem.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step().and_then(|()| FileSystem.remove(path))
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        self.step()
    }
}

/// How far a run came before its process died.
struct Life {
    run: PathBuf,
    /// The entries that had been given to the writer, the one under way included.
    given: usize,
    /// How many of them had been flushed.
    flushed: usize,
    finished: bool,
}

fn live(runs_dir: &Path, entries: &[Entry], steps: usize) -> Life {
    let mut life = Life { run: runs_dir.join(ID), given: 0, flushed: 0, finished: false };
    let manifest = Manifest { id: ID.to_owned(), ..manifest_for(entries) };
    let options = WriterOptions { part_rows: 7, ..WriterOptions::default() };
    let Ok(mut writer) = RunWriter::begin(runs_dir, manifest.clone(), options, Mortal::new(steps)) else {
        return life;
    };
    let mut log = writer.departures(0, 100).unwrap();
    for entry in entries {
        // Noted before the bytes leave, past the disk of the test: a memory map.
        if let Entry::Release(release) = entry {
            log.note(release).unwrap();
        }
        life.given += 1;
        if record(&mut writer, entry).is_err() {
            writer.die();
            return life;
        }
        if matches!(entry, Entry::Flush) {
            life.flushed = life.given;
        }
    }
    life.finished = writer.finish(&manifest, &clock()).is_ok();
    life
}

/// Recovers with a death or two on the way; nothing where the run had been closed.
fn recovered(run: &Path, deaths: &[usize]) -> Option<Recovery> {
    for steps in deaths {
        let _ = Run::recover_on(Mortal::new(*steps), run, 1, &mut |_| None);
    }
    match Run::recover(run, 1, &mut |_| None) {
        Err(crate::RecordError::AlreadyClosed { .. }) => None,
        recovery => Some(recovery.unwrap()),
    }
}

/// Everything that must hold of a life that ended at some step, whatever its recovery went through.
fn check(entries: &[Entry], life: &Life, deaths: &[usize], told: &str) {
    let recovery = recovered(&life.run, deaths);
    let run = Run::open(&life.run).unwrap();
    assert!(run.is_closed() && !life.run.join("journal").exists(), "{told}");
    let counts = run.manifest().outcome.as_ref().unwrap().counts;
    assert_eq!(counts.total(), REQUESTS, "{told}");
    if let Some(recovery) = recovery {
        assert_eq!((recovery.damage.as_slice(), recovery.unsent_certain), (&[][..], true), "{told}");
    }
    assert_eq!(run.manifest().warnings.iter().find(|told| told.contains("lost for good")), None, "{told}");
    let read = Content::read(&run).unwrap();
    let kept = |status| read.requests.iter().filter(move |request| request.status == status);
    let flushed = Content::of(&entries[..life.flushed]);
    let ok: Vec<_> = kept(RequestStatus::Ok).cloned().collect();
    assert!(ok.starts_with(&flushed.requests), "{told}: flushed rows are lost");
    let released = |upto: usize| -> BTreeSet<u64> {
        entries[..upto]
            .iter()
            .filter_map(|entry| if let Entry::Release(release) = entry { Some(release.row) } else { None })
            .collect()
    };
    let known: BTreeSet<u64> = read.requests.iter().map(|request| request.row).collect();
    assert_eq!(known.len(), read.requests.len(), "{told}: a request has one row");
    assert_eq!(known, released(life.given), "{told}: what had left is known, and nothing else");
    assert_eq!(counts.interrupted, kept(RequestStatus::Interrupted).count() as u64, "{told}");
    let attempts: BTreeSet<_> = read.attempts.iter().map(|attempt| (attempt.row, attempt.attempt)).collect();
    assert_eq!(attempts.len(), read.attempts.len(), "{told}: an attempt has one row");
}

#[test]
fn a_run_that_is_cut_off_at_any_step_of_its_making_is_empty() {
    let entries = orderly(REQUESTS);
    let mut empty = 0;
    for steps in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let life = live(dir.path(), &entries, steps);
        if life.run.join("manifest.json").exists() {
            break;
        }
        if life.run.exists() {
            assert!(Run::is_stillborn(&life.run).unwrap(), "{steps} steps");
            empty += 1;
        }
    }
    // Six folders, their names, and the manifest beside its place.
    assert!(empty > 8, "{empty}");
}

#[test]
fn a_run_that_is_cut_off_at_any_step_of_its_life_recovers_whole_even_where_recovering_is_cut_off_too() {
    let entries = orderly(REQUESTS);
    let mut lives = 0;
    for steps in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let life = live(dir.path(), &entries, steps);
        if life.finished {
            break;
        }
        if life.run.join("manifest.json").exists() {
            lives += 1;
            let deaths = [steps * 7 % 61, steps * 5 % 37];
            check(&entries, &life, &deaths[..steps % 3], &format!("{steps} steps, then {deaths:?}"));
        }
    }
    assert!(lives > 60, "{lives}");
}

#[test]
fn a_recovery_that_is_cut_off_at_any_of_its_steps_is_begun_again_and_loses_nothing() {
    let entries = orderly(REQUESTS);
    // In the middle of a life: parts, segments, and requests that only the departure log knows.
    let middle = (0..).find(|steps| {
        let dir = tempfile::tempdir().unwrap();
        let life = live(dir.path(), &entries, *steps);
        life.flushed > 0 && life.given > life.flushed + 8
    });
    for deaths in 0.. {
        let dir = tempfile::tempdir().unwrap();
        let life = live(dir.path(), &entries, middle.unwrap());
        let cut = Run::recover_on(Mortal::new(deaths), &life.run, 1, &mut |_| None);
        check(&entries, &life, &[], &format!("recovery cut off after {deaths} steps"));
        if cut.is_ok() {
            assert!(deaths > 40, "{deaths}");
            break;
        }
    }
}
