//! Live answers in the next turn's body.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use std::sync::atomic::{AtomicUsize, Ordering};

use bench::{Bench, Finished, MS};
use serde_json::{Value, json};
use server::{Reply, Server};
use tracewheel_replay::{AfterFailure, ReplayConfig, SessionMode, SessionRule, StopSignal};
use tracewheel_timeline::RequestStatus;
use tracewheel_timeline::vocab::BodyState;
use tracewheel_workload::CacheMode;

/// Three answers, of three, one and two tokens as the server counts them.
const ANSWERS: [&str; 3] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n\
     data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"first \\\"live\\\" \"}}]}\n\n\
     data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"answer\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5,\
     \"completion_tokens_details\":{\"reasoning_tokens\":2}}}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"second\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"third one\"}}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}\n\n",
];
const ERROR: &str = "data: {\"error\":{\"message\":\"broken\"}}\n\n";

fn threaded(server: &Server) -> ReplayConfig {
    let sessions = SessionRule { mode: SessionMode::AfterPrevious, thread: true, ..SessionRule::default() };
    ReplayConfig { target: server.url(), sessions, ..ReplayConfig::default() }
}

/// A server that answers by these events in turn.
fn script(events: &'static [&'static str]) -> Server {
    let heard = AtomicUsize::new(0);
    Server::start(move |_| Reply::StreamOf(events[heard.fetch_add(1, Ordering::SeqCst) % events.len()]))
}

/// One session of made-up prompts of these lengths, each answered by four tokens in the record.
fn made_up(input_tokens: &[u32]) -> Bench {
    let offsets: Vec<i64> = (0..input_tokens.len() as i64).map(|number| number * MS).collect();
    Bench::new(&offsets, |number, row| {
        row.session_hash = Some(7);
        row.think_ns = (number > 0).then_some(0);
        row.input_tokens = Some(input_tokens[number]);
    })
}

fn bodies(server: &Server) -> Vec<Value> {
    server.heard().iter().map(|heard| serde_json::from_str(&heard.body).unwrap()).collect()
}

fn words(message: &Value) -> usize {
    message["content"].as_str().unwrap().split_ascii_whitespace().count()
}

fn as_planned(finished: &Finished) -> Vec<(String, u64)> {
    let outcome = finished.run.manifest().outcome.clone().unwrap();
    outcome.threading.unwrap().as_planned.into_iter().collect()
}

#[test]
fn made_up_turns_hold_all_that_was_really_asked_and_answered_before_them() {
    let server = script(&ANSWERS);
    let finished = made_up(&[9, 19, 28]).run(&threaded(&server));
    assert_eq!(finished.report.counts.ok, 3);
    let bodies = bodies(&server);
    let first = &bodies[0]["messages"];
    assert_eq!((first.as_array().unwrap().len(), words(&first[0])), (1, 9));
    // The second turn was recorded with 19 tokens: the 9 of the first, its answer's 4, and 6 that are new.
    let second = bodies[1]["messages"].as_array().unwrap();
    assert_eq!(second[0], first[0], "what the first turn sent, to the letter");
    assert_eq!(second[1], json!({"role": "assistant", "content": "first \"live\" answer"}));
    assert_eq!((second.len(), &second[2]["role"], words(&second[2])), (3, &json!("user"), 6));
    let third = bodies[2]["messages"].as_array().unwrap();
    assert_eq!(third[..3], second[..], "a prefix cache finds all of the second turn");
    assert_eq!(third[3], json!({"role": "assistant", "content": "second"}));
    assert_eq!((third.len(), words(&third[4])), (5, 5));
    // Planned 19 and 28; the answers have 3 (its reasoning is not said again) and 1 tokens instead of 4 each.
    let asked = |row| finished.request(row).asked_input_tokens;
    assert_eq!((asked(0), asked(1), asked(2)), (Some(9), Some(18), Some(24)));
    let manifest = finished.run.manifest();
    assert_eq!(manifest.plan.mode.as_deref(), Some("open:after-previous:threaded"));
    let seen = manifest.outcome.clone().unwrap().threading.unwrap();
    assert_eq!((seen.turns, seen.answers, seen.recorded_tokens, seen.live_tokens), (2, 3, 8, 4));
    assert!(seen.as_planned.is_empty() && finished.report.warnings.is_empty(), "{seen:?}");
    for row in 1..3 {
        let turn = finished.request(row);
        assert!(turn.gated && turn.due_ns >= finished.request(row - 1).end_ns.unwrap());
    }
}

#[test]
fn a_recorded_history_that_does_not_go_on_is_sent_as_planned_and_the_next_turn_goes_on_from_there() {
    let server = script(&ANSWERS);
    // The second turn is shorter than the first with its answer: the client had cut its history.
    let finished = made_up(&[9, 12, 20]).run(&threaded(&server));
    let bodies = bodies(&server);
    assert_eq!(bodies[1]["messages"].as_array().unwrap().len(), 1);
    assert_eq!(words(&bodies[1]["messages"][0]), 12);
    let third = bodies[2]["messages"].as_array().unwrap();
    assert_eq!((third.len(), &third[0]), (3, &bodies[1]["messages"][0]));
    assert_eq!((third[1]["content"].as_str(), words(&third[2])), (Some("second"), 4));
    assert_eq!(as_planned(&finished), [("not_continued".to_owned(), 1)]);
    let warning = finished.report.warnings.iter().find(|warning| warning.contains("sent as planned"));
    assert!(warning.unwrap().contains("1 of 2 later turns"), "{warning:?}");
}

#[test]
fn behind_a_turn_that_failed_in_its_stream_nothing_is_threaded() {
    let script = |after_failure| {
        let server = script(&[ANSWERS[0], ERROR, ANSWERS[2]]);
        let mut config = threaded(&server);
        config.sessions.after_failure = after_failure;
        (made_up(&[9, 19, 28]).run(&config), bodies(&server))
    };
    let (stopped, _) = script(AfterFailure::Stop);
    let status = |finished: &Finished| [0, 1, 2].map(|row| finished.request(row).status);
    assert_eq!(status(&stopped), [RequestStatus::Ok, RequestStatus::Failed, RequestStatus::Unsent]);
    let (on, bodies) = script(AfterFailure::GoOn);
    assert_eq!(status(&on), [RequestStatus::Ok, RequestStatus::Failed, RequestStatus::Ok]);
    assert_eq!(words(&bodies[2]["messages"][0]), 28, "as planned");
    assert_eq!(as_planned(&on), [("no_answer".to_owned(), 1)]);
}

#[test]
fn recorded_bodies_get_the_live_answers_in_the_place_of_the_recorded_ones() {
    let server = script(&ANSWERS);
    let turn = |number: usize| {
        let mut messages = vec![json!({"role": "system", "content": "s"})];
        for before in 0..number {
            messages.push(json!({"role": "user", "content": format!("q{before}")}));
            messages.push(json!({"role": "assistant", "content": format!("recorded {before}")}));
        }
        messages.push(json!({"role": "user", "content": format!("q{number}")}));
        json!({"model": "asked", "messages": messages, "stream": true})
    };
    let bench = Bench::new(&[0, MS, 2 * MS], |number, row| {
        row.session_hash = Some(7);
        row.think_ns = (number > 0).then_some(0);
        (row.body, row.body_state) = (Some(turn(number).to_string().into()), BodyState::Full);
    });
    let finished = bench.run(&threaded(&server));
    let bodies = bodies(&server);
    assert_eq!(bodies[0], turn(0));
    let mut expected = turn(2);
    expected["messages"][2]["content"] = "first \"live\" answer".into();
    expected["messages"][4]["content"] = "second".into();
    assert_eq!(bodies[2], expected);
    let seen = finished.run.manifest().outcome.clone().unwrap().threading.unwrap();
    assert_eq!((seen.turns, seen.answers), (2, 3));
    assert_eq!(finished.request(2).asked_input_tokens, None, "a recorded body was not made to a length");
}

#[test]
fn many_threaded_sessions_over_several_workers_lose_nothing_also_when_they_are_stopped() {
    let server = script(&ANSWERS);
    let offsets: Vec<i64> = (0..120).map(|number| number * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        row.session_hash = Some(number as u64 % 12 * 0x9e37_79b9);
        row.think_ns = (number > 11).then_some(0);
        row.input_tokens = Some(9 + 10 * (number as u32 / 12));
    });
    let config = ReplayConfig { workers: Some(3), ..threaded(&server) };
    let finished = bench.run(&config);
    assert_eq!(finished.report.counts.ok, 120);
    let seen = finished.run.manifest().outcome.clone().unwrap().threading.unwrap();
    // Each of twelve sessions has turns with 1, 2, ... 9 answers before them.
    assert_eq!((seen.turns, seen.answers), (108, 12 * 45));
    let (before, stop) = (server.heard().len(), StopSignal::new());
    let stopped = std::thread::scope(|scope| {
        scope.spawn(|| {
            while server.heard().len() < before + 30 {
                std::thread::yield_now();
            }
            stop.escalate();
        });
        bench.try_run(&config, &stop).unwrap()
    });
    let counts = stopped.report.counts;
    assert_eq!((counts.ok + counts.unsent, counts.failed), (120, 0), "{counts:?}");
}

#[test]
fn threading_is_refused_where_no_answer_can_go_into_a_next_turn() {
    let server = script(&ANSWERS);
    let refused = |change: &dyn Fn(&mut ReplayConfig)| {
        let mut config = threaded(&server);
        change(&mut config);
        made_up(&[9]).try_run(&config, &StopSignal::new()).map(drop).unwrap_err().to_string()
    };
    let told = refused(&|config| config.sessions.mode = SessionMode::Independent);
    assert!(told.contains("sessions.thread") && told.contains("after-previous"), "{told}");
    let told = refused(&|config| config.provider = "openai-completions".to_owned());
    assert!(told.contains("openai-completions has no conversations") && told.contains("gemini"), "{told}");
    let told = refused(&|config| config.cache = CacheMode::Cold);
    assert!(told.contains("cold") && told.contains("natural"), "{told}");
    assert!(server.heard().is_empty());
}
