//! Several targets in one run: what they share, and what one of them does not do to the others.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use bench::{Bench, MS};
use server::{Reply, Server};
use tracewheel_replay::{Criteria, Pattern, ReplayConfig, Route};
use tracewheel_timeline::{Reason, RequestStatus};

fn streaming() -> Server {
    Server::start(|_| Reply::Stream { chunks: 2, gap_us: 300 })
}

/// Requests `gap_ns` apart, every tenth of the model `rare` and the others of `busy`.
fn mostly_busy(count: usize, gap_ns: i64) -> Bench {
    let offsets: Vec<i64> = (0..count as i64).map(|number| number * gap_ns).collect();
    Bench::new(&offsets, |number, row| {
        row.model = Some(if number % 10 == 5 { "rare" } else { "busy" }.into());
    })
}

fn two(busy: String, rare: String) -> ReplayConfig {
    let route = |name: &str, target| Route {
        name: name.to_owned(),
        target,
        provider: "openai-chat".to_owned(),
        takes: Criteria { models: vec![Pattern::new(name)], ..Criteria::default() },
        ..Route::default()
    };
    ReplayConfig {
        routes: vec![route("busy", busy), route("rare", rare)],
        workers: Some(1),
        request_timeout_ns: 60_000 * MS,
        ..ReplayConfig::default()
    }
}

#[test]
fn one_connection_for_two_targets_serves_them_in_the_order_in_which_requests_are_due() {
    let (busy, rare) = (streaming(), streaming());
    // Each takes longer than the next one's distance: a queue builds up, most of it for one target.
    let bench = mostly_busy(60, MS / 10);
    let finished = bench.run(&ReplayConfig { max_connections: Some(1), ..two(busy.url(), rare.url()) });
    assert_eq!(finished.report.counts.ok, 60);
    assert_eq!((busy.heard().len(), rare.heard().len()), (54, 6));
    let mut sent: Vec<(i64, u64)> =
        finished.attempts.iter().map(|attempt| (attempt.first_write_ns.unwrap(), attempt.row)).collect();
    sent.sort_unstable();
    let rows: Vec<u64> = sent.into_iter().map(|(_, row)| row).collect();
    assert_eq!(rows, (0..60).collect::<Vec<_>>());
    let outcome = finished.run.manifest().outcome.clone().unwrap();
    assert!(
        outcome.connections.unwrap().opened >= 12,
        "to the other target and back, each time one of its requests was due"
    );
}

#[test]
fn a_closed_loop_of_one_goes_from_target_to_target() {
    let (busy, rare) = (streaming(), streaming());
    let bench = mostly_busy(30, MS);
    let finished = bench.run(&ReplayConfig { closed_loop: Some(1), ..two(busy.url(), rare.url()) });
    assert_eq!(finished.report.counts.ok, 30);
    assert_eq!((busy.heard().len(), rare.heard().len()), (27, 3));
    let mut spans: Vec<(i64, i64)> =
        finished.requests.iter().map(|request| (request.due_ns, request.end_ns.unwrap())).collect();
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "one at a time: {spans:?}");
}

#[test]
fn a_target_that_cannot_be_reached_ends_the_run_before_anything_is_sent_and_is_named() {
    let busy = streaming();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bench = mostly_busy(20, MS);
    let finished = bench.run(&two(busy.url(), format!("http://{gone}")));
    let told = finished.report.gave_up.unwrap();
    assert!(told.contains(&format!("cannot connect to http://{gone}")) && told.contains("refused"), "{told}");
    assert!(finished.attempts.is_empty() && busy.heard().is_empty());
    assert!(finished.requests.iter().all(|request| request.status == RequestStatus::Unsent));
}

#[test]
fn a_target_that_fails_takes_none_of_the_others_requests_along() {
    let busy = streaming();
    let rare = Server::start(|heard| if heard.connection < 3 { Reply::Reset } else { Reply::Hang });
    let bench = mostly_busy(60, 2 * MS);
    let finished = bench.run(&ReplayConfig { request_timeout_ns: 300 * MS, ..two(busy.url(), rare.url()) });
    let counts = &finished.report.counts;
    assert_eq!((counts.ok, counts.failed), (54, 6));
    for request in &finished.requests {
        let failed = request.row % 10 == 5;
        assert_eq!(request.status == RequestStatus::Failed, failed, "row {}", request.row);
        let expected = [Reason::ResetBeforeResponse, Reason::ResponseTimeout];
        assert!(request.reason.is_none_or(|reason| expected.contains(&reason)), "{:?}", request.reason);
    }
}
