//! `tracewheel replay`

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use tracewheel_analysis::comparison::{Fidelity, FidelityVerdict};
use tracewheel_analysis::{ReplaySummary, SummaryOptions};
use tracewheel_live::{Part, ReplayProgress, clock};
use tracewheel_record::Run;
use tracewheel_record::manifest::{AnswersLimitFrom, ConnectionOutcome};
use tracewheel_replay::{
    ConnectionUse, ErrorClass, HttpVersion, PromptOptions, ReplayConfig, ReplayError, RetryKind, RunReport,
    StopLevel, StopSignal,
};
use tracewheel_timeline::vocab::Operation;
use tracewheel_workload::{
    CacheMode, History, HistorySurvey, Plan, PlanHeader, PlanOptions, Thinned, Warmup, Window,
};

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

/// Events that may wait for the progress line before the replay drops some.
const EVENT_QUEUE: usize = 64;
/// The rate of reading at which the cost of priming is told as a time.
const PREFILL_TOKENS_PER_S: f64 = 10_000.0;
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
    signals::stop_on_signals(&stop, move |level| notes.note(&stopping(level, drain_ns)))?;
    let report = replay(&args, &stop, output)?;
    if let Some(told) = told_connections(&report.connection_life) {
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
    let late = told_fidelity(&summary.fidelity);
    if args.json {
        output.json(&ReplayDocument::new(&report, summary, exit))?;
    } else {
        output.data(&tracewheel_report::summary_text(&summary, output.style()))?;
    }
    if let Some(late) = late {
        output.note(&late);
    }
    if exit == Exit::Target {
        output.note(&format!("error: {}", why_in_vain(&report)));
    } else if stopped {
        output.note(&told_stop(&report));
    } else if !args.json
        && exit == Exit::Done
        && let Some(timeline) = &args.timeline
    {
        let (run, timeline) = (report.run_dir.display(), timeline.display());
        output.note(&format!("next: tracewheel compare {run} --with {timeline}"));
    }
    Ok(exit)
}

/// What was learned of how the target treats connections; `None` where it keeps them and all stood in time.
fn told_connections(life: &ConnectionOutcome) -> Option<String> {
    let mut limits = Vec::new();
    if let Some(ns) = life.idle_limit_ns.or(life.idle_limit_unused_ns) {
        limits.push(format!("closes idle ones after {:.1} s", ns as f64 / 1e9));
    }
    if let Some(answers) = life.answers_limit {
        let how =
            if life.answers_limit_from == Some(AnswersLimitFrom::Seen) { ", without a word" } else { "" };
        limits.push(format!("ends each with answer {answers}{how}"));
    }
    if limits.is_empty() && life.connected_at_send == 0 {
        return None;
    }
    let target =
        if limits.is_empty() { String::new() } else { format!("the target {}; ", limits.join(" and ")) };
    Some(format!(
        "connections: {target}{} opened, {} retired before the target closed them, {} attempts were due before theirs stood",
        life.opened, life.retired, life.connected_at_send
    ))
}

/// What is wrong with the sending, for the person at the terminal; `None` where nothing is.
fn told_fidelity(fidelity: &Fidelity) -> Option<String> {
    // The most frequent cause is the one to mend first; all of them stand in the summary.
    let cause = fidelity.causes.first();
    let cause =
        cause.map_or(String::new(), |c| format!("; {}: {} -- {}", c.cause.as_str(), c.text, c.remedy));
    let why = format!("{}{cause}", fidelity.reason);
    match fidelity.verdict? {
        FidelityVerdict::Faithful => None,
        FidelityVerdict::Degraded => {
            Some(format!("warning: the schedule was kept less exactly than asked: {why}"))
        }
        FidelityVerdict::Unfaithful => Some(format!(
            "error: this run is not faithful to its schedule, its latencies are partly the generator's own, and `compare` refuses \
             it: {why}"
        )),
    }
}

/// What a signal brings about, for the person who gave it.
fn stopping(level: StopLevel, drain_ns: i64) -> String {
    match level {
        StopLevel::Running | StopLevel::Drain => format!(
            "stopping: no further request leaves, those in flight may end within {} s (again to cut them off)",
            drain_ns / 1_000_000_000
        ),
        StopLevel::Cut => "cutting off what is in flight; the run is being closed".to_owned(),
    }
}

/// What a stopped run holds.
fn told_stop(report: &RunReport) -> String {
    let counts = &report.counts;
    let when = match report.stopped_after_ns {
        Some(after) => format!("{:.1} s after its beginning, where its window ends", after as f64 / 1e9),
        None => "before its first measured request".to_owned(),
    };
    format!(
        "interrupted {when}: {} of {} requests ended, {} were cut off, {} never left; the run is closed and kept in {}",
        counts.ok + counts.failed + counts.cancelled,
        counts.planned,
        counts.interrupted,
        counts.unsent,
        report.run_dir.display()
    )
}

/// Why no request was answered, for the person at the terminal.
fn why_in_vain(report: &RunReport) -> String {
    let run = report.run_dir.display();
    let why = report.gave_up.as_deref().or(report.no_output.as_deref()).unwrap_or("no request was answered");
    let mut told = why.to_owned();
    if !report.reasons.is_empty() {
        let reasons: Vec<String> =
            report.reasons.iter().map(|(reason, requests)| format!("{reason} {requests}")).collect();
        told.push_str(&format!("; requests by reason: {}", reasons.join(", ")));
    }
    if let Some(first) = &report.first_failure {
        let status = first.http_status.map(|status| format!(", HTTP {status}")).unwrap_or_default();
        told.push_str(&format!("; the first one (row {}, {}{status})", first.row, first.reason));
        if let Some(said) = &first.said {
            told.push_str(&format!(": {said}"));
        }
        if let Some(remedy) = first.remedy {
            told.push_str(&format!(" -- {remedy}"));
        }
    }
    if report.attempts > 0 || report.first_failure.is_some() {
        told.push_str(&format!(" (all of it in {run}/attempts, column error_body)"));
    }
    told
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
    say_what_is_planned(plan.header(), config.cache, output);
    say_who_left(&plan, &config, output);
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

/// What of the window is not sent, or not measured.
fn say_what_is_planned(header: &PlanHeader, cache: CacheMode, output: &Output) {
    if let Some(history) = &header.history {
        output.note(&told_history(history));
        let reused_only = header.options.history.is_some_and(|wanted| wanted.reused_only);
        if history.requests > 0 && !reused_only {
            output.note(
                "prime: --prime-prefixes reused sends only the prefixes that a request of the window finds",
            );
        }
    } else if cache == CacheMode::Warm {
        output.note(&format!(
            "prime: every distinct prompt of the plan is sent ahead: at most {} requests with {} input tokens",
            header.requests, header.prompts.input_tokens
        ));
    }
    if let Some(thinned) = &header.thinned {
        output.note(&thinned_text(thinned, header.requests));
    }
    if let Some(warmup) = header.options.warmup.filter(|_| header.warmup_ns > 0) {
        let seconds = header.warmup_ns as f64 / 1e9;
        let from = if warmup.before_window { "before the window" } else { "of the window" };
        output.note(&format!(
            "warm-up: {} requests of {seconds} s {from} are sent on schedule and left out of the statistics; {} are measured",
            header.requests_warmup,
            header.requests_measured()
        ));
        if header.warmup_ns < warmup.length_ns {
            output.note("warm-up: it is shorter than asked for, because the timeline begins less than that before the window");
        }
    }
    if header.rows_left_out > 0 {
        output.note(&format!("left out: {} rows by their operation", header.rows_left_out));
    }
}

/// Requests that production's client left, where they are read to their end: more load than was recorded.
fn say_who_left(plan: &Plan, config: &ReplayConfig, output: &Output) {
    let left = plan.survey().left_by_client;
    if left > 0 && !config.cancel_as_recorded {
        output.note(&format!(
            "{left} requests were left by their client in production and are read to their end here; `--cancel recorded` leaves them likewise"
        ));
    }
}

/// What bringing the history back will cost, told before it is sent.
fn told_history(history: &HistorySurvey) -> String {
    let HistorySurvey { requests, input_tokens, distinct_tokens, rows, .. } = history;
    let seconds = history.look_back_ns as f64 / 1e9;
    if *requests == 0 {
        return format!(
            "prime: nothing to send ahead: the {rows} rows of the {seconds} s before the window left no prefix that is known"
        );
    }
    let at_rate = clock((*distinct_tokens as f64 / PREFILL_TOKENS_PER_S * 1e9) as i64);
    format!(
        "prime: {requests} requests with {input_tokens} input tokens ({distinct_tokens} of them distinct) and one output token each \
         go ahead, from {rows} rows of the {seconds} s before the window; at 10,000 new tokens a second that takes {at_rate}"
    )
}

fn thinned_text(thinned: &Thinned, kept: u64) -> String {
    let per_cent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut parts = vec![format!(
        "{kept} of {} requests ({})",
        kept + thinned.requests_dropped,
        per_cent(thinned.requests_share)
    )];
    if let (Some(sessions), Some(kept)) =
        (thinned.sessions.filter(|sessions| *sessions > 0), thinned.sessions_kept)
    {
        parts.push(format!("{kept} of {sessions} sessions"));
    }
    let tokens = [("input", thinned.input_tokens_share), ("output", thinned.output_tokens_share)];
    for (which, share) in tokens {
        parts.extend(share.map(|share| format!("{} of the {which} tokens", per_cent(share))));
    }
    format!(
        "thinned to {} (asked for {}): {}",
        per_cent(thinned.requests_share),
        thinned.share,
        parts.join(", ")
    )
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
