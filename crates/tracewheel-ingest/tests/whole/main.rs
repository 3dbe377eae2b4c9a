//! Imports from bytes to a timeline, read back.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "helpers of tests fail and tell as tests do")]

mod generic;
mod hostile;
mod identities;
mod memory;
mod names;
mod oddities;
mod packed;
mod page;
mod published;

use std::path::PathBuf;

use tracewheel_ingest::{IngestError, IngestOptions, IngestReport, Input, ingest};
use tracewheel_timeline::{RequestRow, Timeline, TimelineStats};

/// A finished import.
struct Done {
    report: IngestReport,
    timeline: Timeline,
    rows: Vec<RequestRow>,
    /// Holds the file while the timeline is open.
    _folder: tempfile::TempDir,
}

impl Done {
    fn stats(&self) -> TimelineStats {
        TimelineStats::collect(&self.timeline).unwrap()
    }

    /// A value of each row.
    fn each<T>(&self, value: impl Fn(&RequestRow) -> T) -> Vec<T> {
        self.rows.iter().map(value).collect()
    }
}

fn options() -> IngestOptions {
    IngestOptions::new("test key")
}

fn mapped(map: &str) -> IngestOptions {
    IngestOptions { map: Some(map.parse().unwrap()), ..options() }
}

fn try_import(inputs: Vec<Input>, options: IngestOptions) -> Result<Done, IngestError> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("timeline.parquet");
    let report = ingest(inputs, options, &out)?;
    let timeline = Timeline::open(&out).unwrap();
    let rows: Vec<RequestRow> = timeline.rows().map(|row| row.unwrap().1).collect();
    assert_eq!(report.rows_kept, rows.len() as u64);
    assert_eq!(report.rows_read, report.rows_kept + report.rows_rejected);
    assert_eq!(report.rows_rejected, report.rejected_by_reason.values().sum::<u64>());
    assert_eq!(report.timeline_digest.as_deref(), Some(timeline.meta().digest.as_str()));
    Ok(Done { report, timeline, rows, _folder: folder })
}

fn text(content: impl AsRef<[u8]>) -> Vec<Input> {
    vec![Input::reader("log", std::io::Cursor::new(content.as_ref().to_vec()))]
}

fn import(content: impl AsRef<[u8]>, options: IngestOptions) -> Done {
    try_import(text(content), options).unwrap()
}

fn refusal(content: impl AsRef<[u8]>, options: IngestOptions) -> String {
    match try_import(text(content), options) {
        Ok(done) => panic!("kept {} rows", done.report.rows_kept),
        Err(error) => error.to_string(),
    }
}

/// A shipped cut.
fn fixture(name: &str) -> Input {
    Input::path(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/traces").join(name))
}

/// A whole published trace, where it lies beside the project.
fn published(name: &str) -> Option<Input> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    if path.exists() {
        return Some(Input::path(path));
    }
    println!("skipped: {name} is not here");
    None
}
