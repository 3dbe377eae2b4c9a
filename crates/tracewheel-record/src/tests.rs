//! Tests of the run directory as a whole.

mod cut;
mod full;
mod golden;
mod losses;
mod manifest;
mod mortal;
mod recovery;
mod reference;
mod rolling;
mod round_trip;
mod samples;
mod view;

use std::path::Path;
use std::sync::Arc;

use tracewheel_clock::VirtualClock;

use crate::disk::{Disk, FileSystem};
use crate::manifest::Manifest;
use crate::write::{RunWriter, WriterOptions};
use crate::{AttemptRecord, HealthRecord, ReleaseRecord, RequestRecord, Result, Run, ServerRecord};

/// Everything that can be recorded.
#[derive(Debug, Clone)]
enum Entry {
    Release(ReleaseRecord),
    Attempt(AttemptRecord),
    Request(RequestRecord),
    Health(HealthRecord),
    Server(ServerRecord),
    Flush,
}

/// The rows of a run, table by table.
#[derive(Debug, Clone, Default, PartialEq)]
struct Content {
    attempts: Vec<AttemptRecord>,
    requests: Vec<RequestRecord>,
    health: Vec<HealthRecord>,
    server: Vec<ServerRecord>,
}

impl Content {
    fn add(&mut self, entry: &Entry) {
        match entry.clone() {
            Entry::Attempt(row) => self.attempts.push(row),
            Entry::Request(row) => self.requests.push(row),
            Entry::Health(row) => self.health.push(row),
            Entry::Server(row) => self.server.push(row),
            Entry::Release(_) | Entry::Flush => {}
        }
    }

    fn of(entries: &[Entry]) -> Self {
        let mut content = Self::default();
        entries.iter().for_each(|entry| content.add(entry));
        content
    }

    fn read(run: &Run) -> Result<Self> {
        Ok(Self {
            attempts: run.attempts()?.collect::<Result<_>>()?,
            requests: run.requests()?.collect::<Result<_>>()?,
            health: run.health()?.collect::<Result<_>>()?,
            server: run.server()?.collect::<Result<_>>()?,
        })
    }

    /// Whether `self` holds the first rows of `whole`, table by table.
    fn is_prefix_of(&self, whole: &Self) -> bool {
        whole.attempts.starts_with(&self.attempts)
            && whole.requests.starts_with(&self.requests)
            && whole.health.starts_with(&self.health)
            && whole.server.starts_with(&self.server)
    }
}

fn clock() -> VirtualClock {
    VirtualClock::started_at(1_790_000_000_000_000_000)
}

fn manifest_for(entries: &[Entry]) -> Manifest {
    let mut manifest = Manifest { tool_version: "0.1.0".to_owned(), ..Manifest::default() };
    manifest.plan.requests = Content::of(entries).requests.len() as u64;
    manifest
}

fn record(writer: &mut RunWriter, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Release(row) => writer.released(row),
        Entry::Attempt(row) => writer.attempt(row),
        Entry::Request(row) => writer.request(row),
        Entry::Health(row) => writer.health(row),
        Entry::Server(row) => writer.server(row),
        Entry::Flush => writer.flush(),
    }
}

/// A writer into `runs_dir/run` on a disk of the caller's.
fn writer_on(
    disk: Arc<dyn Disk>,
    runs_dir: &Path,
    manifest: Manifest,
    options: WriterOptions,
) -> Result<RunWriter> {
    let mut manifest = manifest;
    manifest.id = "run".to_owned();
    manifest.clock.start_unix_ns = 1_790_000_000_000_000_000;
    let writer = RunWriter::begin(runs_dir, manifest, options, disk)?;
    writer.departures(0, 1)?;
    Ok(writer)
}

fn writer(runs_dir: &Path, entries: &[Entry], options: WriterOptions) -> RunWriter {
    writer_on(Arc::new(FileSystem), runs_dir, manifest_for(entries), options).unwrap()
}
