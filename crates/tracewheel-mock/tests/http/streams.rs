use serde_json::Value;
use tracewheel_clock::{Clock, RunClock};

use crate::client::{Client, request, stream_body};
use crate::{fast, start};

#[test]
fn a_chat_stream_is_one_event_a_token_between_role_and_end() {
    let mock = start(fast());
    let mut client = Client::connect(mock.local_addr());
    let answer = client.chat(&stream_body("hi", 20, 5));
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["content-type"], "text/event-stream; charset=utf-8");
    let events = answer.json_events();
    assert_eq!(events.len(), 1 + 5 + 1 + 1);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[0]["choices"][0]["delta"]["content"], "");
    for token in &events[1..6] {
        assert_eq!(token["choices"][0]["finish_reason"], Value::Null);
        assert_eq!(tracewheel_tokens::count(token["choices"][0]["delta"]["content"].as_str().unwrap()), 1);
        assert_eq!((&token["id"], &token["model"]), (&events[0]["id"], &"m".into()));
    }
    assert_eq!(events[6]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[7]["choices"], Value::Array(vec![]));
    assert_eq!(events[7]["usage"]["completion_tokens"], 5);
    assert_eq!(answer.events().last().map(String::as_str), Some("[DONE]"));
    assert_eq!(tracewheel_tokens::count(&answer.text()), 5);
}

#[test]
fn tokens_come_one_step_apart() {
    let mut config = fast();
    config.engine.step_base_us = 20_000;
    let mock = start(config);
    let clock = RunClock::start();
    let mut client = Client::connect(mock.local_addr());
    client.send("POST", "/v1/chat/completions", &[], &stream_body("hi", 20, 6));
    client.head();
    client.chunk();
    let times: Vec<i64> = (0..6)
        .map(|_| {
            client.chunk();
            clock.now().0
        })
        .collect();
    // Five steps of 20.02 ms lie between them. The end may be late on a busy machine, never early.
    let span_ns = times[5] - times[0];
    assert!((100_100_000 - 20_000_000..400_000_000).contains(&span_ns), "{span_ns}");
}

#[test]
fn connections_are_kept_and_may_be_pipelined() {
    let mock = start(fast());
    let mut client = Client::connect(mock.local_addr());
    assert_eq!(client.chat(&stream_body("a", 5, 3)).json_events().len(), 6);
    assert_eq!(client.chat(&stream_body("b", 5, 2)).json_events().len(), 5);
    let two: String = (3..5)
        .map(|tokens| request("POST", "/v1/chat/completions", &[], &stream_body("c", 5, tokens)))
        .collect();
    std::io::Write::write_all(client.raw(), two.as_bytes()).unwrap();
    assert_eq!(client.answer().json_events().len(), 6);
    assert_eq!(client.answer().json_events().len(), 7);
    drop(client);
    let summary = mock.shutdown().unwrap();
    assert_eq!((summary.connections, summary.engine.finished), (1, 4));
}

#[test]
fn the_same_requests_get_the_same_words_and_another_seed_others() {
    let text = |seed: u64| {
        let mock = start(tracewheel_mock::MockConfig { seed, ..fast() });
        Client::connect(mock.local_addr()).chat(&stream_body("hi", 20, 30)).text()
    };
    assert_eq!(text(1), text(1));
    assert_ne!(text(1), text(2));
}

#[test]
fn a_role_delta_at_admission_comes_before_the_first_token_is_ready() {
    let mut config = fast();
    config.engine.role_delta = tracewheel_mock::RoleDelta::Admission;
    config.engine.step_base_us = 300_000;
    let mock = start(config);
    let clock = RunClock::start();
    let mut client = Client::connect(mock.local_addr());
    client.send("POST", "/v1/chat/completions", &[], &stream_body("hi", 5, 1));
    client.head();
    assert!(client.chunk().unwrap().contains("assistant"));
    let role_ns = clock.now().0;
    client.chunk();
    assert!(clock.now().0 - role_ns > 100_000_000, "the token comes a step later");
}

#[test]
fn many_streams_at_once_get_all_their_tokens() {
    let mock = start(fast());
    let addr = mock.local_addr();
    let counts: Vec<(u32, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=24)
            .map(|n| {
                scope.spawn(move || {
                    let answer = Client::connect(addr).chat(&stream_body("w", n * 7, n * 3));
                    (n * 3, answer.json_events().len() - 3)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(counts.iter().all(|(wanted, got)| *wanted as usize == *got), "{counts:?}");
}
