//! Production, bench and replay side by side.

use tracewheel_analysis::Comparison;
use tracewheel_analysis::comparison::{Metric, Percentile, PercentileComparison, Population};

use crate::side;
use crate::style::Style;
use crate::table::{paragraph, table, title};
use crate::units::{NOTHING, estimate, ratio};

/// The percentiles of the table.
const SHOWN: [Percentile; 3] = [Percentile::P50, Percentile::P95, Percentile::P99];

/// The three-way table: what production recorded, what a naive bench measures, what the replay measures. Both
/// comparisons have the same baseline: production.
pub fn demo_text(bench: &Comparison, replay: &Comparison, style: Style) -> String {
    let sides = [("production", &replay.baseline), ("bench", &bench.replay), ("replay", &replay.replay)];
    let mut text =
        title("Load", style) + &side::windows(&sides, style) + "\n" + &side::endings(&sides, style);
    text += &side::waits(&sides, style);
    let mut latencies = Vec::new();
    let mut ratios = Vec::new();
    for metric in [Metric::Ttft, Metric::E2e] {
        for p in SHOWN {
            let at =
                |c: &Comparison| c.metric(metric, Population::User).and_then(|m| m.percentile(p)).copied();
            let (bench, replay) = (at(bench), at(replay));
            let first = |text: &str| if p == SHOWN[0] { text.to_owned() } else { String::new() };
            let names = [first(metric.as_str()), p.to_string()];
            let cell = |entry: Option<tracewheel_analysis::comparison::Estimate>| estimate(entry.as_ref());
            let values = [
                cell(replay.and_then(|p| p.baseline)),
                cell(bench.and_then(|p| p.replay)),
                cell(replay.and_then(|p| p.replay)),
            ];
            latencies.push(names.iter().cloned().chain(values).collect());
            ratios
                .push(names.into_iter().chain([against(bench.as_ref()), against(replay.as_ref())]).collect());
        }
    }
    let level = (1000.0 * replay.methods.level).round() / 10.0;
    text += &title(&format!("Latency as the user meets it ({level} % intervals)"), style);
    text += &table(&["", "", "production", "bench", "replay"], "llrrr", latencies, style);
    text += &title("Against production: ratio and verdict", style);
    text += &style.paint_verdicts(&table(&["", "", "bench", "replay"], "llll", ratios, style));
    text += "\n";
    for (name, comparison) in [("bench", bench), ("replay", replay)] {
        let verdict = comparison.verdict;
        let line = format!("{name}: {}: {}", verdict.as_str(), comparison.verdict_reason);
        text += &paragraph(&line, 2, style).replacen(verdict.as_str(), &style.verdict(verdict), 1);
    }
    text += &paragraph("∞: never answered; ?: too few requests to bound", 2, style);
    text
}

fn against(entry: Option<&PercentileComparison>) -> String {
    let Some(entry) = entry else { return NOTHING.to_owned() };
    let verdict = entry.verdict.map_or(NOTHING, |v| v.as_str());
    format!("{} {verdict}", ratio(entry.ratio.as_ref()))
}
