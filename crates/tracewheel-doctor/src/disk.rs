//! Writing a run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use serde::Serialize;
use tracewheel_clock::{Clock, RunClock};

use crate::{DoctorError, Spread};

/// Written for the throughput.
const BYTES: usize = 32 << 20;
/// Written between two waits for the disk.
const PIECE: usize = 1 << 20;

/// Writing to the folder of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Where it was measured.
    pub dir: PathBuf,
    /// Bytes written a second, each megabyte waited for until the disk has it.
    pub synced_bytes_per_second: u64,
    /// Writing one megabyte and waiting for the disk.
    pub megabyte: Spread,
    /// Bytes that are free; null where the system does not tell.
    pub free_bytes: Option<u64>,
}

/// A folder that is removed, with all that it holds, when it is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one within `dir`, which is made as well where it is missing.
    pub(crate) fn new(dir: &Path) -> Result<Self, DoctorError> {
        let path = dir.join(format!(".tracewheel-doctor-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|source| failed("create", &path)(source))?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _left = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DoctorError {
    let path = path.to_owned();
    move |source| DoctorError::Folder { action, path, source }
}

/// Writes a file within `dir` and removes it.
pub(crate) fn measure(dir: &Path) -> Result<Disk, DoctorError> {
    let scratch = Scratch::new(dir)?;
    let path = scratch.path().join("written");
    let clock = RunClock::start();
    let pieces = write_pieces(&path, &clock).map_err(failed("write", &path))?;
    let all_ns = pieces.iter().sum::<i64>().max(1);
    Ok(Disk {
        dir: dir.to_owned(),
        synced_bytes_per_second: (BYTES as f64 * 1e9 / all_ns as f64) as u64,
        megabyte: Spread::of(pieces),
        free_bytes: statvfs(dir).ok().map(|disk| disk.blocks_available() * disk.fragment_size()),
    })
}

fn write_pieces(path: &Path, clock: &RunClock) -> io::Result<Vec<i64>> {
    let mut file = File::create(path)?;
    // Not zeros, which some file systems do not store.
    let piece: Vec<u8> =
        (0..PIECE).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let mut taken = Vec::new();
    for _ in 0..BYTES / PIECE {
        let before = clock.now();
        file.write_all(&piece)?;
        file.sync_data()?;
        taken.push(clock.now().since(before));
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_removed_again() {
        let dir = tempfile::tempdir().unwrap();
        let within = dir.path().join("runs");
        let disk = measure(&within).unwrap();
        assert_eq!(disk.megabyte.n, 32);
        assert!(disk.synced_bytes_per_second > 0 && disk.free_bytes > Some(0));
        assert_eq!(fs::read_dir(&within).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = measure(&file).unwrap_err().to_string();
        assert!(error.contains(&file.display().to_string()) && error.contains("--dir"), "{error}");
    }
}
