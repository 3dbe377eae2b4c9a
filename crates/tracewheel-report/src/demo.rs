//! Production, bench and replay side by side.

use tracewheel_analysis::Comparison;
use tracewheel_analysis::comparison::{Metric, Percentile, PercentileComparison, Placement, Population};

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
    text += &side::load_line(&sides, style);
    text += &table(&["", "", "production", "bench", "replay"], "llrrr", latencies, style);
    text += &title("Against production: ratio, and place in production's interval", style);
    text += &table(&["", "", "bench", "replay"], "llll", ratios, style);
    text += "\n";
    for (name, comparison) in [("bench", bench), ("replay", replay)] {
        if let Some(notice) = &comparison.notice {
            text += &side::notice(&format!("{name}: {notice}"), style);
        }
        text += &paragraph(&format!("{name}: {}", conclusion(comparison)), 2, style);
    }
    text += &paragraph("∞: never answered; ?: too few requests to bound", 2, style);
    text
}

/// Which of the percentiles that matter show a difference. `compare` asks for more: that there can be none beyond its
/// tolerance, which twenty seconds of traffic cannot show at p95.
fn conclusion(comparison: &Comparison) -> String {
    let entries: Vec<(String, PercentileComparison)> = [Metric::Ttft, Metric::E2e]
        .into_iter()
        .flat_map(|metric| [Percentile::P50, Percentile::P95].map(|p| (metric, p)))
        .filter_map(|(metric, p)| {
            let entry = comparison.metric(metric, Population::User)?.percentile(p).copied()?;
            Some((format!("{} {p}", metric.as_str()), entry))
        })
        .collect();
    let outside: Vec<String> = entries
        .iter()
        .filter_map(|(name, entry)| match entry.placement()? {
            Placement::Within => None,
            Placement::Below => Some(format!(
                "{name} is too good ({})",
                times(entry.ratio.and_then(|r| r.value).map(f64::recip))
            )),
            Placement::Above => {
                Some(format!("{name} is too slow ({})", times(entry.ratio.and_then(|r| r.value))))
            }
        })
        .collect();
    if outside.is_empty() {
        format!(
            "no difference to production shows: all {} of TTFT and E2E p50 and p95 lie in its intervals",
            entries.len()
        )
    } else {
        format!("differs from production: {}", outside.join(", "))
    }
}

fn times(factor: Option<f64>) -> String {
    factor.map_or(NOTHING.to_owned(), |factor| format!("{factor:.1} times"))
}

fn against(entry: Option<&PercentileComparison>) -> String {
    let Some(entry) = entry else { return NOTHING.to_owned() };
    let place = match entry.placement() {
        Some(Placement::Below) => "below",
        Some(Placement::Within) => "within",
        Some(Placement::Above) => "above",
        None => NOTHING,
    };
    format!("{} {place}", ratio(entry.ratio.as_ref()))
}
