//! One replay from its first check to its closed run directory.

use std::path::Path;
use std::sync::mpsc::SyncSender;

use tracewheel_workload::Plan;

use crate::{ReplayConfig, ReplayError, ReplayEvent, RunReport, StopSignal};

/// Replays `plan` against `config.target` and records it under `runs_dir`. Blocks until the run directory is closed.
///
/// Every planned request gets a status, however the run ends. `events` is offered progress and never waited for.
///
/// # Errors
/// Nothing was sent ([`ReplayError::Config`], [`ReplayError::Target`]), or the run had to end early: the plan could not be
/// read on, or the recorder failed or fell behind. What was recorded until then stays readable. A target that can't be
/// reached is no error but a run whose requests are unsent ([`RunReport::gave_up`]).
pub fn run(
    plan: &Plan,
    config: &ReplayConfig,
    runs_dir: &Path,
    stop: &StopSignal,
    events: SyncSender<ReplayEvent>,
) -> Result<RunReport, ReplayError> {
    let _ = (plan, config, runs_dir, stop, events);
    unimplemented!()
}
