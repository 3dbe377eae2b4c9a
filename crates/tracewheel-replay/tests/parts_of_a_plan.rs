//! Warm-ups, thinned plans, plans that are stopped early, and what a run keeps while it goes on.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use bench::{Bench, MS};
use server::{Reply, Server};
use tracewheel_replay::{LookAhead, ReplayConfig, ReplayEvent, StopLevel, StopSignal};
use tracewheel_timeline::{Operation, Phase, RequestRow, RequestStatus};
use tracewheel_workload::{PlanOptions, Warmup};

fn config(server: &Server) -> ReplayConfig {
    ReplayConfig { target: server.url(), ..ReplayConfig::default() }
}

fn ok() -> Reply {
    Reply::Stream { chunks: 2, gap_us: 0 }
}

fn warmed(length_ns: i64) -> PlanOptions {
    PlanOptions { warmup: Some(Warmup { length_ns, before_window: false }), ..PlanOptions::default() }
}

#[test]
fn a_warm_up_is_sent_on_schedule_and_enters_counts_but_no_statistic() {
    let server = Server::start(|_| ok());
    let bench = Bench::even(10, 10 * MS).planned(warmed(40 * MS));
    let finished = bench.run(&config(&server));
    let report = &finished.report;
    assert_eq!((report.counts.planned, report.counts.ok, report.warmup), (10, 10, 4));
    assert_eq!((report.lateness.count, report.ttft.count, report.e2e.count, report.attempts), (6, 6, 6, 6));
    let start = finished.request(0).planned_ns;
    for request in &finished.requests {
        let expected = if request.row < 4 { Phase::Warmup } else { Phase::Measure };
        assert_eq!((request.phase, request.status), (expected, RequestStatus::Ok));
        assert_eq!(request.planned_ns, start + request.row as i64 * 10 * MS);
        assert_eq!(request.due_ns, request.planned_ns);
    }
    let manifest = finished.run.manifest();
    let first_measured = 1_700_000_000_000_000_000 + 40 * MS;
    assert_eq!(
        manifest.plan.window.from_unix_ns,
        Some(first_measured),
        "the window told is the measured one"
    );
    assert_eq!(manifest.plan.span_ns, Some(50 * MS));
    assert_eq!(manifest.plan.offered_per_second, Some(100.0));
    assert_eq!(manifest.other["warmup"]["requests"], 4);
    assert_eq!(manifest.other["measure_start_ns"], start + 40 * MS);
    let outcome = manifest.outcome.as_ref().unwrap();
    assert_eq!((outcome.counts.ok, outcome.lateness.unwrap().count), (10, 6));
}

#[test]
fn a_warm_up_that_fails_is_counted_as_failed() {
    let server =
        Server::start(|heard| if heard.max_tokens() == 3 { Reply::Status(500, "", "{}") } else { ok() });
    let offsets: Vec<i64> = (0..6).map(|number| number * 20 * MS).collect();
    let warms =
        |number: usize, row: &mut RequestRow| row.output_tokens = Some(if number < 2 { 3 } else { 4 });
    let bench = Bench::new(&offsets, warms).planned(warmed(40 * MS));
    let finished = bench.run(&config(&server));
    let counts = finished.report.counts;
    assert_eq!((counts.planned, counts.ok + counts.failed), (6, 6));
    assert_eq!(counts.failed, 2);
    assert_eq!(finished.report.ttft.count, counts.ok);
}

#[test]
fn a_stop_within_the_warm_up_keeps_the_accounts() {
    let server = Server::start(|_| ok());
    let bench = Bench::even(50, 100 * MS).planned(warmed(4_000 * MS));
    let stop = StopSignal::new();
    let finished = std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.heard().len() < 3 {
                tracewheel_clock::blocking::sleep(MS);
            }
            stop.raise_to(StopLevel::Drain);
        });
        bench.try_run(&config(&server), &stop).unwrap()
    });
    let counts = finished.report.counts;
    assert!(counts.conserved() && counts.unsent > 0 && counts.ok >= 3, "{counts:?}");
    assert_eq!(finished.report.ttft.count, 0, "nothing was measured");
}

#[test]
fn requests_that_find_no_connection_hold_their_place_in_the_look_ahead() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 500 });
    // All are due at once and two connections carry them: those that wait must not pile up in memory.
    let bench = Bench::new(&[0; 600], |_, _| {});
    let finished = bench.run(&ReplayConfig {
        max_connections: Some(2),
        workers: Some(1),
        look_ahead: LookAhead { requests: 32, bytes: 1 << 20 },
        ..config(&server)
    });
    assert_eq!(finished.report.counts.ok, 600);
    let most = finished.events.iter().filter_map(|event| match event {
        ReplayEvent::Tick(tick) => Some(tick.in_flight),
        _ => None,
    });
    assert!(most.max().unwrap() <= 32 + 2, "what waits for a connection is bounded by the look-ahead");
    let in_flight = finished.run.manifest().outcome.as_ref().unwrap().in_flight.unwrap();
    assert!(in_flight.max <= 34, "{in_flight:?}");
    // Nothing is skipped, and what is late says so against the time at which it was due.
    let start = finished.request(0).planned_ns;
    assert!(finished.requests.iter().all(|request| (request.planned_ns, request.due_ns) == (start, start)));
}

#[test]
fn what_the_protocol_cannot_carry_is_refused_before_anything_is_sent() {
    let server = Server::start(|_| ok());
    let bench = Bench::new(&[0, MS, 2 * MS, 3 * MS], |number, row| {
        row.operation =
            [Operation::Chat, Operation::Responses, Operation::Http, Operation::Embeddings][number];
    });
    let error = bench.try_run(&config(&server), &StopSignal::new()).err().unwrap().to_string();
    assert!(error.contains("1 requests (first: row 2) are of the operation http"), "{error}");
    assert!(error.contains("--leave-out http"), "{error}");
    assert!(server.heard().is_empty());
    let leave_out = vec![Operation::Http, Operation::Embeddings];
    let finished = bench.planned(PlanOptions { leave_out, ..PlanOptions::default() }).run(&config(&server));
    assert_eq!(finished.report.counts.ok, 2, "any text can be asked for as a chat");
    assert_eq!(finished.run.manifest().other["rows_of_operations_left_out"], 2);
}

#[test]
fn a_time_out_of_nothing_is_refused_by_the_name_of_its_option() {
    let bench = Bench::even(1, MS);
    let config = ReplayConfig {
        target: "http://127.0.0.1:9".to_owned(),
        request_timeout_ns: 0,
        ..ReplayConfig::default()
    };
    let error = bench.try_run(&config, &StopSignal::new()).err().unwrap().to_string();
    assert_eq!(error, "timeout: it must be longer than 0");
}
