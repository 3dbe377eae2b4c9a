//! The few things a run asks of a disk, behind a trait so that tests can fill it up.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use crate::error::{RecordError, Result};

/// A file being written.
pub(crate) trait DiskFile: Write + Send {
    /// Waits until everything written is on the disk.
    fn sync(&mut self) -> io::Result<()>;
}

/// Where a run is written.
pub(crate) trait Disk: fmt::Debug + Send + Sync {
    /// Makes a directory; its parents as well where `parents` says so.
    fn create_dir(&self, path: &Path, parents: bool) -> io::Result<()>;
    /// Makes a file, emptied if it was there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file its final name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Waits until the names in a directory are on the disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// The file system.
#[derive(Debug)]
pub(crate) struct FileSystem;

impl DiskFile for File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}

impl Disk for FileSystem {
    fn create_dir(&self, path: &Path, parents: bool) -> io::Result<()> {
        if parents { fs::create_dir_all(path) } else { fs::create_dir(path) }
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::create(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// Gives a finished and synced file its final name, durably.
pub(crate) fn publish(disk: &dyn Disk, from: &Path, to: &Path) -> Result<()> {
    disk.rename(from, to).map_err(|source| RecordError::io("rename", to, source))?;
    let parent = to.parent().expect("a file of a run stands in its directory");
    disk.sync_dir(parent).map_err(|source| RecordError::io("sync", parent, source))
}

/// Writes a small file whole or not at all: beside it first, then renamed into place.
pub(crate) fn write_atomically(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<()> {
    let beside = path.with_extension("tmp");
    let failed = |source| RecordError::io("write", path, source);
    let written = (|| {
        let mut file = disk.create(&beside).map_err(failed)?;
        file.write_all(content).map_err(failed)?;
        file.sync().map_err(failed)?;
        publish(disk, &beside, path)
    })();
    if written.is_err() {
        // Frees the space; the error at hand says more than a second one would.
        let _ = disk.remove(&beside);
    }
    written
}
