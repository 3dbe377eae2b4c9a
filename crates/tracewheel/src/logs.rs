//! Structured logs: which, how and where to. They go to stderr or a file, never to stdout.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Mutex;

use tracewheel_live::Screen;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use crate::choice::nearest;
use crate::cli::LogArgs;
use crate::exit::{Exit, Failure, Or};
use crate::files;

/// The environment variable that stands in for `--log`.
pub(crate) const VARIABLE: &str = "TRACEWHEEL_LOG";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging. `others` are the paths that the command reads or writes itself.
///
/// # Errors
/// Usage, when the filter cannot be understood, or what stands at the file's place is no log; output, when the file cannot be written.
pub(crate) fn start(args: &LogArgs, others: &[&Path], screen: &Screen, color: bool) -> Result<(), Failure> {
    let (text, origin) = chosen(args.log.as_deref());
    let filter = filter(&text).map_err(|why| {
        Failure::usage(format!(
            "{origin} `{text}`: {why}; write it like `info` or `warn,tracewheel_replay=debug`"
        ))
    })?;
    let json = args.log_format == "json";
    match &args.log_file {
        Some(path) => install(filter, json, false, Mutex::new(opened(path, others)?)),
        None => {
            let screen = screen.clone();
            let ansi = color && !json && std::io::stderr().is_terminal();
            install(filter, json, ansi, move || screen.clone());
        }
    }
    Ok(())
}

fn install(
    filter: Targets,
    json: bool,
    ansi: bool,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) {
    let layer = fmt::layer().with_ansi(ansi).with_writer(writer);
    let layer = if json { layer.json().flatten_event(true).boxed() } else { layer.boxed() };
    // A second subscriber in one process is no reason to stop.
    let _already = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}

fn opened(path: &Path, others: &[&Path]) -> Result<std::fs::File, Failure> {
    let shown = path.display();
    if others.iter().any(|other| files::is_same(path, other)) {
        return Err(Failure::usage(format!(
            "--log-file {shown} is a file that this command reads or writes itself: give the log another name"
        )));
    }
    if files::first_line(path)?.is_some_and(|line| !is_log_line(&line)) {
        return Err(Failure::usage(format!(
            "--log-file {shown}: what stands there is no log of tracewheel, nothing is appended to it: give the log \
             another name"
        )));
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .or_exit_with(Exit::Output, || format!("cannot write the log file {}", path.display()))
}

/// Whether a line is one of those that logging writes, as text or as JSON.
fn is_log_line(line: &[u8]) -> bool {
    if line.starts_with(b"{\"timestamp\":\"") {
        return serde_json::from_slice::<serde_json::Value>(line)
            .is_ok_and(|line| line["level"].is_string() && line["target"].is_string());
    }
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let time = words.next().unwrap_or_default();
    let timed = time.len() >= 20 && time.as_bytes()[10] == b'T' && time.ends_with('Z');
    timed && words.next().is_some_and(|level| ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level))
}

/// The filter's text and who gave it.
#[expect(clippy::disallowed_methods, reason = "the binary is the one place that reads the environment")]
fn chosen(flag: Option<&str>) -> (String, &'static str) {
    match (flag, std::env::var(VARIABLE)) {
        (Some(flag), _) => (flag.to_owned(), "--log"),
        (None, Ok(text)) if !text.trim().is_empty() => (text, VARIABLE),
        (None, _) => ("warn".to_owned(), "--log"),
    }
}

/// Reads a filter. A bare word must be a level or one of our own crates: anything else would be taken for the name of a
/// crate that there is not, and show nothing.
fn filter(text: &str) -> Result<Targets, String> {
    for word in text.split(',').map(str::trim).filter(|word| !word.contains('=')) {
        let level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        if !level && !word.starts_with("tracewheel") {
            let nearest =
                nearest(word, LEVELS.into_iter()).map(|level| format!(" (did you mean `{level}`?)"));
            let levels = LEVELS.join(", ");
            return Err(format!("`{word}` is no level{}: {levels}", nearest.unwrap_or_default()));
        }
    }
    text.parse().map_err(|error| format!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log_are_told_from_those_of_other_files() {
        for line in [
            "2026-03-01T10:00:00.123456Z  INFO tracewheel_ingest::import: log opened",
            r#"{"timestamp":"2026-03-01T10:00:00.1Z","level":"WARN","message":"m","target":"tracewheel_ingest"}"#,
        ] {
            assert!(is_log_line(line.as_bytes()), "{line}");
        }
        for line in
            ["PAR1", "", "TIMESTAMP,ContextTokens", "2026-03-01T10:00:00.1Z,1,2", r#"{"timestamp":"1"}"#]
        {
            assert!(!is_log_line(line.as_bytes()), "{line}");
        }
    }

    #[test]
    fn levels_and_crates_are_filters_and_slips_are_told() {
        for text in ["info", "WARN", "warn,tracewheel_replay=debug", "tracewheel_ingest", "off", "h2=info"] {
            assert!(filter(text).is_ok(), "{text}");
        }
        assert!(filter("inof").unwrap_err().contains("did you mean `info`?"));
        assert!(filter("").unwrap_err().contains("no level"));
        assert!(filter("tracewheel_replay=loud").is_err());
    }
}
