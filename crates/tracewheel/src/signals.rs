//! Ctrl-C and SIGTERM.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracewheel_replay::StopSignal;

use crate::exit::{Exit, Failure, Or};

/// Lets the first signal drain a replay and the second cut it.
///
/// # Errors
/// Internal, when the handlers cannot be installed.
pub(crate) fn stop_on_signals(stop: &StopSignal) -> Result<(), Failure> {
    let mut signals = signals()?;
    let stop = stop.clone();
    std::thread::spawn(move || {
        for _ in signals.forever() {
            stop.escalate();
        }
    });
    Ok(())
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
    Signals::new([SIGINT, SIGTERM])
        .or_exit_with(Exit::Internal, || "cannot install signal handlers".to_owned())
}
