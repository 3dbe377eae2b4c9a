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

/// The environment variable that stands in for `--log`.
pub(crate) const VARIABLE: &str = "TRACEWHEEL_LOG";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging.
///
/// # Errors
/// Usage, when the filter cannot be understood; output, when the file cannot be written.
pub(crate) fn start(args: &LogArgs, screen: &Screen, color: bool) -> Result<(), Failure> {
    let (text, origin) = chosen(args.log.as_deref());
    let filter = filter(&text).map_err(|why| {
        Failure::usage(format!(
            "{origin} `{text}`: {why}; write it like `info` or `warn,tracewheel_replay=debug`"
        ))
    })?;
    let json = args.log_format == "json";
    match &args.log_file {
        Some(path) => install(filter, json, false, Mutex::new(opened(path)?)),
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

fn opened(path: &Path) -> Result<std::fs::File, Failure> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .or_exit_with(Exit::Output, || format!("cannot write the log file {}", path.display()))
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
    fn levels_and_crates_are_filters_and_slips_are_told() {
        for text in ["info", "WARN", "warn,tracewheel_replay=debug", "tracewheel_ingest", "off", "h2=info"] {
            assert!(filter(text).is_ok(), "{text}");
        }
        assert!(filter("inof").unwrap_err().contains("did you mean `info`?"));
        assert!(filter("").unwrap_err().contains("no level"));
        assert!(filter("tracewheel_replay=loud").is_err());
    }
}
