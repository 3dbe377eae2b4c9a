use tracewheel_clock::{Clock, RunClock};
use tracewheel_mock::MockConfig;

use crate::client::{Client, stream_body};
use crate::{fast, start};

/// Streams at once, tokens each.
const STREAMS: u32 = 30;
const TOKENS: u32 = 100;

/// How late after the model's time the kernel had each stream's first and last token, nanoseconds, sorted.
fn lags() -> Vec<i64> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("witness.jsonl");
    let mut config = fast();
    config.engine.step_base_us = 8_000;
    config.engine.decode_us_per_sequence = 50;
    let mock = start(MockConfig { witness_log: Some(path.clone()), ..config });
    let addr = mock.local_addr();
    std::thread::scope(|scope| {
        for n in 1..=STREAMS {
            scope.spawn(move || Client::connect(addr).chat(&stream_body("w", n * 20, TOKENS)));
        }
    });
    mock.shutdown().unwrap();
    let mut lags = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let tokens = line["token_mono_ns"].as_array().unwrap();
        let model = |field: &str| line[field].as_i64().unwrap();
        lags.push(tokens[0].as_i64().unwrap() - model("first_token_model_mono_ns"));
        lags.push(tokens[tokens.len() - 1].as_i64().unwrap() - model("last_token_model_mono_ns"));
    }
    lags.sort_unstable();
    lags
}

#[test]
fn tokens_reach_the_kernel_never_before_the_models_time() {
    let lags = lags();
    assert_eq!(lags.len(), 2 * STREAMS as usize);
    assert!(lags[0] >= 0, "never early: {}", lags[0]);
}

#[test]
#[ignore = "prints how late tokens are written; run it alone"]
fn print_the_lags() {
    let lags = lags();
    let at = |percent: usize| lags[(lags.len() * percent).div_ceil(100) - 1] / 1000;
    println!(
        "first and last tokens of {STREAMS} streams: p50 {} µs, p90 {} µs, p99 {} µs",
        at(50),
        at(90),
        at(99)
    );
}

#[test]
#[ignore = "prints how much the server can do; run it alone, on an idle machine, built with --release"]
fn print_the_throughput() {
    let mut config = fast();
    config.engine.step_base_us = 1;
    config.engine.decode_us_per_sequence = 0;
    config.engine.prefill_us_per_token = 0;
    let mock = start(config);
    let addr = mock.local_addr();
    let clock = RunClock::start();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let mut client = Client::connect(addr);
                while clock.now().0 < 3_000_000_000 {
                    client.send("POST", "/v1/chat/completions", &[], &stream_body("w", 20, TOKENS));
                    client.skip_stream();
                }
            });
        }
    });
    let seconds = clock.now().0 as f64 / 1e9;
    let engine = mock.shutdown().unwrap().engine;
    println!(
        "{:.0} streams/s, {:.0} chunks/s",
        engine.finished as f64 / seconds,
        engine.output_tokens as f64 / seconds
    );
}
