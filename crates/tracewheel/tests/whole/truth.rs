//! What the run says agrees with what the endpoint itself saw: arrivals, tokens and their times.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use tracewheel_record::rows::ReadStampRow;
use tracewheel_record::{AttemptRecord, Run};

use crate::harness::{Place, QUICK, fixture};

/// The witness log, by request id.
fn witness(place: &Place) -> HashMap<String, Value> {
    let log = std::fs::read_to_string(place.path("witness.jsonl")).unwrap();
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["path"] == "/v1/chat/completions")
        .map(|line| (line["request_id"].as_str().unwrap().to_owned(), line))
        .collect()
}

fn middle(mut values: Vec<i64>) -> i64 {
    values.sort_unstable();
    values[values.len() / 2]
}

/// A clock is slewed by at most 500 parts in a million, and the offset to wall time is sampled each second.
const MOST_SLEW_NS: i64 = 500_000;

/// Kernel stamps are wall time; the run puts them on its own clock through a track of offsets, each known to its bracket.
fn stamp_slack_ns(run: &Run) -> i64 {
    run.manifest().clock.bracket_max_ns.unwrap_or(0) + MOST_SLEW_NS
}

/// The times of an attempt's output events, as the analysis takes them.
fn output_times(attempt: &AttemptRecord) -> Vec<i64> {
    let output = attempt.events.iter().filter(|event| event.kind.is_output());
    let time = |read: &ReadStampRow| read.kernel_ns.unwrap_or(read.user_ns);
    output.map(|event| time(&attempt.reads[event.read as usize])).collect()
}

#[test]
fn arrivals_first_tokens_and_gaps_of_a_run_are_those_that_the_endpoint_saw() {
    let place = Place::new();
    place.small_timeline(40);
    let mock = place.mock(QUICK);
    let args =
        ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m", "--json"];
    let report = place.json(0, &args);
    mock.stop();
    let seen = witness(&place);
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    let (mut ttft_error, mut gap_error) = (Vec::new(), Vec::new());
    // Both clocks are one monotonic clock with different zeros: what is surely before what bounds the difference of the
    // zeros from both sides.
    let (mut least_shift, mut most_shift) = (i64::MIN, i64::MAX);
    let mut attempts = 0;
    for attempt in run.attempts().unwrap() {
        let attempt = attempt.unwrap();
        let log = &seen[attempt.request_id.as_deref().expect("the endpoint echoes the id")];
        let at = |field: &str| log[field].as_i64().unwrap_or_else(|| panic!("{field} of {log}"));
        let times: Vec<i64> =
            log["token_mono_ns"].as_array().unwrap().iter().map(|time| time.as_i64().unwrap()).collect();
        let outputs = output_times(&attempt);
        assert_eq!(outputs.len(), times.len(), "every token of the endpoint is an event of the run");
        assert_eq!(attempt.usage_output_tokens.map(i64::from), Some(at("completion_tokens")));
        assert_eq!(attempt.usage_input_tokens.map(i64::from), Some(at("prompt_tokens")));
        assert_eq!(attempt.usage_cached_tokens.map(i64::from), Some(at("cached_tokens")));
        // The request was released before the endpoint read it; its first and last tokens were made before they came.
        most_shift = most_shift.min(at("arrival_user_mono_ns") - attempt.released_ns.unwrap());
        least_shift = least_shift.max(at("first_token_model_mono_ns") - outputs[0]);
        least_shift = least_shift.max(at("last_token_model_mono_ns") - outputs[outputs.len() - 1]);
        let arrival =
            log["arrival_kernel_mono_ns"].as_i64().or(log["arrival_user_mono_ns"].as_i64()).unwrap();
        let ttft = outputs[0] - attempt.last_write_ns.unwrap();
        ttft_error.push((ttft - (times[0] - arrival)).abs());
        gap_error.extend(
            outputs.windows(2).zip(times.windows(2)).map(|(a, b)| ((a[1] - a[0]) - (b[1] - b[0])).abs()),
        );
        attempts += 1;
    }
    assert_eq!(attempts, 40);
    let slack = stamp_slack_ns(&run);
    assert!(
        least_shift <= most_shift + slack,
        "a stamp of the run is {} ns earlier than what it stamps could be",
        least_shift - most_shift
    );
    // Typical errors are tens of microseconds; the bounds leave room for a machine that does other things.
    assert!(middle(ttft_error.clone()) < 5_000_000, "median TTFT error {} ns", middle(ttft_error));
    assert!(middle(gap_error.clone()) < 2_000_000, "median gap error {} ns", middle(gap_error));
}

#[test]
fn no_request_reaches_the_endpoint_before_it_is_due_and_the_order_is_kept() {
    let place = Place::new();
    place.small_timeline(30);
    let mock = place.mock(QUICK);
    let args = [
        "replay",
        "t.parquet",
        "--target",
        &mock.url,
        "--protocol",
        "openai-completions",
        "--model",
        "m",
        "--json",
    ];
    let report = place.json(0, &args);
    mock.stop();
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    let mut last = i64::MIN;
    for request in run.requests().unwrap() {
        let request = request.unwrap();
        assert_eq!(request.due_ns, request.planned_ns);
        last = last.max(request.planned_ns);
    }
    for attempt in run.attempts().unwrap() {
        let attempt = attempt.unwrap();
        assert!(attempt.first_write_ns.unwrap() >= attempt.due_ns);
        assert!(attempt.released_ns.unwrap() >= attempt.due_ns);
        assert!(attempt.last_write_ns >= attempt.first_write_ns);
        assert!(attempt.headers_ns.unwrap() >= attempt.last_write_ns.unwrap());
    }
    assert!(last > 0);
}

const JSON_PAGE: &str = include_str!("../../../../docs/reference/json.md");

/// Objects whose keys are data.
const DATA: [&str; 10] = [
    "reasons",
    "definitions",
    "rejected_by_reason",
    "dropped_values",
    "arrival_meaning",
    "ttft_kinds",
    "time_forms",
    "status",
    "replay",
    "baseline",
];

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

#[test]
fn every_key_that_a_command_prints_stands_in_the_reference_and_each_document_has_its_version() {
    let place = Place::new();
    place.write("log.csv", "ts,in,out\n2026-01-01T00:00:00Z,10,5\nnever,1,1\n2026-01-01T00:00:01Z,11,6\n");
    let map = "arrival=ts,input_tokens=in,output_tokens=out";
    let ingested = place.json(20, &["ingest", "log.csv", "-o", "t.parquet", "--map", map, "--json"]);
    let trace = fixture("traces/mooncake_conversation_first200.jsonl");
    place.expect(0, &["ingest", trace.to_str().unwrap(), "-o", "shared.parquet"]);
    let mock = place.mock(QUICK);
    let base = ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
    let replayed = place.json(0, &[&base[..], &["--json"]].concat());
    let run = replayed["run_dir"].as_str().unwrap().to_owned();
    let inspected = place.json(0, &["inspect", &run, "--json"]);
    let documents = [
        ingested,
        place.json(0, &["inspect", "shared.parquet", "--json"]),
        place.json(0, &["compare", &run, "--with", "t.parquet", "--json"]),
        replayed.clone(),
        inspected.clone(),
    ];
    for document in &documents {
        assert!(document["schema"].as_str().is_some_and(|schema| schema.contains('.')), "{document}");
        let mut found = BTreeSet::new();
        keys(document, &mut found);
        let unknown: Vec<_> =
            found.into_iter().filter(|key| !JSON_PAGE.contains(&format!("`{key}`"))).collect();
        assert_eq!(unknown, Vec::<String>::new());
    }
    // The end of a replay and a later look at its run say the same.
    let Value::Object(mut of_process) = replayed else { panic!("an object") };
    of_process.remove("run_dir");
    of_process.remove("process");
    assert_eq!(Value::Object(of_process), inspected);
}
