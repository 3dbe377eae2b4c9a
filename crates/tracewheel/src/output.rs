//! Data to stdout, everything else to stderr.

use std::io::{IsTerminal, Write};

use anstream::ColorChoice;
use serde::Serialize;
use tracewheel_report::Style;

use crate::cli::ColorWhen;
use crate::exit::{Exit, Failure, Or};

/// Where a command writes.
pub(crate) struct Output {
    choice: ColorChoice,
}

impl Output {
    /// Decides on colour once, from the flag, `NO_COLOR` and the terminal.
    pub(crate) fn new(when: ColorWhen) -> Self {
        let choice = match when {
            ColorWhen::Auto => anstream::AutoStream::choice(&std::io::stdout()),
            ColorWhen::Always => ColorChoice::Always,
            ColorWhen::Never => ColorChoice::Never,
        };
        Self { choice }
    }

    /// How tables are to look.
    pub(crate) fn style(&self) -> Style {
        Style { color: self.choice != ColorChoice::Never, ..Style::default() }
    }

    /// Whether a person watches stderr.
    pub(crate) fn watched(&self) -> bool {
        std::io::stderr().is_terminal()
    }

    /// Prints data.
    ///
    /// # Errors
    /// Output, when stdout cannot be written; a closed pipe is no error, the reader has seen enough.
    pub(crate) fn data(&self, text: &str) -> Result<(), Failure> {
        let mut out = anstream::AutoStream::new(std::io::stdout(), self.choice).lock();
        let written = out
            .write_all(text.as_bytes())
            .and_then(|()| if text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") });
        match written.and_then(|()| out.flush()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            written => written.or_exit_with(Exit::Output, || "cannot write to stdout".to_owned()),
        }
    }

    /// Prints a value as indented JSON.
    ///
    /// # Errors
    /// As [`Output::data`].
    pub(crate) fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.data(&serde_json::to_string_pretty(value).or_exit(Exit::Internal)?)
    }

    /// Prints a line for the person at the terminal.
    pub(crate) fn note(&self, line: &str) {
        // Nothing useful is left to do when stderr is gone.
        let _ = writeln!(anstream::stderr(), "{line}");
    }
}
