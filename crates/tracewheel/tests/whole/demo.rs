//! The demo is also a test: the replay agrees with production within their intervals, the bench does not.

use serde_json::Value;

use crate::harness::Place;

/// The entry of one metric and percentile in the population that users feel.
fn entry<'a>(comparison: &'a Value, metric: &str, percentile: &str) -> &'a Value {
    let metrics = comparison["metrics"].as_array().unwrap();
    let metric = metrics.iter().find(|m| m["metric"] == metric && m["population"] == "user").unwrap();
    metric["percentiles"].as_array().unwrap().iter().find(|p| p["percentile"] == percentile).unwrap()
}

#[test]
fn the_replay_agrees_with_production_and_the_naive_bench_is_several_times_too_good() {
    let place = Place::new();
    let shown = place.json(0, &["demo", "--out", "out", "--json"]);
    assert_eq!(shown["replay"]["verdict"], "agree", "{}", shown["replay"]["verdict_reason"]);
    assert_eq!(shown["bench"]["verdict"], "faster", "{}", shown["bench"]["verdict_reason"]);
    let ratio = |side: &str| entry(&shown[side], "ttft", "p95")["ratio"]["value"].as_f64().unwrap();
    assert!(ratio("bench") < 1.0 / 3.0, "the bench shows {} of production's TTFT p95", ratio("bench"));
    for name in ["gateway.jsonl", "production.parquet", "traffic.parquet", "runs"] {
        assert!(place.path("out").join(name).exists(), "{name} stays on disk");
    }
    // A second demo empties its own folder, and no other.
    place.write("mine", "");
    assert!(place.fails(2, &["demo", "--out", "."]).contains("not empty"));
}
