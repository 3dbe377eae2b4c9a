//! `tracewheel compare`

use std::path::Path;

use tracewheel_analysis::comparison::{Comparison, Verdict};
use tracewheel_analysis::{Baseline, CompareOptions};

use crate::cli::CompareArgs;
use crate::command::{inputs, recover};
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;

/// Prints the comparison; the exit code is its verdict.
pub(crate) fn run(args: &CompareArgs, output: &Output) -> Result<Exit, Failure> {
    let options = CompareOptions { tolerance: args.tolerance, ..CompareOptions::default() };
    let comparison = compare(&args.run, &args.baseline, &options)?;
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
