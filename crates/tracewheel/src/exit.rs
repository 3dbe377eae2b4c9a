//! Exit codes, and which error gets which.

use std::fmt;

/// How the process ends; the table stands in `docs/reference/exit-codes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done, and every gate passed.
    Done = 0,
    /// A fault of tracewheel itself.
    Internal = 1,
    /// The command line, the scenario or an input file is not usable as given.
    Usage = 2,
    /// A comparison regressed.
    Regressed = 11,
    /// A verdict was required and the data cannot give one.
    CannotTell = 12,
    /// More rows were rejected than `--max-rejects` allows.
    Rejected = 20,
    /// The target could not be reached, or every request failed.
    Target = 30,
    /// The generator was not faithful to the schedule.
    Unfaithful = 31,
    /// A person interrupted the run; what was recorded is kept.
    Interrupted = 32,
    /// The output is not writable, or the disk is full.
    Output = 40,
}

/// An error with the exit code it leads to.
pub(crate) struct Failure {
    /// The code.
    pub(crate) exit: Exit,
    /// What went wrong, with its remedy.
    pub(crate) error: anyhow::Error,
}

impl Failure {
    /// Pairs an error with a code.
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// A usage error made of a message.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, anyhow::anyhow!("{message}"))
    }
}

/// Attaches an exit code (and what was being done) to any error.
pub(crate) trait Or<T> {
    /// `exit` with the error alone.
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
    /// `exit` with a line of context in front of the error.
    fn or_exit_with(self, exit: Exit, context: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> Or<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(exit, error))
    }

    fn or_exit_with(self, exit: Exit, context: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure { exit, error: error.into().context(context()) })
    }
}
