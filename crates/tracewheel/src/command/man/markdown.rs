//! The command line as a page of Markdown: what `docs/reference/cli.md` holds.

use std::fmt::Write;

use clap::{Arg, Command};

const HEAD: &str = "# Command line

Made by `tracewheel man --markdown > docs/reference/cli.md`; a test fails when it is stale. `tracewheel COMMAND --help`
says the same in the terminal. Durations are written `5m`, `1h30m`, `90s` or `250ms`; a number alone is seconds.
";

/// The whole page.
pub(super) fn page(root: &Command) -> String {
    let mut out = HEAD.to_owned();
    let _ = write!(
        out,
        "\n## Every command\n\n{}",
        table(root.get_arguments().filter(|arg| arg.is_global_set()))
    );
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        section(&mut out, command);
    }
    out
}

fn section(out: &mut String, command: &Command) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let _ = write!(out, "\n## tracewheel {}\n\n{about}\n", command.get_name());
    let mut args: Vec<&Arg> =
        command.get_arguments().filter(|arg| !arg.is_global_set() && !arg.is_hide_set()).collect();
    args.retain(|arg| arg.get_id() != "help");
    args.sort_by_key(|arg| (!arg.is_positional(), arg.get_display_order()));
    let mut headings: Vec<Option<&str>> = args.iter().map(|arg| arg.get_help_heading()).collect();
    headings.dedup();
    for heading in headings {
        let under = args.iter().copied().filter(|arg| arg.get_help_heading() == heading);
        let _ = match heading {
            Some(heading) => write!(out, "\n### {heading} ({})\n\n{}", command.get_name(), table(under)),
            None => write!(out, "\n{}", table(under)),
        };
    }
    if let Some(examples) = command.get_after_help().map(ToString::to_string) {
        let lines = examples
            .lines()
            .skip_while(|line| *line == "Examples:")
            .map(|line| line.strip_prefix("  ").unwrap_or(line));
        let _ = write!(out, "\n```\n{}\n```\n", lines.collect::<Vec<_>>().join("\n"));
    }
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let mut out = "| flag | meaning |\n|---|---|\n".to_owned();
    for arg in args {
        let _ = writeln!(out, "| {} | {} |", flag(arg), meaning(arg));
    }
    out
}

fn flag(arg: &Arg) -> String {
    let value = if arg.get_action().takes_values() {
        arg.get_value_names().map(|names| names.join(" ").replace('|', "\\|"))
    } else {
        None
    };
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    match (arg.get_long(), value) {
        (Some(long), Some(value)) => format!("{short}`--{long} {value}`"),
        (Some(long), None) => format!("{short}`--{long}`"),
        (None, value) => format!("`{}`", value.unwrap_or_default()),
    }
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    if !text.ends_with('.') {
        text.push('.');
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|_| arg.get_action().takes_values())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        let _ = write!(text, " One of: {}.", values.join(", "));
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        let _ = write!(text, " Default: `{}`.", defaults.join(","));
    }
    if arg.is_required_set() {
        text.push_str(" Required.");
    }
    text
}
