//! What is sent and read beside the chats: free-form requests of every answer form, embeddings among chats, engines.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use bench::{Bench, MS};
use server::{Heard, Reply, Server};
use tracewheel_replay::{Engine, ProtocolOptions, ReplayConfig, StopSignal};
use tracewheel_timeline::vocab::{BodyState, Operation};
use tracewheel_timeline::{EventKind, RequestRow, RequestStatus, Source};
use tracewheel_workload::PlanOptions;

const VECTORS: &str =
    "{\"data\":[{\"embedding\":[0.5,0.25]}],\"usage\":{\"prompt_tokens\":9,\"total_tokens\":9}}";

fn config(server: &Server, provider: &str) -> ReplayConfig {
    ReplayConfig { target: server.url(), provider: provider.to_owned(), ..ReplayConfig::default() }
}

fn line(heard: &Heard) -> &str {
    heard.head.lines().next().unwrap()
}

fn heard_of<'a>(heard: &'a [Heard], finished: &bench::Finished, bench: &Bench, row: u64) -> &'a Heard {
    let id = finished.id(bench, row);
    heard.iter().find(|heard| heard.id == id).unwrap()
}

#[test]
fn free_form_requests_send_their_recorded_headers_and_no_secret_and_the_scenario_has_the_last_word() {
    let server = Server::start(|_| Reply::Status(200, "", "{}"));
    let bench = Bench::new(&[0, MS], |number, row| {
        let recorded = [
            ("accept", "text/plain"),
            ("x-tier", "recorded"),
            ("x-region", "eu"),
            // No importer keeps these; another hand may have written the timeline.
            ("authorization", "Bearer SECRET"),
            ("x-api-key", "SECRET"),
            ("host", "llm.example"),
            ("accept-encoding", "gzip"),
            ("x-forwarded-for", "192.0.2.1"),
        ];
        let headers = recorded.map(|(name, value)| (name.into(), value.into()));
        *row = RequestRow {
            operation: Operation::Http,
            method: Some("POST".into()),
            path: Some("/x".into()),
            body: Some("{}".into()),
            body_state: BodyState::Full,
            request_headers: (number == 0).then(|| headers.into()),
            ..row.clone()
        };
    });
    let bench = bench.planned(PlanOptions { free_form: true, ..PlanOptions::default() });
    let mut config = config(&server, "http");
    config.headers = vec![("X-Tier".to_owned(), "scenario".to_owned())];
    let finished = bench.run(&config);
    assert_eq!(finished.report.counts.ok, 2);
    let heard = server.heard().clone();
    let of = |row| heard_of(&heard, &finished, &bench, row);
    let (with, without) = (of(0), of(1));
    assert_eq!((with.header("accept"), without.header("accept")), (Some("text/plain"), Some("*/*")));
    assert_eq!((with.header("x-tier"), with.header("x-region")), (Some("scenario"), Some("eu")));
    assert_eq!(with.header("content-type"), Some("application/json"), "the protocol's own");
    assert_eq!(with.header("accept-encoding"), Some("identity"));
    assert!(!with.head.contains("SECRET") && with.header("x-forwarded-for").is_none(), "{}", with.head);
    assert!(with.header("host").unwrap().starts_with("127.0.0.1"));
    // A protocol that is no free form has its own headers alone.
    let chat = RequestRow {
        request_headers: Some([("x-region".into(), "eu".into())].into()),
        ..RequestRow::default()
    };
    let before = server.heard().len();
    let bench = Bench::new(&[0], |_, row| row.request_headers.clone_from(&chat.request_headers));
    bench.run(&ReplayConfig { target: server.url(), ..ReplayConfig::default() });
    assert!(server.heard()[before].header("x-region").is_none());
}

/// Rows of free-form requests: a stream, lines, bytes, a plain answer, and one of which nothing is recorded.
fn free_form() -> Bench {
    let offsets: Vec<i64> = (0..5).map(|number| number * 3 * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        let (method, path, body) = [
            (Some("POST"), Some("/events?x=1"), Some("{\"a\":1}")),
            (Some("PUT"), Some("/lines"), Some("{\"b\":2}")),
            (Some("GET"), Some("/sound"), None),
            (Some("DELETE"), Some("/plain"), None),
            (None, None, None),
        ][number];
        *row = RequestRow {
            operation: Operation::Http,
            method: method.map(Into::into),
            path: path.map(Into::into),
            body: body.map(Into::into),
            body_state: if body.is_some() { BodyState::Full } else { BodyState::Absent },
            input_tokens: None,
            output_tokens: None,
            model: None,
            ..row.clone()
        };
    });
    bench.planned(PlanOptions { free_form: true, ..PlanOptions::default() })
}

fn answers(heard: &Heard) -> Reply {
    Reply::Bytes(match line(heard).split(' ').nth(1).unwrap() {
        "/events?x=1" => {
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: a\n\ndata: bc\n\n"
        }
        "/lines" => {
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n{\"n\":1}\n{\"n\":2}\n{\"n\":3}"
        }
        "/sound" => b"HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\nx-total-time: 12\r\ncontent-length: 4\r\n\r\nRIFF",
        "/plain" => b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok",
        _ => b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    })
}

#[test]
fn free_form_requests_are_sent_as_recorded_and_each_form_of_answer_has_its_first_output() {
    let server = Server::start(answers);
    let bench = free_form();
    let config = ReplayConfig {
        protocol: ProtocolOptions {
            path: Some("/fallback".into()),
            body: Some("{\"q\":\"{{prompt}}\",\"stream\":{{stream}}}".into()),
            ..ProtocolOptions::default()
        },
        headers: vec![("x-team".into(), "a".into()), ("content-type".into(), "text/x-own".into())],
        ..config(&server, "http")
    };
    let finished = bench.run(&config);
    assert_eq!(finished.report.counts.ok, 5);
    let heard = server.heard();
    let lines: Vec<&str> = (0..5).map(|row| line(heard_of(&heard, &finished, &bench, row))).collect();
    assert_eq!(
        lines,
        [
            "POST /events?x=1 HTTP/1.1",
            "PUT /lines HTTP/1.1",
            "GET /sound HTTP/1.1",
            "DELETE /plain HTTP/1.1",
            "POST /fallback HTTP/1.1"
        ]
    );
    let bodies: Vec<&str> =
        (0..5).map(|row| heard_of(&heard, &finished, &bench, row).body.as_str()).collect();
    assert_eq!(bodies, ["{\"a\":1}", "{\"b\":2}", "", "", "{\"q\":\"\",\"stream\":true}"]);
    for heard in &heard {
        assert_eq!((heard.header("x-team"), heard.header("content-type")), (Some("a"), Some("text/x-own")));
    }
    let outputs = |row: u64| {
        let attempt = finished.attempts_of(finished.request(row))[0];
        let of_text = attempt.events.iter().filter(|event| event.kind == EventKind::Text);
        of_text.map(|event| event.bytes).collect::<Vec<_>>()
    };
    assert_eq!(
        (outputs(0), outputs(1), outputs(2), outputs(3)),
        (vec![1, 2], vec![7, 7, 7], vec![1, 3], vec![2])
    );
    assert_eq!(outputs(4), [0; 0]);
    for row in 0..4 {
        let request = finished.request(row);
        assert!(request.first_output_ns.is_some() && request.output_tokens.is_none(), "{request:?}");
    }
    assert_eq!(finished.attempts_of(finished.request(2))[0].server_ms, Some(12));
}

#[test]
fn free_form_requests_of_which_too_little_is_known_are_refused_before_anything_is_sent() {
    let server = Server::start(answers);
    let bench = free_form();
    let refused = |protocol: ProtocolOptions| {
        let config = ReplayConfig { protocol, ..config(&server, "http") };
        bench.try_run(&config, &StopSignal::new()).map(|_| ()).unwrap_err().to_string()
    };
    let told = refused(ProtocolOptions::default());
    assert!(
        told.contains("1 requests (first: row 4) have no recorded path") && told.contains("path ="),
        "{told}"
    );
    let path = ProtocolOptions { path: Some("/x".into()), ..ProtocolOptions::default() };
    let told = refused(path.clone());
    assert!(
        told.contains("1 requests (first: row 4) have no recorded body") && told.contains("{{prompt}}"),
        "{told}"
    );
    let told = refused(ProtocolOptions { body: Some("{{mdel}}".into()), ..path });
    assert!(told.contains("{{mdel}}"), "{told}");
    assert_eq!(server.heard().len(), 0);
}

#[test]
fn embeddings_among_chats_go_to_their_own_route_and_are_answered_without_tokens() {
    let server = Server::start(|heard| match line(heard) {
        "POST /v1/embeddings HTTP/1.1" => Reply::Status(200, "", VECTORS),
        _ => Reply::Stream { chunks: 4, gap_us: 0 },
    });
    let offsets: Vec<i64> = (0..20).map(|number| number * 2 * MS).collect();
    let bench = Bench::new(&offsets, |number, row| {
        if number % 2 == 1 {
            (row.operation, row.output_tokens, row.stream) = (Operation::Embeddings, None, None);
        }
    });
    let finished = bench.run(&config(&server, "openai-chat"));
    assert_eq!((finished.report.counts.ok, finished.report.no_output.as_deref()), (20, None));
    let heard = server.heard();
    for row in 0..20 {
        let request = finished.request(row);
        let heard = heard_of(&heard, &finished, &bench, row);
        if row % 2 == 1 {
            let body: serde_json::Value = serde_json::from_str(&heard.body).unwrap();
            assert_eq!(
                (body["model"].as_str(), body["input"].as_str().unwrap().split_whitespace().count()),
                (Some("asked"), 9)
            );
            assert!(body.get("max_tokens").is_none() && body.get("stream").is_none(), "{body}");
            assert_eq!((request.first_output_ns, request.output_tokens), (None, None));
            assert_eq!(
                (request.input_tokens, request.input_tokens_source),
                (Some(9), Some(Source::Reported))
            );
            assert_eq!(request.strata.operation, Some(Operation::Embeddings));
            assert_eq!(request.strata.stream, Some(false));
        } else {
            assert!(line(heard).contains("/v1/chat/completions") && request.first_output_ns.is_some());
        }
        assert_eq!(request.status, RequestStatus::Ok);
    }
}

#[test]
fn an_engine_decides_what_a_request_says_and_prompts_may_be_token_ids() {
    let server = Server::start(|_| Reply::Stream { chunks: 4, gap_us: 0 });
    let bench = Bench::even(2, 2 * MS);
    let sent = |protocol: ProtocolOptions| -> serde_json::Value {
        let before = server.heard().len();
        let config = ReplayConfig { protocol, ..config(&server, "openai-completions") };
        assert_eq!(bench.run(&config).report.counts.ok, 2);
        serde_json::from_str(&server.heard()[before].body).unwrap()
    };
    let vllm = ProtocolOptions { engine: Some(Engine::Vllm), prompt_ids: true, ..ProtocolOptions::default() };
    let body = sent(vllm);
    let ids = body["prompt"].as_array().unwrap();
    assert!(ids.len() == 9 && ids.iter().all(|id| (1_000..3_048).contains(&id.as_u64().unwrap())), "{body}");
    assert_eq!((&body["min_tokens"], &body["ignore_eos"]), (&4.into(), &true.into()));
    assert_eq!(body["stream_options"]["continuous_usage_stats"], true);
    let body = sent(ProtocolOptions { engine: Some(Engine::Openai), ..ProtocolOptions::default() });
    assert!(body.get("ignore_eos").is_none() && body["prompt"].is_string(), "{body}");
    let refused = ReplayConfig {
        protocol: ProtocolOptions {
            engine: Some(Engine::Tgi),
            prompt_ids: true,
            ..ProtocolOptions::default()
        },
        ..config(&server, "openai-completions")
    };
    let told = bench.try_run(&refused, &StopSignal::new()).map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("prompt_ids") && told.contains("tgi takes no token ids"), "{told}");
}
