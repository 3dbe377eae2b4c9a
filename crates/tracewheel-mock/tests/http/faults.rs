//! Every kind of fault as a client at a bare socket sees it.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::path::PathBuf;

use tracewheel_clock::{Clock, RunClock, blocking};
use tracewheel_mock::{FaultKind, FaultRule, Mock, MockConfig, MockSummary};

use crate::client::{Client, chat_body, stream_body};
use crate::{fast, some, start};

const MS: i64 = 1_000_000;

/// A mock with one rule named `r`, and its witness log.
struct Faulty {
    mock: Option<Mock>,
    folder: tempfile::TempDir,
}

impl Faulty {
    fn new(rule: &str) -> Self {
        Self::with(fast(), &format!("[[fault]]\nname = \"r\"\n{rule}"))
    }

    /// `rules` as they stand in a file, on top of `config`.
    fn with(config: MockConfig, rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fault = MockConfig::from_toml(rules).unwrap().fault;
        let witness_log = Some(folder.path().join("witness.jsonl"));
        Self { mock: Some(start(MockConfig { fault, witness_log, ..config })), folder }
    }

    fn client(&self) -> Client {
        Client::connect(self.mock.as_ref().unwrap().local_addr())
    }

    /// Ends the mock and tells how often rule `r` is in the witness log; the summary must say the same.
    fn witnessed(mut self) -> u64 {
        let summary = self.mock.take().unwrap().shutdown().unwrap();
        let path: PathBuf = self.folder.path().join("witness.jsonl");
        let lines = std::fs::read_to_string(path).unwrap();
        let count = lines.lines().filter(|line| line.contains("\"fault\":\"r\"")).count() as u64;
        assert_eq!(summary.faults, [("r".to_owned(), count)]);
        count
    }
}

/// Reads until the connection ends; says what came and whether it ended by a reset.
fn read_to_end(stream: &mut TcpStream) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return (bytes, false),
            Ok(read) => bytes.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return (bytes, true),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Sends one streamed request of five tokens and reads until the connection ends.
fn cut_stream(rule: &str) -> (String, bool) {
    let faulty = Faulty::new(rule);
    let mut client = faulty.client();
    client.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 5));
    let (bytes, reset) = read_to_end(client.raw());
    assert_eq!(faulty.witnessed(), 1);
    (String::from_utf8(bytes).unwrap(), reset)
}

fn tokens_in(text: &str) -> usize {
    text.matches("\"content\":\"").count() - text.matches("\"content\":\"\"").count()
}

#[test]
fn a_reset_before_the_head_gives_nothing() {
    assert_eq!(cut_stream("kind = \"reset\""), (String::new(), true));
}

#[test]
fn a_close_before_the_head_gives_nothing_in_order() {
    assert_eq!(cut_stream("kind = \"close\""), (String::new(), false));
}

#[test]
fn a_reset_after_chunks_gives_exactly_those() {
    let (text, reset) = cut_stream("kind = \"reset\"\nafter_chunks = 2");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!((tokens_in(&text), text.contains("[DONE]"), reset), (2, false, true));
}

#[test]
fn a_close_after_chunks_has_neither_terminal_event_nor_last_chunk() {
    let (text, reset) = cut_stream("kind = \"close\"\nafter_chunks = 2");
    assert_eq!((tokens_in(&text), text.ends_with("0\r\n\r\n"), reset), (2, false, false));
    assert!(!text.contains("[DONE]"));
}

#[test]
fn a_cut_after_no_chunk_still_has_the_head() {
    let (text, reset) = cut_stream("kind = \"reset\"\nafter_chunks = 0");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("\r\n\r\n"), "{text:?}");
    assert_eq!((text.matches("data:").count(), reset), (0, true));
}

#[test]
fn a_cut_may_fall_into_an_event() {
    let (text, reset) = cut_stream("kind = \"close\"\nafter_bytes = 300");
    // The body alone, out of its transfer chunks: each is a line with its size, then so much, then a line end.
    let (_, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let mut body = String::new();
    while let Some((size, tail)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        body.push_str(&tail[..size]);
        rest = &tail[size + 2..];
    }
    assert_eq!((body.len(), reset), (300, false));
    assert!(!body.ends_with("\n\n"));
}

#[test]
fn a_whole_answer_can_be_cut_below_its_announced_length() {
    let faulty = Faulty::new("kind = \"reset\"\nafter_bytes = 40");
    let mut client = faulty.client();
    client.send("POST", "/v1/chat/completions", &[], &chat_body("x", 5, 5, ""));
    let (bytes, reset) = read_to_end(client.raw());
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    assert!(length.parse::<usize>().unwrap() > 100);
    assert_eq!((body.len(), reset), (40, true));
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn a_stall_lasts_as_long_as_told_and_then_goes_on() {
    for point in ["", "after_chunks = 2\n", "after_bytes = 300\n"] {
        let faulty = Faulty::new(&format!("kind = \"stall\"\nfor_ms = 150\n{point}"));
        let clock = RunClock::start();
        let answer = faulty.client().chat(&stream_body("x", 5, 5));
        // Five tokens take some ten milliseconds without it.
        assert!(clock.now().0 >= 150 * MS, "{point}");
        assert_eq!((answer.json_events().len(), answer.events().last().unwrap().as_str()), (8, "[DONE]"));
        assert_eq!(faulty.witnessed(), 1);
    }
}

#[test]
fn a_stall_for_ever_keeps_the_connection_open_and_silent() {
    for (point, tokens) in [("", 0), ("after_chunks = 2", 2)] {
        let faulty = Faulty::new(&format!("kind = \"stall\"\n{point}"));
        let mut client = faulty.client();
        client.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 5));
        if tokens > 0 {
            client.head();
            // The role and the tokens before the stall.
            (0..=tokens).for_each(|_| assert!(client.chunk().is_some()));
        }
        client.raw().set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        let error = client.raw().read(&mut [0]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        drop(client);
        assert_eq!(faulty.witnessed(), 1);
    }
}

#[test]
fn slow_headers_come_in_pieces_over_their_time() {
    let faulty = Faulty::new("kind = \"slow-headers\"\nfor_ms = 1000");
    let mut client = faulty.client();
    let clock = RunClock::start();
    client.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 5));
    let mut first = [0; 4096];
    let read = client.raw().read(&mut first).unwrap();
    assert!(!first[..read].ends_with(b"\r\n\r\n"), "a part of the head: {read}");
    let mut rest = Vec::new();
    while !String::from_utf8_lossy(&rest).contains("0\r\n\r\n") {
        let read = client.raw().read(&mut first).unwrap();
        rest.extend_from_slice(&first[..read]);
    }
    // Twenty pieces, and no pause is needed after the last one.
    assert!(clock.now().0 >= 900 * MS, "{}", clock.now().0);
    assert!(String::from_utf8_lossy(&rest).contains("[DONE]"));
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn a_slow_accept_delays_the_first_answer_of_a_connection_only() {
    let faulty = Faulty::new("kind = \"slow-accept\"\nfor_ms = 150");
    let mut client = faulty.client();
    let clock = RunClock::start();
    client.chat(&stream_body("x", 5, 1));
    assert!(clock.now().0 >= 140 * MS, "{}", clock.now().0);
    client.chat(&stream_body("x", 5, 1));
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn connections_can_be_reset_or_closed_as_they_come() {
    for (kind, expected) in [("accept-reset", true), ("accept-close", false)] {
        let faulty = Faulty::new(&format!("kind = \"{kind}\"\nevery = 2"));
        assert_eq!(faulty.client().chat(&stream_body("x", 5, 1)).status, 200);
        let (bytes, reset) = read_to_end(faulty.client().raw());
        assert_eq!((bytes.len(), reset), (0, expected), "{kind}");
        assert_eq!(faulty.client().chat(&stream_body("x", 5, 1)).status, 200);
        assert_eq!(faulty.witnessed(), 1);
    }
}

#[test]
fn nobody_listens_in_a_window_and_then_somebody_does_again() {
    let faulty = Faulty::new("kind = \"refuse\"\nfrom_ms = 0\nto_ms = 2000");
    let addr = faulty.mock.as_ref().unwrap().local_addr();
    let clock = RunClock::start();
    let refused = loop {
        match TcpStream::connect(addr) {
            Err(error) => break error.kind(),
            Ok(_) => blocking::sleep(5 * MS),
        }
        assert!(clock.now().0 < 1_900 * MS, "nobody was refused");
    };
    assert_eq!(refused, ErrorKind::ConnectionRefused);
    while TcpStream::connect(addr).is_err() {
        blocking::sleep(10 * MS);
    }
    assert_eq!(faulty.client().chat(&stream_body("x", 5, 1)).status, 200);
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn another_status_has_its_body_and_its_wait() {
    for status in [500, 502, 503, 529] {
        let faulty = Faulty::new(&format!("kind = \"status\"\nstatus = {status}\nretry_after_ms = 1200"));
        let answer = faulty.client().chat(&stream_body("x", 5, 1));
        assert_eq!((answer.status, answer.headers["content-type"].as_str()), (status, "application/json"));
        assert_eq!((&*answer.headers["retry-after"], &*answer.headers["retry-after-ms"]), ("2", "1200"));
        assert_eq!(answer.json()["error"]["type"], "server_error");
        assert_eq!(faulty.witnessed(), 1);
    }
}

#[test]
fn a_proxy_s_page_is_html() {
    let faulty = Faulty::new("kind = \"status\"\nstatus = 502\ncontent_type = \"text/html\"");
    let answer = faulty.client().chat(&stream_body("x", 5, 1));
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (502, "text/html"));
    assert!(answer.body().contains("<h1>502 Bad Gateway</h1>"));
    let faulty =
        Faulty::new("kind = \"status\"\nstatus = 503\nbody = \"go away\"\ncontent_type = \"text/plain\"");
    assert_eq!(faulty.client().chat(&stream_body("x", 5, 1)).body(), "go away");
}

#[test]
fn an_error_can_come_in_a_stream_that_began_well() {
    let faulty = Faulty::new("kind = \"stream-error\"\nafter_chunks = 3\nbody = \"out of memory\"");
    let answer = faulty.client().chat(&stream_body("x", 5, 5));
    let events = answer.json_events();
    assert_eq!((answer.status, events.len()), (200, 1 + 3 + 1));
    assert_eq!(
        (&events[4]["error"]["message"], &events[4]["error"]["code"]),
        (&"out of memory".into(), &500.into())
    );
    assert!(!answer.body().contains("[DONE]"));
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn bad_json_spoils_one_event_or_the_whole_answer() {
    let faulty = Faulty::new("kind = \"bad-json\"\nafter_chunks = 1");
    let events = faulty.client().chat(&stream_body("x", 5, 4)).events();
    let bad: Vec<usize> = (0..events.len())
        .filter(|n| events[*n] != "[DONE]" && serde_json::from_str::<serde_json::Value>(&events[*n]).is_err())
        .collect();
    // The role, the first token, then the bad one; nothing is missing.
    assert_eq!((bad, events.len()), (vec![2], 8));
    assert_eq!(faulty.witnessed(), 1);
    let faulty = Faulty::new("kind = \"bad-json\"");
    let body = faulty.client().chat(&chat_body("x", 5, 4, "")).body();
    assert!(serde_json::from_str::<serde_json::Value>(&body).is_err());
}

#[test]
fn a_bad_event_runs_into_the_next() {
    let faulty = Faulty::new("kind = \"bad-sse\"\nafter_chunks = 1");
    let events = faulty.client().chat(&stream_body("x", 5, 4)).events();
    assert_eq!(events.len(), 7);
    assert_eq!(events[2].matches("\ndata: ").count(), 1, "{}", events[2]);
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn a_bad_chunk_has_no_size() {
    let faulty = Faulty::new("kind = \"bad-chunk\"\nafter_chunks = 2");
    let mut client = faulty.client();
    client.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 5));
    client.head();
    // The role and two tokens.
    for _ in 0..3 {
        assert!(client.chunk().unwrap().starts_with("data: "));
    }
    let size = client.line();
    assert!(size.starts_with('Z') && usize::from_str_radix(&size, 16).is_err(), "{size:?}");
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn text_can_be_no_utf_8() {
    for body in [stream_body("x", 5, 3), chat_body("x", 5, 3, "")] {
        let faulty = Faulty::new("kind = \"bad-utf8\"");
        let mut client = faulty.client();
        client.send("POST", "/v1/chat/completions", &[("connection", "close")], &body);
        let (bytes, _) = read_to_end(client.raw());
        assert!(String::from_utf8(bytes.clone()).is_err());
        assert_eq!(bytes.iter().filter(|byte| **byte == 0xff).count(), 1);
        assert_eq!(faulty.witnessed(), 1);
    }
}

#[test]
fn a_truncated_body_is_a_complete_transfer_of_half_an_answer() {
    let faulty = Faulty::new("kind = \"truncated\"\nafter_chunks = 2");
    let mut client = faulty.client();
    let body = client.chat(&stream_body("x", 5, 5)).body();
    assert_eq!(
        (tokens_in(&body) <= 3, body.ends_with("\n\n"), body.contains("[DONE]")),
        (true, false, false)
    );
    // The connection goes on.
    assert_eq!(client.call("GET", "/health", &[], "").status, 200);
    assert_eq!(faulty.witnessed(), 1);
    let faulty = Faulty::new("kind = \"truncated\"\nafter_bytes = 250");
    let mut client = faulty.client();
    assert_eq!(client.chat(&stream_body("x", 5, 5)).body().len(), 250);
    assert_eq!(client.chat(&chat_body("x", 5, 50, "")).body().len(), 250);
    assert_eq!(faulty.witnessed(), 2);
}

#[test]
fn one_event_can_be_oversized() {
    let faulty = Faulty::new("kind = \"oversized\"\nbytes = 300_000\nafter_chunks = 1");
    let answer = faulty.client().chat(&stream_body("x", 5, 3));
    let sizes: Vec<usize> = answer.events().iter().map(String::len).collect();
    assert_eq!(sizes.iter().filter(|size| **size > 300_000).count(), 1, "{sizes:?}");
    assert_eq!(faulty.witnessed(), 1);
    let faulty = Faulty::new("kind = \"oversized\"\nbytes = 300_000");
    assert!(faulty.client().chat(&chat_body("x", 5, 3, "")).json().to_string().len() > 300_000);
}

#[test]
fn the_content_type_can_be_wrong_or_missing() {
    let faulty = Faulty::new("kind = \"content-type\"\ncontent_type = \"application/json\"");
    assert_eq!(faulty.client().chat(&stream_body("x", 5, 1)).headers["content-type"], "application/json");
    assert_eq!(faulty.witnessed(), 1);
    let faulty = Faulty::new("kind = \"content-type\"\ncontent_type = \"\"");
    assert!(!faulty.client().chat(&stream_body("x", 5, 1)).headers.contains_key("content-type"));
}

#[test]
fn several_events_can_come_in_one_write() {
    let faulty = Faulty::new("kind = \"merged\"\nchunks = 3");
    let answer = faulty.client().chat(&stream_body("x", 5, 6));
    let events: Vec<usize> = answer.chunks.iter().map(|chunk| chunk.matches("data: ").count()).collect();
    // Role and six tokens make two threes, a token and the end; the end alone is three events.
    assert_eq!(events, [3, 3, 1 + 3]);
    assert_eq!(answer.json_events().len(), 9);
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn an_answer_can_come_byte_by_byte() {
    for rule in ["kind = \"split\"\ngap_us = 50", "kind = \"split\"\nbytes = 7"] {
        let faulty = Faulty::new(rule);
        let answer = faulty.client().chat(&stream_body("x", 5, 2));
        assert_eq!((answer.json_events().len(), answer.events().last().unwrap().as_str()), (5, "[DONE]"));
        assert_eq!(faulty.witnessed(), 1);
    }
}

#[test]
fn pieces_of_a_split_answer_have_their_size_and_their_pause() {
    let faulty = Faulty::new("kind = \"split\"\nbytes = 100\ngap_us = 50_000");
    let mut client = faulty.client();
    client.send("POST", "/v1/chat/completions", &[("connection", "close")], &stream_body("x", 5, 1));
    let mut buffer = [0; 4096];
    let mut sizes = Vec::new();
    loop {
        match client.raw().read(&mut buffer).unwrap() {
            0 => break,
            read => sizes.push(read),
        }
    }
    // A reader that is late finds two pieces in one read, never a part of one. What hyper flushed by itself (the head,
    // each event) ends with a piece that is smaller.
    assert!(sizes.len() > 4, "{sizes:?}");
    assert!(sizes.contains(&100), "{sizes:?}");
}

#[test]
fn the_end_can_be_doubled_or_lack_its_parts() {
    let events = |kind: &str| {
        let faulty = Faulty::new(&format!("kind = \"{kind}\""));
        let events = faulty.client().chat(&stream_body("x", 5, 2)).events();
        assert_eq!(faulty.witnessed(), 1);
        events
    };
    let count = |events: &[String], what: &str| events.iter().filter(|event| event.contains(what)).count();
    let doubled = events("duplicate-end");
    assert_eq!((count(&doubled, "[DONE]"), count(&doubled, "\"finish_reason\":\"length\"")), (2, 2));
    let usage = "\"total_tokens\"";
    let without = events("no-usage");
    assert_eq!((count(&without, usage), count(&without, "[DONE]")), (0, 1));
    let without = events("no-done");
    assert_eq!((count(&without, usage), count(&without, "[DONE]")), (1, 0));
}

#[test]
fn rules_look_at_the_request() {
    let rules = "[[fault]]\nname = \"r\"\nkind = \"status\"\nstatus = 500\nmin_input_tokens = 50\n\
                 header = { name = \"x-tenant\", value = \"acme\" }\nattempts = \"first\"";
    let faulty = Faulty::with(fast(), rules);
    let mut client = faulty.client();
    let mut status = |words: u32, headers: &[(&str, &str)]| {
        client.call("POST", "/v1/chat/completions", headers, &stream_body("x", words, 1)).status
    };
    let tenant = ("X-Tenant", "acme");
    assert_eq!(status(50, &[tenant]), 500);
    assert_eq!(status(49, &[tenant]), 200);
    assert_eq!(status(50, &[("x-tenant", "other")]), 200);
    assert_eq!(status(50, &[]), 200);
    assert_eq!(status(50, &[tenant, ("x-stainless-retry-count", "1")]), 200);
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn other_routes_fail_when_named() {
    let faulty = Faulty::new("kind = \"status\"\nstatus = 503\npath = \"/health\"");
    let mut client = faulty.client();
    assert_eq!(client.call("GET", "/health", &[], "").status, 503);
    assert_eq!(client.call("GET", "/v1/models", &[], "").status, 200);
    assert_eq!(faulty.witnessed(), 1);
}

#[test]
fn a_connection_ends_with_its_last_answer_which_says_so() {
    let mut config = fast();
    config.http.close_after_answers = some(3);
    let mock = start(config);
    let mut client = Client::connect(mock.local_addr());
    let announced: Vec<bool> = (0..3)
        .map(|_| client.chat(&stream_body("x", 5, 1)).headers.get("connection").is_some_and(|v| v == "close"))
        .collect();
    assert_eq!(announced, [false, false, true]);
    assert!(client.is_closed());
    assert_eq!(Client::connect(mock.local_addr()).chat(&stream_body("x", 5, 1)).status, 200);
}

#[test]
fn an_idle_connection_is_closed_silently_and_a_busy_one_is_not() {
    let mut config = fast();
    config.http.idle_close_ms = some(200);
    // Twenty tokens of 20 ms: the answer takes twice the idle time.
    config.engine.step_base_us = 20_000;
    let mock = start(config);
    let clock = RunClock::start();
    let mut client = Client::connect(mock.local_addr());
    let answer = client.chat(&stream_body("x", 5, 20));
    assert_eq!((answer.json_events().len(), answer.headers.contains_key("connection")), (23, false));
    let (bytes, reset) = read_to_end(client.raw());
    assert_eq!((bytes.len(), reset), (0, false));
    // The answer takes its twenty steps, and the idle time begins with its end.
    assert!(clock.now().0 >= (20 * 20 + 200) * MS, "{}", clock.now().0);
}

#[test]
fn connections_beyond_the_limit_can_be_reset_or_wait() {
    let config = |text: &str| {
        let text = format!("[http]\nmax_connections = 1\nover_limit = \"{text}\"");
        MockConfig { http: MockConfig::from_toml(&text).unwrap().http, ..fast() }
    };
    let mock = start(config("reset"));
    let mut first = Client::connect(mock.local_addr());
    assert_eq!(first.chat(&stream_body("x", 5, 1)).status, 200);
    assert!(read_to_end(Client::connect(mock.local_addr()).raw()).1);
    let mock = start(config("wait"));
    let mut first = Client::connect(mock.local_addr());
    assert_eq!(first.chat(&stream_body("x", 5, 1)).status, 200);
    let mut second = Client::connect(mock.local_addr());
    second.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 1));
    second.raw().set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert!(second.raw().read(&mut [0]).is_err(), "it waits");
    second.raw().set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    drop(first);
    assert_eq!(second.answer().status, 200);
}

#[test]
fn requests_under_way_can_be_limited() {
    let mut config = fast();
    config.limits.max_in_flight = some(1);
    config.limits.retry_after_floor_ms = 700;
    let mock = start(config);
    let mut first = Client::connect(mock.local_addr());
    first.send("POST", "/v1/chat/completions", &[], &stream_body("x", 5, 2_000));
    first.head();
    let mut second = Client::connect(mock.local_addr());
    let refused = second.chat(&stream_body("x", 5, 1));
    assert_eq!((refused.status, &*refused.headers["retry-after-ms"]), (429, "700"));
    drop(first);
    let clock = RunClock::start();
    while second.chat(&stream_body("x", 5, 1)).status == 429 {
        assert!(clock.now().0 < 20_000 * MS);
        blocking::sleep(5 * MS);
    }
}

#[test]
fn the_summary_counts_statuses_and_every_rule() {
    let mut config = fast();
    config.fault = vec![
        FaultRule { every: some(2), status: Some(500), ..FaultRule::new("errors", FaultKind::Status) },
        FaultRule { every: some(2), ..FaultRule::new("resets", FaultKind::Reset) },
        FaultRule { model: Some("nobody's".into()), ..FaultRule::new("never", FaultKind::Reset) },
    ];
    let mock = start(config);
    for _ in 0..4 {
        let mut client = Client::connect(mock.local_addr());
        client.send("POST", "/v1/chat/completions", &[("connection", "close")], &stream_body("x", 5, 1));
        read_to_end(client.raw());
    }
    let MockSummary { requests, statuses, faults, .. } = mock.shutdown().unwrap();
    assert_eq!(requests, 4);
    // One passes, two are errors, one is reset before its head.
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), [(0, 1), (200, 1), (500, 2)]);
    assert_eq!(faults, [("errors".into(), 2), ("resets".into(), 1), ("never".into(), 0)]);
}
