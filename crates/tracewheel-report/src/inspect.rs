//! What a timeline or a run holds, as text.

use tracewheel_analysis::summary::RunInspection;
use tracewheel_analysis::timeline::{LatencyStats, ProductionStats, TimelineStats, TokenStats};

use crate::style::Style;
use crate::summary::summary_text;
use crate::table::{pairs, paragraph, table, title};
use crate::units::{NOTHING, count, duration, duration_or_nothing, humane, number, share, wall_span};

/// What a timeline holds.
pub fn timeline_text(stats: &TimelineStats, style: Style) -> String {
    let arrivals = stats.first_arrival_unix_ns.zip(stats.last_arrival_unix_ns);
    let seconds = stats.span_seconds.map(|s| format!("{} s", number(Some(s))));
    let mut about = vec![
        ("requests", count(stats.requests)),
        ("arrivals", arrivals.map_or_else(|| no_span(stats).to_owned(), |(from, to)| wall_span(from, to))),
        ("span", seconds.unwrap_or(NOTHING.to_owned())),
        ("gaps' variation", number(stats.interarrival_cv)),
        ("equal neighbours", count(stats.ties)),
        ("busiest minute", peak(stats)),
        ("clock resolution", duration_or_nothing(stats.clock_resolution_ns)),
    ];
    if let Some(sessions) = stats.sessions {
        about
            .push(("sessions", format!("{} in {} requests", count(sessions), count(stats.session_requests))));
    }
    let mut text = pairs(&about, style);
    text += &tokens(stats, style);
    if let Some(prefix) = &stats.prefix {
        text += &title("Shared prefixes (an infinite cache, warm from nothing)", style);
        let length = prefix.block_tokens.map_or("of varying length".to_owned(), |n| format!("of {n}"));
        text += &pairs(
            &[
                ("requests with blocks", count(prefix.requests)),
                (
                    "blocks",
                    format!("{} {length}, {} distinct", count(prefix.blocks), count(prefix.distinct_blocks)),
                ),
                ("block hit ratio", share(prefix.block_hit_ratio)),
                ("token hit ratio", share(prefix.token_hit_ratio)),
            ],
            style,
        );
    }
    text += &stats.production.as_ref().map_or(String::new(), |p| production(p, style));
    if !stats.oddities.is_empty() {
        text += &title("Odd", style);
        for oddity in &stats.oddities {
            let line = format!("{}: {} ({})", oddity.kind, count(oddity.count), humane(&oddity.detail));
            text += &paragraph(&line, 2, style);
        }
    }
    text
}

fn no_span(stats: &TimelineStats) -> &'static str {
    if stats.has_epoch { NOTHING } else { "from the log's own start" }
}

fn peak(stats: &TimelineStats) -> String {
    match (stats.peak_minute_requests, stats.peak_to_mean) {
        (Some(peak), Some(over)) => {
            format!("{} requests, {} times the mean", count(peak), number(Some(over)))
        }
        (Some(peak), None) => format!("{} requests", count(peak)),
        _ => NOTHING.to_owned(),
    }
}

fn tokens(stats: &TimelineStats, style: Style) -> String {
    let row = |name: &str, t: &TokenStats| {
        let whole = |n: Option<u32>| n.map_or(NOTHING.to_owned(), |n| count(u64::from(n)));
        let mut row = vec![name.to_owned(), count(t.known), count(t.total), number(t.mean), whole(t.min)];
        row.extend([t.p50, t.p95, t.p99].map(number));
        row.push(whole(t.max));
        row
    };
    let all =
        [("input", &stats.input_tokens), ("output", &stats.output_tokens), ("cached", &stats.cached_tokens)];
    let rows = all.into_iter().filter(|(_, t)| t.known > 0).map(|(name, t)| row(name, t)).collect();
    let header = ["", "known", "total", "mean", "min", "p50", "p95", "p99", "max"];
    title("Tokens (percentiles interpolated)", style) + &table(&header, "lrrrrrrrr", rows, style)
}

fn production(p: &ProductionStats, style: Style) -> String {
    let row = |name: String, l: &LatencyStats| {
        let mut row = vec![name, count(l.known)];
        row.extend([l.p50, l.p90, l.p95, l.p99, l.max].map(duration));
        row
    };
    let kinds: Vec<&str> = p.ttft_kinds.keys().map(|kind| kind.as_str()).collect();
    let mut rows = Vec::new();
    rows.extend(p.ttft_ns.as_ref().map(|l| row(format!("ttft ({})", kinds.join(", ")), l)));
    rows.extend(p.e2e_ns.as_ref().map(|l| row("e2e".to_owned(), l)));
    let mut text = title("What production recorded (nearest rank)", style);
    if !rows.is_empty() {
        text += &table(&["", "known", "p50", "p90", "p95", "p99", "max"], "lrrrrrr", rows, style);
    }
    let statuses: Vec<String> =
        p.status.iter().map(|(status, n)| format!("{status}: {}", count(*n))).collect();
    let mut about = Vec::new();
    if !statuses.is_empty() {
        about.push(("http status", statuses.join(", ")));
    }
    about.push(("error classes", count(p.errors)));
    about.push(("logged retries", count(p.attempts.retry_rows)));
    text + &pairs(&about, style)
}

/// What a run directory holds.
pub fn run_text(run: &RunInspection, style: Style) -> String {
    let state =
        serde_json::to_value(run.state).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    let t = &run.tokens;
    let tokens = format!("{} in ({} cached), {} out", count(t.input), count(t.cached), count(t.output));
    let mut text = pairs(
        &[
            ("run", format!("{} ({state})", run.id)),
            ("written by", format!("tracewheel {}", run.tool_version)),
            ("target", run.target.clone()),
            ("timeline", run.timeline_digest.clone()),
            ("tokens", tokens),
        ],
        style,
    );
    let rows = run.phases.iter().map(|p| vec![p.phase.clone(), p.status.clone(), count(p.requests)]);
    text += "\n";
    text += &table(&["phase", "status", "requests"], "llr", rows.collect(), style);
    if let Some(summary) = &run.summary {
        text += "\n";
        text += &summary_text(summary, style);
    }
    text
}
