//! `tracewheel recover`

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tracewheel_clock::unix_now_ns;
use tracewheel_record::manifest::Counts;
use tracewheel_record::{Missing, RecordError, Recovery, Run, Strata};
use tracewheel_timeline::Timeline;
use tracewheel_timeline::vocab::Phase;

use crate::cli::RecoverArgs;
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;
use crate::scenario;

/// Rows that are shown one by one.
const SHOWN_ROWS: usize = 12;

/// What `--json` prints.
#[derive(Serialize)]
struct Told<'a> {
    run: &'a Path,
    /// `recovered`, `closed` (there was nothing to do), or `empty` (nothing had been sent).
    state: &'static str,
    planned: Option<u64>,
    counts: Option<Counts>,
    /// Requests beside the plan.
    extra: Option<Counts>,
    interrupted: Vec<Row>,
    last_released_row: Option<u64>,
    flushed_ns: Option<i64>,
    last_release_ns: Option<i64>,
    damage: &'a [String],
    /// Whether what is counted as unsent never left for certain.
    unsent_certain: Option<bool>,
}

#[derive(Serialize)]
struct Row {
    row: u64,
    copy: u32,
    phase: &'static str,
    attempt: u16,
    due_ns: i64,
}

impl From<&Missing> for Row {
    fn from(missing: &Missing) -> Self {
        let Missing { row, copy, phase, attempt, due_ns } = *missing;
        Self { row, copy, phase: phase.as_str(), attempt, due_ns }
    }
}

/// Closes a run whose writer died and says what is missing from it.
pub(crate) fn run(args: &RecoverArgs, output: &Output) -> Result<Exit, Failure> {
    let run = &args.run;
    if Run::is_stillborn(run).or_exit(Exit::Usage)? {
        let notice =
            "its process died before anything was sent: there is nothing to recover, the folder can go";
        output.note(&format!("{}: {notice}", run.display()));
        return unchanged(args, "empty", output);
    }
    let mut strata = strata(args)?;
    match Run::recover(run, unix_now_ns(), &mut strata) {
        Ok(recovery) => {
            let planned = recovery.summary.counts.total();
            if args.json {
                output.json(&told(run, planned, &recovery))?;
            } else {
                output.data(&text(run, planned, &recovery))?;
            }
            Ok(Exit::Done)
        }
        Err(RecordError::AlreadyClosed { path }) => {
            output.note(&format!("{} is closed already: there is nothing to recover", path.display()));
            unchanged(args, "closed", output)
        }
        Err(error) if error.is_output_failure() => Err(error).or_exit_with(Exit::Output, || {
            format!("{} is not closed yet; nothing is lost, free the disk and run this again", run.display())
        }),
        Err(error) => Err(error).or_exit(Exit::Usage),
    }
}

/// Opens a run that is to be read: a closed one.
///
/// # Errors
/// Usage, for an open one with the command that closes it.
pub(crate) fn open_closed(path: &Path) -> Result<Run, Failure> {
    let run = Run::open(path).or_exit(Exit::Usage)?;
    if run.is_closed() {
        return Ok(run);
    }
    if run.is_in_use().or_exit(Exit::Usage)? {
        let process = run.writer_process();
        return Err(RecordError::InUse { path: path.to_owned(), process }).or_exit(Exit::Usage);
    }
    Err(Failure::usage(format!(
        "{} was not closed, because the process that wrote it died; recover it first: tracewheel recover {}",
        path.display(),
        quoted(path)
    )))
}

/// A path as a shell takes it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+,:@%".contains(letter);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn unchanged(args: &RecoverArgs, state: &'static str, output: &Output) -> Result<Exit, Failure> {
    if args.json {
        output.json(&Told {
            run: &args.run,
            state,
            planned: None,
            counts: None,
            extra: None,
            interrupted: Vec::new(),
            last_released_row: None,
            flushed_ns: None,
            last_release_ns: None,
            damage: &[],
            unsent_certain: None,
        })?;
    }
    Ok(Exit::Done)
}

/// What a row of the run's timeline belongs to; nothing where the timeline is not at hand.
fn strata(args: &RecoverArgs) -> Result<Box<dyn FnMut(u64) -> Option<Strata>>, Failure> {
    let run = Run::open(&args.run).or_exit(Exit::Usage)?;
    let manifest = run.manifest();
    let timeline = match &args.timeline {
        Some(path) => {
            let timeline = Timeline::open(path).or_exit(Exit::Usage)?;
            if timeline.meta().digest != manifest.plan.timeline_digest {
                return Err(Failure::usage(format!(
                    "--timeline {} is not the timeline of this run: it has another digest",
                    path.display()
                )));
            }
            Some(timeline)
        }
        None => {
            let named: Option<PathBuf> = manifest.scenario.text.as_deref().and_then(scenario::timeline_of);
            named
                .and_then(|path| Timeline::open(path).ok())
                .filter(|timeline| timeline.meta().digest == manifest.plan.timeline_digest)
        }
    };
    Ok(Box::new(move |row| {
        let (_, found) = timeline.as_ref()?.rows_in(row..row + 1).next()?.ok()?;
        Some(Strata::from(&found))
    }))
}

fn told<'a>(run: &'a Path, planned: u64, recovery: &'a Recovery) -> Told<'a> {
    Told {
        run,
        state: "recovered",
        planned: Some(planned),
        counts: Some(recovery.summary.counts),
        extra: Some(recovery.summary.extra),
        interrupted: recovery.missing.iter().map(Row::from).collect(),
        last_released_row: recovery.last_row,
        flushed_ns: recovery.flushed_ns,
        last_release_ns: recovery.released_ns,
        damage: &recovery.damage,
        unsent_certain: Some(recovery.unsent_certain),
    }
}

fn text(run: &Path, planned: u64, recovery: &Recovery) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, run, planned, recovery);
    out
}

fn write_all(out: &mut String, run: &Path, planned: u64, recovery: &Recovery) -> std::fmt::Result {
    let Counts { ok, failed, cancelled, interrupted, unsent, .. } = recovery.summary.counts;
    writeln!(out, "{} is closed now", run.display())?;
    writeln!(
        out,
        "  {:<12} {planned} = {ok} ok + {failed} failed + {cancelled} cancelled + {interrupted} interrupted + {unsent} unsent",
        "planned"
    )?;
    let seconds = |ns: Option<i64>| ns.map_or("never".to_owned(), |ns| format!("{:.3} s", ns as f64 / 1e9));
    let (flushed, released) = (seconds(recovery.flushed_ns), seconds(recovery.released_ns));
    writeln!(out, "  {:<12} last flush {flushed}, last release {released} on the run's clock", "until")?;
    if !recovery.missing.is_empty() {
        let outcome = "left, and how they ended is lost";
        writeln!(
            out,
            "  {:<12} {} requests {outcome}: {}",
            "interrupted",
            recovery.missing.len(),
            rows(recovery)
        )?;
    }
    if unsent > 0 {
        let after =
            recovery.last_row.map_or(String::new(), |row| format!("; the last row that left is {row}"));
        let left = if recovery.unsent_certain {
            "never left"
        } else {
            "are not known to have left, but may have: what would tell is lost, see below"
        };
        writeln!(out, "  {:<12} {unsent} requests {left}{after}", "unsent")?;
    }
    for damage in &recovery.damage {
        writeln!(out, "  {:<12} {damage}", "lost")?;
    }
    Ok(())
}

fn rows(recovery: &Recovery) -> String {
    let named: Vec<String> = recovery.missing.iter().take(SHOWN_ROWS).map(name).collect();
    let more = recovery.missing.len().saturating_sub(SHOWN_ROWS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("rows {}{more}", named.join(", "))
}

fn name(missing: &Missing) -> String {
    match (missing.phase, missing.copy) {
        (phase @ (Phase::Prime | Phase::Calibrate), _) => {
            format!("{} ({phase})", missing.row)
        }
        (_, 0) => missing.row.to_string(),
        (_, copy) => format!("{}#{copy}", missing.row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_where_a_shell_needs_it() {
        assert_eq!(quoted(Path::new("runs/0199-a_b.c")), "runs/0199-a_b.c");
        assert_eq!(quoted(Path::new("my runs/a")), "'my runs/a'");
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }
}
