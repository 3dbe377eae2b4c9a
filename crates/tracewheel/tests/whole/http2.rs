//! Replays over HTTP/2, with and without TLS.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::Value;
use tracewheel_record::Run;
use tracewheel_timeline::vocab::{Protocol, RequestStatus};

use crate::harness::{Place, QUICK};

const REPLAY: [&str; 6] = ["replay", "t.parquet", "--protocol", "openai-chat", "--model", "m"];
/// What the mapping between two processes' clocks may leave, ns.
const SLACK_NS: i64 = 200_000;

/// Replays, expects all to be well, and gives the run and its report.
fn replay(place: &Place, url: &str, more: &[&str]) -> (Run, Value) {
    let report = place.json(0, &[&REPLAY[..], &["--target", url, "--json"], more].concat());
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    (run, report)
}

fn witness(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path("witness.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every request was ok, reached the endpoint once, and each stamp lies where the endpoint's own log puts it.
fn agrees_with_the_witness(run: &Run, seen: &[Value], requests: usize) {
    let start = run.manifest().clock.start_unix_ns;
    let by_id = |id: &str| {
        let mut found = seen.iter().filter(|line| line["request_id"] == id);
        let one = found.next().unwrap_or_else(|| panic!("{id} never arrived"));
        assert!(found.next().is_none(), "{id} arrived twice");
        one
    };
    let mut ids = BTreeSet::new();
    for exchange in run.exchanges().unwrap() {
        let (request, attempts) = exchange.unwrap();
        assert_eq!(request.status, RequestStatus::Ok, "{request:?}");
        let attempt = attempts.last().unwrap();
        let id = attempt.request_id.as_deref().unwrap();
        let line = by_id(id);
        assert_eq!(attempt.protocol.map(Protocol::as_str), run.manifest().protocol.http.as_deref());
        ids.insert(id.to_owned());
        let arrived = line["arrival_user_unix_ns"].as_i64().unwrap() - start;
        let (released, first_write) = (attempt.released_ns.unwrap(), attempt.first_write_ns.unwrap());
        assert!(released <= arrived + SLACK_NS, "never early");
        assert!(released <= first_write && first_write <= attempt.last_write_ns.unwrap());
        let reads: Vec<_> = attempt.reads.iter().map(|read| read.user_ns).collect();
        assert!(reads.is_sorted() && !reads.is_empty());
        assert!(reads[0] + SLACK_NS >= arrived, "an answer comes after the request");
        assert!(attempt.end_ns.unwrap() <= *reads.last().unwrap() + SLACK_NS);
        let tokens = line["token_mono_ns"].as_array().unwrap().len();
        assert!(attempt.events.len() >= tokens, "{} events, {tokens} tokens", attempt.events.len());
    }
    assert_eq!((ids.len(), seen.len()), (requests, requests), "none lost, none doubled");
}

#[test]
fn a_replay_by_prior_knowledge_reaches_the_endpoint_once_for_each_request() {
    let place = Place::new();
    place.small_timeline(60);
    let mock = place.mock(QUICK);
    let (run, report) = replay(&place, &mock.url, &["--http", "2", "--speed", "20"]);
    mock.stop();
    assert_eq!(report["run"]["counts"]["ok"], 60);
    agrees_with_the_witness(&run, &witness(&place), 60);
    let manifest = run.manifest();
    assert_eq!(manifest.protocol.http.as_deref(), Some("h2c"));
    let connections = manifest.outcome.as_ref().unwrap().connections.as_ref().unwrap();
    assert_eq!(connections.streams, Some(100), "as chosen: the endpoint allows more");
    assert!(connections.opened < 10, "many requests shared a connection: {connections:?}");
}

#[test]
fn over_tls_both_versions_are_spoken_and_the_endpoint_chooses_http2() {
    let place = Place::new();
    place.small_timeline(20);
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    place.write("cert.pem", &made.cert.pem());
    place.write("key.pem", &made.signing_key.serialize_pem());
    let config = format!("{QUICK}\n[http]\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n");
    for (choice, spoken) in [("auto", "h2"), ("2", "h2"), ("1.1", "h1")] {
        let mock = place.mock(&config);
        let more = ["--http", choice, "--ca-file", "cert.pem", "--speed", "20"];
        let (run, _) = replay(&place, &mock.url, &more);
        mock.stop();
        agrees_with_the_witness(&run, &witness(&place), 20);
        assert_eq!(run.manifest().protocol.http.as_deref(), Some(spoken), "{choice}");
        let alpn = if spoken == "h2" { "h2" } else { "http/1.1" };
        assert_eq!(run.manifest().tls.as_ref().unwrap().alpn.as_deref(), Some(alpn));
    }
}

#[test]
fn connections_that_say_goodbye_and_fewer_streams_than_requests_lose_and_double_nothing() {
    let place = Place::new();
    place.small_timeline(60);
    for http in ["close_after_answers = 7", "max_concurrent_streams = 2"] {
        let mock = place.mock(&format!("{QUICK}\n[http]\n{http}\n"));
        let (run, _) = replay(&place, &mock.url, &["--http", "2", "--speed", "50", "--http2-streams", "5"]);
        mock.stop();
        agrees_with_the_witness(&run, &witness(&place), 60);
    }
}

#[test]
fn a_stream_that_is_reset_is_told_by_its_code_and_no_other_request_suffers() {
    let place = Place::new();
    place.small_timeline(30);
    let faults = "[[fault]]\nname = \"r\"\nkind = \"reset\"\nafter_chunks = 2\nevery = 10\n\
                  [[fault]]\nname = \"c\"\nkind = \"close\"\nevery = 7\n";
    let mock = place.mock(&format!("{QUICK}\n{faults}"));
    let (run, report) = replay(&place, &mock.url, &["--http", "2", "--speed", "20"]);
    mock.stop();
    let seen = witness(&place);
    let hit = |name: &str| seen.iter().filter(|line| line["fault"] == name).count();
    let reasons = |word: &str| {
        let all = run.exchanges().unwrap().map(Result::unwrap);
        all.filter(|(request, _)| request.reason.is_some_and(|reason| reason.as_str() == word)).count()
    };
    assert!(hit("r") > 0 && hit("c") > 0);
    assert_eq!((reasons("stream_internal_error"), reasons("stream_cancelled")), (hit("r"), hit("c")));
    assert_eq!(report["run"]["counts"]["ok"], 30 - hit("r") - hit("c"));
    // What the policy of an SDK does with it: again, where nothing of an answer had come.
    let mock = place.mock(&format!("{QUICK}\n{faults}"));
    let (run, _) = replay(&place, &mock.url, &["--http", "2", "--speed", "20", "--retry", "openai-sdk"]);
    mock.stop();
    let retried = run.exchanges().unwrap().map(Result::unwrap);
    let again = retried.filter(|(_, attempts)| {
        attempts
            .iter()
            .any(|attempt| attempt.reason.is_some_and(|reason| reason.as_str() == "stream_cancelled"))
            && attempts.len() > 1
    });
    assert!(again.count() > 0);
}

#[test]
fn a_server_that_speaks_the_other_version_only_is_told_with_the_remedy() {
    let place = Place::new();
    place.small_timeline(2);
    let url = one_answer_to_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    let told = place.fails(30, &[&REPLAY[..], &["--target", &url, "--http", "2"]].concat());
    assert!(told.contains("--http 1.1") && told.contains("HTTP/1.1"), "{told}");
    // SETTINGS, as a server of HTTP/2 begins.
    let url = one_answer_to_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    let told = place.fails(30, &[&REPLAY[..], &["--target", &url]].concat());
    assert!(told.contains("http2_only 2") && told.contains("--http 2"), "{told}");
}

/// A server that says the same to whatever it is asked, and closes.
fn one_answer_to_all(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(answer);
            });
        }
    });
    url
}
