//! Servers that close kept connections: no request is lost or doubled, and what was learned stands in the run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use tracewheel_record::Run;

use crate::harness::Place;

/// Quick, and it ends connections on its clients.
const CLOSING: &str = "[engine]\nstep_base_us = 500\nprefill_us_per_token = 1\n[http]\n";

/// A timeline of bursts: so many requests within two milliseconds, at each of these times.
fn bursts(place: &Place, at_ms: &[u64], requests: u64) {
    let mut lines = String::new();
    for (burst, at_ms) in at_ms.iter().enumerate() {
        for request in 0..requests {
            let at = 1_700_000_000.0 + (*at_ms as f64 + 2.0 * request as f64 / requests as f64) / 1e3;
            let (input, output) = (40 + burst, 3 + request % 4);
            let _ = writeln!(lines, "{{\"at\":{at:.6},\"in\":{input},\"out\":{output}}}");
        }
    }
    place.write("log.jsonl", &lines);
    let map = ["--map", "arrival=at,input_tokens=in,output_tokens=out"];
    place.expect(0, &[&["ingest", "log.jsonl", "--format", "jsonl", "-o", "t.parquet"], &map[..]].concat());
}

fn replay(place: &Place, target: &str, more: &[&str]) -> (Value, Run) {
    let base =
        ["replay", "t.parquet", "--target", target, "--protocol", "openai-chat", "--model", "m", "--json"];
    let report = place.json(0, &[&base[..], more].concat());
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    (report, run)
}

/// How often the endpoint met each request, by its own log.
fn witnessed(place: &Place) -> BTreeMap<String, u64> {
    let mut seen = BTreeMap::new();
    for line in std::fs::read_to_string(place.path("witness.jsonl")).unwrap().lines() {
        let attempt: Value = serde_json::from_str(line).unwrap();
        *seen.entry(attempt["request_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    seen
}

/// The manifest's count of attempts that were due before their connection stood, counted again.
fn connected_at_send(run: &Run) -> u64 {
    let attempts = run.attempts().unwrap().map(Result::unwrap);
    let late = attempts.filter(|attempt| {
        let ready_ns = attempt.tls_ns.or(attempt.connected_ns);
        ready_ns.is_some_and(|ready| ready > attempt.due_ns)
    });
    late.count() as u64
}

#[test]
fn gaps_as_long_as_the_idle_limit_lose_and_double_no_request() {
    let place = Place::new();
    // Gaps around two seconds, which is when the server closes.
    bursts(&place, &[0, 1_900, 3_900, 5_950, 7_900, 9_600, 11_600, 13_590], 20);
    let mock = place.mock(&format!("{CLOSING}idle_close_ms = 2000\n"));
    let (report, run) = replay(&place, &mock.url, &[]);
    mock.stop();
    assert_eq!(report["run"]["counts"]["ok"], 160, "{report}");
    assert_eq!(report["run"]["counts"]["reasons"], serde_json::json!({}));
    let seen = witnessed(&place);
    assert!(seen.len() == 160 && seen.values().all(|times| *times == 1), "each once: {seen:?}");
    let life = run.manifest().outcome.as_ref().unwrap().connections.clone().unwrap();
    assert_eq!(report["process"]["connection_life"], serde_json::to_value(&life).unwrap());
    let limit = life.idle_limit_ns.expect("the server closed idle connections");
    assert!((1_900_000_000..4_000_000_000).contains(&limit), "{life:?}");
    assert_eq!(run.manifest().policy.connections.idle_limit_ns, life.retire_after_ns);
    assert!(life.retire_after_ns.unwrap() < limit);
    assert!(life.opened >= 100 && life.closed_idle > 0, "none outlives a gap: {life:?}");
    assert_eq!(connected_at_send(&run), life.connected_at_send);
}

#[test]
fn a_server_that_ends_connections_with_an_answer_is_met_with_connections_that_stand_ready() {
    let place = Place::new();
    bursts(&place, &[0, 300, 600, 900, 1_200], 12);
    let mock = place.mock(&format!("{CLOSING}close_after_answers = 2\n"));
    let (report, run) = replay(&place, &mock.url, &["--spare-connections", "5"]);
    mock.stop();
    assert_eq!(report["run"]["counts"]["ok"], 60, "{report}");
    let seen = witnessed(&place);
    assert!(seen.len() == 60 && seen.values().all(|times| *times == 1));
    let manifest = run.manifest();
    assert_eq!(manifest.policy.connections.spares, Some(5));
    let life = manifest.outcome.as_ref().unwrap().connections.clone().unwrap();
    assert_eq!(report["process"]["connection_life"]["answers_limit_from"], "announced");
    assert_eq!(life.answers_limit, Some(2));
    assert_eq!(connected_at_send(&run), life.connected_at_send);
}

#[test]
fn each_request_has_a_connection_of_its_own_where_that_is_asked_for() {
    let place = Place::new();
    bursts(&place, &[0, 200, 400], 8);
    let mock = place.mock(CLOSING);
    let (report, run) = replay(&place, &mock.url, &["--connection-use", "per-request"]);
    mock.stop();
    assert_eq!(report["run"]["counts"]["ok"], 24, "{report}");
    let mut connections = Vec::new();
    for attempt in run.attempts().unwrap().map(Result::unwrap) {
        assert_eq!(attempt.connection_reused, Some(false));
        connections.push(attempt.connection.unwrap());
    }
    connections.sort_unstable();
    connections.dedup();
    assert_eq!(connections.len(), 24);
    assert_eq!(run.manifest().policy.connections.mode.as_deref(), Some("per-request"));
}

#[test]
fn a_cap_on_connections_is_kept_while_they_are_closed_and_made_again() {
    let place = Place::new();
    bursts(&place, &[0, 1_500, 3_000], 12);
    let mock = place.mock(&format!("{CLOSING}idle_close_ms = 1400\n"));
    let (report, run) = replay(&place, &mock.url, &["--connections", "2", "--spare-connections", "9"]);
    mock.stop();
    assert_eq!(report["run"]["counts"]["ok"], 36, "{report}");
    assert!(witnessed(&place).values().all(|times| *times == 1));
    assert_eq!(run.manifest().policy.connections.limit, Some(2));
    // A connection carries one request at a time: of those under way, no more than two.
    let spans = run
        .attempts()
        .unwrap()
        .map(Result::unwrap)
        .map(|one| (one.first_write_ns.unwrap(), one.end_ns.unwrap()));
    let spans: Vec<_> = spans.collect();
    for (begun, _) in &spans {
        let at_once = spans.iter().filter(|(from, to)| from <= begun && begun < to).count();
        assert!(at_once <= 2, "{at_once} at {begun}");
    }
}

#[test]
fn a_word_that_is_no_way_to_use_connections_is_told_with_those_that_are() {
    let place = Place::new();
    let told = place.fails(2, &["replay", "t.parquet", "--connection-use", "per-requst"]);
    assert!(told.contains("per-request") && told.contains("reuse"), "{told}");
}
