//! What should be known before a number is trusted, each with its remedy; and what the baseline does not know.

use tracewheel_record::Manifest;

use crate::alignment::Alignment;
use crate::comparison::{CachedDifference, MetricComparison, Missing, Warning};
use crate::fidelity::{Fidelity, FidelityVerdict};
use crate::interval::BoundIs;
use crate::metric::{Metric, Population};
use crate::side::{Side, SideKind};

/// Share of requests that may fail more on one side than on the other before it is said.
const FAILED_SHARE: f64 = 0.01;

/// Difference between the predicted and the measured cached share from which it is said.
const CACHED_SHARE: f64 = 0.02;

/// What warnings are made from.
pub(crate) struct Context<'a> {
    pub(crate) replay: &'a Manifest,
    pub(crate) sides: (&'a Side<'a>, &'a Side<'a>),
    pub(crate) metrics: &'a [MetricComparison],
    pub(crate) alignment: &'a Alignment<'a>,
    pub(crate) same_timeline: bool,
}

/// Warnings about a run by itself.
pub(crate) fn of_run(manifest: &Manifest, side: &Side<'_>) -> Vec<Warning> {
    let mut list = Vec::new();
    let mut warn = |code: &str, text: String| list.push(Warning::new(code, text));
    if manifest.plan.mode.as_deref().is_some_and(|mode| mode.starts_with("closed")) {
        let text = "closed loop: each answer releases the next request, so that a slow target is asked less; \
                    replay open loop before comparing with production";
        warn("closed_loop", text.to_owned());
    }
    let count = |name: &str| manifest.other.get(name).and_then(serde_json::Value::as_u64);
    if let Some(rows) = count("rows_left_out") {
        let text = format!(
            "{rows} rows of the timeline had no token counts and were left out: less load than recorded, and production's \
             failures among them are in no number"
        );
        warn("rows_left_out", text);
    }
    if let Some(requests) = count("requests_filled") {
        warn(
            "requests_filled",
            format!("{requests} requests had no token counts and were sent with the ones given"),
        );
    }
    if let Some(fidelity) = &side.fidelity {
        sending(fidelity, &mut warn);
    }
    // What the replay itself wrote down; that it was closed loop is said above.
    for text in manifest.warnings.iter().filter(|text| !text.starts_with("closed loop")) {
        warn("recorded", text.clone());
    }
    let counts = &side.report.counts;
    if side.report.window.ended_early {
        let text = format!(
            "the run ended before its plan: {} requests after that are left out, {} in flight were cut and have no latency",
            counts.after_window, counts.interrupted
        );
        warn("ended_early", text);
    } else if counts.interrupted > 0 {
        warn(
            "interrupted",
            format!("{} requests were cut by the end of the run and have no latency", counts.interrupted),
        );
    }
    cached(&side.report.cached.both, &mut warn);
    let stamps = &side.report.stamps;
    if stamps.user > 0 {
        let share = 100.0 * stamps.user as f64 / (stamps.user + stamps.kernel) as f64;
        let text = format!(
            "{share:.1} % of the output events are stamped in user space, after the kernel had them: times are upper bounds"
        );
        warn("user_stamps", text);
    }
    let streams = &side.report.streams;
    if streams.coalesced_events * 10 > streams.output_events {
        let share = 100.0 * streams.coalesced_events as f64 / streams.output_events as f64;
        let text = format!(
            "{share:.1} % of the output events came in one read with the event before: their gaps are 0, others too long"
        );
        warn("coalesced_events", text);
    }
    if streams.without_output > 0 {
        let text = format!(
            "{} successful streams brought no output: they have no TTFT and no E2E",
            streams.without_output
        );
        warn("without_output", text);
    }
    list
}

/// How far the target's cache was from what the plan predicted.
fn cached(both: &CachedDifference, warn: &mut dyn FnMut(&str, String)) {
    if let (Some(predicted), Some(measured), Some(difference)) =
        (both.predicted_share, both.measured_share, both.difference)
        && difference.abs() > CACHED_SHARE
    {
        let what = if difference > 0.0 {
            "it forgets, caches in larger blocks, was asked for a prefix that it still computed, or requests were spread over \
             several caches"
        } else {
            "it held something from before the run, or shares more than the prompts, such as a chat template: flush it with a hook"
        };
        let text = format!(
            "the target reports {:.1} % of the input tokens as cached, and the plan predicted {:.1} %: {what}",
            100.0 * measured,
            100.0 * predicted
        );
        warn("cache_differs", text);
    }
}

/// How exactly the run was sent.
fn sending(fidelity: &Fidelity, warn: &mut dyn FnMut(&str, String)) {
    match fidelity.verdict {
        Some(FidelityVerdict::Unfaithful) => warn(
            "not_faithful",
            format!(
                "the generator did not keep the schedule ({}): {}",
                fidelity.reason,
                fidelity
                    .causes
                    .first()
                    .map_or("nothing that was recorded tells why", |cause| cause.cause.remedy())
            ),
        ),
        Some(FidelityVerdict::Degraded) => warn(
            "degraded",
            format!(
                "the generator kept the schedule less exactly than asked ({}): latencies may be partly its own",
                fidelity.reason
            ),
        ),
        Some(FidelityVerdict::Faithful) | None => {}
    }
    if fidelity.clock_steps > 0 {
        let text = format!(
            "wall time stepped in {} seconds of the run: kernel stamps across a step are void",
            fidelity.clock_steps
        );
        warn("clock_stepped", text);
    }
}

/// Warnings about a comparison.
pub(crate) fn of_comparison(context: &Context<'_>) -> Vec<Warning> {
    let (mine, theirs) = context.sides;
    let mut list = of_run(context.replay, mine);
    let mut warn = |code: &str, text: String| list.push(Warning::new(code, text));
    if context.alignment.is_by_row() {
        let lost = mine.roster.requests.len() as u64 - context.alignment.matched();
        if lost > 0 {
            warn(
                "unmatched",
                format!("{lost} requests of the replay are not in the baseline and are not compared"),
            );
        }
    } else if context.same_timeline {
        let text = "the sides are compared as wholes, as asked: they do not hold the same requests";
        warn("not_matched", text.to_owned());
    } else {
        let text = "the two sides come from different timelines: other requests, other sizes, other load; \
                    compare with the timeline that was replayed";
        warn("different_timeline", text.to_owned());
    }
    if let Some(speed) = context.replay.plan.speed.filter(|speed| (speed - 1.0).abs() > 1e-9) {
        warn(
            "speed",
            format!("the replay ran at {speed} times the recorded speed: its load is not the baseline's"),
        );
    }
    failures(context, &mut warn);
    definitions(context, &mut warn);
    recording(theirs, &mut warn);
    thin(context, &mut warn);
    list
}

fn failures(context: &Context<'_>, warn: &mut dyn FnMut(&str, String)) {
    let (mine, theirs) = context.sides;
    let share = |side: &Side<'_>| {
        let counts = &side.report.counts;
        let all = counts.ok + counts.failed + counts.unsent;
        if all == 0 { 0.0 } else { (counts.failed + counts.unsent) as f64 / all as f64 }
    };
    let (a, b) = (share(mine), share(theirs));
    if (a - b).abs() > FAILED_SHARE {
        let text = format!(
            "{:.1} % of the replay's requests were not answered, {:.1} % of the baseline's: \
             read the reasons before the latencies",
            100.0 * a,
            100.0 * b
        );
        warn("failures_differ", text);
    }
}

/// Where the two sides' stamps mean different moments.
fn definitions(context: &Context<'_>, warn: &mut dyn FnMut(&str, String)) {
    let (mine, theirs) = context.sides;
    if theirs.report.kind != SideKind::Timeline {
        return;
    }
    if context.alignment.baseline_knows(Metric::E2e)
        && let Some(p95) = mine.body_tail.p95_ns
        && p95 >= 1_000_000
    {
        let text = format!(
            "production's end-to-end time runs to the last byte, the replay's to the last output event: \
             in the replay the rest of the body took {:.1} ms at p95",
            p95 as f64 / 1e6
        );
        warn("e2e_ends_differ", text);
    }
    if theirs.logged.ttft_kinds.keys().any(|k| k.as_str() == "upstream_headers") {
        let text = "production's TTFT ends at headers that a proxy received; the replay's headers include the way through \
                    that proxy";
        warn("upstream_headers", text.to_owned());
    }
    if theirs.report.streams.tokens.to_last_byte > 0 {
        let text =
            "production's TPOT is made from its first output to its last byte: its log has no event times";
        warn("tpot_to_last_byte", text.to_owned());
    }
}

/// How the baseline was recorded.
fn recording(theirs: &Side<'_>, warn: &mut dyn FnMut(&str, String)) {
    let counts = &theirs.report.counts;
    if counts.status_unknown > 0 {
        let text =
            format!("{} rows of the baseline have no status and count as answered", counts.status_unknown);
        warn("status_unknown", text);
    }
    if counts.served_by_gateway_cache > 0 {
        let text = format!(
            "{} rows of the baseline were answered by a gateway's own cache, the replay asks the model",
            counts.served_by_gateway_cache
        );
        warn("gateway_cache", text);
    }
    if theirs.logged.arrival_not_start > 0 {
        let text = format!(
            "{} rows of the baseline do not state when the request began: arrivals are derived or unknown, and so is its load",
            theirs.logged.arrival_not_start
        );
        warn("arrival_not_start", text);
    }
    if theirs.logged.sampled {
        let text = "the baseline's log is sampled: production carried more load than was replayed";
        warn("sampled", text.to_owned());
    }
}

/// Percentiles of the headline that the sample does not bound.
fn thin(context: &Context<'_>, warn: &mut dyn FnMut(&str, String)) {
    let row = context.metrics.iter().find(|m| m.metric == Metric::Ttft && m.population == Population::User);
    let Some(row) = row else { return };
    let open =
        row.percentiles.iter().filter(|p| p.replay.is_some_and(|e| e.interval.hi_is == BoundIs::Unbounded));
    let names: Vec<String> = open.map(|p| p.percentile.to_string()).collect();
    if !names.is_empty() {
        let text = format!(
            "{} requests do not bound {} from above: replay a longer window",
            row.replay.n,
            names.join(", ")
        );
        warn("thin_sample", text);
    }
}

/// What the baseline does not know.
pub(crate) fn missing(context: &Context<'_>) -> Vec<Missing> {
    let theirs = context.sides.1;
    let mut list = Vec::new();
    let production = theirs.report.kind == SideKind::Timeline;
    for metric in Metric::ALL {
        if context.alignment.baseline_knows(metric) {
            continue;
        }
        let why = match (production, metric) {
            (false, _) => "no successful request of the baseline run has it",
            (true, Metric::Ttft) => "the log has no time to first token: ingest one that records it",
            (true, Metric::Ttfv) => "no log tells which output was visible; compare with another run",
            (true, Metric::E2e) => "the log has no duration: ingest one that records it",
            (true, Metric::Gap) => "the log has no times of single events",
            (true, Metric::Itl) => {
                "no log tells how many tokens each event carried; compare with another run"
            }
            (true, Metric::Tpot) => {
                "it needs event times, or output tokens, a duration and a TTFT of a token or chunk"
            }
        };
        list.push(Missing::new(metric.as_str(), why));
    }
    let cached = theirs.roster.requests.iter().any(|r| r.cached_tokens.is_some());
    if !cached {
        list.push(Missing::new("cache", "the baseline reports no cached tokens, so that no share is known"));
    }
    if production && theirs.report.retries.retried == 0 {
        let why = "the log shows no retries: either there were none, or each row is one attempt and the user's wait is unknown";
        list.push(Missing::new("retries", why));
    }
    list
}
