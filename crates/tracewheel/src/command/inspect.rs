//! `tracewheel inspect`

use tracewheel_timeline::{Timeline, TimelineStats};

use crate::cli::InspectArgs;
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;

/// Prints what a timeline holds.
pub(crate) fn run(args: &InspectArgs, output: &Output) -> Result<Exit, Failure> {
    let timeline = Timeline::open(&args.timeline).or_exit(Exit::Usage)?;
    let stats = TimelineStats::collect(&timeline)
        .or_exit_with(Exit::Usage, || format!("cannot read {}", args.timeline.display()))?;
    if args.json {
        output.json(&stats)?;
    } else {
        output.data(&tracewheel_report::timeline_text(&stats, output.style()))?;
    }
    Ok(Exit::Done)
}
