//! `tracewheel inspect`

use tracewheel_analysis::SummaryOptions;
use tracewheel_timeline::TimelineStats;

use crate::cli::InspectArgs;
use crate::command::{bounds, inputs, recover};
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;

/// Prints what a timeline or a run holds.
pub(crate) fn run(args: &InspectArgs, output: &Output) -> Result<Exit, Failure> {
    if args.input.is_dir() {
        let run = recover::open_closed(&args.input)?;
        let own = run.manifest().fidelity.unwrap_or_default();
        let fidelity = Some(bounds::changed(own, &args.fidelity)?);
        let options = SummaryOptions { fidelity, ..SummaryOptions::default() };
        let summary = tracewheel_analysis::summarise(&run, &options).or_exit(Exit::Usage)?;
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
