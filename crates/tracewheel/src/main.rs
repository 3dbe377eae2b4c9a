//! Production trace replay load generator for LLM and other streaming HTTP endpoints.

mod choice;
mod cli;
mod command;
mod exit;
mod files;
mod logs;
mod output;
mod scenario;
mod secret;
mod signals;
mod terminal;
mod time;
mod waiting;

use std::io::Write;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::{Cli, Command};
use crate::exit::{Exit, Failure};
use crate::output::Output;

fn main() -> ExitCode {
    let parsed = cli::command()
        .color(color_of_help())
        .try_get_matches()
        .and_then(|found| Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let output = match Output::new(&cli.output) {
        Ok(output) => output,
        Err(failure) => {
            let _ = writeln!(anstream::stderr(), "error: {}", told(&failure.error));
            return ExitCode::from(failure.exit as u8);
        }
    };
    let started = logs::start(&cli.logs, &cli.command.paths(), output.screen(), output.colored());
    if let Err(failure) = started.and_then(|()| signals::survive_file_size_limit()) {
        return report(&output, &failure);
    }
    let outcome = match cli.command {
        Command::Ingest(args) => command::ingest::run(&args, &output),
        Command::Inspect(args) => command::inspect::run(&args, &output),
        Command::Mock(args) => command::mock::run(&args, &output),
        Command::Replay(args) => command::replay::run(*args, &output),
        Command::Compare(args) => command::compare::run(&args, &output),
        Command::Recover(args) => command::recover::run(&args, &output),
        Command::Demo(args) => command::demo::run(&args, &output),
        Command::Doctor(args) => command::doctor::run(&args, &output),
        Command::Completions(args) => command::completions::run(&args, &output),
        Command::Man(args) => command::man::run(&args, &output),
    };
    match outcome {
        Ok(exit) => ExitCode::from(exit as u8),
        Err(failure) => report(&output, &failure),
    }
}

/// Help that was asked for, or a command line that cannot be understood.
fn refuse(error: &clap::Error) -> ExitCode {
    // A reader that has seen enough is no reason for another error; a full disk is, where help was asked for.
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    if !error.use_stderr()
        && let Err(why) = printed
        && why.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = writeln!(anstream::stderr(), "error: cannot write to stdout: {why}");
        return ExitCode::from(Exit::Output as u8);
    }
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
        && std::path::Path::new(word).exists()
    {
        let _ = writeln!(
            anstream::stderr(),
            "\n`{word}` is a file, not a command: `tracewheel inspect {word}` describes a timeline or a run, `tracewheel \
             ingest {word} -o yesterday.parquet` reads a log"
        );
    }
    ExitCode::from(if error.use_stderr() { Exit::Usage } else { Exit::Done } as u8)
}

/// `--color`, looked up before the command line is understood: what cannot be understood is coloured too.
fn color_of_help() -> clap::ColorChoice {
    let args: Vec<_> = std::env::args_os().collect();
    let told = args.iter().enumerate().find_map(|(position, arg)| match arg.to_str()? {
        "--color" => args.get(position + 1)?.to_str(),
        arg => arg.strip_prefix("--color="),
    });
    match told {
        Some("always") => clap::ColorChoice::Always,
        Some("never") => clap::ColorChoice::Never,
        _ => clap::ColorChoice::Auto,
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

#[cfg(test)]
mod tests {
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
        crate::cli::command().debug_assert();
    }
}
