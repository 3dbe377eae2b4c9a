//! What the clients of a replay keep to: their budgets, and sessions in which a turn waits for the one before.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use std::sync::atomic::{AtomicUsize, Ordering};

use bench::{Bench, Finished, MS};
use server::{Reply, Server};
use tracewheel_replay::{
    AfterFailure, ClientBudget, LookAhead, ReplayConfig, ReplayError, RetryPolicy, SessionMode, SessionRule,
    StopSignal,
};
use tracewheel_timeline::{Reason, RequestStatus};

fn config(server: &Server) -> ReplayConfig {
    ReplayConfig { target: server.url(), ..ReplayConfig::default() }
}

fn after_previous(server: &Server) -> ReplayConfig {
    let sessions = SessionRule { mode: SessionMode::AfterPrevious, ..SessionRule::default() };
    ReplayConfig { sessions, ..config(server) }
}

/// The same without a look into the answers: a turn waits for nothing but the end of the one before and its pause.
fn unread(server: &Server) -> ReplayConfig {
    let sessions = SessionRule {
        mode: SessionMode::AfterPrevious,
        after_failure: AfterFailure::GoOn,
        ..SessionRule::default()
    };
    ReplayConfig { sessions, ..config(server) }
}

/// One session whose turns were recorded so far apart and thought about so long.
fn session(offsets_ns: &[i64], think_ns: &[Option<i64>]) -> Bench {
    Bench::new(offsets_ns, |number, row| {
        row.session_hash = Some(7);
        row.turn = Some(number as u32);
        row.think_ns = think_ns[number];
    })
}

fn first_due_ns(finished: &Finished, row: u64) -> i64 {
    finished.attempts_of(finished.request(row))[0].due_ns
}

#[test]
fn a_rate_makes_requests_wait_exactly_as_long_as_it_says_and_records_the_wait_apart() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let budget = ClientBudget { requests_per_minute: Some(1_200), burst_ns: 0, ..ClientBudget::default() };
    let finished = Bench::even(12, MS).run(&ReplayConfig { budget, ..config(&server) });
    assert_eq!(finished.report.counts.ok, 12);
    let start_ns = finished.request(0).planned_ns;
    for request in &finished.requests {
        assert_eq!(request.due_ns, request.planned_ns, "a budget moves no due time");
        let left_ns = start_ns + request.row as i64 * 50 * MS;
        assert_eq!(request.budget_wait_ns, left_ns - request.due_ns);
        assert_eq!(first_due_ns(&finished, request.row), left_ns, "and lateness counts from there");
        assert!(request.first_output_ns.unwrap() - request.due_ns >= request.budget_wait_ns);
    }
    let budgets = &finished.run.manifest().policy.budgets;
    assert_eq!((budgets.len(), budgets[0].of.as_str(), budgets[0].amount), (1, "requests", 1_200));
}

#[test]
fn tokens_are_paid_for_by_those_who_come_after() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    // Nine tokens in and four out: 13 of 15,600 a minute are 50 ms.
    let budget = ClientBudget { tokens_per_minute: Some(15_600), burst_ns: 0, ..ClientBudget::default() };
    let finished = Bench::even(5, MS).run(&ReplayConfig { budget, ..config(&server) });
    let waits: Vec<i64> = (0..5).map(|row| finished.request(row).budget_wait_ns / MS).collect();
    assert_eq!(waits, [0, 49, 98, 147, 196]);
}

#[test]
fn so_many_are_in_flight_and_no_more_first_come_first_served() {
    let server = Server::start(|_| Reply::Stream { chunks: 2, gap_us: 10_000 });
    let budget = ClientBudget { in_flight: Some(2), ..ClientBudget::default() };
    let finished = Bench::even(15, MS).run(&ReplayConfig { budget, workers: Some(3), ..config(&server) });
    assert_eq!(finished.report.counts.ok, 15);
    assert_eq!(finished.run.manifest().machine.workers, Some(1), "a budget is one account");
    let mut steps: Vec<(i64, i32)> = Vec::new();
    for request in &finished.requests {
        let attempt = finished.attempts_of(request)[0];
        assert_eq!(attempt.due_ns, request.due_ns + request.budget_wait_ns);
        steps.extend([(attempt.released_ns.unwrap(), 1), (attempt.end_ns.unwrap(), -1)]);
    }
    steps.sort_unstable();
    let mut level = 0;
    let most = steps.iter().map(|(_, step)| {
        level += step;
        level
    });
    assert_eq!(most.max(), Some(2));
    let left: Vec<i64> = (0..15).map(|row| first_due_ns(&finished, row)).collect();
    assert!(left.is_sorted() && finished.request(14).budget_wait_ns > 50 * MS);
}

#[test]
fn a_request_that_waits_for_a_retry_is_in_flight_and_passes_the_budget_once() {
    let server = Server::start(|heard| match heard.nth {
        1 => Reply::Status(503, "", ""),
        _ => Reply::Stream { chunks: 1, gap_us: 0 },
    });
    let budget = ClientBudget { in_flight: Some(1), ..ClientBudget::default() };
    let retry = RetryPolicy { base_delay_ns: 30 * MS, max_delay_ns: 30 * MS, ..RetryPolicy::fixed() };
    let finished = Bench::even(3, MS).run(&ReplayConfig { budget, retry, ..config(&server) });
    assert_eq!((finished.report.counts.ok, finished.report.retries), (3, 3));
    for row in 1..3 {
        let before = finished.request(row - 1).end_ns.unwrap();
        assert!(first_due_ns(&finished, row) >= before, "the one before had ended, its back-off too");
    }
}

#[test]
fn whoever_would_wait_too_long_is_not_sent() {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let budget = ClientBudget {
        requests_per_minute: Some(600),
        burst_ns: 0,
        max_wait_ns: Some(150 * MS),
        ..ClientBudget::default()
    };
    let finished = Bench::even(5, MS).run(&ReplayConfig { budget, ..config(&server) });
    // Waits of 0, 99 and 198 ms: the third is not sent, nor are those behind it, which nothing paid for.
    let counts = finished.report.counts;
    assert_eq!((counts.ok, counts.unsent), (2, 3));
    assert_eq!(finished.report.reasons.get("budget_exceeded"), Some(&3));
    assert_eq!(finished.request(2).reason, Some(Reason::BudgetExceeded));
}

#[test]
fn a_turn_leaves_when_the_one_before_has_ended_and_the_person_has_thought() {
    let server = Server::start(|_| Reply::Stream { chunks: 4, gap_us: 10_000 });
    let bench = session(&[0, 10 * MS, 20 * MS], &[None, Some(30 * MS), Some(0)]);
    let finished = bench.run(&unread(&server));
    assert_eq!(finished.report.counts.ok, 3);
    assert_eq!(finished.run.manifest().plan.mode.as_deref(), Some("open:after-previous"));
    assert!(!finished.request(0).gated);
    for (row, think_ns) in [(1, 30 * MS), (2, 0)] {
        let (before, turn) = (finished.request(row - 1), finished.request(row));
        assert!(turn.gated);
        assert_eq!(turn.due_ns, before.end_ns.unwrap() + think_ns);
        assert_eq!(first_due_ns(&finished, row), turn.due_ns);
        assert_eq!(turn.planned_ns - finished.request(0).planned_ns, row as i64 * 10 * MS, "it never moves");
    }
    // Where the answer is read first, that may make it later, and never earlier.
    let read = bench.run(&after_previous(&server));
    for (row, think_ns) in [(1, 30 * MS), (2, 0)] {
        let turn = read.request(row);
        assert!(turn.gated && turn.due_ns >= read.request(row - 1).end_ns.unwrap() + think_ns);
        assert_eq!(first_due_ns(&read, row), turn.due_ns, "the wait is drift, not lateness");
    }
    let independent = bench.run(&config(&server));
    assert!(independent.requests.iter().all(|turn| !turn.gated && turn.due_ns == turn.planned_ns));
}

#[test]
fn turns_that_overlapped_keep_their_distance_and_an_unknown_pause_is_none() {
    let server = Server::start(|_| Reply::Stream { chunks: 4, gap_us: 20_000 });
    let bench = session(&[0, 10 * MS, 25 * MS, 30 * MS], &[None, Some(40 * MS), Some(-5 * MS), None]);
    let finished = bench.run(&unread(&server));
    assert_eq!(finished.report.counts.ok, 4);
    let due = |row| finished.request(row).due_ns;
    let end = |row| finished.request(row).end_ns.unwrap();
    assert_eq!(due(1), end(0) + 40 * MS);
    assert_eq!(due(2), due(1) + 15 * MS, "as recorded, before the turn before it had ended");
    assert_eq!(due(3), end(2), "later than its recorded time");
}

/// Of two sessions of three turns, the first turn that comes fails; the turns are too far apart to overtake each other.
fn with_a_failed_turn(after_failure: AfterFailure) -> Finished {
    let heard = AtomicUsize::new(0);
    let server = Server::start(move |_| match heard.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Status(500, "", ""),
        _ => Reply::Stream { chunks: 1, gap_us: 0 },
    });
    let offsets = [0, 400 * MS, 410 * MS, 420 * MS, 430 * MS, 440 * MS];
    let bench = Bench::new(&offsets, |number, row| {
        row.session_hash = Some(number as u64 % 2);
        row.think_ns = (number > 1).then_some(MS);
    });
    let mut config = after_previous(&server);
    config.sessions.after_failure = after_failure;
    bench.run(&config)
}

#[test]
fn what_follows_a_failed_turn_is_not_sent_unless_it_shall_go_on() {
    let stopped = with_a_failed_turn(AfterFailure::Stop);
    let counts = stopped.report.counts;
    assert_eq!((counts.failed, counts.unsent, counts.ok), (1, 2, 3));
    for row in [2, 4] {
        let turn = stopped.request(row);
        assert_eq!((turn.status, turn.reason), (RequestStatus::Unsent, Some(Reason::PreviousTurnFailed)));
    }
    let counts = with_a_failed_turn(AfterFailure::GoOn).report.counts;
    assert_eq!((counts.failed, counts.unsent, counts.ok), (1, 0, 5));
}

#[test]
fn many_sessions_over_several_workers_and_a_narrow_look_ahead_lose_nothing() {
    let server = Server::start(|_| Reply::Stream { chunks: 2, gap_us: 5_000 });
    let offsets: Vec<i64> = (0..120).map(|number| number * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        row.session_hash = Some(number as u64 % 12 * 0x9e37_79b9);
        row.think_ns = Some(MS);
    });
    let look_ahead = LookAhead { requests: 3, bytes: 1 << 20 };
    let finished = bench.run(&ReplayConfig { look_ahead, workers: Some(3), ..after_previous(&server) });
    assert_eq!(finished.report.counts.ok, 120);
    for row in 12..120 {
        assert!(finished.request(row).due_ns >= finished.request(row - 12).end_ns.unwrap() + MS);
    }
}

#[test]
fn a_stop_leaves_turns_that_wait_and_requests_in_line_unsent() {
    let server = Server::start(|_| Reply::Hang);
    let waiting = session(&[0, MS, 2 * MS], &[None, Some(0), Some(0)]);
    let in_line = Bench::even(3, MS);
    let capped =
        ReplayConfig { budget: ClientBudget { in_flight: Some(1), ..Default::default() }, ..config(&server) };
    for (bench, config) in [(waiting, after_previous(&server)), (in_line, capped)] {
        let before = server.heard().len();
        let stop = StopSignal::new();
        let finished = std::thread::scope(|scope| {
            let (stop, server) = (stop.clone(), &server);
            let handle = stop.clone();
            scope.spawn(move || {
                while server.heard().len() == before {
                    tracewheel_clock::blocking::sleep(MS);
                }
                stop.escalate();
                stop.escalate();
            });
            bench.try_run(&config, &handle).unwrap()
        });
        let counts = finished.report.counts;
        assert_eq!((counts.interrupted, counts.unsent), (1, 2));
    }
}

#[test]
fn a_budget_or_gated_sessions_in_a_closed_loop_are_refused() {
    let server = Server::start(|_| Reply::Hang);
    let bench = Bench::even(1, MS);
    let limited = ClientBudget { in_flight: Some(1), ..ClientBudget::default() };
    let nothing = ClientBudget { requests_per_minute: Some(0), ..ClientBudget::default() };
    for (expected, config) in [
        ("budget", ReplayConfig { budget: limited, closed_loop: Some(1), ..config(&server) }),
        ("sessions", ReplayConfig { closed_loop: Some(1), ..after_previous(&server) }),
        ("budget.requests_per_minute", ReplayConfig { budget: nothing, ..config(&server) }),
    ] {
        match bench.try_run(&config, &StopSignal::new()) {
            Err(ReplayError::Config { option, .. }) => assert_eq!(option, expected),
            other => panic!("{expected}: {:?}", other.map(|finished| finished.report)),
        }
    }
}
