//! What differs between the two environments: a latency is a property of both ends and of the way between them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracewheel_record::Manifest;
use tracewheel_timeline::Timeline;

use crate::side::Side;

/// Sections of a manifest that are compared, the most telling first.
const SECTIONS: [&str; 10] =
    ["target", "cache", "plan", "policy", "protocol", "tls", "vantage", "prompts", "machine", "tool_version"];

/// Entries that differ between any two runs, or that restate another entry.
const PASSED_OVER: [&str; 4] =
    ["plan.nonce", "cache.reported_by", "vantage.round_trip_samples", "vantage.round_trip_min_ns"];

/// Entries that no log of production tells.
const NEVER_LOGGED: [&str; 6] =
    ["vantage.name", "protocol.http", "tls", "policy.retry", "policy.budgets", "policy.connections.mode"];

/// Differences between the two sides' environments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EnvironmentReport {
    /// What is known on both sides and differs, the most telling first.
    pub differences: Vec<Difference>,
    /// How many further entries are known on both sides and equal.
    pub equal: u64,
    /// What only one side states.
    pub unknown: Vec<String>,
}

/// One entry that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Its path in the manifest, for example `target.models_served`.
    pub key: String,
    /// What the replay states.
    pub replay: Value,
    /// What the baseline states.
    pub baseline: Value,
}

impl EnvironmentReport {
    fn add(&mut self, key: &str, replay: Value, baseline: Value) {
        if is_unknown(&baseline) || is_unknown(&replay) {
            if is_unknown(&baseline) != is_unknown(&replay) {
                self.unknown.push(key.to_owned());
            }
        } else if alike(key, &replay, &baseline) {
            self.equal += 1;
        } else {
            self.differences.push(Difference { key: key.to_owned(), replay, baseline });
        }
    }
}

/// Two runs: their manifests, entry by entry.
pub(crate) fn between_runs(replay: &Manifest, baseline: &Manifest) -> EnvironmentReport {
    let (mine, theirs) = (flatten(replay), flatten(baseline));
    let mut report = EnvironmentReport::default();
    for section in SECTIONS {
        let inside = |key: &&String| key.split('.').next() == Some(section);
        let keys: BTreeSet<&String> = mine.keys().chain(theirs.keys()).filter(inside).collect();
        for key in keys.into_iter().filter(|key| !PASSED_OVER.contains(&key.as_str())) {
            let of = |side: &Map<String, Value>| side.get(key).cloned().unwrap_or(Value::Null);
            report.add(key, of(&mine), of(&theirs));
        }
    }
    if replay.scenario.text != baseline.scenario.text {
        let lines =
            |m: &Manifest| json!(m.scenario.text.as_ref().map(|t| format!("{} lines", t.lines().count())));
        report.add("scenario.text", lines(replay), lines(baseline));
    }
    report
}

/// A replay and what production recorded: the few things that a log tells, and a list of what it does not.
pub(crate) fn with_production(
    replay: &Manifest,
    timeline: &Timeline,
    sides: (&Side<'_>, &Side<'_>),
) -> EnvironmentReport {
    let mine = flatten(replay);
    let of = |key: &str| mine.get(key).cloned().unwrap_or(Value::Null);
    let mut report = EnvironmentReport::default();
    for key in ["target.url", "target.models_asked", "target.models_served"] {
        let logged = sides.1.logged.facts.get(key).map_or(Value::Null, |words| json!(words));
        report.add(key, of(key), logged);
    }
    let digest = &timeline.meta().digest;
    report.add("plan.timeline_digest", of("plan.timeline_digest"), json!(digest));
    report.add("plan.speed", of("plan.speed"), json!(1.0));
    report.add("plan.mode", of("plan.mode"), json!("open"));
    report.add("plan.amplification", of("plan.amplification"), json!(1.0));
    report.add("cache.mode", of("cache.mode"), json!("natural"));
    report.add("cache.measured_share", json!(cached_share(sides.0)), json!(cached_share(sides.1)));
    for key in NEVER_LOGGED {
        report.add(key, of(key), Value::Null);
    }
    report
}

/// Cached tokens / input tokens over the successful requests that report both.
fn cached_share(side: &Side<'_>) -> Option<f64> {
    let both = side.roster.requests.iter().filter(|r| r.is_ok());
    let (cached, input) = both
        .filter_map(|r| Some((u64::from(r.cached_tokens?), u64::from(r.input_tokens?))))
        .fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    (input > 0).then(|| cached as f64 / input as f64)
}

/// A manifest's entries under their dotted paths; lists are entries.
fn flatten(manifest: &Manifest) -> Map<String, Value> {
    let mut flat = Map::new();
    let value = serde_json::to_value(manifest).unwrap_or(Value::Null);
    push_entries(&mut flat, String::new(), value);
    flat
}

fn push_entries(flat: &mut Map<String, Value>, path: String, value: Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                push_entries(flat, path, value);
            }
        }
        other => {
            flat.insert(path, other);
        }
    }
}

fn is_unknown(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Equal; or shares and factors that differ by less than a hundredth, or durations by less than a fifth.
fn alike(key: &str, a: &Value, b: &Value) -> bool {
    let (Some(x), Some(y)) = (a.as_f64(), b.as_f64()) else { return a == b };
    if key.ends_with("_ns") {
        (x - y).abs() <= 0.2 * x.abs().max(y.abs())
    } else if a.is_f64() || b.is_f64() {
        (x - y).abs() < 0.01
    } else {
        a == b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_differ_in_the_model_say_so_first() {
        let mut a = Manifest::default();
        a.target.url = "http://127.0.0.1:9".to_owned();
        a.machine.cores = Some(2);
        let mut b = a.clone();
        b.target.models_served = vec!["m-b".to_owned()];
        a.target.models_served = vec!["m-a".to_owned()];
        b.machine.cores = Some(4);
        (a.plan.nonce, b.plan.nonce) = (Some(1), Some(2));
        let report = between_runs(&a, &b);
        let keys: Vec<&str> = report.differences.iter().map(|d| d.key.as_str()).collect();
        assert_eq!(keys, ["target.models_served", "machine.cores"]);
        assert_eq!(report.differences[0].baseline, json!(["m-b"]));
        assert!(report.equal > 0);
    }

    #[test]
    fn what_only_one_side_states_is_unknown_and_not_different() {
        let mut a = Manifest::default();
        a.vantage.name = Some("eu".to_owned());
        let report = between_runs(&a, &Manifest::default());
        assert!(report.differences.is_empty());
        assert_eq!(report.unknown, ["vantage.name"]);
    }

    #[test]
    fn shares_that_differ_by_less_than_a_hundredth_are_alike() {
        assert!(alike("cache.planned_share", &json!(0.501), &json!(0.505)));
        assert!(!alike("cache.planned_share", &json!(0.50), &json!(0.52)));
        assert!(!alike("machine.cores", &json!(1), &json!(2)));
        assert!(alike("vantage.round_trip_p50_ns", &json!(100_000), &json!(110_000)));
    }
}
