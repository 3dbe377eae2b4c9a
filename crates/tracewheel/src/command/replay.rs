//! `tracewheel replay`

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use tracewheel_analysis::comparison::FidelityVerdict;
use tracewheel_analysis::{ReplaySummary, SummaryOptions};
use tracewheel_live::{Part, ReplayProgress, clock};
use tracewheel_record::Run;
use tracewheel_replay::{
    ConnectionUse, ErrorClass, HttpVersion, PromptOptions, ReplayConfig, ReplayError, RetryKind, RunReport,
    StopLevel, StopSignal,
};
use tracewheel_timeline::vocab::Operation;
use tracewheel_workload::{History, Plan, PlanOptions, Warmup, Window};

use crate::choice::choice;
use crate::cli::ReplayArgs;
use crate::command::{bounds, inputs, recover};
use crate::exit::{Exit, Failure, Or};
use crate::output::Output;
use crate::scenario::{Budget, HookEntry, Retry, RouteEntry, Sessions};
use crate::waiting::while_showing;
use crate::{files, scenario, secret, signals, time};

use document::ReplayDocument;

mod document;
mod told;

/// Events that may wait for the progress line before the replay drops some.
const EVENT_QUEUE: usize = 64;
/// Time between two looks at the stop signal while the plan is made.
const LOOK: Duration = Duration::from_millis(10);

/// Replays, shows progress, and prints the summary.
pub(crate) fn run(args: ReplayArgs, output: &Output) -> Result<Exit, Failure> {
    let (args, from_file) = scenario::complete(args)?;
    if from_file {
        let path = args.scenario.as_deref().unwrap_or(Path::new(scenario::DEFAULT_NAME));
        output.note(&format!("scenario: {}", path.display()));
    }
    let stop = StopSignal::new();
    let (notes, drain_ns) = (output.clone(), args.drain.unwrap_or(ReplayConfig::default().stop_drain_ns));
    signals::stop_on_signals(&stop, move |level| notes.note(&told::stopping(level, drain_ns)))?;
    let report = replay(&args, &stop, output)?;
    if let Some(told) = told::connections(&report.connection_life) {
        output.note(&told);
    }
    let stopped = report.stopped != StopLevel::Running;
    let exit = exit_of(&report);
    let summary = match summary(&report.run_dir) {
        Ok(summary) => summary,
        // Stopped before anything was measured: that has an exit code of its own and is no fault of ours.
        Err(error) if exit != Exit::Done => {
            output.note(&format!("no summary of {}: {error:#}", report.run_dir.display()));
            return Ok(exit);
        }
        Err(error) => return Err(Failure::new(Exit::Internal, error)),
    };
    let verdict = summary.fidelity.verdict;
    // What a person or the target brought about comes first: that the plan was not sent then follows from it.
    let exit = match (exit, verdict) {
        (Exit::Done, Some(FidelityVerdict::Unfaithful)) => Exit::Unfaithful,
        (exit, _) => exit,
    };
    let late = told::fidelity(&summary.fidelity, exit);
    if args.json {
        output.json(&ReplayDocument::new(&report, summary, exit))?;
    } else {
        output.data(&tracewheel_report::summary_text(&summary, output.style()))?;
    }
    if let Some(late) = late {
        output.note(&late);
    }
    if exit == Exit::Target {
        output.note(&format!("error: {}", told::why_in_vain(&report)));
    } else if stopped {
        output.note(&told::stop(&report));
    } else if !args.json
        && exit == Exit::Done
        && let Some(timeline) = &args.timeline
    {
        let (run, timeline) = (report.run_dir.display(), timeline.display());
        output.note(&format!("next: tracewheel compare {run} --with {timeline}"));
    }
    Ok(exit)
}

/// The replay without its output, for the demo.
pub(crate) fn replay(args: &ReplayArgs, stop: &StopSignal, output: &Output) -> Result<RunReport, Failure> {
    let timeline_path = args.timeline.clone().ok_or_else(|| {
        Failure::usage("no timeline: name one, as in `tracewheel replay yesterday.parquet`")
    })?;
    let runs = args.output.clone().unwrap_or_else(|| PathBuf::from(scenario::DEFAULT_RUNS));
    let mut config = config(args, &timeline_path)?;
    config.scenario = scenario::resolved(args, &config);
    let options = plan_options(args)?;
    let planning =
        |ns| vec![Part::new(0, format!("planning {}", timeline_path.display())), Part::new(1, clock(ns))];
    let plan = while_showing(output, planning, || plan_unless_stopped(timeline_path.clone(), options, stop))?;
    told::say_what_is_planned(plan.header(), config.cache, output);
    told::say_who_left(&plan, &config, output);
    told::say_what_keeps_its_pace(&plan, &config, output);
    told::say_what_the_budget_takes(&plan, &config, output);
    let (sender, receiver) = sync_channel(EVENT_QUEUE);
    let progress = ReplayProgress::start(receiver, output.reporter());
    let outcome = tracewheel_replay::run(&plan, &config, &runs, stop, sender);
    progress.finish();
    outcome.map_err(|error| {
        if let Some(run) = left_open(&error, &runs) {
            let run = recover::quoted(&run);
            let remedy = if out_of_files(&error) { "raise ulimit -n" } else { "free the disk" };
            output.note(&format!("what was recorded is kept: {remedy}, then `tracewheel recover {run}`"));
        }
        failure(error)
    })
}

/// Plans in a thread of its own: a large timeline takes its time, and a signal shall not have to wait for it.
fn plan_unless_stopped(timeline: PathBuf, options: PlanOptions, stop: &StopSignal) -> Result<Plan, Failure> {
    let (sender, planned) = sync_channel(1);
    std::thread::spawn(move || {
        let plan = inputs::timeline(&timeline).and_then(|opened| {
            Plan::build(&opened, options)
                .or_exit_with(Exit::Usage, || format!("no plan from {}", timeline.display()))
        });
        // Nobody listens any more after a stop.
        let _unheard = sender.send(plan);
    });
    while stop.level() == StopLevel::Running {
        match planned.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(plan) => return plan,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new(Exit::Internal, anyhow::anyhow!("the planning thread died")));
            }
        }
    }
    Err(failure(ReplayError::Stopped))
}

/// Linux's numbers of the errors "too many open files", in the system and in the process.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Whether a limit on open files is behind an error.
fn out_of_files(error: &ReplayError) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if code.is_some_and(|code| [ENFILE, EMFILE].contains(&code)) {
            return true;
        }
        next = error.source();
    }
    false
}

/// The run that an error left open under `runs`, if any.
fn left_open(error: &ReplayError, runs: &Path) -> Option<PathBuf> {
    let ReplayError::Record { source } = error else { return None };
    let id = source.path()?.strip_prefix(runs).ok()?.components().next()?;
    let run = runs.join(id);
    Run::open(&run).is_ok_and(|opened| !opened.is_closed()).then_some(run)
}

/// The summary of the run that lies in `run_dir`, made from the run alone.
///
/// # Errors
/// When the run cannot be read.
pub(crate) fn summary(run_dir: &Path) -> anyhow::Result<ReplaySummary> {
    let run = Run::open(run_dir)?;
    Ok(tracewheel_analysis::summarise(&run, &SummaryOptions::default())?)
}

/// The exit code that a finished run leads to.
pub(crate) fn exit_of(report: &RunReport) -> Exit {
    let counts = &report.counts;
    if report.stopped != StopLevel::Running {
        Exit::Interrupted
    } else if report.gave_up.is_some()
        || report.no_output.is_some()
        || (counts.ok + counts.cancelled == 0 && counts.planned > 0)
    {
        Exit::Target
    } else {
        Exit::Done
    }
}

fn failure(error: ReplayError) -> Failure {
    let exit = match error.class() {
        ErrorClass::Usage => Exit::Usage,
        ErrorClass::Target => Exit::Target,
        ErrorClass::Output => Exit::Output,
        ErrorClass::Internal => Exit::Internal,
        ErrorClass::Stopped => Exit::Interrupted,
    };
    Failure::new(exit, error)
}

fn config(args: &ReplayArgs, timeline: &Path) -> Result<ReplayConfig, Failure> {
    let missing = |flag: &str, example: &str| {
        let taken = choice("replay", flag).map(|choice| format!(" (it takes {})", choice.listed()));
        Failure::usage(format!(
            "no {flag}: give --{flag}, as in `--{flag} {example}`, or set it in the scenario{}",
            taken.unwrap_or_default()
        ))
    };
    let mut config = ReplayConfig {
        closed_loop: args.closed_loop,
        owner: args.owner.clone(),
        nonce: Some(secret::nonce()?),
        routes: args.routes.iter().map(RouteEntry::route).collect::<Result<_, _>>()?,
        ..ReplayConfig::default()
    };
    if config.routes.is_empty() {
        config.target = args.target.clone().ok_or_else(|| missing("target", "http://127.0.0.1:8000"))?;
        config.provider = args.protocol.clone().ok_or_else(|| missing("protocol", "openai-chat"))?;
        (config.ca_file, config.tls_name) = (ca_file(args), args.tls_name.clone());
        config.model.clone_from(&args.model);
        config.secret = secret::api_key(args.api_key_env.as_deref(), args.api_key_file.as_deref())?;
    }
    if let Some(stem) = timeline.file_stem() {
        config.run_name = stem.to_string_lossy().into_owned();
    }
    clients(args, &mut config)?;
    if let Some(mode) = &args.cache {
        config.cache = mode.parse().or_exit_with(Exit::Usage, || "--cache".to_owned())?;
    }
    if let Some(ns) = args.timeout {
        config.request_timeout_ns = ns;
    }
    if let Some(ns) = args.drain {
        config.stop_drain_ns = ns;
    }
    config.record.power_safe = args.power_safe;
    config.record.part_rows = args.part_rows.unwrap_or(config.record.part_rows);
    config.record.part_bytes = args.part_bytes.unwrap_or(config.record.part_bytes);
    if let Some(workers) = args.workers {
        config.workers = Some(workers);
    }
    let force_length = match args.lengths.as_deref() {
        None => None,
        Some("exact") => Some(true),
        Some("cap") => Some(false),
        Some(other) => return Err(Failure::usage(format!("--lengths `{other}` is no rule: exact or cap"))),
    };
    let section = args.protocol_section.with_engine(args.engine.as_ref());
    config.protocol = section.options(force_length);
    config.headers = section.headers();
    config.prompts = PromptOptions { tokenizer: args.tokenizer.clone(), calibrate: args.calibrate };
    (config.realtime, config.pin) = (args.realtime, args.pin.clone());
    config.hooks = args.hook_entries().iter().map(HookEntry::hook).collect::<Result<_, _>>()?;
    config.ignore_hook_failure = args.ignore_hook_failure;
    config.prime_concurrency = args.prime_at_once.unwrap_or(config.prime_concurrency);
    config.max_connections = args.connections;
    config.spare_connections = args.spare_connections;
    config.http2_streams = args.http2_streams.unwrap_or(config.http2_streams);
    if let Some(word) = &args.http {
        let found = HttpVersion::ALL.into_iter().find(|(name, _)| name == word);
        let (_, http) = found.ok_or_else(|| {
            let words = HttpVersion::ALL.map(|(name, _)| name).join(", ");
            Failure::usage(format!("--http `{word}` is no version: {words}"))
        })?;
        config.http = http;
    }
    if let Some(word) = &args.connection_use {
        let found = ConnectionUse::ALL.into_iter().find(|(name, _)| name == word);
        let (_, connection_use) = found.ok_or_else(|| {
            let words = ConnectionUse::ALL.map(|(name, _)| name).join(" or ");
            Failure::usage(format!("--connection-use `{word}` is no way: {words}"))
        })?;
        config.connection_use = connection_use;
    }
    config.test_stall_ns = args.test_stall_ms.map(|ms| i64::from(ms) * 1_000_000);
    config.fidelity = bounds::changed(args.fidelity_of_scenario.unwrap_or_default(), &args.fidelity)?;
    Ok(config)
}

/// What the clients keep to: retries, budgets, sessions, cancelling.
fn clients(args: &ReplayArgs, config: &mut ReplayConfig) -> Result<(), Failure> {
    let of_flag = |flag: &'static str| move |why: String| Failure::usage(format!("--{flag}: {why}"));
    let changes = Retry::of_pairs(&args.retry_with).map_err(of_flag("retry-with"))?;
    let changes = args.retry_of_scenario.clone().overridden_by(changes);
    config.retry = changes.resolve(args.retry.as_deref().unwrap_or("none")).map_err(of_flag("retry"))?;
    if config.retry.kind == RetryKind::None && !args.retry_with.is_empty() {
        return Err(Failure::usage(
            "--retry-with changes a policy that repeats nothing: name one by --retry, as in `--retry exponential`",
        ));
    }
    let budget = Budget::of_pairs(&args.budget).map_err(of_flag("budget"))?;
    config.budget = args.budget_of_scenario.clone().overridden_by(budget).resolve();
    let sessions = Sessions {
        mode: args.sessions.clone(),
        after_failure: args.after_failure.clone(),
        thread: Some(args.thread_answers),
    };
    config.sessions = sessions.resolve().map_err(of_flag("sessions"))?;
    config.cancel_as_recorded = args.cancel.as_deref() == Some("recorded");
    Ok(())
}

/// The file of trusted certificates: named, else by the variable that OpenSSL and its kin read.
fn ca_file(args: &ReplayArgs) -> Option<PathBuf> {
    let https = args.target.as_deref().is_some_and(|target| target.trim_start().starts_with("https:"));
    args.ca_file.clone().or_else(|| files::trusted_by_environment(https))
}

fn plan_options(args: &ReplayArgs) -> Result<PlanOptions, Failure> {
    let window = match (args.from, args.to) {
        (None, None) => None,
        (from, to) => Some(Window { from_ns: from.unwrap_or(0), to_ns: to }),
    };
    let thin =
        args.thin.as_deref().map(str::parse).transpose().or_exit_with(Exit::Usage, || "--thin".to_owned())?;
    if args.warmup_before && args.warmup.is_none() {
        return Err(Failure::usage(
            "--warmup-before says where a warm-up comes from: give its length, as in `--warmup 30s`",
        ));
    }
    let leave_out = args.leave_out.iter().map(|name| name.trim().parse());
    let leave_out: Vec<Operation> =
        leave_out.collect::<Result<_, _>>().or_exit_with(Exit::Usage, || "--leave-out".to_owned())?;
    let speed =
        args.speed.as_deref().unwrap_or("1").parse().or_exit_with(Exit::Usage, || "--speed".to_owned())?;
    Ok(PlanOptions {
        window,
        speed,
        seed: args.seed.unwrap_or(0),
        limit: args.limit,
        unknown_tokens: args
            .unknown_tokens
            .as_deref()
            .unwrap_or("refuse")
            .parse()
            .or_exit_with(Exit::Usage, || "--unknown-tokens".to_owned())?,
        // Routes are told apart by the recorded model, and say which is asked for.
        model: args.model.clone().filter(|_| args.routes.is_empty()),
        free_form: args.routes.is_empty() && args.protocol.as_deref() == Some("http"),
        thin,
        warmup: args.warmup.map(|length_ns| Warmup { length_ns, before_window: args.warmup_before }),
        leave_out,
        history: history(args)?,
        ..PlanOptions::default()
    })
}

/// What of the rows before the window is sent ahead.
fn history(args: &ReplayArgs) -> Result<Option<History>, Failure> {
    if args.prime.is_none() && args.prime_tokens.is_none() {
        return match args.prime_prefixes {
            Some(_) => Err(Failure::usage(
                "--prime-prefixes says what is primed: say from how far back, as in `--prime 10m` or `--prime all`",
            )),
            None => Ok(None),
        };
    }
    let look_back_ns = match args.prime.as_deref() {
        None | Some("all") => None,
        Some(text) => {
            Some(time::parse_ns(text).map_err(|why| Failure::usage(format!("--prime: {why}, or all")))?)
        }
    };
    Ok(Some(History {
        look_back_ns,
        cache_tokens: args.prime_tokens,
        reused_only: args.prime_prefixes.as_deref() == Some("reused"),
    }))
}
