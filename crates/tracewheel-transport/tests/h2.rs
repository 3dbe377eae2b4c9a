//! HTTP/2 against hand-written servers that send exactly the frames that a test needs.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/h2_peer.rs"]
mod h2_peer;
#[path = "../../tracewheel-net/tests/support/pki.rs"]
mod pki;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tracewheel_clock::blocking::sleep;
use tracewheel_clock::{Clock, RunClock};
use tracewheel_transport::{
    ConnectError, ConnectErrorKind, Endpoint, Exchange, ExchangeErrorKind, ExchangeLimits, ExchangeOutcome,
    H2Connection, H2Options, HttpChoice, Lane, Opened, Opening, PreparedRequest, StreamCode, TlsClient,
    TlsRoots, Way,
};

use h2_peer::*;

const PAUSE_NS: i64 = 20_000_000;

fn request(addr: SocketAddr, body: impl Into<Bytes>) -> PreparedRequest {
    let endpoint = Endpoint::parse(&format!("http://{addr}")).unwrap();
    PreparedRequest::post(endpoint.uri("/v1/x").unwrap(), endpoint.host_header(), body.into())
}

async fn try_open(addr: SocketAddr, h2: H2Options) -> Result<H2Connection, ConnectError> {
    let way = Way { addr, tls: None, http: HttpChoice::Http2, h2 };
    match Opening::new(way, RunClock::start()).await? {
        Opened::H2(connection) => Ok(connection),
        Opened::H1(_) => panic!("HTTP/2 was asked for"),
    }
}

async fn open(addr: SocketAddr) -> H2Connection {
    try_open(addr, H2Options::default()).await.unwrap()
}

fn arm(connection: &H2Connection, addr: SocketAddr, body: &'static str) -> Exchange {
    let lane = Lane::H2(connection.new_lane().unwrap());
    lane.arm(request(addr, body), ExchangeLimits::default())
}

/// Releases in order, and drives all to their ends.
async fn run_all(
    connection: &mut H2Connection,
    mut exchanges: Vec<Exchange>,
) -> Vec<(ExchangeOutcome, Option<Lane>)> {
    exchanges.iter_mut().for_each(Exchange::release);
    let mut ended = vec![false; exchanges.len()];
    poll_fn(|cx| {
        let over = connection.poll(cx).is_ready();
        for (exchange, ended) in exchanges.iter_mut().zip(&mut ended) {
            *ended = *ended || exchange.poll(cx).is_ready();
        }
        let all = ended.iter().all(|ended| *ended);
        assert!(all || !over, "the connection is over and an exchange is not");
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    exchanges.into_iter().map(Exchange::finish).collect()
}

async fn run(connection: &mut H2Connection, exchange: Exchange) -> (ExchangeOutcome, Option<Lane>) {
    run_all(connection, vec![exchange]).await.pop().unwrap()
}

/// Drives the connection until `ready` says so.
async fn until(connection: &mut H2Connection, mut ready: impl FnMut(&H2Connection) -> bool) {
    poll_fn(|cx| {
        let over = connection.poll(cx).is_ready();
        if ready(connection) {
            return Poll::Ready(());
        }
        assert!(!over, "the connection is over");
        Poll::Pending
    })
    .await;
}

fn kind(outcome: &ExchangeOutcome) -> Option<ExchangeErrorKind> {
    outcome.error.as_ref().map(|error| error.kind)
}

#[tokio::test]
async fn the_request_leaves_at_its_release_and_not_a_byte_of_it_before() {
    let (ask, asked) = mpsc::sync_channel::<()>(8);
    let (tell, told) = mpsc::sync_channel(8);
    let server = serve(None, move |mut peer| {
        let first = peer.greet(&[]);
        let mut before = vec![first];
        loop {
            let frame = peer.next();
            if frame.kind == HEADERS {
                asked.try_recv().expect("the release came first");
                let data = peer.next();
                peer.send(&[ok_head(frame.stream), last_data(frame.stream, b"yes")].concat());
                tell.send(()).unwrap();
                peer.wait();
                return (before, frame, data);
            }
            before.push(frame);
        }
    });
    let mut connection = open(server.addr).await;
    let mut exchange = arm(&connection, server.addr, "hello");
    for _ in 0..50 {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(connection.poll(&mut cx).is_pending() && exchange.poll_armed(&mut cx).is_pending());
        tokio::task::yield_now().await;
        sleep(200_000);
    }
    assert_eq!(exchange.writes().bytes, 0);
    ask.send(()).unwrap();
    let (outcome, lane) = run(&mut connection, exchange).await;
    told.recv().unwrap();
    assert!(lane.as_ref().is_some_and(Lane::used));
    drop((lane, connection));
    let (before, head, data) = server.join();
    assert!(before.iter().all(|frame| matches!(frame.kind, SETTINGS | WINDOW_UPDATE)), "{before:?}");
    assert_eq!((head.stream, head.flags & END_STREAM), (1, 0));
    assert_eq!((data.kind, data.stream, data.flags, &*data.payload), (DATA, 1, END_STREAM, &b"hello"[..]));
    assert_eq!((outcome.error, &*outcome.body), (None, &b"yes"[..]));
    assert_eq!(outcome.writes.bytes, (9 + head.payload.len() + 9 + 5) as u64, "its frames and no others");
    assert_eq!(outcome.writes.first_ns, outcome.writes.last_ns, "one call");
}

#[tokio::test]
async fn each_part_of_a_body_belongs_to_the_read_that_completed_its_frame() {
    let server = serve(None, |mut peer| {
        peer.greet(&[]);
        let (id, _) = peer.request();
        // A head in two frames, then padded data whose second half comes later, then two frames in one write.
        peer.send(&frame(HEADERS, 0, id, &[]));
        sleep(PAUSE_NS);
        peer.send(&frame(CONTINUATION, END_HEADERS, id, STATUS_200));
        sleep(PAUSE_NS);
        let padded = frame(DATA, PADDED, id, b"\x03abc\0\0\0");
        peer.send(&padded[..11]);
        sleep(PAUSE_NS);
        peer.send(&padded[11..]);
        sleep(PAUSE_NS);
        peer.send(&[frame(DATA, 0, id, b"de"), last_data(id, b"f")].concat());
        peer.wait();
    });
    let mut connection = open(server.addr).await;
    let exchange = arm(&connection, server.addr, "x");
    let (outcome, _) = run(&mut connection, exchange).await;
    assert_eq!((outcome.error.as_ref(), &*outcome.body), (None, &b"abcdef"[..]));
    let bytes: Vec<u32> = outcome.reads.iter().map(|read| read.bytes).collect();
    assert_eq!(bytes, [9, 10, 11, 5, 11 + 10], "each counts the bytes of this stream's frames");
    assert_eq!(outcome.response.as_ref().unwrap().read, 1, "the block ends with CONTINUATION");
    let marks: Vec<(u64, u32)> = outcome.marks.iter().map(|mark| (mark.end_offset, mark.read)).collect();
    assert_eq!(marks, [(3, 3), (6, 4)]);
    let stamps: Vec<_> = outcome.reads.iter().map(|read| read.user_ns).collect();
    assert!(stamps.windows(2).all(|pair| pair[1].since(pair[0]) > 1_000_000), "{stamps:?}");
    assert_eq!(outcome.end_ns, stamps.last().copied());
    assert!(outcome.writes.last_ns.unwrap() <= stamps[0]);
    drop(connection);
    server.join();
}

#[tokio::test]
async fn streams_that_share_a_read_each_know_their_part_of_it() {
    let server = serve(None, |mut peer| {
        peer.greet(&[]);
        let ids = [peer.request().0, peer.request().0];
        peer.send(
            &[
                ok_head(ids[1]),
                ok_head(ids[0]),
                frame(DATA, 0, ids[1], b"two"),
                last_data(ids[0], b"first"),
                last_data(ids[1], b"!"),
            ]
            .concat(),
        );
        peer.wait();
    });
    let mut connection = open(server.addr).await;
    let exchanges = vec![arm(&connection, server.addr, "a"), arm(&connection, server.addr, "b")];
    let outcomes = run_all(&mut connection, exchanges).await;
    let [(one, _), (two, _)] = &outcomes[..] else { panic!() };
    assert_eq!((&*one.body, &*two.body), (&b"first"[..], &b"two!"[..]));
    assert_eq!(one.reads[0].user_ns, two.reads[0].user_ns);
    assert_eq!(one.reads.iter().map(|read| read.bytes).sum::<u32>(), 10 + 14);
    assert_eq!(two.reads.iter().map(|read| read.bytes).sum::<u32>(), 10 + 12 + 10);
    assert!(one.writes.first_ns < two.writes.first_ns, "each has its own write");
    assert_eq!((one.stream, two.stream), (Some(1), Some(3)));
    drop((outcomes, connection));
    server.join();
}

#[tokio::test]
async fn a_reset_stream_ends_with_its_code_and_the_connection_goes_on() {
    let cases = [
        (7, ExchangeErrorKind::StreamRefused),
        (1, ExchangeErrorKind::StreamReset(StreamCode::Protocol)),
        (2, ExchangeErrorKind::StreamReset(StreamCode::Internal)),
        (8, ExchangeErrorKind::StreamReset(StreamCode::Cancel)),
        (11, ExchangeErrorKind::StreamReset(StreamCode::Calm)),
        (13, ExchangeErrorKind::StreamReset(StreamCode::Http1Required)),
        (77, ExchangeErrorKind::StreamReset(StreamCode::Other)),
    ];
    let server = serve(None, move |mut peer| {
        peer.greet(&[]);
        for (code, _) in cases {
            let (id, _) = peer.request();
            peer.send(&reset(id, code));
        }
        let (id, _) = peer.request();
        peer.send(&[ok_head(id), frame(DATA, 0, id, b"par"), reset(id, 2)].concat());
        peer.wait();
    });
    let mut connection = open(server.addr).await;
    for (code, expected) in cases {
        let exchange = arm(&connection, server.addr, "x");
        let (outcome, lane) = run(&mut connection, exchange).await;
        assert_eq!(kind(&outcome), Some(expected), "{code}");
        assert!(lane.is_some(), "the lane carries the next one");
    }
    let exchange = arm(&connection, server.addr, "x");
    let (outcome, _) = run(&mut connection, exchange).await;
    assert_eq!(kind(&outcome), Some(ExchangeErrorKind::StreamReset(StreamCode::Internal)));
    assert_eq!(
        (&*outcome.body, outcome.marks.last().unwrap().end_offset),
        (&b"par"[..], 3),
        "what came is kept"
    );
    assert!(outcome.error.unwrap().detail.contains("INTERNAL_ERROR"));
    drop(connection);
    server.join();
}

#[tokio::test]
async fn a_goaway_lets_earlier_streams_end_and_refuses_later_ones() {
    let server = serve(None, |mut peer| {
        peer.greet(&[]);
        let ids = [peer.request().0, peer.request().0];
        peer.send(&[ok_head(ids[0]), frame(DATA, 0, ids[0], b"on"), goaway(ids[0], 0)].concat());
        sleep(PAUSE_NS);
        peer.send(&last_data(ids[0], b"ward"));
        peer.wait();
    });
    let mut connection = open(server.addr).await;
    let exchanges = vec![arm(&connection, server.addr, "a"), arm(&connection, server.addr, "b")];
    let mut outcomes = run_all(&mut connection, exchanges).await;
    let (two, lane_two) = outcomes.pop().unwrap();
    let (one, lane_one) = outcomes.pop().unwrap();
    assert_eq!((one.error, &*one.body), (None, &b"onward"[..]));
    assert_eq!(kind(&two), Some(ExchangeErrorKind::StreamRefused));
    assert!(two.error.unwrap().detail.contains("nothing above stream 1"));
    assert!(lane_one.is_none() && lane_two.is_none() && connection.new_lane().is_none());
    poll_fn(|cx| connection.poll(cx)).await;
    drop(connection);
    server.join();
}

#[tokio::test]
async fn an_armed_request_is_had_back_whole_when_the_peer_says_goodbye() {
    for closes in [false, true] {
        let server = serve(None, move |mut peer| {
            peer.greet(&[]);
            peer.until(SETTINGS);
            peer.send(&goaway(0, 0));
            if !closes {
                peer.wait();
            }
        });
        let mut connection = open(server.addr).await;
        let mut exchange = arm(&connection, server.addr, "kept");
        poll_fn(|cx| {
            let _over = connection.poll(cx);
            exchange.poll_armed(cx)
        })
        .await;
        assert_eq!(exchange.into_request().body.to_bytes(), "kept");
        drop(connection);
        server.join();
    }
}

#[tokio::test]
async fn a_release_on_a_connection_that_said_goodbye_unseen_writes_nothing() {
    let (said, heard) = mpsc::sync_channel(8);
    let server = serve(None, move |mut peer| {
        peer.greet(&[]);
        peer.until(SETTINGS);
        peer.send(&goaway(0, 0));
        said.send(()).unwrap();
        peer.wait();
    });
    let mut connection = open(server.addr).await;
    let mut exchange = arm(&connection, server.addr, "x");
    poll_fn(|cx| {
        let _pending = connection.poll(cx);
        Poll::Ready(())
    })
    .await;
    heard.recv().unwrap();
    // The reactor hears of it, the connection's owner does not.
    for _ in 0..20 {
        sleep(1_000_000);
        tokio::task::yield_now().await;
    }
    exchange.release();
    poll_fn(|cx| exchange.poll(cx)).await;
    let (outcome, lane) = exchange.finish();
    assert_eq!(kind(&outcome), Some(ExchangeErrorKind::ClosedBeforeWrite));
    assert_eq!(outcome.writes.bytes, 0);
    assert!(lane.is_none());
    drop(connection);
    server.join();
}

#[tokio::test]
async fn a_request_waits_for_the_peers_window_and_says_how_long() {
    let server = serve(None, |mut peer| {
        peer.greet(&[(INITIAL_WINDOW_SIZE, 4)]);
        let head = peer.until(HEADERS);
        let first = peer.until(DATA);
        sleep(PAUSE_NS);
        peer.send(&window_update(head.stream, 3));
        let second = peer.until(DATA);
        // A larger window for all streams reaches the one that waits, too.
        peer.send(&settings(&[(INITIAL_WINDOW_SIZE, 100)]));
        let third = peer.until(DATA);
        peer.send(&[ok_head(head.stream), last_data(head.stream, b"ok")].concat());
        peer.wait();
        [first, second, third].map(|frame| (frame.payload, frame.flags & END_STREAM))
    });
    let mut connection = open(server.addr).await;
    let exchange = arm(&connection, server.addr, "0123456789");
    let (outcome, _) = run(&mut connection, exchange).await;
    assert_eq!((outcome.error, &*outcome.body), (None, &b"ok"[..]));
    let waited = outcome.window_wait_ns.unwrap();
    assert!(waited >= PAUSE_NS / 2, "{waited}");
    assert!(outcome.writes.last_ns > outcome.writes.first_ns);
    drop(connection);
    let sent = server.join();
    assert_eq!(sent, [(b"0123".to_vec(), 0), (b"456".to_vec(), 0), (b"789".to_vec(), END_STREAM)]);
}

#[tokio::test]
async fn lanes_follow_what_the_peer_allows_and_what_was_chosen() {
    let (step, steps) = mpsc::sync_channel::<()>(8);
    let server = serve(None, move |mut peer| {
        peer.greet(&[(MAX_CONCURRENT_STREAMS, 2)]);
        for allowed in [50, 1] {
            steps.recv().unwrap();
            peer.send(&settings(&[(MAX_CONCURRENT_STREAMS, allowed)]));
        }
        peer.wait();
    });
    let options = H2Options { streams_per_connection: 3, ..H2Options::default() };
    let mut connection = try_open(server.addr, options).await.unwrap();
    let mut lanes: Vec<_> = std::iter::from_fn(|| connection.new_lane()).collect();
    assert_eq!((lanes.len(), connection.limit()), (2, 2), "no more than the peer allows");
    step.send(()).unwrap();
    until(&mut connection, |connection| connection.limit() == 3).await;
    lanes.extend(std::iter::from_fn(|| connection.new_lane()));
    assert_eq!(lanes.len(), 3, "no more than was chosen");
    step.send(()).unwrap();
    until(&mut connection, |connection| connection.limit() == 1).await;
    let mut cx = Context::from_waker(Waker::noop());
    while lanes.len() > 1 {
        assert!(lanes.last_mut().unwrap().poll_idle(&mut cx).is_ready(), "one too many");
        lanes.pop();
    }
    assert!(lanes[0].poll_idle(&mut cx).is_pending());
    drop((lanes, connection));
    server.join();
}

#[tokio::test]
async fn a_connection_that_carried_all_it_may_takes_no_more_and_ends_when_its_streams_have() {
    let server = serve(None, |mut peer| {
        peer.greet(&[]);
        for _ in 0..2 {
            let (id, _) = peer.request();
            peer.send(&[ok_head(id), last_data(id, b".")].concat());
        }
        peer.wait();
    });
    let options = H2Options { exchanges_per_connection: 2, ..H2Options::default() };
    let mut connection = try_open(server.addr, options).await.unwrap();
    for reusable in [true, false] {
        let exchange = arm(&connection, server.addr, "x");
        let (outcome, lane) = run(&mut connection, exchange).await;
        assert_eq!((outcome.error, lane.is_some()), (None, reusable));
    }
    assert!(connection.is_closing() && connection.new_lane().is_none());
    poll_fn(|cx| connection.poll(cx)).await;
    drop(connection);
    server.join();
}

#[tokio::test]
async fn what_is_no_http2_is_told_apart() {
    let cases: [(&[u8], ConnectErrorKind, &str); 5] = [
        (
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            ConnectErrorKind::Http1Only,
            "400 Bad Request",
        ),
        (&[0x15, 3, 1, 0, 2, 2, 70], ConnectErrorKind::TlsExpected, "begins with"),
        (b"SSH-2.0-OpenSSH\r\n and so on and on and on", ConnectErrorKind::Http2Refused, "SSH-2.0"),
        (b"", ConnectErrorKind::Http2Refused, "without a word"),
        (
            &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 11],
            ConnectErrorKind::Http2Refused,
            "ENHANCE_YOUR_CALM",
        ),
    ];
    for (bytes, expected, word) in cases {
        let server = serve(None, move |mut peer| {
            peer.hear(24);
            peer.send(bytes);
        });
        let error = try_open(server.addr, H2Options::default()).await.unwrap_err();
        assert_eq!(error.kind, expected, "{error:?}");
        assert!(error.source.to_string().contains(word), "{error:?}");
    }
}

#[tokio::test]
async fn a_peer_that_says_nothing_at_all_is_given_up_as_what_it_is() {
    let (over, wait) = mpsc::sync_channel::<()>(8);
    let server = serve(None, move |peer| {
        let _silent = wait.recv();
        drop(peer);
    });
    let way = Way { addr: server.addr, tls: None, http: HttpChoice::Http2, h2: H2Options::default() };
    let mut opening = Opening::new(way, RunClock::start());
    assert_eq!(opening.timed_out_as(), ConnectErrorKind::TimedOut);
    poll_fn(|cx| {
        let _pending = std::pin::Pin::new(&mut opening).poll(cx);
        if opening.timed_out_as() == ConnectErrorKind::Http2TimedOut {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    drop(opening);
    over.send(()).unwrap();
    server.join();
}

#[tokio::test]
async fn a_connection_that_breaks_ends_each_exchange_where_it_stood() {
    for resets in [false, true] {
        let server = serve(None, move |mut peer| {
            peer.greet(&[]);
            let ids = [peer.request().0, peer.request().0];
            peer.send(&[ok_head(ids[1]), frame(DATA, 0, ids[1], b"half")].concat());
            sleep(PAUSE_NS);
            if resets {
                peer.reset();
            }
        });
        let mut connection = open(server.addr).await;
        let mut exchanges = vec![arm(&connection, server.addr, "a"), arm(&connection, server.addr, "b")];
        exchanges.iter_mut().for_each(Exchange::release);
        let mut ended = [false; 2];
        poll_fn(|cx| {
            let _over = connection.poll(cx);
            for (exchange, ended) in exchanges.iter_mut().zip(&mut ended) {
                *ended = *ended || exchange.poll(cx).is_ready();
            }
            if ended == [true; 2] { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let kinds: Vec<_> = exchanges.into_iter().map(|exchange| kind(&exchange.finish().0)).collect();
        let expected = [ExchangeErrorKind::ResetBeforeResponse, ExchangeErrorKind::ResetMidResponse];
        assert_eq!(kinds, expected.map(Some), "resets: {resets}");
        server.join();
    }
}

#[tokio::test]
async fn a_connection_that_breaks_under_a_request_that_is_still_being_sent_ends_it() {
    let server = serve(None, |mut peer| {
        peer.greet(&[(INITIAL_WINDOW_SIZE, 64 << 20)]);
        peer.send(&window_update(0, 64 << 20));
        peer.until(HEADERS);
        peer.reset();
    });
    let mut connection = open(server.addr).await;
    let lane = Lane::H2(connection.new_lane().unwrap());
    let mut exchange = lane.arm(request(server.addr, vec![b'x'; 32 << 20]), ExchangeLimits::default());
    exchange.release();
    poll_fn(|cx| {
        let _over = connection.poll(cx);
        exchange.poll(cx)
    })
    .await;
    let (outcome, lane) = exchange.finish();
    assert_eq!(kind(&outcome), Some(ExchangeErrorKind::ResetBeforeResponse), "{:?}", outcome.error);
    assert!(lane.is_none() && connection.is_closing());
    server.join();
}

#[tokio::test]
async fn an_answer_that_nobody_reads_stalls_no_other() {
    const UNREAD: usize = 4 << 20;
    let server = serve(None, |mut peer| {
        let first = peer.greet(&[]);
        let window =
            first.payload.chunks(6).find(|pair| pair[..2] == INITIAL_WINDOW_SIZE.to_be_bytes()).unwrap();
        let window = u32::from_be_bytes(window[2..].try_into().unwrap()) as usize;
        let more = peer.until(WINDOW_UPDATE);
        let of_connection = u32::from_be_bytes(more.payload.try_into().unwrap()) as usize;
        let ids = [peer.request().0, peer.request().0];
        peer.send(&ok_head(ids[0]));
        for _ in 0..UNREAD / 16_384 {
            peer.send(&frame(DATA, 0, ids[0], &[b'x'; 16_384]));
        }
        peer.send(&[ok_head(ids[1]), last_data(ids[1], b"through")].concat());
        peer.wait();
        (window, of_connection)
    });
    let mut connection = open(server.addr).await;
    let mut unread = arm(&connection, server.addr, "a");
    unread.release();
    poll_fn(|cx| {
        let _written = unread.poll(cx);
        Poll::Ready(())
    })
    .await;
    let exchange = arm(&connection, server.addr, "b");
    let (outcome, _) = run(&mut connection, exchange).await;
    assert_eq!((outcome.error, &*outcome.body), (None, &b"through"[..]));
    drop((unread, connection));
    let (window, of_connection) = server.join();
    assert!(window > UNREAD && of_connection > 16 * UNREAD, "what was sent was allowed");
}

#[tokio::test]
async fn informational_answers_are_no_head() {
    let server = serve(None, |mut peer| {
        peer.greet(&[]);
        let (id, _) = peer.request();
        peer.send(&frame(HEADERS, END_HEADERS, id, STATUS_103));
        sleep(PAUSE_NS);
        peer.send(&frame(HEADERS, END_HEADERS | END_STREAM, id, STATUS_200));
        let (id, _) = peer.request();
        for _ in 0..40 {
            peer.send(&frame(HEADERS, END_HEADERS, id, STATUS_103));
        }
        peer.wait();
    });
    let mut connection = open(server.addr).await;
    let exchange = arm(&connection, server.addr, "x");
    let (outcome, lane) = run(&mut connection, exchange).await;
    let response = outcome.response.unwrap();
    assert_eq!((outcome.error, response.status.as_u16(), response.read), (None, 200, 1));
    let exchange = lane.unwrap().arm(request(server.addr, "y"), ExchangeLimits::default());
    let (outcome, lane) = run(&mut connection, exchange).await;
    assert_eq!(kind(&outcome), Some(ExchangeErrorKind::HeadTooLarge));
    drop((lane, connection));
    server.join();
}

#[tokio::test]
async fn frames_that_break_the_rules_are_malformed_and_not_a_broken_connection() {
    // DATA before any head; DATA of the connection; a window that overflows.
    let cases: [fn(u32) -> Vec<u8>; 3] = [
        |id| frame(DATA, 0, id, b"early"),
        |_| frame(DATA, 0, 0, b"nobody's"),
        |_| window_update(0, 0x7fff_ffff),
    ];
    for bytes in cases {
        let server = serve(None, move |mut peer| {
            peer.greet(&[]);
            let (id, _) = peer.request();
            peer.send(&bytes(id));
            peer.wait();
        });
        let mut connection = open(server.addr).await;
        let mut exchange = arm(&connection, server.addr, "x");
        exchange.release();
        poll_fn(|cx| {
            let _over = connection.poll(cx);
            exchange.poll(cx)
        })
        .await;
        let (outcome, _) = exchange.finish();
        assert_eq!(kind(&outcome), Some(ExchangeErrorKind::Malformed), "{:?}", outcome.error);
        drop(connection);
        server.join();
    }
}

#[tokio::test]
async fn a_cancelled_exchange_resets_its_stream_and_no_other() {
    let server = serve(None, |mut peer| {
        peer.greet(&[]);
        let ids = [peer.request().0, peer.request().0];
        peer.send(&[ok_head(ids[0]), frame(DATA, 0, ids[0], b"some")].concat());
        let reset = peer.until(RST_STREAM);
        peer.send(&[ok_head(ids[1]), last_data(ids[1], b"done")].concat());
        peer.wait();
        (ids[0], reset.stream, reset.payload)
    });
    let mut connection = open(server.addr).await;
    let (mut one, mut two) = (arm(&connection, server.addr, "a"), arm(&connection, server.addr, "b"));
    one.release();
    two.release();
    poll_fn(|cx| {
        let _pending = (connection.poll(cx), one.poll(cx), two.poll(cx));
        let Exchange::H2(inner) = &one else { unreachable!() };
        if inner.body_bytes() == 4 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    one.abort(RunClock::start().now(), "enough");
    let (outcome, lane) = one.finish();
    assert_eq!((kind(&outcome), &*outcome.body), (Some(ExchangeErrorKind::Aborted), &b"some"[..]));
    assert!(lane.is_some(), "the connection is as good as before");
    let (outcome, _) = run(&mut connection, two).await;
    assert_eq!((outcome.error, &*outcome.body), (None, &b"done"[..]));
    drop((lane, connection));
    let (id, reset, code) = server.join();
    assert_eq!((reset, code), (id, vec![0, 0, 0, 8]));
}

/// Drives the connection until the server has said so, and a few turns of the reactor longer.
async fn until_said(connection: &mut H2Connection, said: &mpsc::Receiver<()>) {
    let mut left = None;
    while left != Some(0) {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(connection.poll(&mut cx).is_pending());
        if left.is_none() && said.try_recv().is_ok() {
            left = Some(10);
        }
        left = left.map(|left| left - 1);
        sleep(500_000);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn pings_are_answered_and_a_peer_that_answers_none_gets_nothing_more() {
    let (say, said) = mpsc::sync_channel(8);
    let server = serve(None, move |mut peer| {
        peer.greet(&[]);
        peer.send(&frame(PING, 0, 0, b"are you?"));
        let pong = peer.until(PING);
        say.send(()).unwrap();
        let ping = peer.until(PING);
        peer.send(&frame(PING, ACK, 0, &ping.payload));
        say.send(()).unwrap();
        peer.until(PING);
        peer.wait();
        (pong.flags, pong.payload)
    });
    let mut connection = open(server.addr).await;
    until_said(&mut connection, &said).await;
    assert!(connection.keep_alive(), "not asked before");
    until_said(&mut connection, &said).await;
    assert!(connection.keep_alive(), "it answered");
    assert!(!connection.keep_alive(), "nothing came since");
    assert!(connection.is_closing() && connection.new_lane().is_none());
    drop(connection);
    assert_eq!(server.join(), (ACK, b"are you?".to_vec()));
}

#[tokio::test]
async fn over_tls_the_peer_chooses_by_alpn_and_stamps_are_those_of_the_wire() {
    let folder = tempfile::tempdir().unwrap();
    let identity = pki::Identity::self_signed(&["localhost"]);
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, identity.pem()).unwrap();
    let tls = |choice: HttpChoice| {
        TlsClient::new(TlsRoots::from_file(&ca).unwrap(), "localhost").unwrap().with_alpn(choice.alpn())
    };
    let way = |addr, http| Way { addr, tls: Some(tls(http)), http, h2: H2Options::default() };
    for http in [HttpChoice::Http2, HttpChoice::Auto] {
        let server =
            serve(Some(identity.server_of(rustls::ALL_VERSIONS, &[b"h2", b"http/1.1"])), |mut peer| {
                peer.greet(&[]);
                let (id, body) = peer.request();
                peer.send(&ok_head(id));
                sleep(PAUSE_NS);
                peer.send(&last_data(id, b"secret"));
                peer.wait();
                body
            });
        let Ok(Opened::H2(mut connection)) = Opening::new(way(server.addr, http), RunClock::start()).await
        else {
            panic!("{http:?}")
        };
        assert_eq!(connection.tls().unwrap().alpn.as_deref(), Some("h2"));
        let exchange = arm(&connection, server.addr, "ask");
        let (outcome, lane) = run(&mut connection, exchange).await;
        assert_eq!((outcome.error, &*outcome.body), (None, &b"secret"[..]));
        let reads: Vec<u32> = outcome.reads.iter().map(|read| read.bytes).collect();
        assert_eq!(reads, [10, 15]);
        assert!(outcome.writes.first_call_ns < outcome.writes.first_ns && outcome.writes.first_ns.is_some());
        drop((lane, connection));
        assert_eq!(server.join(), b"ask");
    }
    // A peer without HTTP/2: named where it was asked for, HTTP/1.1 where the choice was free.
    for alpn in [&[b"http/1.1".as_slice()][..], &[]] {
        let server = serve(Some(identity.server_of(rustls::ALL_VERSIONS, alpn)), |mut peer| peer.wait());
        let error = Opening::new(way(server.addr, HttpChoice::Http2), RunClock::start()).await.unwrap_err();
        assert_eq!(error.kind, ConnectErrorKind::Http1Only, "{error:?}");
        server.join();
        let server = serve(Some(identity.server_of(rustls::ALL_VERSIONS, alpn)), |mut peer| peer.wait());
        let opened = Opening::new(way(server.addr, HttpChoice::Auto), RunClock::start()).await.unwrap();
        assert!(matches!(opened, Opened::H1(_)));
        drop(opened);
        server.join();
    }
}
