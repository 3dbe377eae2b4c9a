use std::io::Write;
use std::net::Shutdown;

use tracewheel_clock::{Clock, RunClock, blocking};

use crate::client::{Client, chat_body, stream_body};
use crate::{fast, start};

const MS: i64 = 1_000_000;

fn one_at_a_time() -> tracewheel_mock::MockConfig {
    let mut config = fast();
    config.engine.max_running = 1;
    config
}

#[test]
fn a_client_that_leaves_mid_stream_frees_its_place() {
    let mock = start(one_at_a_time());
    let mut leaving = Client::connect(mock.local_addr());
    leaving.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 100_000));
    leaving.head();
    leaving.chunk();
    drop(leaving);
    assert_eq!(Client::connect(mock.local_addr()).chat(&stream_body("y", 5, 3)).status, 200);
    assert_eq!(mock.shutdown().unwrap().engine.cancelled, 1);
}

#[test]
fn a_client_that_leaves_while_it_waits_frees_its_place() {
    for body in [chat_body("x", 5, 100_000, ""), stream_body("x", 5, 100_000)] {
        let mock = start(one_at_a_time());
        let mut busy = Client::connect(mock.local_addr());
        busy.send("POST", "/v1/chat/completions", &[], &stream_body("b", 5, 100_000));
        busy.head();
        busy.chunk();
        let mut waiting = Client::connect(mock.local_addr());
        waiting.send("POST", "/v1/chat/completions", &[], &body);
        blocking::sleep(30 * MS);
        drop(waiting);
        drop(busy);
        assert_eq!(Client::connect(mock.local_addr()).chat(&stream_body("y", 5, 3)).status, 200);
        assert_eq!(mock.shutdown().unwrap().engine.cancelled, 2);
    }
}

#[test]
fn a_reader_that_does_not_read_holds_up_nobody() {
    let mut config = fast();
    config.engine.step_base_us = 200;
    config.engine.decode_us_per_sequence = 1;
    let mock = start(config);
    let mut slow = Client::connect(mock.local_addr());
    // More than any socket buffer takes: some 30 MB.
    slow.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 120_000));
    slow.head();
    let clock = RunClock::start();
    let quick = Client::connect(mock.local_addr()).chat(&stream_body("y", 5, 1_000));
    assert_eq!(quick.json_events().len(), 1_003);
    // A thousand steps of 0.2 ms; whoever waits for the slow one waits for ever.
    assert!(clock.now().0 < 15_000 * MS);
    // The slow one loses nothing: once it reads, all is there.
    for _ in 0..2_000 {
        assert!(slow.chunk().is_some());
    }
}

#[test]
fn garbage_is_refused_and_hurts_nobody_else() {
    let mock = start(fast());
    for garbage in
        ["\x16\x03\x01 nonsense\r\n\r\n", "GET\r\n\r\n", "POST /v1/chat/completions HTTP/9.9\r\n\r\n"]
    {
        let mut client = Client::connect(mock.local_addr());
        client.raw().write_all(garbage.as_bytes()).unwrap();
        client.raw().shutdown(Shutdown::Write).unwrap();
        let (status, _) = client.head();
        assert_eq!(status, 400);
        assert!(client.is_closed());
    }
    assert_eq!(Client::connect(mock.local_addr()).chat(&stream_body("y", 5, 3)).status, 200);
}

#[test]
fn a_body_that_ends_early_leaves_no_request() {
    let mock = start(fast());
    let mut client = Client::connect(mock.local_addr());
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: m\r\ncontent-length: 500\r\n\r\n{\"model\"";
    client.raw().write_all(head.as_bytes()).unwrap();
    client.raw().shutdown(Shutdown::Write).unwrap();
    let _ = client.is_closed();
    assert_eq!(Client::connect(mock.local_addr()).chat(&stream_body("y", 5, 3)).status, 200);
    assert_eq!(mock.shutdown().unwrap().engine.accepted, 1);
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let mut config = fast();
    config.http.max_connections = 2;
    let mock = start(config);
    let mut kept: Vec<Client> = (0..2).map(|_| Client::connect(mock.local_addr())).collect();
    for client in &mut kept {
        assert_eq!(client.call("GET", "/health", &[], "").status, 200);
    }
    assert!(Client::connect(mock.local_addr()).is_closed());
    kept.pop();
    blocking::sleep(50 * MS);
    assert_eq!(Client::connect(mock.local_addr()).call("GET", "/health", &[], "").status, 200);
}
