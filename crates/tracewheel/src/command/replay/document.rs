//! What `replay --json` prints: the exact summary of the finished run, and what only the process knows.

use std::path::PathBuf;

use serde::Serialize;
use tracewheel_analysis::ReplaySummary;
use tracewheel_record::manifest::{ConnectionOutcome, PrimeOutcome};
use tracewheel_replay::{FirstFailure, RunReport, StopLevel};
use tracewheel_workload::Thinned;

use crate::exit::Exit;

/// The keys of `inspect RUN --json`, and beside them where the run lies and how the process fared.
#[derive(Serialize)]
pub(super) struct ReplayDocument {
    #[serde(flatten)]
    summary: ReplaySummary,
    run_dir: PathBuf,
    process: ProcessReport,
}

/// What no table of the run tells.
#[derive(Serialize)]
struct ProcessReport {
    exit_code: u8,
    ended_by: &'static str,
    gave_up: Option<String>,
    first_failure: Option<FirstFailure>,
    primed: u64,
    /// As `outcome.prime` of the manifest.
    prime: Option<PrimeOutcome>,
    /// Planned requests of the warm-up: in no figure above.
    warmup: u64,
    thinned: Option<Thinned>,
    connections: u64,
    stale_connections: u64,
    /// As `outcome.connections` of the manifest.
    connection_life: ConnectionOutcome,
    measured_ns: i64,
}

impl ReplayDocument {
    pub(super) fn new(report: &RunReport, summary: ReplaySummary, exit: Exit) -> Self {
        let ended_by = match (report.stopped, &report.gave_up) {
            (StopLevel::Cut, _) => "cut",
            (StopLevel::Drain, _) => "drained",
            (StopLevel::Running, Some(_)) => "failures",
            (StopLevel::Running, None) => "plan",
        };
        Self {
            summary,
            run_dir: report.run_dir.clone(),
            process: ProcessReport {
                exit_code: exit as u8,
                ended_by,
                gave_up: report.gave_up.clone(),
                first_failure: report.first_failure.clone(),
                primed: report.primed,
                prime: report.prime,
                warmup: report.warmup,
                thinned: report.thinned.clone(),
                connections: report.connections,
                stale_connections: report.stale_connections,
                connection_life: report.connection_life.clone(),
                measured_ns: report.measured_ns,
            },
        }
    }
}
