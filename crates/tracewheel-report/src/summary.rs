//! The summary at the end of a replay, as text.

use tracewheel_analysis::ReplaySummary;
use tracewheel_analysis::comparison::{Metric, Percentile, Population};
use tracewheel_analysis::summary::MetricSummary;

use crate::side;
use crate::style::Style;
use crate::table::{paragraph, table, title};
use crate::units::{NOTHING, count, duration_or_nothing, estimate, quantile, share};

/// Counts, latencies, precision of sending, rates and warnings of one run.
pub fn summary_text(summary: &ReplaySummary, style: Style) -> String {
    let sides = [("replay", &summary.run)];
    let mut text = format!("run {}\n\n", summary.run.name);
    text += &side::windows(&sides, style);
    text += "\n";
    text += &side::endings(&sides, style);
    text += &reasons(summary, style);
    if summary.fidelity.attempts_sent > 0 {
        text += &side::waits(&sides, style);
        text += &side::prompts(&sides, style);
        text += &latencies(summary, style);
        text += &operations(summary, style);
        text += &routes(summary, style);
        text += &side::cached(&sides, style);
        text += &side::cache(&summary.cache, None, style);
        text += &side::streams(&sides, style);
    }
    text += &side::fidelity(&summary.fidelity, None, style);
    text + &side::warnings("Warnings", &summary.warnings, style)
}

fn reasons(summary: &ReplaySummary, style: Style) -> String {
    if summary.run.counts.reasons.is_empty() {
        return String::new();
    }
    let each = summary.run.counts.reasons.iter().map(|(reason, n)| format!("{reason} {}", count(*n)));
    paragraph(&format!("reasons: {}", each.collect::<Vec<_>>().join(", ")), 2, style)
}

fn latencies(summary: &ReplaySummary, style: Style) -> String {
    let rows = summary.metrics.iter().filter(|m| m.sample.n > 0 && is_shown(m)).map(row);
    let header = ["", "population", "n", "p50", "p90", "p95 [interval]", "p99"];
    let mut text = title("Latency", style);
    text += &side::load_line(&[("replay", &summary.run)], style);
    text += &table(&header, "llrrrrr", rows.collect(), style);
    text += &paragraph("nearest rank; ∞: never answered; ?: too few requests to bound", 2, style);
    text
}

/// Each operation and manner of answer, where there is more than one: latencies of all together say little then.
fn operations(summary: &ReplaySummary, style: Style) -> String {
    if summary.operations.len() < 2 {
        return String::new();
    }
    let rows = summary.operations.iter().map(|class| {
        let manner = if class.streamed { "stream" } else { "plain" };
        vec![
            class.operation.clone(),
            manner.to_owned(),
            count(class.requests),
            count(class.ok),
            duration_or_nothing(class.e2e_p50_ns),
            duration_or_nothing(class.e2e_p95_ns),
        ]
    });
    let header = ["operation", "answer", "requests", "ok", "e2e p50", "e2e p95"];
    title("Operations", style) + &table(&header, "llrrrr", rows.collect(), style)
}

/// Each route of the scenario, where it has several: targets and models apart.
fn routes(summary: &ReplaySummary, style: Style) -> String {
    if summary.routes.len() < 2 {
        return String::new();
    }
    let rows = summary.routes.iter().map(|class| {
        vec![
            class.route.clone().unwrap_or_else(|| NOTHING.to_owned()),
            count(class.requests),
            count(class.ok),
            duration_or_nothing(class.ttft_p50_ns),
            duration_or_nothing(class.ttft_p95_ns),
            duration_or_nothing(class.e2e_p50_ns),
            duration_or_nothing(class.e2e_p95_ns),
            share(class.cached_share),
        ]
    });
    let header = ["route", "requests", "ok", "ttft p50", "ttft p95", "e2e p50", "e2e p95", "cached"];
    title("Routes", style) + &table(&header, "lrrrrrrr", rows.collect(), style)
}

/// TTFV stands for the user only: it seldom differs from TTFT.
fn is_shown(m: &MetricSummary) -> bool {
    m.metric != Metric::Ttfv || m.population == Population::User
}

fn row(m: &MetricSummary) -> Vec<String> {
    let at = |p: Percentile| m.percentiles.iter().find(|e| e.percentile == p).and_then(|e| e.estimate);
    vec![
        m.metric.as_str().to_owned(),
        m.population.as_str().to_owned(),
        count(m.sample.n),
        quantile(at(Percentile::P50).as_ref()),
        quantile(at(Percentile::P90).as_ref()),
        estimate(at(Percentile::P95).as_ref()),
        quantile(at(Percentile::P99).as_ref()),
    ]
}
