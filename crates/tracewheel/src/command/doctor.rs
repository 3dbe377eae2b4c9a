//! `tracewheel doctor`

use tracewheel_doctor::{DoctorError, Options, Step, examine};

use crate::cli::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Measures this machine and prints what was found.
pub(crate) fn run(args: &DoctorArgs, output: &Output) -> Result<Exit, Failure> {
    let rates = args.rates.iter().chain(&args.require).copied().collect();
    let options = Options { rates, seconds: args.seconds, dir: args.dir.clone(), realtime: args.realtime };
    let findings = examine(&options, &mut |step| output.note(&told(step))).map_err(failure)?;
    if args.json {
        output.document("1.0", &findings)?;
    } else {
        output.data(&findings.text())?;
    }
    match args.require {
        Some(rate) if findings.keeps_per_second < Some(rate) => Ok(Exit::Unfaithful),
        _ => Ok(Exit::Done),
    }
}

fn told(step: Step) -> String {
    match step {
        Step::Waits => "measuring how late timers wake".to_owned(),
        Step::Loopback => "measuring the loopback".to_owned(),
        Step::Disk => "measuring the disk".to_owned(),
        Step::Rate(rate) => format!("replaying at {rate} requests a second"),
    }
}

fn failure(error: DoctorError) -> Failure {
    let exit = match &error {
        DoctorError::Folder { .. } => Exit::Output,
        _ => Exit::Internal,
    };
    Failure::new(exit, error)
}
