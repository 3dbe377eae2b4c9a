//! Whole replays against a hand-written server.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use std::collections::BTreeMap;

use bench::{Bench, MS};
use server::{Reply, Server};
use tracewheel_replay::{ReplayConfig, ReplayEvent, Secret};
use tracewheel_timeline::{EventKind, RequestStatus, Source};

fn config(server: &Server) -> ReplayConfig {
    ReplayConfig { target: server.url(), ..ReplayConfig::default() }
}

#[test]
fn a_plan_is_sent_answered_and_recorded() {
    let server = Server::start(|heard| Reply::Stream { chunks: heard.max_tokens(), gap_us: 500 });
    let bench = Bench::even(50, 4 * MS);
    let finished = bench.run(&config(&server));
    let report = &finished.report;
    assert_eq!((report.counts.planned, report.counts.ok), (50, 50));
    assert_eq!((report.attempts, report.retries), (50, 0));
    assert!(report.lateness.count == 50 && report.ttft.count == 50);
    let heard = server.heard();
    assert_eq!(heard.len(), 50);
    for row in 0..50 {
        let request = finished.request(row);
        let id = finished.id(&bench, row);
        assert_eq!(heard.iter().filter(|heard| heard.id == id).count(), 1);
        assert_eq!(request.strata.model_served.as_deref(), Some("served"));
        assert_eq!((request.input_tokens, request.input_tokens_source), (Some(9), Some(Source::Reported)));
        assert_eq!((request.cached_tokens, request.output_tokens), (Some(3), Some(4)));
        let attempt = finished.attempts_of(request)[0];
        let output: Vec<_> = attempt.events.iter().filter(|event| event.kind == EventKind::Text).collect();
        assert_eq!(output.len(), 4);
        assert!(output.windows(2).all(|pair| pair[0].read <= pair[1].read));
        assert!(request.first_output_ns <= request.last_output_ns);
        assert!(request.last_output_ns <= request.end_ns);
    }
}

#[test]
fn requests_arrive_in_planned_order_at_their_time_and_never_early() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let bench = Bench::even(200, 5 * MS);
    let finished = bench.run(&config(&server));
    let manifest = finished.run.manifest();
    let zero = manifest.clock.start_unix_ns;
    let arrivals: BTreeMap<String, i64> =
        server.heard().into_iter().map(|heard| (heard.id, heard.at_unix_ns)).collect();
    let mut previous = i64::MIN;
    for row in 0..200 {
        let request = finished.request(row);
        assert_eq!(request.planned_ns, finished.request(0).planned_ns + row as i64 * 5 * MS);
        let arrived = arrivals[&finished.id(&bench, row)] - zero;
        let uncertainty =
            manifest.clock.bracket_max_ns.unwrap() + manifest.clock.drift_ns.unwrap().abs() + 1_000;
        assert!(
            arrived >= request.planned_ns - uncertainty,
            "row {row} came {} ns early",
            request.planned_ns - arrived
        );
        assert!(arrived >= previous, "row {row} came before its predecessor");
        previous = arrived;
    }
}

#[test]
fn headers_carry_identity_and_key_and_the_key_stands_nowhere_else() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let bench = Bench::even(3, MS);
    let finished = bench.run(&ReplayConfig {
        secret: Some(Secret::new("sk-very-secret")),
        headers: vec![("x-team".to_owned(), "blue".to_owned())],
        ..config(&server)
    });
    for heard in server.heard() {
        assert_eq!(heard.header("authorization"), Some("Bearer sk-very-secret"));
        assert_eq!(heard.header("accept-encoding"), Some("identity"));
        assert_eq!(heard.header("x-team"), Some("blue"));
        assert!(heard.header("user-agent").unwrap().starts_with("tracewheel/"));
        assert_eq!(heard.header("x-stainless-retry-count"), None);
        assert!(heard.head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{}", heard.head);
    }
    let mut files = vec![finished.report.run_dir.clone()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(11).any(|window| window == b"very-secret"), "{}", path.display());
        }
    }
}

#[test]
fn the_manifest_publishes_the_environment() {
    let server = Server::start(|_| Reply::Stream { chunks: 2, gap_us: 0 });
    let bench = Bench::even(20, MS);
    let finished =
        bench.run(&ReplayConfig { nonce: Some(7), owner: Some("me".to_owned()), ..config(&server) });
    let manifest = finished.run.manifest();
    assert_eq!(manifest.target.url, server.url());
    assert_eq!(manifest.target.resolved_addresses, [server.addr.to_string()]);
    assert_eq!(manifest.target.server_header.as_deref(), Some("scripted"));
    assert_eq!(manifest.target.models_asked, ["asked"]);
    assert_eq!(manifest.target.models_served, ["served"]);
    assert_eq!(manifest.target.system_fingerprints, ["fp"]);
    assert_eq!(manifest.plan.nonce, Some(7));
    assert_eq!(manifest.plan.mode.as_deref(), Some("open"));
    assert_eq!(manifest.policy.retry.as_deref(), Some("none"));
    assert_eq!(manifest.cache.reported_by, Some(20));
    assert!(manifest.cache.measured_share.is_some_and(|share| (share - 1.0 / 3.0).abs() < 1e-9));
    assert!(manifest.machine.kernel.is_some() && manifest.machine.kernel_stamps.is_some());
    assert!(manifest.vantage.round_trip_min_ns.is_some_and(|ns| ns > 0));
    let outcome = manifest.outcome.as_ref().unwrap();
    assert_eq!(outcome.lateness.unwrap().count, 20);
    assert!(outcome.achieved_per_second.is_some() && outcome.in_flight.is_some());
    assert!(finished.run.health().unwrap().count() >= 1);
}

#[test]
fn events_begin_with_the_start_and_end_with_the_report() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let bench = Bench::even(100, 5 * MS);
    let finished = bench.run(&config(&server));
    let events = &finished.events;
    assert!(matches!(&events[0], ReplayEvent::Started(started) if started.planned == 100));
    assert!(matches!(events.last(), Some(ReplayEvent::Finished(report)) if report.counts.ok == 100));
    let ticks: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            ReplayEvent::Tick(tick) => Some(tick),
            _ => None,
        })
        .collect();
    assert!(ticks.len() >= 2);
    assert!(ticks.windows(2).all(|pair| pair[0].sent <= pair[1].sent));
    assert!(ticks.iter().any(|tick| tick.late_p99_ns.is_some() && tick.ttft_p95_ns.is_some()));
}

#[test]
fn connections_are_kept_and_used_again() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    // One at a time: however slow the machine is, a connection is idle when the next request wants one.
    let one_by_one = ReplayConfig { warm_connections: Some(3), closed_loop: Some(1), ..config(&server) };
    let finished = Bench::even(100, 5 * MS).run(&one_by_one);
    let used = finished
        .attempts
        .iter()
        .filter_map(|attempt| attempt.connection)
        .collect::<std::collections::BTreeSet<_>>();
    assert!(used.len() <= 3, "{} connections for 100 requests", used.len());
    assert!(finished.attempts.iter().filter(|attempt| attempt.connection_reused == Some(true)).count() > 80);
}

#[test]
fn plain_answers_are_read_too() {
    let body = r#"{"id":"c","model":"served","choices":[{"index":0,"message":{"role":"assistant","content":"all at once"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
    let server = Server::start(move |_| Reply::Status(200, "", body));
    let finished = Bench::new(&[0, MS], |_, row| row.stream = Some(false)).run(&config(&server));
    for request in &finished.requests {
        assert_eq!(request.status, RequestStatus::Ok);
        assert_eq!((request.output_tokens, request.first_output_ns), (Some(3), request.last_output_ns));
    }
    assert!(server.heard().iter().all(|heard| !heard.body.contains("\"stream\":true")));
}
