//! Ctrl-C, SIGTERM and SIGHUP; and the signal of a file size limit.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tracewheel_ingest::{ImportStop, IngestError};
use tracewheel_replay::{StopLevel, StopSignal};

use crate::exit::{Exit, Failure, Or};
use crate::output::Output;

/// An import that reads notices a stop within milliseconds; one that takes longer waits for its input.
const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Lets the first signal drain a replay, the second cut it, and the third end the process as if there were no handler.
/// `tell` is given the level reached by the first two.
///
/// # Errors
/// Internal, when the handlers cannot be installed.
pub(crate) fn stop_on_signals(
    stop: &StopSignal,
    tell: impl Fn(StopLevel) + Send + 'static,
) -> Result<(), Failure> {
    let mut signals = signals()?;
    let stop = stop.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if stop.level() == StopLevel::Cut {
                // The run's journal survives that; `recover` closes it.
                let _ = emulate_default_handler(signal);
            }
            tell(stop.escalate());
        }
    });
    Ok(())
}

/// Lets the first signal stop an import: cleanly, and where its input brings nothing that it would notice the stop by,
/// by ending the process. A signal that comes when the timeline is put into place changes nothing, the next one ends
/// the process as if there were no handler.
///
/// # Errors
/// Internal, when the handlers cannot be installed.
pub(crate) fn stop_import_on_signals(stop: Arc<ImportStop>, output: &Output) -> Result<(), Failure> {
    let mut signals = signals()?;
    let output = output.clone();
    std::thread::spawn(move || {
        let mut late = false;
        for signal in signals.forever() {
            if stop.stop() {
                std::thread::park_timeout(NOTICED_WITHIN);
                output.note(&format!("error: {}", IngestError::Interrupted));
                end_interrupted();
            }
            if std::mem::replace(&mut late, true) {
                let _ = emulate_default_handler(signal);
            }
        }
    });
    Ok(())
}

#[expect(
    clippy::exit,
    clippy::disallowed_methods,
    reason = "main waits for an input that may never bring anything"
)]
fn end_interrupted() -> ! {
    std::process::exit(Exit::Interrupted as i32)
}

/// Has a file that would grow beyond the process's limit refused with an error, which is told with its path, instead of
/// the process killed.
///
/// # Errors
/// Internal, when the handler cannot be installed.
pub(crate) fn survive_file_size_limit() -> Result<(), Failure> {
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))
        .map(drop)
        .or_exit_with(Exit::Internal, || "cannot install signal handlers".to_owned())
}

/// A stop that was asked for, or will be.
pub(crate) struct Stopped(Signals);

impl Stopped {
    /// Waits for the first signal since the handlers were installed.
    pub(crate) fn wait(mut self) {
        self.0.forever().next();
    }
}

/// Installs the handlers.
///
/// # Errors
/// Internal, when the handlers cannot be installed.
pub(crate) fn stopped() -> Result<Stopped, Failure> {
    signals().map(Stopped)
}

fn signals() -> Result<Signals, Failure> {
    // Under `nohup` the loss of the terminal is to be survived.
    let wanted: &[i32] = if ignored(SIGHUP) { &[SIGINT, SIGTERM] } else { &[SIGINT, SIGTERM, SIGHUP] };
    Signals::new(wanted).or_exit_with(Exit::Internal, || "cannot install signal handlers".to_owned())
}

/// Whether whoever started this process had it ignore a signal; no where the system does not say.
fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    is_ignored(&status, signal)
}

fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";
        assert!(is_ignored(status, SIGHUP) && is_ignored(status, 13));
        assert!(!is_ignored(status, SIGINT) && !is_ignored("", SIGHUP));
    }
}
