//! Every way for a request to fail is recorded as what it was, counted once, and retried as the policy says.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use bench::{Bench, Finished, MS};
use server::{Reply, Server};
use tracewheel_replay::{ReplayConfig, RetryPolicy, Secret, StopLevel, StopSignal};
use tracewheel_timeline::{AttemptStatus, EventKind, Reason, RequestStatus};

fn config(server: &Server) -> ReplayConfig {
    ReplayConfig { target: server.url(), ..ReplayConfig::default() }
}

fn ok() -> Reply {
    Reply::Stream { chunks: 2, gap_us: 0 }
}

/// A fast policy of the SDKs' shape.
fn retrying() -> RetryPolicy {
    RetryPolicy { base_delay_ns: 20 * MS, max_delay_ns: 80 * MS, ..RetryPolicy::openai_sdk() }
}

fn ends(finished: &Finished) -> Vec<(RequestStatus, Option<Reason>)> {
    let mut requests: Vec<_> = finished.requests.iter().collect();
    requests.sort_by_key(|request| request.row);
    requests.iter().map(|request| (request.status, request.reason)).collect()
}

/// One request for each reply, and one that goes well after them.
fn one_each(replies: Vec<Reply>, config: impl Fn(ReplayConfig) -> ReplayConfig) -> Finished {
    let bench = Bench::even(replies.len() + 1, 10 * MS);
    let digest = bench.plan.header().timeline_digest.clone();
    let ids: Vec<String> = (0..replies.len() as u64)
        .map(|row| format!("{:016x}", tracewheel_workload::request_id(&digest, row, 0)))
        .collect();
    let server = Server::start(move |heard| match ids.iter().position(|id| *id == heard.id) {
        Some(row) => replies[row].clone(),
        None => ok(),
    });
    bench.run(&config(ReplayConfig { request_timeout_ns: 2_000 * MS, ..self::config(&server) }))
}

fn error_body(finished: &Finished, row: u64) -> &str {
    let attempts = finished.attempts_of(finished.request(row));
    let [attempt] = attempts[..] else { panic!("{attempts:?}") };
    finished.attempts.iter().find(|other| *other == attempt).unwrap().error_body.as_deref().unwrap_or("")
}

#[test]
fn each_kind_of_failure_keeps_its_name() {
    let kinds = [
        (Reply::Reset, Reason::ResetBeforeResponse),
        (Reply::ResetMid, Reason::ResetMidStream),
        (Reply::Garbage, Reason::HttpProtocol),
        (Reply::Truncated, Reason::Truncated),
        (Reply::ErrorInStream, Reason::ErrorInStream),
        (Reply::Status(500, "", "{\"error\":{\"message\":\"boom\"}}"), Reason::Http5xx),
        (Reply::Status(502, "", ""), Reason::BadGateway),
        (Reply::Status(503, "", ""), Reason::Overloaded),
        (Reply::Status(504, "", ""), Reason::BadGateway),
        (Reply::Status(529, "", ""), Reason::Overloaded),
        (Reply::Status(429, "", ""), Reason::RateLimited),
        (Reply::Status(400, "", ""), Reason::InvalidRequest),
        (Reply::Status(401, "", ""), Reason::Unauthorized),
        (Reply::Status(403, "", ""), Reason::Unauthorized),
        (Reply::Status(404, "", ""), Reason::NotFound),
        (Reply::Status(409, "", ""), Reason::Http4xx),
        (Reply::Status(413, "", ""), Reason::RequestTooLarge),
        (Reply::Status(422, "", ""), Reason::InvalidRequest),
        (Reply::Status(302, "location: /\r\n", ""), Reason::HttpRedirect),
        (Reply::Status(200, "content-encoding: gzip\r\n", "\u{1f}"), Reason::ContentEncoded),
        (
            Reply::StreamOf(
                "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\"finish_reason\":\"abort\"}]}\n\n",
            ),
            Reason::AbortedByServer,
        ),
        (Reply::CommentFlood(300_000), Reason::LimitExceeded),
        (Reply::InterimFlood, Reason::HeadTooLarge),
        (Reply::Hang, Reason::ResponseTimeout),
        (Reply::HangMid, Reason::TotalTimeout),
    ];
    let finished = one_each(kinds.iter().map(|(reply, _)| reply.clone()).collect(), |config| config);
    let ends = ends(&finished);
    for (row, (reply, reason)) in kinds.iter().enumerate() {
        assert_eq!(ends[row], (RequestStatus::Failed, Some(*reason)), "{reply:?}");
        assert_eq!(finished.attempts_of(finished.request(row as u64)).len(), 1);
    }
    assert_eq!(ends[kinds.len()], (RequestStatus::Ok, None), "the one after them is well");
    assert_eq!((finished.report.counts.ok, finished.report.counts.failed), (1, kinds.len() as u64));
    let reasons = &finished.report.reasons;
    assert_eq!((reasons["total_timeout"], reasons["response_timeout"], reasons["bad_gateway"]), (1, 1, 2));
    let flooded =
        finished.attempts.iter().find(|attempt| attempt.reason == Some(Reason::LimitExceeded)).unwrap();
    assert_eq!(flooded.events.len(), 1 << 18, "what is kept of a flood is bounded");
    let told = |reason| {
        let attempt = finished.attempts.iter().find(|attempt| attempt.reason == Some(reason)).unwrap();
        attempt.error_body.clone().unwrap()
    };
    assert!(told(Reason::ContentEncoded).contains("content-encoding gzip"));
    assert!(told(Reason::LimitExceeded).contains("more than 262144 events"));
    let boom = finished.attempts.iter().find(|attempt| attempt.http_status == Some(500)).unwrap();
    assert!(boom.error_body.as_ref().unwrap().contains("boom"));
    let hung = finished.request(kinds.len() as u64 - 1);
    assert!(hung.first_output_ns.is_some(), "what came before the time-out is kept");
    assert!(hung.end_ns.unwrap() - hung.due_ns >= 2_000 * MS);
}

#[test]
fn bytes_that_are_no_good_answer_are_told_by_what_they_are() {
    let flood = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-flood: 0123456789\r\n".repeat(30_000));
    let flood: &'static [u8] = flood.leak().as_bytes();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n";
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
    let bytes = |text: String| -> &'static [u8] { text.leak().as_bytes() };
    let sized = |length: usize, body: &str| bytes(format!("{head}content-length: {length}\r\n\r\n{body}"));
    let page = "<html><title>502 Bad Gateway</title></html>";
    let page_as = |status: &str| {
        let length = page.len();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n");
        bytes(head + page)
    };
    let broken = "data: {\"choices\":[{\n\n";
    let kinds: [(&'static [u8], Reason, &str); 13] = [
        (b"HTTP/1.1 200 OK\r\nconte", Reason::ResetInHeaders, "transport"),
        (b"\x15\x03\x03\x00\x02\x02\x46", Reason::HttpsExpected, "https://"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00\x00", Reason::Http2Only, "HTTP/2"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Reason::HttpProtocol, "PRI * HTTP/2.0"),
        (
            bytes(format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n{event}\r\n")),
            Reason::HttpFraming,
            "transport",
        ),
        (sized(event.len() + 9, event), Reason::ResetMidStream, "transport"),
        (sized(event.len(), event), Reason::Truncated, ""),
        (sized(event.len() - 1, event), Reason::UnterminatedTail, ""),
        (flood, Reason::HeadTooLarge, "head"),
        (sized(broken.len(), broken), Reason::Malformed, "text/event-stream"),
        (page_as("502 Bad Gateway"), Reason::BadGateway, page),
        (page_as("200 OK"), Reason::Malformed, page),
        (bytes("HTTP/1.1 204 No Content\r\n\r\n".to_owned()), Reason::Truncated, ""),
    ];
    let replies = kinds.iter().map(|(bytes, ..)| Reply::Bytes(bytes)).collect();
    let finished = one_each(replies, |config| config);
    let ends = ends(&finished);
    for (row, (bytes, reason, said)) in kinds.iter().enumerate() {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
        assert_eq!(ends[row], (RequestStatus::Failed, Some(*reason)), "{shown}");
        let body = error_body(&finished, row as u64);
        assert!(body.contains(said), "{shown}: {body}");
    }
    assert_eq!(ends[kinds.len()], (RequestStatus::Ok, None), "the one after them is well");
}

#[test]
fn what_a_target_says_about_an_error_is_kept_short_readable_and_without_secrets() {
    let long: &'static str = format!("x{}", "\u{e9}".repeat(3_000)).leak();
    let kinds = [
        (Reply::Status(401, "", "key hunter-22 is wrong"), "key [redacted] is wrong"),
        (Reply::Status(500, "", "\u{1}\u{2}\u{0}"), "[3 bytes that are no text"),
        (Reply::Status(500, "content-encoding: gzip\r\n", "????"), "encoded as gzip"),
        (
            Reply::Status(307, "location: https://me:pw@other.test/v1/x?key=hunter-22\r\n", ""),
            "redirected to https://other.test/v1/x; not followed",
        ),
        (Reply::Status(500, "", long), "x\u{e9}\u{e9}"),
    ];
    let finished = one_each(kinds.iter().map(|(reply, _)| reply.clone()).collect(), |config| ReplayConfig {
        secret: Some(Secret::new("hunter-22")),
        ..config
    });
    for (row, (_, said)) in kinds.iter().enumerate() {
        let body = error_body(&finished, row as u64);
        assert!(body.contains(said) && !body.contains("hunter"), "{body}");
        assert!(body.len() <= 2_048);
    }
    let first = finished.report.first_failure.as_ref().unwrap();
    assert_eq!((first.reason.status(), first.said.is_some()), (RequestStatus::Failed, true));
    assert!(!format!("{first:?}").contains("hunter"));
}

#[test]
fn a_target_that_dies_and_comes_back_fails_what_was_due_meanwhile_and_nothing_else() {
    let answer = |_: &server::Heard| Reply::StreamThenClose { chunks: 1 };
    let server = Server::start(answer);
    let bench = Bench::even(90, 20 * MS);
    let finished = std::thread::scope(|scope| {
        scope.spawn(|| {
            server.stop_listening_after(10);
            tracewheel_clock::blocking::sleep(400 * MS);
            let again = Server::start_at(server.addr, answer);
            while again.heard().len() < 20 {
                tracewheel_clock::blocking::sleep(MS);
            }
        });
        bench.run(&ReplayConfig { warm_connections: Some(1), ..config(&server) })
    });
    let ends = ends(&finished);
    assert_eq!(ends[0], (RequestStatus::Ok, None));
    assert_eq!(ends[89], (RequestStatus::Ok, None), "it came back");
    let counts = finished.report.counts;
    assert!(counts.ok >= 30 && counts.failed >= 3, "{counts:?}");
    for request in finished.requests.iter().filter(|request| request.status == RequestStatus::Failed) {
        // A connection that was made in the moment of the death is reset.
        let expected = [Some(Reason::ConnectRefused), Some(Reason::ResetBeforeResponse)];
        assert!(expected.contains(&request.reason), "{request:?}");
        assert_eq!(request.due_ns, request.planned_ns, "no wait for a connection moves a due time");
    }
}

#[test]
fn a_refused_connection_fails_its_request_and_is_retried_when_the_policy_says_so() {
    let server = Server::start(|_| Reply::StreamThenClose { chunks: 1 });
    let bench = Bench::even(4, 150 * MS);
    let finished = std::thread::scope(|scope| {
        // After the first request nobody listens any more: later ones meet a closed port.
        scope.spawn(|| server.stop_listening_after(1));
        bench.run(&ReplayConfig { retry: retrying(), warm_connections: Some(1), ..config(&server) })
    });
    assert_eq!(finished.report.counts.ok + finished.report.counts.failed, 4);
    let last = finished.request(3);
    assert_eq!((last.status, last.reason), (RequestStatus::Failed, Some(Reason::ConnectRefused)));
    let attempts = finished.attempts_of(last);
    assert_eq!(attempts.len(), 3);
    assert!(attempts.iter().all(|attempt| attempt.reason == Some(Reason::ConnectRefused)));
    assert!(attempts.iter().all(|attempt| attempt.first_write_ns.is_none() && attempt.connection.is_none()));
}

#[test]
fn a_target_that_is_down_leaves_everything_unsent_and_says_why() {
    let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let bench = Bench::even(25, MS);
    let config = ReplayConfig { target: format!("http://{addr}"), ..ReplayConfig::default() };
    let finished = bench.run(&config);
    assert_eq!(finished.report.counts.unsent, 25);
    assert!(finished.report.gave_up.as_ref().unwrap().contains("refused"), "{:?}", finished.report.gave_up);
    assert!(ends(&finished).iter().all(|end| *end == (RequestStatus::Unsent, Some(Reason::RunAborted))));
    assert!(finished.attempts.is_empty());
}

#[test]
fn a_429_then_a_200_is_one_request_with_the_wait_inside_its_latency() {
    let server = Server::start(|heard| match heard.nth {
        1 => Reply::Status(429, "retry-after-ms: 120\r\nretry-after: 9\r\n", "{}"),
        _ => ok(),
    });
    let bench = Bench::even(5, 10 * MS);
    let finished = bench.run(&ReplayConfig { retry: RetryPolicy::openai_sdk(), ..config(&server) });
    assert_eq!((finished.report.counts.ok, finished.report.retries), (5, 5));
    for request in &finished.requests {
        let attempts = finished.attempts_of(request);
        let [first, second] = attempts[..] else { panic!("{attempts:?}") };
        assert_eq!((first.status, first.reason), (AttemptStatus::Failed, Some(Reason::RateLimited)));
        assert_eq!(first.retry_after_ns, Some(120 * MS));
        assert_eq!(second.due_ns, first.end_ns.unwrap() + 120 * MS);
        assert!(second.released_ns.unwrap() >= second.due_ns);
        assert_eq!((request.attempts, request.final_attempt, request.backoff_ns), (2, 2, 120 * MS));
        assert_eq!(first.due_ns, request.due_ns);
        assert!(request.first_output_ns.unwrap() - request.due_ns >= 120 * MS);
    }
    let heard = server.heard();
    assert_eq!(heard.len(), 10);
    for heard in &heard {
        let expected = (heard.nth > 1).then(|| (heard.nth - 1).to_string());
        assert_eq!(heard.header("x-stainless-retry-count"), expected.as_deref());
        let twin = heard.id.as_str();
        let bodies: Vec<_> =
            server.heard().into_iter().filter(|other| other.id == twin).map(|other| other.body).collect();
        assert_eq!(bodies.len(), 2, "the same identity on every attempt");
        assert_eq!(bodies[0], bodies[1], "and the same bytes");
    }
}

#[test]
fn five_hundreds_are_tried_three_times_with_growing_shortened_waits() {
    let server = Server::start(|_| Reply::Status(500, "", "{}"));
    let finished = Bench::even(6, 5 * MS).run(&ReplayConfig { retry: retrying(), ..config(&server) });
    assert_eq!((finished.report.counts.failed, finished.report.attempts), (6, 18));
    for request in &finished.requests {
        let attempts = finished.attempts_of(request);
        for (retry, pair) in attempts.windows(2).enumerate() {
            let wait = pair[1].due_ns - pair[0].end_ns.unwrap();
            let full = (20 * MS) << retry;
            assert!((full * 3 / 4..=full).contains(&wait), "wait {retry}: {wait}");
        }
        assert_eq!((request.attempts, request.reason), (3, Some(Reason::Http5xx)));
    }
}

#[test]
fn an_unsafe_reset_is_sent_again_only_if_the_policy_says_so() {
    for (allowed, attempts) in [(true, 2), (false, 1)] {
        let server = Server::start(|heard| if heard.nth == 1 { Reply::Reset } else { ok() });
        let retry = RetryPolicy { on_reset_before_response: allowed, ..retrying() };
        let finished = Bench::even(3, 5 * MS).run(&ReplayConfig { retry, ..config(&server) });
        assert!(finished.requests.iter().all(|request| request.attempts == attempts));
        assert_eq!(finished.report.counts.ok, if allowed { 3 } else { 0 });
        assert_eq!(server.heard().len(), 3 * usize::from(attempts));
    }
}

#[test]
fn a_server_that_closes_after_every_answer_loses_and_doubles_nothing() {
    let server = Server::start(|_| Reply::StreamThenClose { chunks: 1 });
    let finished = Bench::even(100, 2 * MS).run(&config(&server));
    assert_eq!(finished.report.counts.ok, 100);
    assert_eq!(server.heard().len(), 100);
    assert!(finished.report.connections >= 100);
}

#[test]
fn a_recorded_cancel_leaves_at_its_time() {
    let server = Server::start(|_| Reply::HangMid);
    let bench = Bench::new(&[0, 5 * MS], |_, row| row.cancel_after_ns = Some(60 * MS));
    let finished = bench.run(&ReplayConfig { cancel_as_recorded: true, ..config(&server) });
    assert_eq!(finished.report.counts.cancelled, 2);
    for request in &finished.requests {
        assert_eq!(request.reason, Some(Reason::CancelledAsRecorded));
        let stayed = request.end_ns.unwrap() - request.due_ns;
        assert!((60 * MS..200 * MS).contains(&stayed), "{stayed}");
        let attempt = finished.attempts_of(request)[0];
        assert_eq!(attempt.status, AttemptStatus::Cancelled);
        assert!(attempt.events.iter().any(|event| event.kind == EventKind::Text));
    }
}

#[test]
fn nobody_leaves_as_recorded_unless_that_was_asked_for() {
    let server = Server::start(|_| Reply::Stream { chunks: 2, gap_us: 40_000 });
    let bench = Bench::new(&[0], |_, row| row.cancel_after_ns = Some(MS));
    assert_eq!(bench.run(&config(&server)).report.counts.ok, 1);
}

#[test]
fn a_cancel_during_a_back_off_ends_the_request() {
    let server = Server::start(|_| Reply::Status(429, "retry-after: 30\r\n", ""));
    let bench = Bench::new(&[0], |_, row| row.cancel_after_ns = Some(80 * MS));
    let retry = RetryPolicy::openai_sdk();
    let finished = bench.run(&ReplayConfig { retry, cancel_as_recorded: true, ..config(&server) });
    let request = finished.request(0);
    assert_eq!((request.status, request.attempts, request.final_attempt), (RequestStatus::Cancelled, 1, 1));
    assert!(request.end_ns.unwrap() - request.due_ns < 1_000 * MS);
}

#[test]
fn failing_too_often_in_a_row_ends_the_run() {
    let server = Server::start(|_| Reply::Status(500, "", ""));
    let finished =
        Bench::even(400, 2 * MS).run(&ReplayConfig { give_up_after_failures: Some(20), ..config(&server) });
    let counts = finished.report.counts;
    assert!(counts.failed >= 20 && counts.unsent > 100, "{counts:?}");
    assert!(finished.report.gave_up.is_some());
    assert_eq!(
        finished.run.manifest().outcome.as_ref().unwrap().ended_by,
        tracewheel_record::manifest::EndedBy::Failures
    );
}

#[test]
fn a_stop_drains_and_a_second_one_cuts() {
    for cut in [false, true] {
        let server = Server::start(|_| Reply::Stream { chunks: 3, gap_us: 50_000 });
        let bench = Bench::even(60, 20 * MS);
        let stop = StopSignal::new();
        let finished = std::thread::scope(|scope| {
            let (stop, server) = (stop.clone(), &server);
            let handle = stop.clone();
            scope.spawn(move || {
                while server.heard().len() < 15 {
                    tracewheel_clock::blocking::sleep(MS);
                }
                handle.escalate();
                if cut {
                    handle.escalate();
                }
            });
            bench.try_run(&config(server), &stop).unwrap()
        });
        let counts = finished.report.counts;
        assert_eq!(finished.report.stopped, if cut { StopLevel::Cut } else { StopLevel::Drain });
        assert!(counts.unsent > 20 && counts.ok > 0, "{counts:?}");
        assert_eq!(counts.interrupted > 0, cut, "{counts:?}");
        for request in &finished.requests {
            match request.status {
                RequestStatus::Unsent => assert_eq!(request.reason, Some(Reason::StoppedByUser)),
                RequestStatus::Interrupted => assert_eq!(request.reason, Some(Reason::InterruptedByUser)),
                status => assert_eq!(status, RequestStatus::Ok),
            }
        }
        assert_eq!(server.heard().len() as u64, counts.ok + counts.interrupted, "what was unsent never left");
    }
}

#[test]
fn the_drain_limit_interrupts_what_hangs() {
    let server = Server::start(|_| Reply::Hang);
    let finished =
        Bench::even(5, 5 * MS).run(&ReplayConfig { drain_timeout_ns: Some(100 * MS), ..config(&server) });
    assert_eq!(finished.report.counts.interrupted, 5);
    assert!(finished.requests.iter().all(|request| request.reason == Some(Reason::InterruptedByDrainLimit)));
}

#[test]
fn an_answer_of_forty_thousand_tokens_is_whole() {
    // As a reasoning model streams it: 300 bytes around each token.
    let filler = "x".repeat(200);
    let chunk = |finish: &str| {
        format!(
            "data: {{\"id\":\"{filler}\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"a\"}},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let body = chunk("null").repeat(39_999) + &chunk("\"length\"") + "data: [DONE]\n\n";
    assert!(body.len() > 12 << 20);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer: &'static [u8] = Box::leak(answer.into_bytes().into_boxed_slice());
    let server = Server::start(move |_| Reply::Bytes(answer));
    let finished = Bench::even(1, MS).run(&config(&server));
    assert_eq!(finished.request(0).status, RequestStatus::Ok, "{:?}", finished.request(0).reason);
    let outputs = finished.attempts[0].events.iter().filter(|event| event.kind == EventKind::Text);
    assert_eq!(outputs.count(), 40_000);
}

#[test]
fn an_answer_above_the_limit_fails_its_request_and_keeps_no_more_than_the_limit() {
    let server = Server::start(|_| Reply::Stream { chunks: 500, gap_us: 0 });
    let finished = Bench::even(3, MS).run(&ReplayConfig { max_response_bytes: 1_000, ..config(&server) });
    assert!(ends(&finished).iter().all(|end| *end == (RequestStatus::Failed, Some(Reason::LimitExceeded))));
    assert!(
        finished
            .attempts
            .iter()
            .all(|attempt| attempt.http_status == Some(200) && attempt.error_body.is_some())
    );
}

#[test]
fn floods_end_as_what_they_are_and_the_run_goes_on() {
    let page = |head: &str, piece: &str, times| -> &'static [u8] {
        format!(
            "HTTP/1.1 {head}\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{}",
            piece.repeat(times)
        )
        .leak()
        .as_bytes()
    };
    let error = page("500 Internal Server Error", "0123456789abcdef", 64 << 10);
    let line = page("200 OK", "data: 0123456789", 1 << 20);
    let kinds = [(error, Reason::Http5xx, "0123"), (line, Reason::LimitExceeded, "limit")];
    let replies = kinds.iter().cycle().take(12).map(|(bytes, ..)| Reply::Bytes(bytes)).collect();
    let finished = one_each(replies, |config| ReplayConfig { max_held_bytes: 4 << 20, ..config });
    let ends = ends(&finished);
    for (row, (_, reason, said)) in kinds.iter().cycle().take(12).enumerate() {
        assert_eq!(ends[row], (RequestStatus::Failed, Some(*reason)), "row {row}");
        let body = error_body(&finished, row as u64);
        assert!(body.contains(said) && body.len() <= 2_048, "{body}");
        let attempt = finished.attempts_of(finished.request(row as u64))[0];
        let read: u64 = attempt.reads.iter().map(|read| u64::from(read.bytes)).sum();
        assert!(
            *reason != Reason::Http5xx || read < 1 << 20,
            "an error's body is not read to its end: {read}"
        );
    }
    assert_eq!(ends[12], (RequestStatus::Ok, None), "the run goes on");
}

#[test]
fn good_answers_without_output_are_warned_of() {
    let empty = || Reply::StreamOf("data: {\"choices\":[]}\n\ndata: [DONE]\n\n");
    let some = one_each(vec![empty(), empty()], |config| config);
    assert_eq!(some.report.counts.ok, 3);
    let told = "2 of 3 good answers held no output (rows 0, 1): is the endpoint healthy?";
    assert!(some.report.warnings.iter().any(|line| line.starts_with(told)), "{:?}", some.report.warnings);
    assert_eq!(some.run.manifest().warnings, some.report.warnings);
    assert_eq!(some.report.no_output, None);
    let server = Server::start(move |_| empty());
    let all = Bench::even(5, MS).run(&config(&server));
    let told = all.report.no_output.unwrap();
    // Which answers end first is the machine's.
    assert!(told.contains("5 of 5 good answers held no output (rows "), "{told}");
    let well = Bench::even(2, MS).run(&config(&Server::start(|_| ok())));
    assert_eq!(well.report.no_output, None);
    assert!(!well.report.warnings.iter().any(|line| line.contains("no output")));
}

#[test]
fn requests_below_the_limit_of_failures_in_a_row_do_not_end_the_run() {
    let server = Server::start(|heard| match u64::from_str_radix(&heard.id, 16).unwrap() % 2 {
        0 => Reply::Status(500, "", ""),
        _ => ok(),
    });
    let finished =
        Bench::even(120, MS).run(&ReplayConfig { give_up_after_failures: Some(40), ..config(&server) });
    assert_eq!(finished.report.counts.unsent, 0);
    assert!(finished.report.counts.ok > 20 && finished.report.counts.failed > 20);
}
