//! Targets that are away, hang, break off or babble: every request has a status and a reason.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::Value;
use tracewheel_record::Run;

use crate::harness::{Place, QUICK};

/// A server that does `behave` with each connection, in a thread for each.
fn server(behave: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || behave(stream));
        }
    });
    url
}

fn read_head(stream: &mut TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut buffer = [0_u8; 65_536];
    let _ = stream.read(&mut buffer);
}

fn replay(place: &Place, code: i32, target: &str, more: &[&str]) -> Value {
    let base =
        ["replay", "t.parquet", "--target", target, "--protocol", "openai-chat", "--model", "m", "--json"];
    let report = place.json(code, &[&base[..], more].concat());
    let counts = &report["run"]["counts"];
    let sum: u64 = ["ok", "failed", "cancelled", "interrupted", "unsent"]
        .iter()
        .map(|status| counts[status].as_u64().unwrap())
        .sum();
    assert_eq!(counts["planned"].as_u64(), Some(sum));
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    let requests: Vec<_> = run.requests().unwrap().map(|request| request.unwrap()).collect();
    assert_eq!(requests.len() as u64, sum);
    for request in &requests {
        assert_eq!(request.reason.is_none(), request.status.as_str() == "ok", "{request:?}");
    }
    report
}

#[test]
fn a_target_that_is_not_there_fails_every_request_with_the_reason() {
    let place = Place::new();
    place.small_timeline(5);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let target = format!("http://127.0.0.1:{port}");
    let report = replay(&place, 30, &target, &[]);
    assert_eq!(report["run"]["counts"]["ok"], 0);
    let base = ["replay", "t.parquet", "--target", &target, "--protocol", "openai-chat", "--model", "m"];
    let told = place.fails(30, &base);
    assert!(told.contains("error: cannot connect") && told.contains("refused"), "{told}");
    assert!(!told.contains("faithful"), "the target is behind it, not this machine: {told}");
    let told = place.fails(30, &[&base[..], &["--flush", "vllm"]].concat());
    assert!(told.contains("failed before-prime: cannot connect: refused"), "said once: {told}");
    assert!(!told.contains("faithful"), "{told}");
}

#[test]
fn a_connection_that_breaks_before_the_answer_is_told_from_one_that_breaks_inside_it() {
    let place = Place::new();
    place.small_timeline(3);
    let before = server(|mut stream| read_head(&mut stream));
    let report = replay(&place, 30, &before, &[]);
    assert_eq!(report["run"]["counts"]["reasons"]["reset_before_response"], 3, "{report}");
    let inside = server(|mut stream| {
        read_head(&mut stream);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
        let _ = stream.write_all(format!("{head}{:x}\r\n{event}\r\n", event.len()).as_bytes());
    });
    let report = replay(&place, 30, &inside, &[]);
    assert_eq!(report["run"]["counts"]["reasons"]["reset_mid_stream"], 3, "{report}");
}

#[test]
fn a_stream_that_ends_without_its_terminal_event_is_truncated_and_garbage_is_named() {
    let place = Place::new();
    place.small_timeline(2);
    let cut = server(|mut stream| {
        read_head(&mut stream);
        let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";
        let _ = stream.write_all(format!("{head}content-length: {}\r\n\r\n{event}", event.len()).as_bytes());
    });
    let report = replay(&place, 30, &cut, &[]);
    assert_eq!(report["run"]["counts"]["reasons"]["truncated"], 2, "{report}");
    let base = ["replay", "t.parquet", "--target", &cut, "--protocol", "openai-chat", "--model", "m"];
    let told = place.fails(30, &base);
    assert!(told.contains("without the end that --protocol has"), "{told}");
    assert!(!told.contains("error_body"), "the server said nothing that could stand there: {told}");
    let garbage = server(|mut stream| {
        read_head(&mut stream);
        let _ = stream.write_all(b"\x00\x01\x02 this is not HTTP\r\n\r\n");
    });
    assert_eq!(replay(&place, 30, &garbage, &[])["run"]["counts"]["failed"], 2);
}

#[test]
fn a_target_that_hangs_is_given_up_after_the_time_out() {
    let place = Place::new();
    place.small_timeline(2);
    let hanging = server(|mut stream| {
        read_head(&mut stream);
        std::thread::sleep(Duration::from_secs(20));
    });
    let report = replay(&place, 30, &hanging, &["--timeout", "500ms"]);
    assert_eq!(report["run"]["counts"]["failed"], 2);
    assert!(
        report["run"]["counts"]["reasons"]
            .as_object()
            .unwrap()
            .keys()
            .all(|reason| reason.contains("timeout")),
        "{report}"
    );
}

#[test]
fn throttled_requests_wait_as_told_and_count_as_one_request_with_all_of_the_wait() {
    let place = Place::new();
    place.small_timeline(12);
    let limits = "[limits]\nrequests_per_minute = 120\nrequest_burst = 2\n";
    let mock = place.mock(&format!("{QUICK}{limits}"));
    let report = replay(&place, 0, &mock.url, &["--retry", "openai-sdk", "--speed", "2"]);
    mock.stop();
    assert!(report["run"]["retries"]["retried"].as_u64().unwrap() > 0, "{report}");
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    let attempts: Vec<_> = run.attempts().unwrap().map(|attempt| attempt.unwrap()).collect();
    for request in
        run.requests().unwrap().map(|request| request.unwrap()).filter(|request| request.attempts > 1)
    {
        let own: Vec<_> = attempts.iter().filter(|attempt| attempt.row == request.row).collect();
        assert_eq!(own.len(), usize::from(request.attempts));
        assert_eq!(own[0].http_status, Some(429));
        assert_eq!(own[0].due_ns, request.due_ns);
        let waited: i64 = own.windows(2).map(|pair| pair[1].due_ns - pair[0].end_ns.unwrap()).sum();
        assert_eq!(waited, request.backoff_ns);
        assert!(
            own.windows(2)
                .all(|pair| pair[1].due_ns - pair[0].end_ns.unwrap() >= pair[0].retry_after_ns.unwrap())
        );
        assert!(request.first_output_ns.is_none_or(|first| first - request.due_ns > request.backoff_ns));
    }
}

#[test]
fn a_name_that_does_not_resolve_ends_before_the_start_and_leaves_no_run() {
    let place = Place::new();
    place.small_timeline(2);
    let base = ["replay", "t.parquet", "--protocol", "openai-chat", "--model", "m"];
    let told = place.fails(30, &[&base[..], &["--target", "http://no-such-host.invalid:8000"]].concat());
    assert!(told.contains("cannot resolve no-such-host.invalid") && told.contains("DNS"), "{told}");
    assert!(!place.path("runs").exists());
}

#[test]
fn the_message_names_the_first_failure_its_remedy_and_the_counts_by_reason() {
    let place = Place::new();
    place.small_timeline(3);
    let elsewhere = server(|mut stream| {
        read_head(&mut stream);
        let head = "HTTP/1.1 308 Permanent Redirect\r\nlocation: https://llm.test/v1?key=planted\r\n";
        let _ = stream.write_all(format!("{head}content-length: 0\r\n\r\n").as_bytes());
    });
    let base = ["replay", "t.parquet", "--target", &elsewhere, "--protocol", "openai-chat", "--model", "m"];
    let told = place.fails(30, &base);
    for part in ["http_redirect 3", "row 0", "HTTP 308", "redirected to https://llm.test/v1;", "--target"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("planted"), "{told}");
}

#[test]
fn a_run_that_needs_more_files_than_it_may_open_says_so_and_is_recorded_all_the_same() {
    let place = Place::new();
    place.small_timeline(60);
    let hanging = server(|mut stream| {
        read_head(&mut stream);
        std::thread::sleep(Duration::from_secs(20));
    });
    let binary = env!("CARGO_BIN_EXE_tracewheel");
    let script = format!(
        "ulimit -n 70; exec {binary} replay t.parquet --target {hanging} --protocol openai-chat --model m \
         --speed 100 --timeout 1s --json"
    );
    let mut shell = std::process::Command::new("sh");
    let output = shell.arg("-c").arg(script).current_dir(place.path("")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(30), "{told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let reasons = &report["run"]["counts"]["reasons"];
    assert!(reasons["local_descriptors"].as_u64().unwrap() > 20, "{report}");
    assert!(reasons["response_timeout"].as_u64().unwrap() >= 1, "{report}");
    assert_eq!(report["run"]["counts"]["failed"], 60);
    let warned =
        report["warnings"].as_array().unwrap().iter().any(|line| line.to_string().contains("ulimit -n"));
    assert!(warned, "{report}");
}
