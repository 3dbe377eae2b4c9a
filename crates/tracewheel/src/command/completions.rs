//! `tracewheel completions`

use crate::cli::{CompletionsArgs, command};
use crate::exit::{Exit, Failure};
use crate::output::Output;

/// Prints the completion script of a shell.
pub(crate) fn run(args: &CompletionsArgs, output: &Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command(), "tracewheel", &mut script);
    output.data(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
