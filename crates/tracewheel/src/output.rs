//! Data to stdout, everything else to stderr.

use std::io::{IsTerminal, Write};

use anstream::ColorChoice;
use serde::Serialize;
use tracewheel_live::{Manner, Reporter, Screen};
use tracewheel_report::Style;

use crate::cli::OutputArgs;
use crate::exit::{Exit, Failure, Or};
use crate::terminal;
use crate::time::parse_ns;

/// Time between two plain lines of progress where nothing is said.
const PLAIN_EVERY_NS: i64 = 10_000_000_000;

/// Where a command writes.
#[derive(Clone)]
pub(crate) struct Output {
    choice: ColorChoice,
    screen: Screen,
    manner: Manner,
}

impl Output {
    /// Decides on colour and progress once, from the flags, the environment and the terminal.
    ///
    /// # Errors
    /// Usage, when the interval of `--progress plain:EVERY` is none.
    pub(crate) fn new(args: &OutputArgs) -> Result<Self, Failure> {
        Ok(Self {
            choice: match args.color.as_str() {
                "always" => ColorChoice::Always,
                "never" => ColorChoice::Never,
                _ => anstream::AutoStream::choice(&std::io::stdout()),
            },
            screen: Screen::new(std::io::stderr(), || {
                terminal_size::terminal_size_of(std::io::stderr()).map(|(width, _)| usize::from(width.0))
            }),
            manner: manner(&args.progress)?,
        })
    }

    /// How tables are to look.
    pub(crate) fn style(&self) -> Style {
        terminal::style(self.colored())
    }

    /// Whether colour is wanted.
    pub(crate) fn colored(&self) -> bool {
        self.choice != ColorChoice::Never
    }

    /// Stderr, on which progress may stand below notes and logs.
    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Shows the progress of a piece of work in the way that was chosen.
    pub(crate) fn reporter(&self) -> Reporter {
        Reporter::new(self.screen.clone(), self.manner)
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

    /// Prints a value as indented JSON, with the version of its keys in front.
    ///
    /// # Errors
    /// As [`Output::data`].
    pub(crate) fn document(&self, schema: &'static str, value: &impl Serialize) -> Result<(), Failure> {
        self.json(&Document { schema, value })
    }

    /// Prints a line for the person at the terminal, above the progress where there is some.
    pub(crate) fn note(&self, line: &str) {
        self.screen.print(format!("{line}\n").as_bytes());
    }
}

fn manner(choice: &str) -> Result<Manner, Failure> {
    Ok(match choice {
        "always" => Manner::Line,
        "never" => Manner::Silent,
        "plain" => Manner::Plain { every_ns: PLAIN_EVERY_NS },
        "auto" => {
            let dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
            if std::io::stderr().is_terminal() && !dumb { Manner::Line } else { Manner::Silent }
        }
        plain => {
            let every = plain.strip_prefix("plain:").unwrap_or(plain);
            let every_ns =
                parse_ns(every).map_err(|why| Failure::usage(format!("--progress plain:EVERY: {why}")))?;
            Manner::Plain { every_ns: every_ns.max(1) }
        }
    })
}

/// A value that does not carry the version of its own JSON.
#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema: &'static str,
    #[serde(flatten)]
    value: &'a T,
}
