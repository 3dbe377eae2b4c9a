//! A comparison as text.

use serde_json::Value;
use tracewheel_analysis::Comparison;
use tracewheel_analysis::comparison::{Metric, MetricComparison, Percentile, Population};

use crate::side;
use crate::style::Style;
use crate::table::{paragraph, table, title};
use crate::units::{NOTHING, count, duration, estimate, moment, number, ratio, share, size};

/// Longest value of a difference that is shown whole.
const VALUE_CHARS: usize = 60;

/// What every table of a comparison carries in which a side is unfaithful.
pub(crate) const UNFAITHFUL: &str = "unfaithful, forced";

/// A comparison: what differs first, then the verdict, latencies, cache shares, streams, sending and warnings.
pub fn comparison_text(c: &Comparison, style: Style) -> String {
    let baseline = side::label(&c.baseline);
    let style = Style { notice: c.notice.as_ref().map(|_| UNFAITHFUL), ..style };
    let sides = [("replay", &c.replay), (baseline, &c.baseline)];
    let mut text = format!("replay {}\n{baseline} {}\n", c.replay.name, c.baseline.name);
    if let Some(notice) = &c.notice {
        text += &side::notice(notice, style);
    }
    text += &environment(c, baseline, style);
    text += &side::warnings("Read before the numbers", &c.warnings, style);
    text += &title("Window and load", style);
    text += &side::windows(&sides, style);
    text += "\n";
    text += &side::endings(&sides, style);
    text += &side::waits(&sides, style);
    text += &side::prompts(&sides, style);
    text += &latencies(c, baseline, style);
    text += &side::cached(&sides, style);
    text += &side::cache(&c.cache, Some(baseline), style);
    text += &weighted(c, style);
    text += &side::streams(&sides, style);
    text += &side::fidelity(&c.fidelity, c.baseline_fidelity.as_ref().map(|_| "replay"), style);
    if let Some(fidelity) = &c.baseline_fidelity {
        text += &side::fidelity(fidelity, Some(baseline), style);
    }
    text += &missing(c, baseline, style);
    text + &verdict(c, style)
}

fn environment(c: &Comparison, baseline: &str, style: Style) -> String {
    let mut text = title("What differs", style);
    if c.environment.differences.is_empty() {
        text += &format!("nothing that both sides state ({} entries are equal)\n", c.environment.equal);
    } else {
        let rows = c
            .environment
            .differences
            .iter()
            .map(|d| vec![d.key.clone(), value(&d.key, &d.replay), value(&d.key, &d.baseline)]);
        text += &table(&["", "replay", baseline], "lll", rows.collect(), style);
    }
    if !c.environment.unknown.is_empty() {
        let line = format!("stated by one side only: {}", c.environment.unknown.join(", "));
        text += &paragraph(&line, 2, style);
    }
    text
}

/// A manifest's value in a cell, in human units by the end of its key.
fn value(key: &str, value: &Value) -> String {
    let text = in_words(key, value);
    if text.chars().count() <= VALUE_CHARS {
        return text;
    }
    text.chars().take(VALUE_CHARS - 1).chain(['…']).collect()
}

fn in_words(key: &str, value: &Value) -> String {
    let last = key.rsplit('.').next().unwrap_or(key);
    match value {
        Value::Null => NOTHING.to_owned(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        // The start tells two digests apart.
        Value::String(text) if last.ends_with("digest") => text.chars().take(12).collect(),
        Value::String(text) => text.clone(),
        Value::Number(n) => quantity(last, n),
        Value::Array(list) => list.iter().map(|v| in_words(key, v)).collect::<Vec<_>>().join(", "),
        Value::Object(map) => {
            let pairs = map.iter().filter(|(_, v)| !v.is_null());
            pairs.map(|(k, v)| format!("{k} {}", in_words(k, v))).collect::<Vec<_>>().join(" ")
        }
    }
}

fn quantity(key: &str, n: &serde_json::Number) -> String {
    match (n.as_i64(), n.as_f64()) {
        (Some(ns), _) if key.ends_with("_unix_ns") => moment(ns),
        (Some(ns), _) if key.ends_with("_ns") => duration(ns),
        (Some(bytes), _) if key.ends_with("_bytes") => size(bytes),
        (_, Some(part)) if key.ends_with("share") => share(Some(part)),
        (_, Some(rate)) if key.ends_with("_per_second") => format!("{}/s", number(Some(rate))),
        // A seed is a name, not a quantity.
        (Some(_), _) if key == "seed" => n.to_string(),
        (Some(n), _) if n >= 0 => count(n.unsigned_abs()),
        (None, Some(value)) => number(Some(value)),
        _ => n.to_string(),
    }
}

fn latencies(c: &Comparison, baseline: &str, style: Style) -> String {
    let mut text = title("Latency", style);
    text += &side::load_line(&[("replay", &c.replay), (baseline, &c.baseline)], style);
    let shown = [
        (Metric::Ttft, Population::User),
        (Metric::E2e, Population::User),
        (Metric::Ttft, Population::Success),
        (Metric::E2e, Population::Success),
        (Metric::Ttft, Population::Service),
        (Metric::E2e, Population::Service),
        (Metric::Gap, Population::Success),
        (Metric::Itl, Population::Success),
        (Metric::Tpot, Population::Success),
    ];
    let rows =
        shown.into_iter().filter_map(|(metric, population)| c.metric(metric, population)).flat_map(rows);
    let header = ["", "population", "", "replay", baseline, "ratio", "verdict"];
    text += &style.paint_verdicts(&table(&header, "lllrrrl", rows.collect(), style));
    if let Some(ttft) = c.metric(Metric::Ttft, Population::User) {
        let mut line = format!(
            "ttft over {} and {} requests",
            count(ttft.replay.n),
            ttft.baseline.map_or(NOTHING.to_owned(), |b| count(b.n))
        );
        if let Some(stamp) = &ttft.stamp {
            line += &format!(", each up to what was logged ({})", stamp.replace('_', " "));
        }
        line += &format!(
            "; intervals {} %; ∞: never answered; ?: too few requests to bound",
            (1000.0 * c.methods.level).round() / 10.0
        );
        text += &paragraph(&line, 2, style);
    }
    text
}

/// All percentiles of the headline, p50 and p95 of the rest.
fn rows(m: &MetricComparison) -> Vec<Vec<String>> {
    let headline = m.population == Population::User;
    let wanted = |p: Percentile| headline || p == Percentile::P50 || p == Percentile::P95;
    if m.replay.n == 0 && m.baseline.is_none_or(|b| b.n == 0) {
        return Vec::new();
    }
    let entries = m.percentiles.iter().filter(|p| wanted(p.percentile)).enumerate();
    entries
        .map(|(at, p)| {
            let first = |text: &str| if at == 0 { text.to_owned() } else { String::new() };
            vec![
                first(m.metric.as_str()),
                first(m.population.as_str()),
                p.percentile.to_string(),
                estimate(p.replay.as_ref()),
                estimate(p.baseline.as_ref()),
                ratio(p.ratio.as_ref()),
                p.verdict.map_or(String::new(), |v| v.as_str().to_owned()),
            ]
        })
        .collect()
}

fn weighted(c: &Comparison, style: Style) -> String {
    let mut text = String::new();
    for w in &c.cache.weighted {
        let what = format!("{} {} at the baseline's cache shares", w.metric.as_str(), w.percentile);
        let line = match &w.withheld {
            Some(why) => format!("{what}: withheld, {why}"),
            None => format!("{what}: {}, ratio {}", estimate(w.replay.as_ref()), ratio(w.ratio.as_ref())),
        };
        text += &paragraph(&line, 2, style);
    }
    text
}

fn missing(c: &Comparison, baseline: &str, style: Style) -> String {
    if c.missing.is_empty() {
        return String::new();
    }
    let lines = c.missing.iter().map(|m| paragraph(&format!("{}: {}", m.what, m.why), 2, style));
    title(&format!("What {baseline} does not know"), style) + &lines.collect::<String>()
}

/// The last line that a person reads.
fn verdict(c: &Comparison, style: Style) -> String {
    let rule = format!(
        "tolerance {:.0} %, at least {} ms",
        100.0 * c.methods.tolerance,
        c.methods.floor_ns as f64 / 1e6
    );
    let plain = paragraph(&format!("{}: {}", c.verdict.as_str(), c.verdict_reason), 2, style);
    title(&format!("Verdict ({rule})"), style)
        + &plain.replacen(c.verdict.as_str(), &style.verdict(c.verdict), 1)
}
