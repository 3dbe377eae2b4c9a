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
    output.note(&format!("error: {:#}", failure.error));
    ExitCode::from(failure.exit as u8)
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
    fn the_command_line_is_consistent() {
        crate::cli::Cli::command().debug_assert();
    }
}
