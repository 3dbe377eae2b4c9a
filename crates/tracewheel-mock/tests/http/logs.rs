use std::path::Path;

use serde_json::Value;
use tracewheel_mock::{MockConfig, MockSummary};

use crate::client::{Client, chat_body, stream_body};
use crate::{fast, some, start};

struct Logs {
    witness: Vec<Value>,
    gateway: Vec<Value>,
    summary: MockSummary,
}

/// Runs something against a mock and reads its logs.
fn logged(config: MockConfig, run: impl FnOnce(&tracewheel_mock::Mock)) -> Logs {
    let dir = tempfile::tempdir().unwrap();
    let (witness, gateway) = (dir.path().join("witness.jsonl"), dir.path().join("gateway.jsonl"));
    let mock = start(MockConfig {
        witness_log: Some(witness.clone()),
        gateway_log: Some(gateway.clone()),
        ..config
    });
    run(&mock);
    let summary = mock.shutdown().unwrap();
    Logs { witness: lines(&witness), gateway: lines(&gateway), summary }
}

fn lines(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ns(line: &Value, field: &str) -> i64 {
    line[field].as_i64().unwrap_or_else(|| panic!("{field} in {line}"))
}

#[test]
fn the_witness_has_every_stamp_in_order_and_the_models_times_exactly() {
    let logs = logged(fast(), |mock| {
        let mut client = Client::connect(mock.local_addr());
        let headers = [("x-request-id", "r-7"), ("x-stainless-retry-count", "2")];
        client.call("POST", "/v1/chat/completions", &headers, &stream_body("hi", 50, 4));
    });
    let [line] = logs.witness.as_slice() else { panic!("{:?}", logs.witness) };
    assert_eq!((&line["request_id"], &line["retry_count"]), (&"r-7".into(), &2.into()));
    assert_eq!((&line["status"], &line["client_gone"]), (&200.into(), &false.into()));
    assert_eq!((&line["prompt_tokens"], &line["completion_tokens"]), (&50.into(), &4.into()));
    let arrival = ns(line, "arrival_kernel_mono_ns");
    // An idle engine starts at the kernel's stamp: 2 ms + 50 × 1 µs to the first token, then 2.02 ms each.
    assert_eq!(ns(line, "admitted_mono_ns"), arrival);
    assert_eq!(ns(line, "first_token_model_mono_ns") - arrival, 2_050_000);
    assert_eq!(ns(line, "last_token_model_mono_ns") - arrival, 2_050_000 + 3 * 2_020_000);
    let tokens: Vec<i64> =
        line["token_mono_ns"].as_array().unwrap().iter().map(|at| at.as_i64().unwrap()).collect();
    assert_eq!(tokens.len(), 4);
    assert!(tokens.is_sorted() && tokens[0] >= ns(line, "first_token_model_mono_ns"));
    assert!(ns(line, "first_chunk_mono_ns") <= tokens[0] && tokens[3] <= ns(line, "end_mono_ns"));
    assert!(ns(line, "arrival_user_mono_ns") >= arrival);
    // Wall and monotonic stamps tell the same durations, to the sampling error of their offset.
    let wall = ns(line, "end_unix_ns") - ns(line, "arrival_kernel_unix_ns");
    let mono = ns(line, "end_mono_ns") - arrival;
    assert!((wall - mono).abs() < 1_000_000, "{wall} {mono}");
}

#[test]
fn a_gateway_line_is_what_an_access_log_has() {
    let logs = logged(fast(), |mock| {
        let mut client = Client::connect(mock.local_addr());
        client.call("POST", "/v1/chat/completions", &[("x-request-id", "a")], &stream_body("hi", 50, 4));
        client.call("POST", "/v1/chat/completions", &[("x-request-id", "b")], &chat_body("hi", 50, 4, ""));
        client.call("GET", "/v1/models", &[], "");
    });
    assert_eq!((logs.witness.len(), logs.gateway.len()), (3, 2));
    let streamed = &logs.gateway[0];
    let fields: Vec<&str> = streamed.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "ts",
        "request_id",
        "retry_count",
        "model",
        "stream",
        "status",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "ttft_ms",
        "duration_ms",
    ];
    expected.sort_unstable();
    assert_eq!(fields, expected);
    let witness = &logs.witness[0];
    let arrival = ns(witness, "arrival_kernel_mono_ns");
    let first = witness["token_mono_ns"][0].as_i64().unwrap();
    let expected_ms = (first - arrival) as f64 / 1e6;
    assert!((streamed["ttft_ms"].as_f64().unwrap() - expected_ms).abs() < 0.001);
    assert!(streamed["duration_ms"].as_f64().unwrap() >= 2.05 + 3.0 * 2.02);
    let ts = streamed["ts"].as_str().unwrap();
    assert!(ts.ends_with('Z') && ts.len() == "2026-01-01T00:00:00.000000000Z".len(), "{ts}");
    let whole = &logs.gateway[1];
    assert_eq!((&whole["stream"], &whole["ttft_ms"]), (&false.into(), &Value::Null));
    assert_eq!((&whole["cached_tokens"], &whole["completion_tokens"]), (&48.into(), &4.into()));
}

#[test]
fn each_attempt_of_a_retried_request_has_its_line() {
    let mut config = fast();
    config.limits.requests_per_minute = some(600);
    config.limits.request_burst = some(1);
    let logs = logged(config, |mock| {
        let mut client = Client::connect(mock.local_addr());
        let mut call = |id: &str, retry: &str| {
            let headers = [("x-request-id", id), ("x-stainless-retry-count", retry)];
            client.call("POST", "/v1/chat/completions", &headers, &stream_body("hi", 10, 2))
        };
        assert_eq!(call("first", "0").status, 200);
        let refused = call("second", "0");
        let wait_ms: i64 = refused.headers["retry-after-ms"].parse().unwrap();
        tracewheel_clock::blocking::sleep(wait_ms * 1_000_000);
        assert_eq!(call("second", "1").status, 200);
    });
    let seen: Vec<(&str, i64, i64)> = logs
        .gateway
        .iter()
        .map(|line| (line["request_id"].as_str().unwrap(), ns(line, "retry_count"), ns(line, "status")))
        .collect();
    assert_eq!(seen, [("first", 0, 200), ("second", 0, 429), ("second", 1, 200)]);
    assert_eq!(logs.gateway[1]["ttft_ms"], Value::Null);
    assert_eq!(logs.gateway[1]["completion_tokens"], Value::Null);
    assert_eq!(logs.summary.engine.rate_limited, 1);
}

#[test]
fn a_client_that_left_is_told_from_one_that_stayed() {
    let logs = logged(fast(), |mock| {
        let mut client = Client::connect(mock.local_addr());
        client.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 100_000));
        client.head();
        for _ in 0..4 {
            client.chunk();
        }
        drop(client);
        let mut waiting = Client::connect(mock.local_addr());
        waiting.send("POST", "/v1/chat/completions", &[], &chat_body("x", 5, 100_000, ""));
        tracewheel_clock::blocking::sleep(30_000_000);
        drop(waiting);
        assert_eq!(Client::connect(mock.local_addr()).call("GET", "/health", &[], "").status, 200);
    });
    let gone: Vec<&Value> = logs.witness.iter().map(|line| &line["client_gone"]).collect();
    assert_eq!(gone, [&Value::from(true), &true.into(), &false.into()]);
    let tokens = logs.witness[0]["token_mono_ns"].as_array().unwrap().len();
    assert!((3..1_000).contains(&tokens), "{tokens}");
    let status: Vec<i64> = logs.gateway.iter().map(|line| ns(line, "status")).collect();
    assert_eq!(status, [200, 499], "the second left before there was a head");
}

#[test]
fn what_is_under_way_at_the_end_is_logged() {
    let mut open = Vec::new();
    let logs = logged(fast(), |mock| {
        let mut client = Client::connect(mock.local_addr());
        client.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 100_000));
        client.head();
        client.chunk();
        open.push(client);
    });
    assert_eq!(logs.witness.len(), 1);
    let line = &logs.witness[0];
    assert_eq!((&line["client_gone"], &line["server_stopped"]), (&false.into(), &true.into()));
    assert!(open[0].is_closed());
}

#[test]
fn no_key_and_no_prompt_is_in_any_log() {
    let dir = tempfile::tempdir().unwrap();
    let paths = [dir.path().join("w"), dir.path().join("g")];
    let mock = start(MockConfig {
        witness_log: Some(paths[0].clone()),
        gateway_log: Some(paths[1].clone()),
        ..fast()
    });
    let headers = [("authorization", "Bearer secret-key-1")];
    let body = stream_body("canaryword", 5, 2);
    Client::connect(mock.local_addr()).call("POST", "/v1/chat/completions", &headers, &body);
    mock.shutdown().unwrap();
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        assert!(!text.is_empty() && !text.contains("secret-key") && !text.contains("canaryword"));
    }
}
