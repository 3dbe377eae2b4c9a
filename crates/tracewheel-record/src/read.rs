//! Reading a run, closed or not.

mod exchanges;
mod parts;
pub(crate) mod rows;
mod timeline;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::exchanges::Exchanges;
pub use self::rows::Rows;
pub use self::timeline::TimelineView;
use crate::departures;
use crate::disk::{Disk, FileSystem};
use crate::error::{RecordError, Result};
use crate::layout;
use crate::manifest::{self, Manifest};
use crate::recover::{self, Recovery};
use crate::rows::{AttemptRecord, HealthRecord, ReleaseRecord, RequestRecord, ServerRecord, Strata};
use crate::write::TABLES;

/// A run on disk. Rows come in the order in which they were recorded (shard by shard), in bounded memory.
#[derive(Clone)]
pub struct Run {
    dir: PathBuf,
    manifest: Manifest,
}

impl Run {
    /// Opens a run's directory: closed, being written, or left behind by a writer that died.
    ///
    /// # Errors
    /// [`RecordError::NotARun`] without a manifest, [`RecordError::Version`] for another major version,
    /// [`RecordError::PartsMissing`] where a closed run has lost parts of a table, [`RecordError::PartUnknown`] and
    /// [`RecordError::RowsDiffer`] where it has others than it was closed with, [`RecordError::OtherRun`] where a part
    /// is of another run, [`RecordError::Parquet`] where one cannot be read.
    pub fn open(dir: &Path) -> Result<Self> {
        let run = Self { dir: dir.to_owned(), manifest: manifest::file::read(dir)? };
        parts::check(&run)?;
        Ok(run)
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The run's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether the run was closed; an open one is still being written ([`is_in_use`](Self::is_in_use)) or its writer
    /// died.
    pub fn is_closed(&self) -> bool {
        self.manifest.is_closed()
    }

    /// The process that writes the run, as it noted itself; only of use while [`is_in_use`](Self::is_in_use).
    pub fn writer_process(&self) -> Option<u32> {
        layout::owner(&self.dir)
    }

    /// Whether a writer of the run is alive on this machine.
    ///
    /// # Errors
    /// [`RecordError::Io`].
    pub fn is_in_use(&self) -> Result<bool> {
        Ok(layout::take_locks(&self.dir)?.is_none())
    }

    /// The requests, in the order in which they ended.
    ///
    /// # Errors
    /// [`RecordError::Io`]; the iterator ends after its first error.
    pub fn requests(&self) -> Result<Rows<RequestRecord>> {
        rows::all(&self.dir)
    }

    /// The attempts, in the order in which they ended.
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn attempts(&self) -> Result<Rows<AttemptRecord>> {
        rows::all(&self.dir)
    }

    /// The attempts without their `reads` and `events`, which are left empty: several times faster.
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn attempts_without_events(&self) -> Result<Rows<AttemptRecord>> {
        rows::of_columns(&self.dir, |column| !matches!(column, "reads" | "events"))
    }

    /// The generator's health, second by second.
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn health(&self) -> Result<Rows<HealthRecord>> {
        rows::all(&self.dir)
    }

    /// The metrics scraped from the target; empty when nothing was scraped.
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn server(&self) -> Result<Rows<ServerRecord>> {
        rows::all(&self.dir)
    }

    /// The releases still in the journal and in the departure logs; empty for a closed run. A release may stand in both,
    /// and those whose requests have ended may be among them.
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn releases(&self) -> Result<Rows<ReleaseRecord>> {
        Ok(rows::chained(rows::all(&self.dir)?, departures::read(&self.dir)?.releases))
    }

    /// The requests that were released and have no row, as [`recover`](Self::recover) would write them: in flight when
    /// the writer died or, while it lives, now. Empty for a closed run; without strata. By row and copy.
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn unended(&self) -> Result<Vec<RequestRecord>> {
        recover::unended(self)
    }

    /// Requests with their attempts in order, joined in one pass. Memory is bounded by the requests in flight at
    /// once. In an open run, attempts whose request has not ended do not appear.
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn exchanges(&self) -> Result<Exchanges> {
        Ok(Exchanges::new(self.requests()?, self.attempts()?))
    }

    /// As [`exchanges`](Self::exchanges), the attempts without `reads` and `events`.
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn exchanges_without_events(&self) -> Result<Exchanges> {
        Ok(Exchanges::new(self.requests()?, self.attempts_without_events()?))
    }

    /// The run as a timeline (a baseline for `compare`): the requests of the phase `measure` in the order in which
    /// they ended, with what the replay measured in the place of what production recorded. See [`TimelineView`].
    ///
    /// # Errors
    /// As [`requests`](Self::requests).
    pub fn timeline_view(&self) -> Result<TimelineView> {
        Ok(TimelineView::new(self.exchanges()?, &self.manifest))
    }

    /// Whether a folder is what a writer left that died before its manifest was there: nothing had been sent, and
    /// there is nothing in it. Not so where there is a manifest.
    ///
    /// # Errors
    /// [`RecordError::ManifestLost`] where something was recorded and the manifest is gone, [`RecordError::NotARun`]
    /// where the folder is none of a run, [`RecordError::InUse`] while its writer lives.
    pub fn is_stillborn(dir: &Path) -> Result<bool> {
        let stillborn = layout::is_stillborn(dir, &TABLES)?;
        if stillborn && layout::take_locks(dir)?.is_none() {
            return Err(RecordError::InUse { path: dir.to_owned(), process: layout::owner(dir) });
        }
        Ok(stillborn)
    }

    /// Closes a run whose writer died: released requests without a row become `interrupted` (reason
    /// `interrupted_by_crash`), the rest of the plan is counted as unsent, the journal becomes parts. Safe to be
    /// interrupted and called again, also after the disk was full. Of a run that is closed already, leftovers of its
    /// journal are removed.
    ///
    /// `strata` gives the strata of a row of the timeline, where the caller has it; without, interrupted requests
    /// have none.
    ///
    /// # Errors
    /// [`RecordError::InUse`] while the writer lives, [`RecordError::AlreadyClosed`],
    /// [`RecordError::NotConserved`] when more was recorded than planned.
    pub fn recover(
        dir: &Path,
        closed_unix_ns: i64,
        strata: &mut dyn FnMut(u64) -> Option<Strata>,
    ) -> Result<Recovery> {
        Self::recover_on(Arc::new(FileSystem), dir, closed_unix_ns, strata)
    }

    /// As [`recover`](Self::recover), on a disk of the caller's.
    pub(crate) fn recover_on(
        disk: Arc<dyn Disk>,
        dir: &Path,
        closed_unix_ns: i64,
        strata: &mut dyn FnMut(u64) -> Option<Strata>,
    ) -> Result<Recovery> {
        let run = Self::open(dir)?;
        let Some(locks) = layout::take_locks(&run.dir)? else {
            let process = run.writer_process();
            return Err(RecordError::InUse { path: run.dir, process });
        };
        // Under the locks: whoever held them until now may have closed it.
        let run = Self::open(dir)?;
        if run.is_closed() {
            recover::sweep(&run, disk.as_ref())?;
            return Err(RecordError::AlreadyClosed { path: run.dir });
        }
        layout::own(&run.dir)?;
        let recovery = recover::recover(&run, &disk, closed_unix_ns, strata);
        drop(locks);
        recovery
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("dir", &self.dir)
            .field("state", &self.manifest.state)
            .finish_non_exhaustive()
    }
}
