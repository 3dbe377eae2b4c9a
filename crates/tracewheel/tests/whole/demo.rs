//! The demo is also a test: the replay agrees with production within their intervals, the bench does not.

use serde_json::Value;

use crate::harness::Place;

/// The entry of one metric and percentile in the population that users feel.
fn entry<'a>(comparison: &'a Value, metric: &str, percentile: &str) -> &'a Value {
    let metrics = comparison["metrics"].as_array().unwrap();
    let metric = metrics.iter().find(|m| m["metric"] == metric && m["population"] == "user").unwrap();
    metric["percentiles"].as_array().unwrap().iter().find(|p| p["percentile"] == percentile).unwrap()
}

/// Where the replay side's interval lies: wholly below the baseline's, wholly above, or over a part of it at least. An
/// interval without an end reaches on.
fn place_in_baseline(entry: &Value) -> std::cmp::Ordering {
    let end = |side: &str, end: &str| entry[side]["interval"][end].as_i64();
    let below = |one: Option<i64>, other: Option<i64>| one.zip(other).is_some_and(|(one, other)| one < other);
    if below(end("replay", "hi_ns"), end("baseline", "lo_ns")) {
        std::cmp::Ordering::Less
    } else if below(end("baseline", "hi_ns"), end("replay", "lo_ns")) {
        std::cmp::Ordering::Greater
    } else {
        std::cmp::Ordering::Equal
    }
}

#[test]
fn the_replay_agrees_with_production_and_the_naive_bench_is_several_times_too_good() {
    let place = Place::new();
    let shown = place.json(0, &["demo", "--out", "out", "--json"]);
    for (metric, percentile) in [("ttft", "p50"), ("ttft", "p95"), ("e2e", "p50"), ("e2e", "p95")] {
        let entry = entry(&shown["replay"], metric, percentile);
        assert!(place_in_baseline(entry).is_eq(), "{metric} {percentile} of the replay: {entry}");
    }
    let bench = entry(&shown["bench"], "ttft", "p95");
    // So few answers bound a p95 on one side at most; the value itself lies below all that production's may be.
    assert!(
        bench["replay"]["value_ns"].as_i64() < bench["baseline"]["interval"]["lo_ns"].as_i64(),
        "{bench}"
    );
    assert!(bench["ratio"]["value"].as_f64().unwrap() < 1.0 / 3.0, "{bench}");
    assert_eq!(shown["bench"]["replay"]["concurrency"]["max"], 1);
    for name in ["gateway.jsonl", "production.parquet", "traffic.parquet", "runs"] {
        assert!(place.path("out").join(name).exists(), "{name} stays on disk");
    }
    // A second demo empties its own folder, and no other.
    place.write("mine", "");
    assert!(place.fails(2, &["demo", "--out", "."]).contains("not empty"));
}
