//! Writing a run.

mod releases;
mod table;
mod tally;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracewheel_clock::{Clock, RunNs};
use uuid::Uuid;

pub(crate) use self::table::{Room, TableWriter};
pub(crate) use self::tally::Tally;
use crate::departures::DepartureLog;
use crate::disk::{Disk, FileSystem};
use crate::error::{RecordError, Result};
use crate::layout::{self, JOURNAL, Slot};
use crate::manifest::{self, Counts, Manifest, RunState};
use crate::rows::{AttemptRecord, HealthRecord, ReleaseRecord, RequestRecord, ServerRecord};
use crate::{RUN_VERSION, redact};
use releases::ReleaseWriter;

/// Tables that have parts.
pub(crate) const TABLES: [&str; 4] = ["requests", "attempts", "health", "server"];
/// Longest name of a timeline within an id.
const NAME_LENGTH: usize = 64;
/// Longest stored body of an error.
const ERROR_BODY_BYTES: usize = 2048;

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
    /// Parts that the run consists of.
    pub parts: u32,
}

/// The one writer of a run (of a shard of it). Owned by the recorder thread; every call may write to disk.
///
/// The attempts of a request are recorded before the request itself. After an error the writer takes nothing more
/// ([`RecordError::Failed`]); whatever was written stays readable. A writer that is dropped without
/// [`finish`](Self::finish) leaves an open run behind, which [`Run::recover`](crate::Run::recover) closes.
pub struct RunWriter {
    room: Room,
    manifest: Manifest,
    requests: TableWriter<RequestRecord>,
    attempts: TableWriter<AttemptRecord>,
    health: TableWriter<HealthRecord>,
    server: TableWriter<ServerRecord>,
    releases: ReleaseWriter,
    tally: Tally,
    sync_each_flush: bool,
    state: State,
    /// Held as long as the writer lives, however it ends.
    _lock: File,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Failed,
    Closed,
}

impl RunWriter {
    /// Makes the run's directory under `runs_dir` and writes its manifest durably: call it before the first send.
    ///
    /// The id is a UUIDv7 at the clock's wall time, a hyphen, and `name` reduced to `[a-z0-9._-]`. The writer fills
    /// in the manifest's `version`, `id`, `state`, `created_unix_ns` and, where it is 0, `clock.start_unix_ns`.
    ///
    /// # Errors
    /// [`RecordError::Full`] and [`RecordError::Io`] name the path.
    pub fn create(runs_dir: &Path, name: &str, manifest: &Manifest, clock: &dyn Clock) -> Result<Self> {
        Self::create_with(runs_dir, name, manifest, clock, WriterOptions::default())
    }

    /// As [`create`](Self::create), with options.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with(
        runs_dir: &Path,
        name: &str,
        manifest: &Manifest,
        clock: &dyn Clock,
        options: WriterOptions,
    ) -> Result<Self> {
        let mut manifest = manifest.clone();
        manifest.created_unix_ns = clock.wall(clock.now());
        if manifest.clock.start_unix_ns == 0 {
            manifest.clock.start_unix_ns = clock.wall(RunNs::ZERO);
        }
        manifest.id = run_id(manifest.created_unix_ns, name);
        Self::begin(runs_dir, manifest, options, Arc::new(FileSystem))
    }

    /// Begins the run that `manifest.id` names.
    pub(crate) fn begin(
        runs_dir: &Path,
        mut manifest: Manifest,
        options: WriterOptions,
        disk: Arc<dyn Disk>,
    ) -> Result<Self> {
        manifest.version = RUN_VERSION.to_owned();
        manifest.state = RunState::Open;
        manifest.closed_unix_ns = None;
        let run = runs_dir.join(&manifest.id);
        make_directories(disk.as_ref(), runs_dir, &run)?;
        let lock = layout::lock(&run, options.shard)?;
        manifest::file::write(disk.as_ref(), &run, &manifest)?;
        let WriterOptions { shard, part_rows, part_bytes, sync_each_flush } = options;
        let room = Room { disk, run, part_rows, part_bytes };
        let slot = Slot { shard, number: 0 };
        let (id, version) = (&manifest.id, &manifest.tool_version);
        Ok(Self {
            requests: TableWriter::new(room.clone(), slot, id, version),
            attempts: TableWriter::new(room.clone(), slot, id, version),
            health: TableWriter::new(room.clone(), slot, id, version),
            server: TableWriter::new(room.clone(), slot, id, version),
            releases: ReleaseWriter::new(room.clone(), slot, id, version),
            room,
            manifest,
            tally: Tally::default(),
            sync_each_flush,
            state: State::Open,
            _lock: lock,
        })
    }

    /// The run's id.
    pub fn id(&self) -> &str {
        &self.manifest.id
    }

    /// The run's directory.
    pub fn dir(&self) -> &Path {
        &self.room.run
    }

    /// Makes the departure log of a sending thread, which notes its releases there before their bytes leave.
    ///
    /// `unflushed` is how many releases may be on their way to this writer at most: the log keeps those, and what this
    /// writer itself holds back between two flushes.
    ///
    /// # Errors
    /// [`RecordError::Full`] and [`RecordError::Io`] name the path.
    pub fn departures(&self, sender: u32, unflushed: u32) -> Result<DepartureLog> {
        let slots = u64::from(unflushed) + 2 * table::BATCH_ROWS as u64;
        DepartureLog::create(&self.room.run, self.releases.shard(), sender, slots)
    }

    /// The manifest as it was written, but for what was redacted.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Writes the manifest again while the run is open, with what became known (resolved addresses, round trip).
    /// The fields that are the writer's stay.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn update_manifest(&mut self, manifest: &Manifest) -> Result<()> {
        self.adopt(manifest);
        self.guarded(|writer| {
            manifest::file::write(writer.room.disk.as_ref(), &writer.room.run, &writer.manifest)
        })
    }

    /// An attempt left the wheel.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn released(&mut self, record: &ReleaseRecord) -> Result<()> {
        self.guarded(|writer| writer.releases.push(record))
    }

    /// An attempt ended. Its error body is cut to 2 KiB and passed through
    /// [`redact_text`](crate::redact::redact_text).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn attempt(&mut self, record: &AttemptRecord) -> Result<()> {
        let Some(body) = &record.error_body else {
            return self.guarded(|writer| writer.attempts.push(record));
        };
        let mut redacted = redact::redact_text(body);
        let cut = (0..=ERROR_BODY_BYTES.min(redacted.len())).rev().find(|at| redacted.is_char_boundary(*at));
        redacted.truncate(cut.unwrap_or(0));
        let record = AttemptRecord { error_body: Some(redacted.into()), ..record.clone() };
        self.guarded(|writer| writer.attempts.push(&record))
    }

    /// A request ended; its attempts were recorded before.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn request(&mut self, record: &RequestRecord) -> Result<()> {
        self.guarded(|writer| {
            if writer.requests.push_only(record) {
                // A request that is on disk has its attempts there as well.
                writer.attempts.flush(false)?;
                writer.requests.flush(false)?;
            }
            writer.tally.add(record.phase, record.status, record.reason);
            writer.releases.ended(record.row, record.copy);
            Ok(())
        })
    }

    /// Counts planned requests that never left and get no row of their own.
    pub fn unsent_without_row(&mut self, requests: u64) {
        self.tally.add_unsent_without_row(requests);
    }

    /// A second passed.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn health(&mut self, record: &HealthRecord) -> Result<()> {
        self.guarded(|writer| writer.health.push(record))
    }

    /// A metric was scraped from the target.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn server(&mut self, record: &ServerRecord) -> Result<()> {
        self.guarded(|writer| writer.server.push(record))
    }

    /// Hands everything recorded so far to the operating system: it survives the death of this process. Call it each
    /// second.
    ///
    /// # Errors
    /// [`RecordError::Full`] when the disk is full, [`RecordError::Io`] when the system refuses otherwise, both with
    /// the path; [`RecordError::Failed`] after an earlier error.
    pub fn flush(&mut self) -> Result<()> {
        self.guarded(|writer| {
            let sync = writer.sync_each_flush;
            // In this order, for the same reason.
            writer.releases.flush(sync)?;
            writer.attempts.flush(sync)?;
            writer.requests.flush(sync)?;
            writer.health.flush(sync)?;
            writer.server.flush(sync)?;
            if sync {
                // The names of segments that were begun since.
                let journal = writer.room.run.join(JOURNAL);
                let synced = writer.room.disk.sync_dir(&journal);
                synced.map_err(|source| RecordError::io("sync", &journal, source))?;
            }
            writer.releases.tidy()
        })
    }

    /// Requests of the plan by status, as recorded so far.
    pub fn counts(&self) -> Counts {
        self.tally.counts
    }

    /// Released requests that have not ended.
    pub fn in_flight(&self) -> usize {
        self.releases.out()
    }

    /// Closes the parts, completes the manifest and removes the journal.
    ///
    /// `manifest` is the one given at the start plus what became known, with
    /// [`outcome`](Manifest::outcome) filled in but for the counts, which are the writer's.
    ///
    /// # Errors
    /// [`RecordError::NotConserved`] when the recorded requests do not add up to `manifest.plan.requests`: all rows
    /// are kept, the run stays open. [`RecordError::Unended`], likewise, when a released request has no row. Else as
    /// [`flush`](Self::flush).
    pub fn finish(mut self, manifest: &Manifest, clock: &dyn Clock) -> Result<RunSummary> {
        self.adopt(manifest);
        self.guarded(|writer| {
            writer.attempts.finish()?;
            writer.requests.finish()?;
            writer.health.finish()?;
            writer.server.finish()
        })?;
        let planned = self.manifest.plan.requests;
        conserved(&self.room.run, planned, self.tally.counts)?;
        let released = self.releases.out();
        if released > 0 {
            return Err(RecordError::Unended { path: self.room.run.clone(), released });
        }
        let closed_unix_ns = clock.wall(clock.now());
        self.guarded(|writer| {
            let manifest = &mut writer.manifest;
            let outcome = manifest.outcome.get_or_insert_default();
            writer.tally.write_to(outcome);
            outcome.attempts = writer.attempts.rows();
            outcome.parts = parts(&writer.room.run)?;
            manifest.state = RunState::Closed;
            manifest.closed_unix_ns = Some(closed_unix_ns);
            manifest::file::write(writer.room.disk.as_ref(), &writer.room.run, manifest)?;
            remove_journal(writer.room.disk.as_ref(), &writer.room.run)
        })?;
        self.state = State::Closed;
        Ok(RunSummary {
            id: self.manifest.id.clone(),
            dir: self.room.run.clone(),
            counts: self.tally.counts,
            extra: self.tally.extra,
            attempts: self.attempts.rows(),
            parts: self.requests.parts() + self.attempts.parts() + self.health.parts() + self.server.parts(),
        })
    }

    /// Ends as a killed process does: what was not flushed is lost.
    #[cfg(test)]
    pub(crate) fn die(mut self) {
        self.state = State::Failed;
    }

    /// Takes a manifest over, but for the fields that are the writer's.
    fn adopt(&mut self, manifest: &Manifest) {
        let start_unix_ns = self.manifest.clock.start_unix_ns;
        let written = std::mem::replace(&mut self.manifest, manifest.clone());
        self.manifest.version = written.version;
        self.manifest.id = written.id;
        self.manifest.state = written.state;
        self.manifest.created_unix_ns = written.created_unix_ns;
        self.manifest.closed_unix_ns = written.closed_unix_ns;
        self.manifest.clock.start_unix_ns = start_unix_ns;
    }

    /// Does something with the disk. After an error nothing more is written, and the space of unfinished parts,
    /// whose rows stand in the journal, is given back.
    fn guarded<T>(&mut self, action: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.state != State::Open {
            return Err(RecordError::Failed { path: self.room.run.clone() });
        }
        let done = action(self);
        if done.is_err() {
            self.state = State::Failed;
            self.requests.abandon();
            self.attempts.abandon();
            self.health.abandon();
            self.server.abandon();
        }
        done
    }
}

impl Drop for RunWriter {
    /// Keeps what was recorded, as far as that goes; the run stays open.
    fn drop(&mut self) {
        if self.state == State::Open {
            let _ = self.flush();
        }
    }
}

/// A UUIDv7 of the given time, a hyphen, and the name reduced to `[a-z0-9._-]`.
fn run_id(unix_ns: i64, name: &str) -> String {
    let unix_ns = u64::try_from(unix_ns).unwrap_or(0);
    let (seconds, nanos) = (unix_ns / 1_000_000_000, (unix_ns % 1_000_000_000) as u32);
    let uuid = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, nanos));
    let name = sanitised(name);
    if name.is_empty() { uuid.to_string() } else { format!("{uuid}-{name}") }
}

/// What of a name may stand in a path: anything else becomes one hyphen; no dot or hyphen at either end.
fn sanitised(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars().flat_map(char::to_lowercase) {
        if letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_') {
            out.push(letter);
        } else if !out.ends_with('-') {
            out.push('-');
        }
        if out.len() >= NAME_LENGTH {
            break;
        }
    }
    out.trim_matches(['-', '.']).to_owned()
}

/// Makes the run's directories, and their names durable.
fn make_directories(disk: &dyn Disk, runs_dir: &Path, run: &Path) -> Result<()> {
    let create = |path: &Path, parents| {
        disk.create_dir(path, parents).map_err(|source| RecordError::io("create", path, source))
    };
    create(runs_dir, true)?;
    create(run, false)?;
    for table in TABLES {
        create(&run.join(table), false)?;
    }
    create(&run.join(JOURNAL), false)?;
    for path in [run, runs_dir] {
        disk.sync_dir(path).map_err(|source| RecordError::io("sync", path, source))?;
    }
    Ok(())
}

/// Whether planned = ok + failed + cancelled + interrupted + unsent.
pub(crate) fn conserved(run: &Path, planned: u64, counts: Counts) -> Result<()> {
    if counts.total() == planned {
        return Ok(());
    }
    Err(RecordError::NotConserved { path: run.to_owned(), planned, counts })
}

/// Finished parts of each table.
pub(crate) fn parts(run: &Path) -> Result<BTreeMap<String, u64>> {
    TABLES.into_iter().map(|table| Ok((table.to_owned(), layout::parts(run, table)?.len() as u64))).collect()
}

/// Removes the journal of a run whose rows all stand in parts.
pub(crate) fn remove_journal(disk: &dyn Disk, run: &Path) -> Result<()> {
    let journal = run.join(JOURNAL);
    for name in layout::names(&journal)? {
        let path = journal.join(name);
        disk.remove(&path).map_err(|source| RecordError::io("remove", &path, source))?;
    }
    match std::fs::remove_dir(&journal) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|source| RecordError::io("remove", &journal, source)),
    }
}
