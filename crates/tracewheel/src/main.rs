//! Production trace replay load generator for LLM and other streaming HTTP endpoints.

mod cli;
mod command;
mod exit;
mod output;
mod scenario;
mod secret;
mod signals;
mod time;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::exit::Failure;
use crate::output::Output;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = Output::new(cli.color);
    if let Err(failure) = start_logs(&cli.log) {
        return report(&output, &failure);
    }
    let outcome = match cli.command {
        Command::Ingest(args) => command::ingest::run(&args, &output),
        Command::Inspect(args) => command::inspect::run(&args, &output),
        Command::Mock(args) => command::mock::run(&args, &output),
        Command::Replay(args) => command::replay::run(*args, &output),
        Command::Compare(args) => command::compare::run(&args, &output),
        Command::Demo(args) => command::demo::run(&args, &output),
    };
    match outcome {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => report(&output, &failure),
    }
}

fn report(output: &Output, failure: &Failure) -> ExitCode {
    output.note(&format!("error: {}", told(&failure.error)));
    ExitCode::from(failure.exit as u8)
}

/// An error and its causes on one line. A cause that its effect has told already is not told again: libraries differ
/// in whether an error's own text ends with its cause.
fn told(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if line.is_empty() {
            line = text;
        } else if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
    }
    line
}

/// Structured logs go to stderr; data never does.
fn start_logs(filter: &str) -> Result<(), Failure> {
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .map_err(|error| Failure::usage(format!("--log `{filter}`: {error}; write it like `info`")))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn a_cause_that_is_told_already_is_not_told_twice() {
        let cause = anyhow::anyhow!("no such file");
        let error = cause.context("cannot read x: no such file").context("no plan");
        assert_eq!(super::told(&error), "no plan: cannot read x: no such file");
        let error = anyhow::anyhow!("no such file").context("cannot read x");
        assert_eq!(super::told(&error), "cannot read x: no such file");
    }

    #[test]
    fn the_command_line_is_consistent() {
        crate::cli::Cli::command().debug_assert();
    }
}
