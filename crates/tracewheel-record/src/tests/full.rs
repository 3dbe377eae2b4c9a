use std::fs;
use std::io::{self, Write};
use std::process::Command;
use std::sync::atomic::{AtomicI64, Ordering};

use super::samples::orderly;
use super::*;
use crate::RecordError;
use crate::disk::DiskFile;

/// A disk that takes so many bytes and so many removals; then it is full, or refuses.
#[derive(Debug)]
struct Small {
    bytes: Arc<AtomicI64>,
    removals: AtomicI64,
}

struct SmallFile {
    file: fs::File,
    bytes: Arc<AtomicI64>,
}

impl Small {
    fn new(bytes: i64, removals: i64) -> Arc<Self> {
        Arc::new(Self { bytes: Arc::new(AtomicI64::new(bytes)), removals: AtomicI64::new(removals) })
    }
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let left = self.bytes.load(Ordering::Relaxed);
        let taken = bytes.len().min(usize::try_from(left).unwrap_or(0));
        if taken == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.fetch_sub(taken as i64, Ordering::Relaxed);
        self.file.write(&bytes[..taken])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl DiskFile for SmallFile {
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Disk for Small {
    fn create_dir(&self, path: &Path, parents: bool) -> io::Result<()> {
        FileSystem.create_dir(path, parents)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SmallFile { file: fs::File::create(path)?, bytes: Arc::clone(&self.bytes) }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        FileSystem.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        if self.removals.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        FileSystem.remove(path)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

/// Records until the first error; what had been flushed by then, and the error.
fn record_until_error(writer: &mut RunWriter, entries: &[Entry]) -> (usize, Option<RecordError>) {
    let mut flushed = 0;
    for (at, entry) in entries.iter().enumerate() {
        match record(writer, entry) {
            Ok(()) if matches!(entry, Entry::Flush) => flushed = at,
            Ok(()) => {}
            Err(error) => return (flushed, Some(error)),
        }
    }
    (flushed, None)
}

#[test]
fn a_full_disk_is_named_with_its_path_and_everything_flushed_before_stays() {
    let entries = orderly(60);
    let options = || WriterOptions { part_rows: 25, ..WriterOptions::default() };
    let (mut full, mut fitted) = (0, 0);
    for bytes in (0..).step_by(14_007) {
        if fitted == 3 {
            break;
        }
        let dir = tempfile::tempdir().unwrap();
        let disk = Small::new(bytes, i64::MAX);
        let mut writer = match writer_on(disk, dir.path(), manifest_for(&entries), options()) {
            Ok(writer) => writer,
            Err(error) => {
                assert!(matches!(error, RecordError::Full { .. }), "{error:?}");
                continue;
            }
        };
        let run_dir = writer.dir().to_owned();
        let (flushed, error) = record_until_error(&mut writer, &entries);
        let error = if error.is_some() {
            drop(writer);
            error
        } else {
            writer.finish(&manifest_for(&entries), &clock()).err()
        };
        let run = Run::open(&run_dir).unwrap();
        let read = Content::read(&run).unwrap();
        assert!(read.is_prefix_of(&Content::of(&entries)));
        assert!(
            Content::of(&entries[..flushed]).is_prefix_of(&read),
            "{bytes} bytes: flushed rows are missing"
        );
        let Some(error) = error else {
            assert!(run.is_closed());
            fitted += 1;
            continue;
        };
        full += 1;
        assert!(!run.is_closed() && error.is_output_failure(), "{bytes}: {error:?}");
        let RecordError::Full { path, .. } = &error else { panic!("{error:?}") };
        assert!(path.starts_with(&run_dir), "{}", path.display());
        // No space is held by files of no meaning.
        let names = crate::layout::names(&run_dir.join("journal")).unwrap();
        assert!(!names.iter().any(|name| name.ends_with(".part")), "{names:?}");
        Run::recover(&run_dir, 1, &mut |_| None).unwrap();
    }
    assert!(full > 10 && fitted > 2, "{full} full, {fitted} fitted");
}

#[test]
fn after_an_error_the_writer_takes_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let entries = orderly(10);
    let mut writer =
        writer_on(Small::new(30_000, 9), dir.path(), manifest_for(&entries), WriterOptions::default())
            .unwrap();
    let (_, error) = record_until_error(&mut writer, &orderly(1000));
    assert!(matches!(error, Some(RecordError::Full { .. })));
    assert!(matches!(writer.flush(), Err(RecordError::Failed { .. })));
    let error = writer.finish(&manifest_for(&entries), &clock()).unwrap_err();
    assert!(matches!(error, RecordError::Failed { .. }) && error.is_output_failure());
}

#[test]
fn a_segment_that_outlives_its_part_is_not_read_twice() {
    let entries = orderly(40);
    for removals in 0..10 {
        let dir = tempfile::tempdir().unwrap();
        let options = WriterOptions { part_rows: 7, ..WriterOptions::default() };
        let disk = Small::new(i64::MAX, removals);
        let mut writer = writer_on(disk, dir.path(), manifest_for(&entries), options).unwrap();
        let (flushed, error) = record_until_error(&mut writer, &entries);
        assert!(matches!(&error, Some(RecordError::Io { action: "remove", .. })), "{error:?}");
        let run = Run::open(writer.dir()).unwrap();
        drop(writer);
        let read = Content::read(&run).unwrap();
        assert!(read.is_prefix_of(&Content::of(&entries)));
        assert!(Content::of(&entries[..flushed]).is_prefix_of(&read));
        let summary = Run::recover(run.dir(), 1, &mut |_| None).unwrap().summary;
        assert_eq!(summary.counts.total(), 40);
    }
}

struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_truly_full_file_system_is_reported_as_full() {
    let dir = tempfile::tempdir().unwrap();
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(dir.path())
        .stderr(std::process::Stdio::null())
        .status();
    if !mount.is_ok_and(|status| status.success()) {
        println!("skipped: mounting a small file system is not allowed here");
        return;
    }
    let mounted = Mounted(dir.path());
    let entries = orderly(20_000);
    let mut writer = writer(&dir.path().join("runs"), &entries, WriterOptions::default());
    let (flushed, error) = record_until_error(&mut writer, &entries);
    let run = Run::open(writer.dir()).unwrap();
    drop(writer);
    assert!(matches!(error, Some(RecordError::Full { .. })), "{error:?}");
    let read = Content::read(&run).unwrap();
    assert!(Content::of(&entries[..flushed]).is_prefix_of(&read) && !read.requests.is_empty());
    drop(mounted);
}
