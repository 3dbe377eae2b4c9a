//! `tracewheel ingest`

use std::sync::Arc;

use tracewheel_ingest::{
    ImportStop, IngestError, IngestOptions, IngestReport, Input, RestartRule, TokenRule, Zone,
};
use tracewheel_timeline::{TimelineError, TtftKind};

use crate::cli::IngestArgs;
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;
use crate::secret;
use crate::signals;
use crate::waiting::while_showing;

mod progress;
mod summary;

/// Writes the timeline and tells what was found in the logs.
pub(crate) fn run(args: &IngestArgs, output: &Output) -> Result<Exit, Failure> {
    let stop = Arc::<ImportStop>::default();
    signals::stop_import_on_signals(Arc::clone(&stop), output)?;
    let report = import_until(args, output, stop)?;
    if args.json {
        output.document("1.0", &report)?;
    } else {
        output.data(&summary::text(&report, &args.output))?;
    }
    if report.over_reject_limit {
        output.note(&format!("error: {}", over_limit(&report, args)));
        return Ok(Exit::Rejected);
    }
    Ok(Exit::Done)
}

/// What there was too much of, and where the rest is.
fn over_limit(report: &IngestReport, args: &IngestArgs) -> String {
    let good = format!("the {} good ones are in {}", report.rows_kept, args.output.display());
    let damaged: Vec<&str> = report.damaged().map(|file| file.file.as_str()).collect();
    if !damaged.is_empty() {
        let files = damaged.join(", ");
        return format!(
            "rows were lost in damaged archives ({files}); {good}; get whole copies and import again"
        );
    }
    let (rejected, limit) = (report.rows_rejected, args.max_rejects);
    format!("{rejected} rows were rejected and --max-rejects is {limit}; {good}")
}

/// The import without its output, for the demo.
pub(crate) fn import(args: &IngestArgs, output: &Output) -> Result<IngestReport, Failure> {
    import_until(args, output, Arc::default())
}

fn import_until(args: &IngestArgs, output: &Output, stop: Arc<ImportStop>) -> Result<IngestReport, Failure> {
    if args.output.as_os_str() == "-" {
        return Err(Failure::usage(
            "--output - is no file: a timeline is not streamed, give it a name (./- if it is to be called -)",
        ));
    }
    let options = IngestOptions { stop, ..options(args)? };
    let inputs = args.inputs.iter().map(|path| Input::from_argument(path)).collect();
    let (gauge, whole_bytes) = (Arc::clone(&options.gauge), progress::whole_bytes(&args.inputs));
    let words = move |ns| progress::parts(&gauge, whole_bytes, ns);
    let imported = while_showing(output, words, || tracewheel_ingest::ingest(inputs, options, &args.output));
    imported.map_err(|error| {
        let exit = match &error {
            IngestError::Rejects { .. } => Exit::Output,
            IngestError::Interrupted => Exit::Interrupted,
            // What stands there is not to be replaced: another --output is the remedy, not another disk.
            IngestError::Write { source, .. } if matches!(**source, TimelineError::Occupied { .. }) => {
                Exit::Usage
            }
            IngestError::Write { .. } | IngestError::Spill { .. } => Exit::Output,
            _ => Exit::Usage,
        };
        Failure::new(exit, error)
    })
}

fn options(args: &IngestArgs) -> Result<IngestOptions, Failure> {
    let mut options = IngestOptions::new(secret::hash_key(args.key_file.as_deref())?);
    options.format.clone_from(&args.format);
    if !args.map.is_empty() {
        options.map = Some(args.map.join(",").parse().or_exit_with(Exit::Usage, || "--map".to_owned())?);
    }
    if let Some(zone) = &args.zone {
        options.zone = Some(zone.parse::<Zone>().or_exit_with(Exit::Usage, || "--zone".to_owned())?);
    }
    if let Some(kind) = &args.ttft_kind {
        options.ttft_kind =
            Some(TtftKind::parse(kind).ok_or_else(|| {
                Failure::usage(format!(
                    "--ttft-kind `{kind}` is not known: token, first_chunk, first_byte, headers or upstream_headers"
                ))
            })?);
    }
    options.token_rule = match args.token_rule.as_str() {
        "auto" => TokenRule::Auto,
        "inclusive" => TokenRule::Inclusive,
        "exclusive" => TokenRule::Exclusive,
        other => {
            return Err(Failure::usage(format!(
                "--token-rule `{other}` is no rule: auto, inclusive or exclusive"
            )));
        }
    };
    options.restarts = match args.restarts.as_str() {
        "auto" => RestartRule::Auto,
        "keep" => RestartRule::Keep,
        "join" => RestartRule::Join,
        other => {
            return Err(Failure::usage(format!("--restarts `{other}` is no rule: auto, keep or join")));
        }
    };
    options.rejects_to.clone_from(&args.rejects);
    options.block_tokens = args.block_tokens;
    options.fold_retries = args.fold_retries;
    options.max_rejects = Some(args.max_rejects);
    options.memory_bytes = args.memory;
    options.temp_folder.clone_from(&args.temp_dir);
    Ok(options)
}
