//! The server on a real clock does what the engine does in virtual time.

use serde_json::Value;
use tracewheel_clock::{RunNs, blocking};
use tracewheel_mock::MockConfig;
use tracewheel_mock::engine::{EmissionKind, Engine, EngineRequest, Ticket};

use crate::client::{Client, stream_body};
use crate::{fast, start};

const MS: i64 = 1_000_000;
/// Arrivals (ms), prompt tokens, output tokens: two waves that share steps.
const ROWS: [(i64, u32, u32); 12] = [
    (0, 400, 60),
    (3, 900, 40),
    (11, 2500, 30),
    (12, 50, 80),
    (40, 700, 20),
    (41, 700, 20),
    (300, 100, 50),
    (301, 3000, 10),
    (302, 100, 50),
    (330, 640, 30),
    (350, 16, 90),
    (600, 1000, 25),
];

fn config() -> MockConfig {
    let mut config = fast();
    config.engine.step_base_us = 6_000;
    config.engine.decode_us_per_sequence = 100;
    config.engine.prefill_us_per_token = 20;
    config.cache.enabled = false;
    config.engine.jitter_percent = 5;
    config
}

/// First and last token of each request, by the model, when it is fed the arrivals that a run had.
fn in_virtual_time(arrivals: &[(i64, usize)]) -> Vec<[i64; 2]> {
    let mut engine = Engine::new(&config());
    let mut out = Vec::new();
    for (at_ns, row) in arrivals {
        engine.advance(RunNs(at_ns - 1), &mut out);
        let (_, prompt_tokens, output_tokens) = ROWS[*row];
        let ticket = Ticket(*row as u64);
        let blocks = Vec::new();
        let request =
            EngineRequest { ticket, key: 0, prompt_tokens, blocks, output_tokens, output_cap: output_tokens };
        engine.submit(RunNs(*at_ns), request).unwrap();
    }
    while let Some(at) = engine.next_event() {
        engine.advance(at, &mut out);
    }
    let mut times = vec![[0; 2]; ROWS.len()];
    for emission in out {
        if let EmissionKind::Token { index, last } = emission.kind {
            let pair = &mut times[emission.ticket.0 as usize];
            pair[0] = if index == 0 { emission.at.0 } else { pair[0] };
            pair[1] = if last { emission.at.0 } else { pair[1] };
        }
    }
    times
}

fn witnessed() -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("witness.jsonl");
    let mock = start(MockConfig { witness_log: Some(path.clone()), ..config() });
    let addr = mock.local_addr();
    std::thread::scope(|scope| {
        for (row, (at_ms, prompt, output)) in ROWS.into_iter().enumerate() {
            scope.spawn(move || {
                let mut client = Client::connect(addr);
                blocking::sleep(at_ms * MS);
                let id = row.to_string();
                let body = stream_body("w", prompt, output);
                client.call("POST", "/v1/chat/completions", &[("x-request-id", &id)], &body);
            });
        }
    });
    mock.shutdown().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_real_run_is_what_virtual_time_makes_of_its_arrivals() {
    let lines = witnessed();
    assert_eq!(lines.len(), ROWS.len());
    let row = |line: &Value| line["request_id"].as_str().unwrap().parse::<usize>().unwrap();
    let ns = |line: &Value, field: &str| line[field].as_i64().unwrap();
    let mut arrivals: Vec<(i64, usize)> =
        lines.iter().map(|line| (ns(line, "arrival_kernel_mono_ns"), row(line))).collect();
    arrivals.sort_unstable();
    let virtually = in_virtual_time(&arrivals);
    let mut off_ns: Vec<i64> = lines
        .iter()
        .flat_map(|line| {
            let [first, last] = virtually[row(line)];
            [ns(line, "first_token_model_mono_ns") - first, ns(line, "last_token_model_mono_ns") - last]
        })
        .map(i64::abs)
        .collect();
    off_ns.sort_unstable();
    println!("model times off from virtual time, ns: {off_ns:?}");
    // Equal to the nanosecond unless the server saw an arrival only after the step that it should have entered; on a
    // machine that does other things at the time that costs some requests a few steps.
    assert!(off_ns[off_ns.len() / 2] < 20 * MS, "{off_ns:?}");
}
