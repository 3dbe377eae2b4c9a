//! What `tracewheel replay` says to the person at the terminal, beside the summary

use tracewheel_analysis::comparison::{Fidelity, FidelityVerdict};
use tracewheel_analysis::fidelity::CauseKind;
use tracewheel_live::clock;
use tracewheel_record::manifest::{AnswersLimitFrom, ConnectionOutcome};
use tracewheel_replay::{ReplayConfig, RunReport, SessionMode, StopLevel};
use tracewheel_workload::{CacheMode, HistorySurvey, Plan, PlanHeader, Speed, Thinned};

use crate::exit::Exit;
use crate::output::Output;

/// The rate of reading at which the cost of priming is told as a time.
const PREFILL_TOKENS_PER_S: f64 = 10_000.0;
const MINUTE_NS: i64 = 60_000_000_000;

/// What was learned of how the target treats connections; `None` where it keeps them and all stood in time.
pub(super) fn connections(life: &ConnectionOutcome) -> Option<String> {
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

/// What is wrong with the sending, for the person at the terminal; `None` where nothing is, and where the target alone is
/// behind it: then [`why_in_vain`] says all, and nobody should look for the fault in this machine.
pub(super) fn fidelity(fidelity: &Fidelity, exit: Exit) -> Option<String> {
    let target_alone = |fidelity: &Fidelity| {
        !fidelity.causes.is_empty() && fidelity.causes.iter().all(|c| c.cause == CauseKind::TargetFailed)
    };
    if exit == Exit::Target && target_alone(fidelity) {
        return None;
    }
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
pub(super) fn stopping(level: StopLevel, drain_ns: i64) -> String {
    match level {
        StopLevel::Running | StopLevel::Drain => format!(
            "stopping: no further request leaves, those in flight may end within {} s (again to cut them off)",
            drain_ns / 1_000_000_000
        ),
        StopLevel::Cut => "cutting off what is in flight; the run is being closed".to_owned(),
    }
}

/// What a stopped run holds.
pub(super) fn stop(report: &RunReport) -> String {
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
pub(super) fn why_in_vain(report: &RunReport) -> String {
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
    if report.first_failure.as_ref().is_some_and(|first| first.said.is_some()) {
        told.push_str(&format!(" (all of it in {run}/attempts, column error_body)"));
    } else if report.attempts > 0 {
        told.push_str(&format!(" (each attempt is a row of {run}/attempts)"));
    }
    told
}

/// What of the window is not sent, or not measured.
pub(super) fn say_what_is_planned(header: &PlanHeader, cache: CacheMode, output: &Output) {
    if let Some(history) = &header.history {
        output.note(&of_history(history));
        let reused_only = header.options.history.is_some_and(|wanted| wanted.reused_only);
        if history.requests > 0 && !reused_only {
            output.note(
                "prime: --prime-prefixes reused sends only the prefixes that a request of the window finds",
            );
        }
    } else if cache == CacheMode::Warm {
        output.note(&format!(
            "prime: every distinct prompt of the plan is sent ahead: at most {} with {}",
            counted(header.requests, "request"),
            counted(header.prompts.input_tokens, "input token")
        ));
    }
    if let Some(thinned) = &header.thinned {
        output.note(&of_thinning(thinned, header.requests));
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
pub(super) fn say_who_left(plan: &Plan, config: &ReplayConfig, output: &Output) {
    let left = plan.survey().left_by_client;
    if left > 0 && !config.cancel_as_recorded {
        output.note(&format!(
            "{left} requests were left by their client in production and are read to their end here; `--cancel recorded` leaves them likewise"
        ));
    }
}

/// The pauses of people who wait for their answers, where the speed was changed: a replay may last as long as the recording.
pub(super) fn say_what_keeps_its_pace(plan: &Plan, config: &ReplayConfig, output: &Output) {
    if config.sessions.mode == SessionMode::AfterPrevious && plan.header().options.speed != Speed::default() {
        output.note(
            "sessions: --speed moves first turns only; the pauses between turns stay as recorded, so a session lasts as long as it did",
        );
    }
}

/// A budget that lets the plan through in much more time than it takes: a replay of minutes may wait for days.
pub(super) fn say_what_the_budget_takes(plan: &Plan, config: &ReplayConfig, output: &Output) {
    let PlanHeader { requests, span_ns, prompts, .. } = plan.header();
    let budget = &config.budget;
    let tokens = prompts.input_tokens.saturating_add(prompts.output_tokens);
    let limits = [
        ("requests_per_minute", budget.requests_per_minute, *requests, "request"),
        ("tokens_per_minute", budget.tokens_per_minute, tokens, "token"),
    ];
    for (key, rate, amount, thing) in limits {
        let Some(needed_ns) = rate.map(|rate| least_ns(amount, rate, budget.burst_ns)) else { continue };
        if needed_ns > span_ns.saturating_mul(2).max(MINUTE_NS) {
            output.note(&format!(
                "budget: at {key} the plan's {} take at least {}, and by its own times they take {}: requests wait, or stay unsent \
                 where max_wait is given",
                counted(amount, thing),
                clock(needed_ns),
                clock(*span_ns)
            ));
        }
    }
}

/// The least time in which so much passes a budget that begins with a whole burst, in nanoseconds.
fn least_ns(amount: u64, per_minute: u64, burst_ns: i64) -> i64 {
    let all_ns = i128::from(amount) * i128::from(MINUTE_NS) / i128::from(per_minute.max(1));
    i64::try_from(all_ns).unwrap_or(i64::MAX).saturating_sub(burst_ns).max(0)
}

/// What bringing the history back will cost, told before it is sent.
fn of_history(history: &HistorySurvey) -> String {
    let HistorySurvey { requests, input_tokens, distinct_tokens, rows, .. } = history;
    let seconds = history.look_back_ns as f64 / 1e9;
    if *requests == 0 {
        return format!(
            "prime: nothing to send ahead: the {rows} rows of the {seconds} s before the window left no prefix that is known"
        );
    }
    let at_rate = clock((*distinct_tokens as f64 / PREFILL_TOKENS_PER_S * 1e9) as i64);
    format!(
        "prime: {} with {} ({} of them distinct), asking for one output token each, go ahead, from {} of the {seconds} s before the \
         window; at 10,000 new tokens a second that takes {at_rate}",
        counted(*requests, "request"),
        counted(*input_tokens, "input token"),
        tracewheel_report::grouped(*distinct_tokens),
        counted(*rows, "row")
    )
}

/// A number of things, in the words of a sentence: `1 request`, `1,200 requests`.
fn counted(number: u64, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {thing}{ending}", tracewheel_report::grouped(number))
}

fn of_thinning(thinned: &Thinned, kept: u64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_agrees_with_its_number_and_has_its_thousands_apart() {
        assert_eq!(counted(0, "row"), "0 rows");
        assert_eq!(counted(1, "request"), "1 request");
        assert_eq!(counted(1_091_927, "input token"), "1,091,927 input tokens");
    }
    #[test]
    fn a_budget_takes_what_is_beyond_its_burst_at_its_rate() {
        let minutes = |n: i64| n * MINUTE_NS;
        assert_eq!(least_ns(600, 600, minutes(1)), 0, "a whole burst at once");
        assert_eq!(least_ns(1_800, 600, minutes(1)), minutes(2));
        assert_eq!(least_ns(1_800, 600, 0), minutes(3));
        assert_eq!(least_ns(u64::MAX, 1, 0), i64::MAX);
    }
}
