//! What the run says agrees with what the endpoint itself saw: arrivals, tokens and their times.

use std::collections::HashMap;

use serde_json::Value;
use tracewheel_record::Run;

use crate::harness::{Place, QUICK};

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
    let mut attempts = 0;
    for attempt in run.attempts().unwrap() {
        let attempt = attempt.unwrap();
        let log = &seen[attempt.request_id.as_deref().expect("the endpoint echoes the id")];
        let times: Vec<i64> =
            log["token_mono_ns"].as_array().unwrap().iter().map(|time| time.as_i64().unwrap()).collect();
        let outputs: Vec<i64> = attempt
            .events
            .iter()
            .filter(|event| event.kind.is_output())
            .map(|event| {
                let read = &attempt.reads[event.read as usize];
                read.kernel_ns.unwrap_or(read.user_ns)
            })
            .collect();
        assert_eq!(outputs.len(), times.len(), "every token of the endpoint is an event of the run");
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
