//! Exchanges against hand-written TCP servers that say exactly what a test needs.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "../../tracewheel-net/tests/support/pki.rs"]
mod pki;
#[path = "support/script.rs"]
mod script;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tracewheel_clock::{Clock, RunClock};
use tracewheel_transport::{
    ConnectErrorKind, Endpoint, ExchangeErrorKind, ExchangeLimits, ExchangeOutcome, H1Connection,
    PreparedRequest,
};

use script::Act::{Bytes as Raw, Close, Pause, Read, Repeat, Reset, Send, Wait};
use script::{Server, serve};

const OK_EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

fn request(server: &Server, body: impl Into<Bytes>) -> PreparedRequest {
    let endpoint = Endpoint::parse(&format!("http://{}", server.addr)).unwrap();
    PreparedRequest::post(endpoint.uri("/v1/x").unwrap(), endpoint.host_header(), body.into())
}

async fn open(server: &Server) -> H1Connection {
    H1Connection::open(server.addr, RunClock::start()).await.unwrap()
}

async fn once(server: &Server, body: &'static str) -> (ExchangeOutcome, Option<H1Connection>) {
    open(server).await.arm(request(server, body), ExchangeLimits::default()).run().await
}

fn error_kind(outcome: &ExchangeOutcome) -> Option<ExchangeErrorKind> {
    outcome.error.as_ref().map(|error| error.kind)
}

/// Lets the reactor turn until `ready` says so.
async fn eventually(mut ready: impl FnMut(&mut std::task::Context<'_>) -> bool) {
    poll_fn(|cx| {
        if ready(cx) {
            return Poll::Ready(());
        }
        tracewheel_clock::blocking::sleep(200_000);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[tokio::test]
async fn the_request_on_the_wire_is_the_one_that_was_prepared() {
    let server = serve(vec![vec![Read(5), Send(OK_EMPTY), Close]]);
    let (outcome, _) = once(&server, "hello").await;
    assert_eq!(outcome.error, None);
    let heard = server.heard();
    let text = String::from_utf8_lossy(&heard[0]).to_lowercase();
    assert!(text.starts_with("post /v1/x http/1.1\r\n"), "{text}");
    assert!(text.contains(&format!("host: {}\r\n", server.addr)), "{text}");
    assert!(
        text.contains("accept-encoding: identity\r\n") && text.contains("content-length: 5\r\n"),
        "{text}"
    );
    assert!(text.ends_with("\r\n\r\nhello"), "{text}");
}

#[tokio::test]
async fn every_milestone_is_stamped_in_order() {
    let server = serve(vec![vec![
        Read(2),
        Pause(25),
        Send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"),
        Pause(25),
        Send("abc"),
        Pause(25),
        Send("def"),
        Wait,
    ]]);
    let clock = RunClock::start();
    let connection = H1Connection::open(server.addr, Arc::clone(&clock)).await.unwrap();
    let connect = connection.connect_stamps();
    let (outcome, connection) = connection.arm(request(&server, "{}"), ExchangeLimits::default()).run().await;
    assert_eq!(outcome.error, None);
    assert_eq!(outcome.body, b"abcdef");
    assert!(connection.is_some(), "a complete answer leaves the connection usable");
    let head = outcome.response.as_ref().unwrap();
    let reads = &outcome.reads;
    let first_body = outcome.read_completing(1).unwrap();
    let order = [
        connect.start_ns,
        connect.connected_ns,
        outcome.writes.first_ns.unwrap(),
        outcome.writes.last_ns.unwrap(),
        reads[head.read as usize].user_ns,
        reads[first_body as usize].user_ns,
        outcome.end_ns.unwrap(),
        clock.now(),
    ];
    assert!(order.windows(2).all(|pair| pair[0] <= pair[1]), "{order:?}");
    assert_eq!(head.read, 0);
    assert_eq!(outcome.read_completing(3), Some(1));
    assert_eq!(outcome.read_completing(4), Some(2));
    assert_eq!(outcome.read_completing(7), None);
}

#[tokio::test]
async fn chunks_that_waited_for_a_late_reader_are_read_one_by_one() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let connection = H1Connection::open(addr, RunClock::start()).await.unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_nodelay(true).unwrap();
    let endpoint = Endpoint::parse(&format!("http://{addr}")).unwrap();
    let request = PreparedRequest::post(endpoint.uri("/").unwrap(), endpoint.host_header(), Bytes::new());
    let mut exchange = connection.arm(request, ExchangeLimits::default());
    exchange.release();
    assert!(poll_fn(|cx| Poll::Ready(exchange.poll(cx).is_pending())).await);
    let head = &b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"[..];
    for writes in [&[head][..], &[b"2\r\nde\r\n", b"1\r\nf\r\n", b"1\r\ng\r\n0\r\n\r\n"]] {
        for bytes in writes {
            std::io::Write::write_all(&mut server, bytes).unwrap();
        }
        // Nobody looks for a while; the reactor then learns of it at its next turn.
        tracewheel_clock::blocking::sleep(5_000_000);
        for _ in 0..3 {
            tokio::task::yield_now().await;
            let ended = poll_fn(|cx| Poll::Ready(exchange.poll(cx).is_ready())).await;
            if ended {
                break;
            }
        }
    }
    let (outcome, connection) = exchange.finish();
    assert_eq!((outcome.error, connection.is_some()), (None, true));
    assert_eq!(outcome.body, b"abcdefg");
    if outcome.reads[0].kernel_ns.is_none() {
        println!("skipped: without the kernel's stamp nobody knows that the reader was late");
        return;
    }
    // The first one was not known to be late before it was made.
    let bytes: Vec<u32> = outcome.reads.iter().map(|read| read.bytes).collect();
    assert_eq!(bytes, [head.len() as u32, 5, 6, 13]);
    let marks: Vec<(u64, u32)> = outcome.marks.iter().map(|mark| (mark.end_offset, mark.read)).collect();
    assert_eq!(marks, [(3, 0), (5, 1), (6, 2), (7, 3)]);
    let times: Vec<_> = outcome.reads.iter().map(|read| read.kernel_ns).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[tokio::test]
async fn chunks_in_any_split_make_the_same_body() {
    let whole =
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nt: v\r\n\r\n";
    for at in [1, 17, 45, 48, 51, 53, 56, 60, 63, 66, 70, whole.len() - 1] {
        let (first, second) = whole.split_at(at);
        let server = serve(vec![vec![Read(0), Send(first), Pause(1), Send(second), Wait]]);
        let (outcome, connection) = once(&server, "").await;
        assert_eq!(outcome.error, None, "split at {at}");
        assert_eq!(outcome.body, b"abcdefg", "split at {at}");
        assert!(connection.is_some(), "trailers are drained, split at {at}");
        let marks = &outcome.marks;
        assert!(marks.windows(2).all(|m| m[0].end_offset < m[1].end_offset && m[0].read < m[1].read));
        assert_eq!(marks.last().unwrap().end_offset, 7);
        assert!((marks.last().unwrap().read as usize) < outcome.reads.len());
    }
}

#[tokio::test]
async fn informational_answers_are_passed_over() {
    let server = serve(vec![vec![
        Read(0),
        Send("HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"),
        Pause(1),
        Send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        Wait,
    ]]);
    let (outcome, _) = once(&server, "").await;
    let head = outcome.response.unwrap();
    assert_eq!((head.status.as_u16(), outcome.body.as_slice()), (200, b"ok".as_slice()));
    assert_eq!(head.read, 1, "the head that counts came with the second read");
}

#[tokio::test]
async fn a_body_that_ends_with_the_connection_is_complete_and_not_reusable() {
    let server = serve(vec![vec![Read(0), Send("HTTP/1.1 200 OK\r\n\r\nall of it"), Pause(3), Close]]);
    let (outcome, connection) = once(&server, "").await;
    assert_eq!((outcome.error, outcome.body.as_slice()), (None, b"all of it".as_slice()));
    assert!(connection.is_none());
    assert!(outcome.end_ns.unwrap() > outcome.reads.last().unwrap().user_ns);
}

#[tokio::test]
async fn a_kept_connection_carries_several_exchanges_each_with_its_own_stamps() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
    let server = serve(vec![vec![Read(1), Send(answer), Read(2), Send(answer), Read(3), Send(answer), Wait]]);
    let mut connection = open(&server).await;
    let mut before = None;
    for body in ["a", "bb", "ccc"] {
        let (outcome, kept) = connection.arm(request(&server, body), ExchangeLimits::default()).run().await;
        assert_eq!((outcome.error, outcome.body.as_slice()), (None, b"x".as_slice()));
        assert_eq!(outcome.reads.len(), 1);
        assert!(outcome.writes.first_ns > before);
        before = outcome.end_ns;
        connection = kept.expect("kept");
    }
    assert_eq!(connection.exchanges(), 3);
    assert_eq!(server.heard().len(), 3);
}

#[tokio::test]
async fn nothing_leaves_before_the_release() {
    let server = serve(vec![vec![Read(4), Send(OK_EMPTY), Wait]]);
    let clock = RunClock::start();
    let connection = H1Connection::open(server.addr, Arc::clone(&clock)).await.unwrap();
    let mut exchange = connection.arm(request(&server, "body"), ExchangeLimits::default());
    for _ in 0..5 {
        let armed = poll_fn(|cx| Poll::Ready(exchange.poll_armed(cx))).await;
        assert!(armed.is_pending());
        tracewheel_clock::blocking::sleep(1_000_000);
    }
    assert_eq!(exchange.writes().bytes, 0);
    assert_eq!(server.heard_bytes(), 0);
    let release = clock.now();
    let (outcome, _) = exchange.run().await;
    assert_eq!(outcome.error, None);
    assert!(outcome.writes.first_call_ns.unwrap() >= release);
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_noticed() {
    let server = serve(vec![vec![Pause(3), Close]]);
    let mut connection = open(&server).await;
    eventually(|cx| connection.poll_idle(cx).is_ready()).await;
}

#[tokio::test]
async fn a_request_armed_on_a_connection_that_closes_is_given_back_unsent() {
    for closing in [
        vec![Pause(3), Close],
        vec![Pause(3), Reset],
        vec![
            Pause(3),
            Send("HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
            Close,
        ],
    ] {
        let server = serve(vec![closing, vec![Read(4), Send(OK_EMPTY), Wait]]);
        let mut exchange = open(&server).await.arm(request(&server, "once"), ExchangeLimits::default());
        eventually(|cx| exchange.poll_armed(cx).is_ready()).await;
        assert_eq!(exchange.writes().bytes, 0);
        let again = open(&server).await.arm(exchange.into_request(), ExchangeLimits::default());
        let (outcome, _) = again.run().await;
        assert_eq!(outcome.error, None);
        let heard = server.heard();
        assert_eq!(heard.len(), 1, "the server saw the request exactly once");
    }
}

#[tokio::test]
async fn a_close_seen_at_the_release_loses_and_doubles_nothing() {
    let server = serve(vec![vec![Pause(3), Close], vec![Read(4), Send(OK_EMPTY), Wait]]);
    let mut exchange = open(&server).await.arm(request(&server, "once"), ExchangeLimits::default());
    let armed = poll_fn(|cx| Poll::Ready(exchange.poll_armed(cx))).await;
    assert!(armed.is_pending());
    // The close arrives while nobody polls; the reactor learns of it, the exchange does not.
    tracewheel_clock::blocking::sleep(8_000_000);
    eventually({
        let mut turns = 0;
        move |_| {
            turns += 1;
            turns > 3
        }
    })
    .await;
    exchange.release();
    poll_fn(|cx| exchange.poll(cx)).await;
    let request = {
        assert_eq!(exchange.writes().bytes, 0);
        exchange.into_request()
    };
    let (outcome, _) = open(&server).await.arm(request, ExchangeLimits::default()).run().await;
    assert_eq!(outcome.error, None);
    assert_eq!(server.heard().len(), 1);
}

#[tokio::test]
async fn a_reset_before_the_answer_is_told_from_one_within_it() {
    let before = serve(vec![vec![Read(4), Reset]]);
    let (outcome, connection) = once(&before, "body").await;
    assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::ResetBeforeResponse));
    assert!(connection.is_none() && outcome.response.is_none() && outcome.end_ns.is_some());

    let closed = serve(vec![vec![Read(4), Close]]);
    let (outcome, _) = once(&closed, "body").await;
    assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::ResetBeforeResponse));

    let in_head = serve(vec![vec![Read(0), Send("HTTP/1.1 200 OK\r\nconten"), Pause(3), Close]]);
    let (outcome, _) = once(&in_head, "").await;
    assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::ResetInHead));

    for end in [Reset, Close] {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
        let within = serve(vec![vec![Read(0), Send(head), Pause(5), end]]);
        let (outcome, connection) = once(&within, "").await;
        assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::ResetMidResponse));
        assert_eq!(outcome.body, b"abc", "what came is kept");
        assert_eq!(outcome.response.unwrap().status, 200);
        assert!(connection.is_none());
    }
}

#[tokio::test]
async fn a_short_content_length_body_is_a_reset_within_the_answer() {
    let server =
        serve(vec![vec![Read(0), Send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"), Pause(2), Close]]);
    let (outcome, _) = once(&server, "").await;
    assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::ResetMidResponse));
    assert_eq!(outcome.body, b"abc");
}

#[tokio::test]
async fn garbage_is_malformed_in_the_head_and_bad_framing_in_the_body() {
    for (answer, kind, said) in [
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", ExchangeErrorKind::Malformed, "begins with \"SSH-2.0-OpenSSH_9.6\""),
        ("HTTP/1.1 200 OK\r\ncontent-length: nine\r\n\r\n", ExchangeErrorKind::Malformed, "content-length"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nabc\r\n",
            ExchangeErrorKind::BadFraming,
            "chunk",
        ),
    ] {
        let server = serve(vec![vec![Read(0), Send(answer), Pause(5), Close]]);
        let (outcome, connection) = once(&server, "").await;
        assert_eq!(error_kind(&outcome), Some(kind), "{answer:?}: {outcome:?}");
        let detail = outcome.error.unwrap().detail;
        assert!(detail.contains(said), "{detail}");
        assert!(connection.is_none());
    }
}

#[tokio::test]
async fn a_port_that_speaks_tls_or_http2_is_named() {
    // An alert as OpenSSL and rustls send it to plain HTTP, and the SETTINGS frame that an h2c server begins with.
    let alert: &[u8] = b"\x15\x03\x01\x00\x02\x02\x46";
    let settings: &[u8] = b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x64";
    for (bytes, kind, said) in [
        (alert, ExchangeErrorKind::AnsweredTls, "https://"),
        (settings, ExchangeErrorKind::AnsweredHttp2, "HTTP/2"),
    ] {
        let server = serve(vec![vec![Read(0), Raw(bytes), Pause(5), Close]]);
        let (outcome, _) = once(&server, "").await;
        assert_eq!(error_kind(&outcome), Some(kind), "{outcome:?}");
        assert!(outcome.error.unwrap().detail.contains(said));
    }
}

#[tokio::test]
async fn a_head_without_end_and_informational_answers_without_end_are_bounded() {
    for (first, again) in [
        ("HTTP/1.1 200 OK\r\n", "x-header: 0123456789012345678901234567890123456789\r\n"),
        ("HTTP/1.1 200 OK\r\nx: ", "01234567890123456789012345678901234567890123456789"),
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
    ] {
        let server = serve(vec![vec![Read(0), Send(first), Repeat(again)]]);
        let (outcome, connection) = once(&server, "").await;
        assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::HeadTooLarge), "{again:?}");
        let bytes: u64 = outcome.reads.iter().map(|read| u64::from(read.bytes)).sum();
        assert!(bytes <= (1 << 20) + (32 << 10), "{bytes}");
        assert!(connection.is_none());
        server.join();
    }
}

#[tokio::test]
async fn surplus_bytes_after_the_answer_make_the_connection_unusable_but_not_the_answer() {
    let server = serve(vec![vec![
        Read(0),
        Send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokEXTRA"),
        Pause(5),
        Close,
    ]]);
    let (outcome, connection) = once(&server, "").await;
    assert_eq!((outcome.error, outcome.body.as_slice()), (None, b"ok".as_slice()));
    assert!(connection.is_none());
}

#[tokio::test]
async fn connection_close_is_obeyed() {
    let server = serve(vec![vec![
        Read(0),
        Send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"),
        Close,
    ]]);
    let (outcome, connection) = once(&server, "").await;
    assert_eq!((outcome.error, outcome.body.as_slice()), (None, b"ok".as_slice()));
    assert!(connection.is_none());
}

#[tokio::test]
async fn a_body_above_the_limit_ends_the_exchange() {
    let server =
        serve(vec![vec![Read(0), Send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n123456789"), Wait]]);
    let limits = ExchangeLimits { max_body_bytes: 8, ..ExchangeLimits::default() };
    let (outcome, connection) = open(&server).await.arm(request(&server, ""), limits).run().await;
    assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::BodyTooLarge));
    assert!(outcome.body.len() <= 8 && connection.is_none());
}

#[tokio::test]
async fn more_reads_than_the_limit_end_the_exchange() {
    let mut script = vec![Read(0), Send("HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n")];
    for _ in 0..20 {
        script.extend([Pause(3), Send("x")]);
    }
    script.push(Wait);
    let server = serve(vec![script]);
    let limits = ExchangeLimits { max_reads: 4, ..ExchangeLimits::default() };
    let (outcome, connection) = open(&server).await.arm(request(&server, ""), limits).run().await;
    assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::BodyTooLarge));
    assert!(outcome.error.unwrap().detail.contains("4 reads") && connection.is_none());
}

#[tokio::test]
async fn a_long_row_of_interim_answers_is_read_past_poll_by_poll() {
    const INTERIM: &str = "HTTP/1.1 100 Continue\r\n\r\n";
    let flood: &'static str = Box::leak(INTERIM.repeat(20_000).into_boxed_str());
    let good = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let server = serve(vec![vec![Read(0), Send(flood), Send(good), Close]]);
    let mut exchange = open(&server).await.arm(request(&server, ""), ExchangeLimits::default());
    exchange.release();
    let mut polls = 0;
    poll_fn(|cx| {
        polls += 1;
        exchange.poll(cx)
    })
    .await;
    let (outcome, _) = exchange.finish();
    assert_eq!((outcome.error, outcome.body.as_slice()), (None, b"ok".as_slice()));
    // A poll makes two reads of 32 KiB at most.
    assert!(polls >= flood.len() / (2 * 32 * 1024), "{polls} polls");
}

#[tokio::test]
async fn an_abort_keeps_what_came_and_closes_the_connection() {
    let server = serve(vec![vec![
        Read(0),
        Send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"),
        Wait,
    ]]);
    let clock = RunClock::start();
    let connection = H1Connection::open(server.addr, Arc::clone(&clock)).await.unwrap();
    let mut exchange = connection.arm(request(&server, ""), ExchangeLimits::default());
    exchange.release();
    let mut polls = 0;
    eventually(|cx| {
        assert!(exchange.poll(cx).is_pending());
        polls += 1;
        polls > 20
    })
    .await;
    let now = clock.now();
    exchange.abort(now, "time-out");
    let (outcome, connection) = exchange.finish();
    assert_eq!(error_kind(&outcome), Some(ExchangeErrorKind::Aborted));
    assert_eq!((outcome.body.as_slice(), outcome.end_ns), (b"abc".as_slice(), Some(now)));
    assert!(connection.is_none());
    server.join();
}

#[tokio::test]
async fn a_large_request_goes_out_in_slices_and_whole() {
    const SIZE: usize = 3 << 20;
    let server = serve(vec![vec![Read(SIZE), Send(OK_EMPTY), Wait]]);
    let mut exchange = open(&server).await.arm(request(&server, vec![b'x'; SIZE]), ExchangeLimits::default());
    exchange.release();
    let first = poll_fn(|cx| Poll::Ready(exchange.poll(cx))).await;
    assert!(first.is_pending());
    let written = exchange.writes().bytes;
    assert!((1..=256 << 10).contains(&written), "one poll writes few slices: {written}");
    poll_fn(|cx| exchange.poll(cx)).await;
    let (outcome, _) = exchange.finish();
    assert_eq!(outcome.error, None);
    assert!(outcome.writes.bytes > SIZE as u64);
    assert!(outcome.writes.last_ns > outcome.writes.first_ns);
}

#[tokio::test]
async fn a_flood_yields_between_rounds() {
    let server = serve(vec![vec![
        Read(0),
        Send("HTTP/1.1 200 OK\r\ncontent-length: 8000000\r\n\r\n"),
        script::Act::Flood(8_000_000),
        Wait,
    ]]);
    let mut exchange = open(&server).await.arm(request(&server, ""), ExchangeLimits::default());
    exchange.release();
    let mut polls = 0u32;
    poll_fn(|cx| {
        polls += 1;
        exchange.poll(cx)
    })
    .await;
    let (outcome, _) = exchange.finish();
    assert_eq!((outcome.error, outcome.body.len()), (None, 8_000_000));
    assert!(polls > 8, "{polls} polls");
}

#[tokio::test]
async fn nobody_listening_is_refused() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = H1Connection::open(unused, RunClock::start()).await.unwrap_err();
    assert_eq!(error.kind, ConnectErrorKind::Refused);
}
