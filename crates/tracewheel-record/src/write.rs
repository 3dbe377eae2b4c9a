//! Writing a run.

use std::path::{Path, PathBuf};

use tracewheel_clock::Clock;

use crate::error::Result;
use crate::manifest::{Counts, Manifest};
use crate::rows::{AttemptRecord, HealthRecord, ReleaseRecord, RequestRecord, ServerRecord};

/// How a writer buffers and rolls.
#[derive(Debug, Clone)]
pub struct WriterOptions {
    /// Number of this writer among those of the run: part of every file name.
    pub shard: u32,
    /// Rows after which a part is closed and the next begun.
    pub part_rows: usize,
    /// Encoded bytes after which a part is closed and the next begun.
    pub part_bytes: usize,
    /// Whether each [`RunWriter::flush`] waits for the disk, so that a power cut loses no more than a killed
    /// process does.
    pub sync_each_flush: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { shard: 0, part_rows: 1 << 20, part_bytes: 128 << 20, sync_each_flush: false }
    }
}

/// What was written, once a run is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The run's id.
    pub id: String,
    /// The run's directory.
    pub dir: PathBuf,
    /// Requests of the plan by status.
    pub counts: Counts,
    /// Requests beside the plan by status.
    pub extra: Counts,
    /// Attempts recorded.
    pub attempts: u64,
    /// Parts written.
    pub parts: u32,
}

/// The one writer of a run (of a shard of it). Owned by the recorder thread; every call may write to disk.
///
/// The attempts of a request are recorded before the request itself. After an error the writer takes nothing more
/// ([`RecordError::Failed`](crate::RecordError::Failed)); whatever was written stays readable.
pub struct RunWriter {}

impl RunWriter {
    /// Makes the run's directory under `runs_dir` and writes its manifest durably: call it before the first send.
    ///
    /// The id is a UUIDv7 at the clock's wall time, a hyphen, and `name` reduced to `[a-z0-9._-]`. The writer fills
    /// in the manifest's `version`, `id`, `state`, `created_unix_ns` and `clock.start_unix_ns`.
    pub fn create(runs_dir: &Path, name: &str, manifest: &Manifest, clock: &dyn Clock) -> Result<Self> {
        Self::create_with(runs_dir, name, manifest, clock, WriterOptions::default())
    }

    /// As [`create`](Self::create), with options.
    pub fn create_with(
        runs_dir: &Path,
        name: &str,
        manifest: &Manifest,
        clock: &dyn Clock,
        options: WriterOptions,
    ) -> Result<Self> {
        let _ = (runs_dir, name, manifest, clock, options);
        unimplemented!()
    }

    /// The run's id.
    pub fn id(&self) -> &str {
        unimplemented!()
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        unimplemented!()
    }

    /// The manifest as it was written.
    pub fn manifest(&self) -> &Manifest {
        unimplemented!()
    }

    /// Writes the manifest again while the run is open, with what became known (resolved addresses, round trip).
    pub fn update_manifest(&mut self, manifest: &Manifest) -> Result<()> {
        let _ = manifest;
        unimplemented!()
    }

    /// An attempt left the wheel.
    pub fn released(&mut self, record: &ReleaseRecord) -> Result<()> {
        let _ = record;
        unimplemented!()
    }

    /// An attempt ended.
    pub fn attempt(&mut self, record: &AttemptRecord) -> Result<()> {
        let _ = record;
        unimplemented!()
    }

    /// A request ended; its attempts were recorded before.
    pub fn request(&mut self, record: &RequestRecord) -> Result<()> {
        let _ = record;
        unimplemented!()
    }

    /// Counts planned requests that never left and get no row of their own.
    pub fn unsent_without_row(&mut self, requests: u64) -> Result<()> {
        let _ = requests;
        unimplemented!()
    }

    /// A second passed.
    pub fn health(&mut self, record: &HealthRecord) -> Result<()> {
        let _ = record;
        unimplemented!()
    }

    /// A metric was scraped from the target.
    pub fn server(&mut self, record: &ServerRecord) -> Result<()> {
        let _ = record;
        unimplemented!()
    }

    /// Hands everything recorded so far to the operating system: it survives the death of this process.
    pub fn flush(&mut self) -> Result<()> {
        unimplemented!()
    }

    /// Requests of the plan by status, as recorded so far.
    pub fn counts(&self) -> Counts {
        unimplemented!()
    }

    /// Closes the parts, completes the manifest and removes the journal.
    ///
    /// `manifest` is the one given at the start plus what became known, with
    /// [`outcome`](Manifest::outcome) filled in but for the counts, which are the writer's.
    ///
    /// # Errors
    /// [`RecordError::NotConserved`](crate::RecordError::NotConserved) when the recorded requests do not add up to
    /// `manifest.plan.requests`: all rows are kept, the run stays open.
    pub fn finish(self, manifest: &Manifest, clock: &dyn Clock) -> Result<RunSummary> {
        let _ = (manifest, clock);
        unimplemented!()
    }
}
