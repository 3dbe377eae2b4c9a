//! `tracewheel inspect`

use tracewheel_timeline::TimelineStats;

use crate::cli::InspectArgs;
use crate::command::{inputs, recover, replay};
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;

/// Prints what a timeline or a run holds.
pub(crate) fn run(args: &InspectArgs, output: &Output) -> Result<Exit, Failure> {
    if args.input.is_dir() {
        recover::open_closed(&args.input)?;
        let summary = replay::summary(&args.input).or_exit(Exit::Usage)?;
        if args.json {
            output.json(&summary)?;
        } else {
            output.data(&tracewheel_report::summary_text(&summary, output.style()))?;
        }
        return Ok(Exit::Done);
    }
    let timeline = inputs::timeline(&args.input)?;
    let stats = TimelineStats::collect(&timeline)
        .or_exit_with(Exit::Usage, || format!("cannot read {}", args.input.display()))?;
    if args.json {
        output.document("1.0", &stats)?;
    } else {
        output.data(&tracewheel_report::timeline_text(&stats, output.style()))?;
    }
    Ok(Exit::Done)
}
