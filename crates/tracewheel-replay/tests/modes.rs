//! Closed loop, cache modes, look-ahead, workers, and the recorder that falls behind.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use std::collections::BTreeSet;

use bench::{Bench, MS};
use server::{Reply, Server};
use tracewheel_record::Run;
use tracewheel_record::manifest::EndedBy;
use tracewheel_replay::{CacheMode, LookAhead, RecorderQueue, ReplayConfig, ReplayError, StopSignal};
use tracewheel_timeline::{Phase, RequestStatus};

fn config(server: &Server) -> ReplayConfig {
    ReplayConfig { target: server.url(), ..ReplayConfig::default() }
}

fn prompt(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[test]
fn a_closed_loop_keeps_so_many_under_way_and_says_so() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 10_000 });
    let bench = Bench::even(40, 100_000 * MS);
    let finished = bench.run(&ReplayConfig { closed_loop: Some(4), ..config(&server) });
    assert_eq!(finished.report.counts.ok, 40);
    let mut spans: Vec<(i64, i32)> = Vec::new();
    for request in &finished.requests {
        let attempt = finished.attempts_of(request)[0];
        assert_eq!(attempt.due_ns, request.due_ns, "due is the release itself");
        assert!(attempt.released_ns.unwrap() - attempt.due_ns < MS);
        assert_eq!(request.planned_ns, finished.request(0).planned_ns + request.row as i64 * 100_000 * MS);
        spans.extend([(attempt.released_ns.unwrap(), 1), (request.end_ns.unwrap(), -1)]);
    }
    spans.sort_unstable();
    let mut under_way = 0;
    let most = spans.iter().map(|(_, step)| {
        under_way += step;
        under_way
    });
    assert_eq!(most.max(), Some(4));
    let manifest = finished.run.manifest();
    assert_eq!(manifest.plan.mode.as_deref(), Some("closed:4"));
    assert!(manifest.warnings.iter().any(|warning| warning.contains("closed loop of 4")));
}

#[test]
fn a_natural_run_shares_what_the_trace_shares_and_a_cold_one_nothing() {
    for (cache, shared) in [(CacheMode::Natural, true), (CacheMode::Cold, false)] {
        let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
        let bench = Bench::new(&[0, MS, 2 * MS], |_, row| {
            row.prefix_hashes = Some(vec![11, 22]);
            row.prefix_block_tokens = Some(vec![100, 100]);
            row.input_tokens = Some(210);
        });
        let finished = bench.run(&ReplayConfig { cache, ..config(&server) });
        assert_eq!(finished.report.counts.ok, 3);
        let prompts: Vec<String> = server.heard().iter().map(|heard| prompt(&heard.body)).collect();
        let beginnings: BTreeSet<&str> = prompts.iter().map(|prompt| &prompt[..60]).collect();
        assert_eq!(beginnings.len(), if shared { 1 } else { 3 });
        let whole: BTreeSet<&String> = prompts.iter().collect();
        assert_eq!(whole.len(), 3, "the tails differ in any case");
    }
}

#[test]
fn a_warm_run_sends_every_prompt_ahead_and_counts_it_apart() {
    let server = Server::start(|heard| Reply::Stream { chunks: heard.max_tokens().min(2), gap_us: 0 });
    let bench = Bench::even(12, 2 * MS);
    let finished = bench.run(&ReplayConfig { cache: CacheMode::Warm, ..config(&server) });
    assert_eq!(
        (finished.report.counts.planned, finished.report.counts.ok, finished.report.primed),
        (12, 12, 12)
    );
    let primes: Vec<_> = finished.requests.iter().filter(|request| request.phase == Phase::Prime).collect();
    assert_eq!(primes.len(), 12);
    assert!(primes.iter().all(|prime| prime.copy != 0 && prime.status == RequestStatus::Ok));
    let first_measured =
        finished.requests.iter().filter(|r| r.phase == Phase::Measure).map(|r| r.due_ns).min();
    assert!(
        primes.iter().all(|prime| prime.end_ns < first_measured),
        "before the measured phase's time zero"
    );
    assert_eq!(finished.report.attempts, 12, "priming is no part of the figures");
    let heard = server.heard();
    let (ahead, measured): (Vec<_>, Vec<_>) = heard.iter().partition(|heard| heard.max_tokens() == 1);
    assert_eq!((ahead.len(), measured.len()), (12, 12));
    let warmed: BTreeSet<String> = ahead.iter().map(|heard| prompt(&heard.body)).collect();
    assert!(measured.iter().all(|heard| warmed.contains(&prompt(&heard.body))));
}

#[test]
fn two_runs_of_one_plan_differ_by_their_nonce_alone() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let bench = Bench::even(5, MS);
    let mut bodies = Vec::new();
    for nonce in [1, 1, 2] {
        let before = server.heard().len();
        bench.run(&ReplayConfig { nonce: Some(nonce), ..config(&server) });
        let mut run: Vec<_> =
            server.heard().split_off(before).into_iter().map(|heard| (heard.id, heard.body)).collect();
        run.sort();
        bodies.push(run);
    }
    assert_eq!(bodies[0], bodies[1]);
    let ids = |run: &[(String, String)]| run.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&bodies[0]), ids(&bodies[2]));
    assert!(bodies[0].iter().zip(&bodies[2]).all(|(one, other)| one.1 != other.1));
}

#[test]
fn a_narrow_look_ahead_loses_nothing() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let bench = Bench::even(200, MS);
    for look_ahead in [LookAhead { requests: 1, bytes: 1 << 20 }, LookAhead { requests: 1_000, bytes: 400 }] {
        let finished = bench.run(&ReplayConfig { look_ahead, ..config(&server) });
        assert_eq!(finished.report.counts.ok, 200);
    }
}

#[test]
fn several_workers_share_the_plan() {
    let server = Server::start(|_| Reply::Stream { chunks: 2, gap_us: 1_000 });
    let finished = Bench::even(90, 2 * MS).run(&ReplayConfig { workers: Some(3), ..config(&server) });
    assert_eq!(finished.report.counts.ok, 90);
    assert_eq!(finished.run.manifest().machine.workers, Some(3));
}

#[test]
fn a_limit_on_connections_makes_requests_wait_and_loses_none() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 20_000 });
    let bench = Bench::even(20, MS);
    let finished = bench.run(&ReplayConfig { max_connections: Some(2), ..config(&server) });
    assert_eq!(finished.report.counts.ok, 20);
    let connections: BTreeSet<usize> = server.heard().iter().map(|heard| heard.connection).collect();
    assert!(connections.len() <= 2, "{connections:?}");
    assert!(finished.report.lateness.max_ns.unwrap() > 50 * MS, "the wait shows as lateness");
    let mut written: Vec<_> =
        finished.attempts.iter().map(|attempt| (attempt.first_write_ns, attempt.row)).collect();
    written.sort();
    assert!(written.windows(2).all(|pair| pair[0].1 < pair[1].1), "first come, first served: {written:?}");
}

#[test]
fn a_recorder_that_falls_behind_ends_the_run_and_keeps_it() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let bench = Bench::even(300, MS / 5);
    let recorder_queue = RecorderQueue { messages: 1, bytes: 1 << 20 };
    let error = bench.try_run(&ReplayConfig { recorder_queue, ..config(&server) }, &StopSignal::new()).err();
    let Some(ReplayError::RecorderBehind { run_dir, .. }) = error else { panic!("{error:?}") };
    let run = Run::open(&run_dir).unwrap();
    let outcome = run.manifest().outcome.as_ref().unwrap();
    assert!(run.is_closed());
    assert_eq!((outcome.ended_by, outcome.counts.total()), (EndedBy::Recorder, 300));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    let server = Server::start(|_| Reply::Hang);
    let bench = Bench::new(&[0], |_, row| row.model = None);
    let wrong = [
        ("provider", ReplayConfig { provider: "telepathy".to_owned(), ..config(&server) }),
        ("model", config(&server)),
        ("closed_loop", ReplayConfig { closed_loop: Some(0), ..config(&server) }),
        (
            "headers",
            ReplayConfig { headers: vec![("Authorization".to_owned(), "x".to_owned())], ..config(&server) },
        ),
    ];
    for (expected, config) in wrong {
        let config =
            ReplayConfig { model: config.model.or((expected != "model").then(|| "m".to_owned())), ..config };
        match bench.try_run(&config, &StopSignal::new()) {
            Err(ReplayError::Config { option, .. }) => assert_eq!(option, expected),
            other => panic!("{expected}: {:?}", other.map(|finished| finished.report)),
        }
    }
    let ftp =
        ReplayConfig { target: "ftp://127.0.0.1".to_owned(), model: Some("m".to_owned()), ..config(&server) };
    assert!(matches!(bench.try_run(&ftp, &StopSignal::new()), Err(ReplayError::Target { .. })));
    assert!(server.heard().is_empty() && !bench.runs().exists());
}
