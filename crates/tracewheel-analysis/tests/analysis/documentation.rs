//! `docs/reference/metrics.md` and `json.md` against the code.

use std::collections::BTreeSet;

use serde_json::Value;
use tempfile::tempdir;
use tracewheel_analysis::comparison::CauseKind;
use tracewheel_analysis::interval::{BoundIs, INTERVAL_METHOD};
use tracewheel_analysis::metric::{Metric, Population, Verdict};
use tracewheel_analysis::quantile::QUANTILE_METHOD;
use tracewheel_analysis::ratio::RATIO_METHOD;
use tracewheel_analysis::{Baseline, CompareOptions, compare, inspect_run};
use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::{Source, TtftKind};

use crate::fixture::{MS, answered, manifest, produced, run, timeline};

const METRICS: &str = include_str!("../../../../docs/reference/metrics.md");
const JSON: &str = include_str!("../../../../docs/reference/json.md");

/// Maps whose keys are data.
const DATA: [&str; 2] = ["reasons", "definitions"];

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                if !DATA.contains(&key.as_str()) {
                    keys(value, found);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

fn undocumented(page: &str, words: impl IntoIterator<Item = String>) -> Vec<String> {
    words.into_iter().filter(|word| !page.contains(&format!("`{word}`"))).collect()
}

/// A comparison and an inspection in which nothing is null that could be known.
fn full() -> [Value; 2] {
    let dir = tempdir().unwrap();
    let rows: Vec<_> = (0..30i64)
        .map(|i| RequestRow {
            cached_tokens: Some(10),
            cached_tokens_source: Some(Source::Reported),
            prod_event_ns: Some(vec![20 * MS, 30 * MS]),
            model: Some("m-b".into()),
            ..produced(i * 100, 20, 90)
        })
        .collect();
    let exchanges: Vec<_> = (0..30u64)
        .map(|row| {
            let due = row as i64 * 100;
            let (mut record, mut attempts) = answered(row, due, &[due + 20, due + 25]);
            (record.cached_tokens, record.cached_tokens_source) = (Some(10), Some(Source::Reported));
            // Late, so that there is a cause to name.
            attempts[0].first_write_ns = attempts[0].first_write_ns.map(|at| at + 15 * MS);
            (record, attempts)
        })
        .collect();
    let t = timeline(dir.path(), "t.parquet", &rows);
    let mut m = manifest(&t);
    m.target.models_asked = vec!["m-a".to_owned()];
    let r = run(dir.path(), m, &exchanges);
    let comparison = compare(&r, Baseline::Timeline(&t), &CompareOptions::default()).unwrap();
    assert!(!comparison.environment.differences.is_empty() && !comparison.missing.is_empty());
    assert!(!comparison.fidelity.causes.is_empty());
    [serde_json::to_value(comparison).unwrap(), serde_json::to_value(inspect_run(&r).unwrap()).unwrap()]
}

#[test]
fn every_json_key_stands_in_the_reference() {
    let mut found = BTreeSet::new();
    full().iter().for_each(|value| keys(value, &mut found));
    assert!(found.len() > 100, "{}", found.len());
    assert_eq!(undocumented(JSON, found), Vec::<String>::new());
}

#[test]
fn every_word_of_the_analysis_stands_in_the_reference() {
    let word = |value: Value| value.as_str().unwrap().to_owned();
    let mut words: Vec<String> = Metric::ALL.iter().map(|m| m.as_str().to_owned()).collect();
    words.extend(Population::ALL.iter().map(|p| p.as_str().to_owned()));
    words.extend(TtftKind::ALL.iter().map(|k| k.as_str().to_owned()));
    for verdict in [Verdict::Agree, Verdict::Faster, Verdict::Slower, Verdict::CannotTell] {
        words.push(word(serde_json::to_value(verdict).unwrap()));
    }
    for bound in [BoundIs::Value, BoundIs::Infinite, BoundIs::Unbounded] {
        words.push(word(serde_json::to_value(bound).unwrap()));
    }
    words.extend(CauseKind::ALL.iter().map(|cause| word(serde_json::to_value(cause).unwrap())));
    words.extend([QUANTILE_METHOD, RATIO_METHOD].map(str::to_owned));
    assert_eq!(undocumented(&format!("{METRICS}{JSON}"), words), Vec::<String>::new());
    assert!(METRICS.contains("order statistics") && INTERVAL_METHOD.starts_with("order_statistics"));
}

#[test]
fn the_comparison_survives_its_json() {
    let [json, _] = full();
    let back: tracewheel_analysis::Comparison = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(back).unwrap(), json);
}
