//! Retries, budgets, sessions and cancelling, by whole commands against the mock.

use std::path::Path;

use serde_json::Value;
use tracewheel_record::{AttemptRecord, RequestRecord, Run};
use tracewheel_timeline::vocab::RequestStatus;
use tracewheel_timeline::{RequestRow, TimelineMeta, TimelineWriter};

use crate::harness::{Place, QUICK, text};

const MS: i64 = 1_000_000;

/// Refuses the first attempt of every request; the client tells by its header which is which.
const BUSY: &str = "[[fault]]\nname = \"busy\"\nkind = \"status\"\nstatus = 429\nattempts = \"first\"\n";

/// A timeline of requests at these offsets.
fn timeline(path: &Path, offsets_ms: &[i64], change: impl Fn(usize, &mut RequestRow)) {
    let meta = TimelineMeta { has_epoch: true, ..TimelineMeta::default() };
    let mut writer = TimelineWriter::create(path, meta).unwrap();
    for (number, offset) in offsets_ms.iter().enumerate() {
        let mut row = RequestRow {
            arrival_unix_ns: Some(1_700_000_000_000_000_000 + offset * MS),
            stream: Some(true),
            input_tokens: Some(20),
            output_tokens: Some(3),
            ..RequestRow::default()
        };
        change(number, &mut row);
        writer.push(&row).unwrap();
    }
    writer.finish().unwrap();
}

fn replay(place: &Place, url: &str, more: &[&str]) -> (Value, Run) {
    let base =
        ["replay", "t.parquet", "--target", url, "--protocol", "openai-chat", "--model", "m", "--json"];
    let report = place.json(0, &[&base[..], more].concat());
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    (report, run)
}

fn rows(run: &Run) -> (Vec<RequestRecord>, Vec<AttemptRecord>) {
    let requests = run.requests().unwrap().map(|request| request.unwrap()).collect();
    (requests, run.attempts().unwrap().map(|attempt| attempt.unwrap()).collect())
}

#[test]
fn a_hundred_clients_without_jitter_are_a_wave_in_every_output_and_with_full_jitter_none() {
    let place = Place::new();
    timeline(&place.path("t.parquet"), &[0; 100], |_, _| {});
    let mock = place.mock(&format!("{QUICK}{BUSY}"));
    let policy = |jitter: &str| {
        format!("base_delay=2s,max_delay=2s,jitter={jitter},count_header=x-stainless-retry-count")
    };
    let (plain, run) =
        replay(&place, &mock.url, &["--retry", "exponential", "--retry-with", &policy("none")]);
    let (spread, _) = replay(&place, &mock.url, &["--retry", "exponential", "--retry-with", &policy("full")]);
    mock.stop();
    let wave = &plain["run"]["retries"]["wave"];
    assert_eq!((&wave["retries"], &wave["window_ns"]), (&100.into(), &(200 * MS).into()), "{plain}");
    assert_eq!(wave["synchronised"], true, "{wave}");
    assert!(wave["peak_factor"].as_f64().unwrap() >= 3.0, "{wave}");
    assert!(wave["period_ns"].as_i64().unwrap() >= 2_000 * MS, "{wave}");
    let none = &spread["run"]["retries"]["wave"];
    assert_eq!((&none["retries"], &none["synchronised"]), (&100.into(), &false.into()), "{none}");
    assert!(none["peak_factor"].as_f64().unwrap() < wave["peak_factor"].as_f64().unwrap() / 2.0);
    let (requests, attempts) = rows(&run);
    assert!(requests.iter().all(|request| request.attempts == 2 && request.backoff_ns == 2_000 * MS));
    assert_eq!(attempts.len(), 200, "every attempt is a row");
    let dir = plain["run_dir"].as_str().unwrap();
    let told = place.expect(0, &["inspect", dir]);
    assert!(told.contains("retries came in a wave"), "{told}");
    assert!(told.contains("back-off of 100 requests"), "{told}");
    let compared = place.run(&["compare", dir, "--with", spread["run_dir"].as_str().unwrap(), "--force"]);
    let compared = text(&compared.stdout);
    assert!(compared.contains("retries came in a wave"), "{compared}");
}

#[test]
fn a_retried_request_takes_its_attempts_and_its_waits_together() {
    let place = Place::new();
    timeline(&place.path("t.parquet"), &[0, 100, 200], |_, _| {});
    let mock = place.mock(&format!("{QUICK}{BUSY}"));
    let (report, run) = replay(&place, &mock.url, &["--retry", "openai-sdk", "--seed", "5"]);
    mock.stop();
    assert_eq!(report["run"]["retries"]["throttled"], 3, "{report}");
    let (requests, attempts) = rows(&run);
    for request in requests {
        let mut own: Vec<_> = attempts.iter().filter(|attempt| attempt.row == request.row).collect();
        own.sort_by_key(|attempt| attempt.attempt);
        let [first, second] = own[..] else { panic!("{own:?}") };
        // What the person waited, piece by piece: nothing is lost between the rows and nothing counted twice.
        let refused = first.end_ns.unwrap() - first.due_ns;
        let answered = request.last_output_ns.unwrap() - second.due_ns;
        assert_eq!(first.due_ns, request.due_ns);
        assert_eq!(request.last_output_ns.unwrap() - request.due_ns, refused + request.backoff_ns + answered);
        assert!((375 * MS..=500 * MS).contains(&request.backoff_ns), "the SDK's first delay");
    }
}

#[test]
fn budgets_of_a_scenario_and_of_a_flag_are_kept_and_do_not_make_a_run_unfaithful() {
    let place = Place::new();
    timeline(&place.path("t.parquet"), &[0; 12], |_, _| {});
    let mock = place.mock(QUICK);
    place.write("s.toml", "version = 1\n[budget]\nrequests_per_minute = 60\nburst = \"0s\"\n");
    let more = ["--scenario", "s.toml", "--budget", "requests_per_minute=1200"];
    let (report, run) = replay(&place, &mock.url, &more);
    mock.stop();
    let waits = &report["run"]["retries"]["budget_wait"];
    assert_eq!((&waits["n"], &waits["max_ns"]), (&11.into(), &(550 * MS).into()), "{report}");
    let late = report["fidelity"]["lateness"]["p50_ns"].as_i64().unwrap();
    assert!(late < 250 * MS, "the wait is no lateness: {late}");
    let scenario = run.manifest().scenario.text.clone().unwrap();
    assert!(
        scenario.contains("requests_per_minute = 1200") && scenario.contains("burst = \"0s\""),
        "{scenario}"
    );
    let told = place.expect(0, &["inspect", report["run_dir"].as_str().unwrap()]);
    assert!(told.contains("budget waits of 11 requests"), "{told}");
    let wrong = place.fails(
        2,
        &[
            "replay",
            "t.parquet",
            "--budget",
            "rpm=5",
            "--target",
            "http://127.0.0.1:1",
            "--protocol",
            "openai-chat",
            "--model",
            "m",
        ],
    );
    assert!(wrong.contains("requests_per_minute"), "{wrong}");
}

#[test]
fn sessions_that_wait_for_the_turn_before_report_their_drift() {
    let place = Place::new();
    timeline(&place.path("t.parquet"), &[0, 10, 20, 30], |number, row| {
        row.session_hash = Some(number as u64 % 2);
        row.turn = Some(number as u32 / 2);
        row.think_ns = (number > 1).then_some(200 * MS);
    });
    let mock = place.mock(QUICK);
    let (report, run) = replay(&place, &mock.url, &["--sessions", "after-previous"]);
    let (independent, _) = replay(&place, &mock.url, &[]);
    mock.stop();
    let drift = &report["fidelity"]["gate_drift"];
    assert_eq!(drift["n"], 2, "{report}");
    assert!(drift["p50_ns"].as_i64().unwrap() >= 180 * MS && drift["p99_ns"].is_i64(), "{drift}");
    assert_eq!(independent["fidelity"]["gate_drift"]["n"], 0);
    let (requests, _) = rows(&run);
    for turn in requests.iter().filter(|request| request.gated) {
        let before = requests.iter().find(|request| request.row == turn.row - 2).unwrap();
        assert_eq!(turn.due_ns, before.end_ns.unwrap() + 200 * MS);
    }
}

#[test]
fn what_makes_a_replay_much_longer_than_its_plan_is_said_before_it_begins() {
    let place = Place::new();
    // Two requests of 20 + 4 tokens each.
    timeline(&place.path("t.parquet"), &[0, 10], |_, row| {
        (row.input_tokens, row.output_tokens) = (Some(20), Some(4));
    });
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let target = format!("http://127.0.0.1:{port}");
    let base = ["replay", "t.parquet", "--target", &target, "--protocol", "openai-chat", "--model", "m"];
    let slow = [
        "--sessions",
        "after-previous",
        "--speed",
        "2",
        "--budget",
        "tokens_per_minute=8,requests_per_minute=60",
    ];
    let told = place.fails(30, &[&base[..], &slow].concat());
    assert!(told.contains("--speed moves first turns only"), "{told}");
    // 48 tokens at 8 a minute are 6 minutes, less the burst of one.
    assert!(told.contains("budget: at tokens_per_minute the plan's 48 tokens take at least 5:00"), "{told}");
    assert!(!told.contains("at requests_per_minute"), "two requests pass at once: {told}");
    let told = place.fails(30, &[&base[..], &["--sessions", "after-previous"]].concat());
    assert!(!told.contains("first turns only") && !told.contains("budget"), "{told}");
}

/// Four sessions of three turns each, all answers with status 200. The first turns' lengths tell which fault they meet.
const IN_STREAM: &str = "[[fault]]\nname = \"error\"\nkind = \"stream-error\"\nafter_chunks = 1\n\
    min_input_tokens = 80\nmax_input_tokens = 140\n\
    [[fault]]\nname = \"cut\"\nkind = \"truncated\"\nafter_chunks = 1\n\
    min_input_tokens = 180\nmax_input_tokens = 240\n\
    [[fault]]\nname = \"endless\"\nkind = \"no-done\"\nmin_input_tokens = 280\nmax_input_tokens = 340\n";

fn in_stream_failures(place: &Place, url: &str, more: &[&str]) -> (Value, Vec<RequestRecord>) {
    timeline(&place.path("t.parquet"), &[0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23], |number, row| {
        row.session_hash = Some(number as u64 % 4);
        row.turn = Some(number as u32 / 4);
        // Without a pause nothing but the reading of the answer stands between two turns.
        row.think_ns = (number > 3).then_some(0);
        row.input_tokens = Some(if number < 3 { 100 * (number as u32 + 1) } else { 20 });
    });
    let (report, run) = replay(place, url, &[&["--sessions", "after-previous"], more].concat());
    (report, rows(&run).0)
}

#[test]
fn no_turn_follows_one_that_failed_only_inside_its_stream() {
    let place = Place::new();
    let mock = place.mock(&format!("{QUICK}{IN_STREAM}"));
    let (report, requests) = in_stream_failures(&place, &mock.url, &[]);
    let (on, _) = in_stream_failures(&place, &mock.url, &["--after-failure", "go-on"]);
    mock.stop();
    let counts = &report["run"]["counts"];
    assert_eq!((&counts["ok"], &counts["failed"], &counts["unsent"]), (&3.into(), &3.into(), &6.into()));
    assert_eq!(counts["reasons"]["previous_turn_failed"], 6, "{report}");
    for request in &requests {
        let session = request.strata.session_hash.unwrap();
        let expected = match (session, request.strata.turn) {
            (3, _) => RequestStatus::Ok,
            (_, Some(0)) => RequestStatus::Failed,
            _ => RequestStatus::Unsent,
        };
        assert_eq!(request.status, expected, "{request:?}");
    }
    // The whole answers were looked into too: a turn is never due before the one before it has ended.
    let session: Vec<_> = requests.iter().filter(|turn| turn.strata.session_hash == Some(3)).collect();
    for turn in session.windows(2) {
        assert!(turn[1].gated && turn[1].due_ns >= turn[0].end_ns.unwrap(), "{turn:?}");
    }
    assert_eq!(report["fidelity"]["gate_drift"]["n"], 2);
    let counts = &on["run"]["counts"];
    assert_eq!((&counts["ok"], &counts["failed"]), (&9.into(), &3.into()), "{on}");
}

#[test]
fn threaded_turns_meet_the_targets_cache_and_every_output_says_so() {
    let place = Place::new();
    timeline(&place.path("t.parquet"), &[0, 1, 2], |number, row| {
        row.session_hash = Some(5);
        row.turn = Some(number as u32);
        row.think_ns = (number > 0).then_some(0);
        row.output_tokens = Some(40);
        row.input_tokens = Some(200 + 240 * number as u32);
    });
    let mock = place.mock(QUICK);
    let (plain, of_plan) = replay(&place, &mock.url, &["--sessions", "after-previous"]);
    place.write("s.toml", "version = 1\n[sessions]\nmode = \"after-previous\"\nthread = true\n");
    let (report, run) = replay(&place, &mock.url, &["--scenario", "s.toml"]);
    let refused = |more: &[&str]| {
        let base =
            ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
        place.fails(2, &[&base[..], more].concat())
    };
    assert!(refused(&["--thread-answers"]).contains("after-previous"));
    mock.stop();
    assert_eq!((&plain["run"]["counts"]["ok"], &report["run"]["counts"]["ok"]), (&3.into(), &3.into()));
    // Without prefix hashes the plan's prompts share nothing; a threaded turn repeats all of the turn before it.
    let cached = |run: &Run| rows(run).0.iter().map(|row| row.cached_tokens.unwrap()).collect::<Vec<_>>();
    assert_eq!(cached(&of_plan)[1..], [0, 0]);
    let found = cached(&run);
    assert!(found[1] >= 184 && found[2] >= 424, "all whole blocks of the turn before: {found:?}");
    let seen = run.manifest().outcome.clone().unwrap().threading.unwrap();
    assert_eq!((seen.turns, seen.answers, seen.recorded_tokens), (2, 3, 80), "{seen:?}");
    assert!(of_plan.manifest().outcome.clone().unwrap().threading.is_none());
    let scenario = run.manifest().scenario.text.clone().unwrap();
    assert!(scenario.contains("thread = true"), "{scenario}");
    for (row, turn) in (0_i64..).zip(rows(&run).0) {
        let live = i64::from(turn.asked_input_tokens.unwrap()) - (200 + 240 * row);
        assert!(live.abs() <= 40 * row, "as much as the answers differ from the recorded ones");
    }
}

#[test]
fn recorded_cancels_leave_at_their_time_over_http_1_and_2_and_are_counted_apart() {
    for http in ["1.1", "2"] {
        let place = Place::new();
        timeline(&place.path("t.parquet"), &[0, 20, 40], |number, row| {
            row.output_tokens = Some(3_000);
            row.cancel_after_ns = (number < 2).then_some(300 * MS);
            if number == 2 {
                row.output_tokens = Some(3);
            }
        });
        let mock = place.mock(QUICK);
        let (report, run) = replay(&place, &mock.url, &["--cancel", "recorded", "--http", http]);
        mock.stop();
        let counts = &report["run"]["counts"];
        assert_eq!((&counts["cancelled"], &counts["ok"]), (&2.into(), &1.into()), "{report}");
        assert_eq!(counts["reasons"]["cancelled_as_recorded"], 2);
        let (requests, attempts) = rows(&run);
        for request in requests.iter().filter(|request| request.row < 2) {
            assert!(request.end_ns.unwrap() - request.due_ns >= 300 * MS);
            let attempt = attempts.iter().find(|attempt| attempt.row == request.row).unwrap();
            assert!(!attempt.events.is_empty(), "what had come is kept");
        }
        let log = std::fs::read_to_string(place.path("witness.jsonl")).unwrap();
        let left = log.lines().filter(|line| line.contains("\"client_gone\":true")).count();
        assert_eq!(left, 2, "the endpoint saw them leave over {http}: {log}");
    }
}

#[test]
fn requests_that_production_left_are_told_of_where_they_are_read_to_their_end() {
    let place = Place::new();
    timeline(&place.path("t.parquet"), &[0, 5], |number, row| {
        row.cancel_after_ns = (number == 0).then_some(10_000 * MS);
    });
    let mock = place.mock(QUICK);
    let base = ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
    let told = |more: &[&str]| place.fails(0, &[&base[..], more].concat());
    assert!(told(&[]).contains("1 requests were left by their client"));
    assert!(!told(&["--cancel", "recorded"]).contains("left by their client"));
    mock.stop();
}

#[test]
fn a_wrong_retry_key_is_told_with_what_would_be_right() {
    let place = Place::new();
    timeline(&place.path("t.parquet"), &[0], |_, _| {});
    let base = [
        "replay",
        "t.parquet",
        "--target",
        "http://127.0.0.1:1",
        "--protocol",
        "openai-chat",
        "--model",
        "m",
    ];
    let told = |more: &[&str]| place.fails(2, &[&base[..], more].concat());
    assert!(told(&["--retry-with", "jitter=full"]).contains("--retry exponential"));
    assert!(told(&["--retry", "fixed", "--retry-with", "jiter=full"]).contains("jitter"));
    assert!(told(&["--retry", "fixed", "--retry-with", "jitter=most"]).contains("decorrelated"));
    place.write("s.toml", "version = 1\n[replay]\nretry = \"fixed\"\n[retry]\npolicy = \"none\"\n");
    assert!(told(&["--scenario", "s.toml"]).contains("keep one of the two"));
    place.write("s.toml", "version = 1\n[retry]\npolicy = \"fixed\"\nstatuses = [\"5xx\"]\n");
    assert!(told(&["--scenario", "s.toml"]).contains("5xx"));
}
