//! The state of the target's prefix cache: chosen, measured, and held against what the plan predicts.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::harness::{Place, QUICK};

/// Eight requests in blocks of 512 tokens. An endless cache finds, of the tokens of each: 0, 1024, 1024, 512, and in the
/// second second 1536, 1024, 0, 1024.
const TRACE: &str = r#"{"timestamp":0,"input_length":1536,"output_length":2,"hash_ids":[0,1,2]}
{"timestamp":100,"input_length":1536,"output_length":2,"hash_ids":[0,1,3]}
{"timestamp":200,"input_length":1024,"output_length":2,"hash_ids":[0,1]}
{"timestamp":300,"input_length":1536,"output_length":2,"hash_ids":[0,4,5]}
{"timestamp":1000,"input_length":1536,"output_length":2,"hash_ids":[0,1,2]}
{"timestamp":1100,"input_length":1536,"output_length":2,"hash_ids":[0,4,6]}
{"timestamp":1200,"input_length":1536,"output_length":2,"hash_ids":[7,8,9]}
{"timestamp":1300,"input_length":1024,"output_length":2,"hash_ids":[7,8]}
"#;

/// How far a share may be from the trace's: the mock always computes a prompt's last token, and its whole block with it.
const POINT: f64 = 0.01;

pub(super) fn timeline(place: &Place) -> PathBuf {
    place.write("trace.jsonl", TRACE);
    place.expect(0, &["ingest", "trace.jsonl", "-o", "t.parquet"]);
    place.path("t.parquet")
}

/// A replay's summary and its manifest.
pub(super) fn replay(place: &Place, url: &str, code: i32, more: &[&str]) -> (Value, Value) {
    let mut args =
        vec!["replay", "t.parquet", "--target", url, "--protocol", "openai-chat", "--model", "m", "--json"];
    args.extend(more);
    let summary = place.json(code, &args);
    let manifest = manifest(Path::new(summary["run_dir"].as_str().unwrap()), place);
    (summary, manifest)
}

fn manifest(run: &Path, place: &Place) -> Value {
    let path = place.path(run.join("manifest.json").to_str().unwrap());
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Measured and predicted share of the input tokens.
fn shares(summary: &Value) -> (f64, f64) {
    let both = &summary["run"]["cached"]["both"];
    (both["measured_share"].as_f64().unwrap(), both["predicted_share"].as_f64().unwrap())
}

fn classes(summary: &Value, of: &str) -> Vec<u64> {
    summary["run"]["cached"]["classes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|class| class[of].as_u64().unwrap())
        .collect()
}

fn near(share: f64, tokens: f64, of: f64) {
    assert!((share - tokens / of).abs() < POINT, "{share} is not {tokens} of {of}");
}

#[test]
fn a_natural_replay_measures_the_traces_own_share_and_a_second_one_finds_nothing_of_the_first() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(QUICK);
    for _ in 0..2 {
        let (summary, manifest) = replay(&place, &mock.url, 0, &[]);
        let (measured, predicted) = shares(&summary);
        assert_eq!(predicted, 6144.0 / 11264.0);
        near(measured, 6144.0, 11264.0);
        // Cold, partly warm, warm, not reported.
        assert_eq!(classes(&summary, "predicted"), [2, 3, 3, 0]);
        assert_eq!(classes(&summary, "measured"), [2, 3, 3, 0]);
        assert_eq!(manifest["cache"]["mode"], "natural");
    }
}

#[test]
fn a_cold_run_after_a_warm_one_finds_nothing_and_a_mix_what_it_names() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(QUICK);
    let (warm, manifest) = replay(&place, &mock.url, 0, &["--cache", "warm"]);
    let (measured, predicted) = shares(&warm);
    assert_eq!(predicted, 1.0);
    near(measured, 1.0, 1.0 + 16.0 / 1408.0);
    assert_eq!(classes(&warm, "measured"), [0, 0, 8, 0]);
    assert_eq!(manifest["cache"]["prime"]["of"], "prompts");
    // Seven distinct prompts: one of the eight is repeated.
    assert_eq!(manifest["outcome"]["prime"]["ok"], 7);
    let (cold, _) = replay(&place, &mock.url, 0, &["--cache", "cold"]);
    assert_eq!(shares(&cold), (0.0, 0.0));
    assert_eq!(classes(&cold, "measured"), [8, 0, 0, 0]);
    let (mix, _) = replay(&place, &mock.url, 0, &["--cache", "mix:0.5"]);
    let (measured, predicted) = shares(&mix);
    assert!((measured - predicted).abs() < 2.0 * POINT && predicted > 0.0 && predicted < 1.0, "{predicted}");
}

#[test]
fn a_window_begins_with_the_cache_that_it_had_in_the_trace_when_its_history_is_sent_ahead() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(QUICK);
    let window = |more: &[&str]| {
        let args: Vec<&str> = ["--from", "1s"].iter().chain(more).copied().collect();
        replay(&place, &mock.url, 0, &args)
    };
    let (alone, manifest) = window(&[]);
    near(shares(&alone).0, 1536.0, 5632.0);
    assert_eq!(
        (&manifest["cache"]["primed"], &manifest["cache"]["prime"]),
        (&Value::from(false), &Value::Null)
    );
    let (primed, manifest) = window(&["--prime", "all"]);
    near(shares(&primed).0, 3584.0, 5632.0);
    assert_eq!(shares(&primed).1, 3584.0 / 5632.0);
    let planned = &manifest["cache"]["prime"];
    assert_eq!((&planned["of"], &planned["prefixes"]), (&Value::from("history"), &Value::from("live")));
    assert_eq!((planned["requests"].as_u64(), planned["input_tokens"].as_u64()), (Some(3), Some(4608)));
    assert_eq!(
        (planned["distinct_tokens"].as_u64(), planned["look_back_ns"].as_u64()),
        (Some(3072), Some(1_000_000_000))
    );
    let cost = &manifest["outcome"]["prime"];
    assert_eq!(
        (cost["ok"].as_u64(), cost["failed"].as_u64(), cost["output_tokens"].as_u64()),
        (Some(3), Some(0), Some(3))
    );
    assert!(cost["took_ns"].as_i64() > Some(0));
    assert_eq!(primed["run"]["counts"]["planned"], 4, "the prime phase is in no figure");
    assert_eq!(primed["process"]["prime"], *cost);
    let (reused, manifest) = window(&["--prime", "all", "--prime-prefixes", "reused"]);
    near(shares(&reused).0, 3584.0, 5632.0);
    let planned = &manifest["cache"]["prime"];
    assert_eq!((planned["requests"].as_u64(), planned["input_tokens"].as_u64()), (Some(2), Some(2560)));
    let (recent, manifest) = window(&["--prime", "750ms"]);
    assert_eq!(manifest["cache"]["prime"]["requests"], 1, "one row lies so near: {manifest}");
    near(shares(&recent).0, 512.0 + 1024.0 + 1024.0, 5632.0);
}

#[test]
fn the_cost_of_priming_is_told_ahead_and_what_makes_no_sense_is_refused() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(QUICK);
    let args = |more: &[&'static str]| -> Vec<String> {
        let base =
            ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
        base.iter().chain(more).map(ToString::to_string).collect()
    };
    let run = |more: &[&'static str]| {
        let args = args(more);
        place.run(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let told = String::from_utf8(run(&["--from", "1s", "--prime-tokens", "1024"]).stderr).unwrap();
    assert!(told.contains("prime: 1 request with 1,024 input tokens"), "{told}");
    for (more, said) in [
        (&["--prime", "all"][..], "no row lies before the plan"),
        (&["--from", "1s", "--prime", "all", "--cache", "cold"], "only in the cache mode natural, not cold"),
        (&["--from", "1s", "--prime", "soon"], "is not a duration"),
        (&["--from", "1s", "--prime-prefixes", "live"], "--prime 10m"),
    ] {
        let output = run(more);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(said), "{told}");
    }
}
