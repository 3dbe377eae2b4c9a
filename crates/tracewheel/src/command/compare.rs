//! `tracewheel compare`

use std::path::Path;

use tracewheel_analysis::comparison::{Comparison, Verdict};
use tracewheel_analysis::{Baseline, CompareOptions};

use crate::cli::CompareArgs;
use crate::command::{bounds, inputs, recover};
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;

/// Prints the comparison; the exit code is its verdict.
pub(crate) fn run(args: &CompareArgs, output: &Output) -> Result<Exit, Failure> {
    let fidelity = if args.fidelity.is_empty() {
        None
    } else {
        // One yardstick for both sides: the run's own, with the changes.
        let own = inputs::run_beside(&args.run, &args.baseline)?.manifest().fidelity;
        Some(bounds::changed(own.unwrap_or_default(), &args.fidelity)?)
    };
    let options = CompareOptions { tolerance: args.tolerance, fidelity, ..CompareOptions::default() };
    let comparison = compare(&args.run, &args.baseline, &options)?;
    if let Some(notice) = comparison.notice.as_deref().filter(|_| !args.force) {
        return Err(refused(args, &comparison, notice));
    }
    if args.json {
        output.json(&comparison)?;
    } else {
        output.data(&tracewheel_report::comparison_text(&comparison, output.style()))?;
    }
    Ok(match comparison.verdict {
        Verdict::Slower => Exit::Regressed,
        Verdict::CannotTell if args.require_verdict => Exit::CannotTell,
        Verdict::Agree | Verdict::Faster | Verdict::CannotTell => Exit::Done,
    })
}

/// Why nothing is compared, and what can be done about it.
fn refused(args: &CompareArgs, comparison: &Comparison, notice: &str) -> Failure {
    let late = if comparison.fidelity.is_unfaithful() { &args.run } else { &args.baseline };
    let reasons = [Some(&comparison.fidelity), comparison.baseline_fidelity.as_ref()].into_iter().flatten();
    let reasons: Vec<&str> = reasons.filter(|f| f.is_unfaithful()).map(|f| f.reason.as_str()).collect();
    let run = recover::quoted(late);
    Failure::new(
        Exit::Unfaithful,
        anyhow::anyhow!(
            "nothing is compared: {notice} ({}); `tracewheel inspect {run}` shows figures, bounds and causes; replay again on a \
             machine that keeps the schedule, or give --force to compare all the same",
            reasons.join("; ")
        ),
    )
}

/// Compares a run with a timeline or with another run, whichever `baseline` is.
pub(crate) fn compare(run: &Path, baseline: &Path, options: &CompareOptions) -> Result<Comparison, Failure> {
    let replay = inputs::run_beside(run, baseline)?;
    let comparison = if baseline.is_dir() {
        let other = recover::open_closed(baseline)?;
        tracewheel_analysis::compare(&replay, Baseline::Run(&other), options)
    } else {
        let timeline = inputs::timeline(baseline)?;
        tracewheel_analysis::compare(&replay, Baseline::Timeline(&timeline), options)
    };
    // Whatever an analysis refuses is one of its inputs: a broken part, another timeline, an option.
    comparison.or_exit(Exit::Usage)
}
