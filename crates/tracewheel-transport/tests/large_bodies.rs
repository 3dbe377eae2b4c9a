//! Long request bodies, in pieces: every byte arrives, and they go out in slices between which others leave.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/h2_peer.rs"]
mod h2_peer;
#[path = "../../tracewheel-net/tests/support/pki.rs"]
mod pki;
#[path = "support/script.rs"]
mod script;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use tracewheel_clock::RunClock;
use tracewheel_transport::{
    Body, Endpoint, Exchange, ExchangeErrorKind, ExchangeLimits, ExchangeOutcome, H1Connection, H1Exchange,
    H2Connection, H2Options, HttpChoice, Lane, Opened, Opening, PreparedRequest, TlsClient, TlsRoots, Way,
};

use h2_peer::{DATA, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, last_data, ok_head, reset, window_update};
use pki::Authority;
use script::Act::{Close, Pause, Read, Reset, Send, Wait};
use script::{Server, serve, serve_over};

const NAME: &str = "server.test";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// What one piece of work may write of a request.
const SLICE_BYTES: u64 = 64 * 1024;
/// About a prompt of 100,000 tokens.
const LONG_BYTES: usize = 600_000;

/// A body of pieces of all sizes, none like the other.
fn long_body() -> Body {
    let mut state = 7_u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    let (mut pieces, mut left) = (Vec::new(), LONG_BYTES);
    while left > 0 {
        let most = [40, 4_000, 9_000, 90_000][next() as usize % 4];
        let size = (1 + next() as usize % most).min(left);
        pieces.push((0..size).map(|_| next() as u8).collect::<Bytes>());
        left -= size;
    }
    Body::of(pieces, 0)
}

fn request(addr: SocketAddr, body: impl Into<Body>) -> PreparedRequest {
    let endpoint = Endpoint::parse(&format!("http://{addr}")).unwrap();
    PreparedRequest::post(endpoint.uri("/v1/x").unwrap(), endpoint.host_header(), body)
}

fn client(authority: &Authority) -> TlsClient {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, authority.pem()).unwrap();
    TlsClient::new(TlsRoots::from_file(&path).unwrap(), NAME).unwrap()
}

async fn open(server: &Server, tls: Option<&TlsClient>) -> H1Connection {
    match tls {
        None => H1Connection::open(server.addr, RunClock::start()).await.unwrap(),
        Some(client) => H1Connection::open_tls(server.addr, client.clone(), RunClock::start()).await.unwrap(),
    }
}

async fn open_h2(addr: SocketAddr, tls: Option<TlsClient>) -> H2Connection {
    let way = Way { addr, tls, http: HttpChoice::Http2, h2: H2Options::default() };
    match Opening::new(way, RunClock::start()).await.unwrap() {
        Opened::H2(connection) => connection,
        Opened::H1(_) => panic!("HTTP/2 was asked for"),
    }
}

fn arm_h2(connection: &H2Connection, request: PreparedRequest) -> Exchange {
    Lane::H2(connection.new_lane().unwrap()).arm(request, ExchangeLimits::default())
}

async fn run_h2(connection: &mut H2Connection, exchange: &mut Exchange) {
    poll_fn(|cx| {
        let over = connection.poll(cx).is_ready();
        let ended = exchange.poll(cx);
        assert!(ended.is_ready() || !over, "the connection is over and an exchange is not");
        ended
    })
    .await;
}

/// One poll, whatever comes of it.
async fn once(mut poll: impl FnMut(&mut Context<'_>) -> Poll<()>) -> bool {
    poll_fn(|cx| Poll::Ready(poll(cx).is_ready())).await
}

fn error_kind(outcome: &ExchangeOutcome) -> Option<ExchangeErrorKind> {
    outcome.error.as_ref().map(|error| error.kind)
}

#[tokio::test]
async fn a_body_in_pieces_arrives_byte_for_byte() {
    let body = long_body();
    assert!(body.pieces().len() > 20);
    let authority = Authority::new();
    let identity = authority.issue(&[NAME]);
    let versions = [&rustls::version::TLS12, &rustls::version::TLS13];
    let ways = std::iter::once(None).chain(versions.map(Some));
    for version in ways {
        let tls = version.map(|version| identity.server_of(&[version], &[b"http/1.1"]));
        let script = vec![Read(LONG_BYTES), Send(OK), Read(LONG_BYTES), Send(OK), Wait];
        let server = serve_over(tls, vec![script]);
        let client = version.map(|_| client(&authority));
        let mut connection = Some(open(&server, client.as_ref()).await);
        for _ in 0..2 {
            let request = request(server.addr, body.clone());
            let exchange = connection.take().unwrap().arm(request, ExchangeLimits::default());
            let (outcome, kept) = exchange.run().await;
            assert_eq!((outcome.error, &outcome.body[..]), (None, &b"ok"[..]));
            assert!(outcome.writes.first_ns < outcome.writes.last_ns, "in more calls than one");
            connection = kept;
        }
        for heard in server.heard() {
            let head = heard.len() - LONG_BYTES;
            let text = String::from_utf8_lossy(&heard[..head]);
            assert!(text.ends_with(&format!("content-length: {LONG_BYTES}\r\n\r\n")), "{text}");
            assert!(heard[head..] == body.to_bytes()[..]);
        }
    }
}

#[tokio::test]
async fn over_http2_as_well() {
    let body = long_body();
    let authority = Authority::new();
    for tls in [false, true] {
        let config = tls.then(|| authority.issue(&[NAME]).server_of(&[&rustls::version::TLS13], &[b"h2"]));
        let server = h2_peer::serve(config, |mut peer| {
            peer.greet(&[(INITIAL_WINDOW_SIZE, 4 << 20)]);
            peer.send(&window_update(0, 4 << 20));
            let (id, body) = peer.request();
            peer.send(&[ok_head(id), last_data(id, b"ok")].concat());
            peer.wait();
            body
        });
        let client = tls.then(|| client(&authority).with_alpn(HttpChoice::Http2.alpn()));
        let mut connection = open_h2(server.addr, client).await;
        let mut exchange = arm_h2(&connection, request(server.addr, body.clone()));
        exchange.release();
        run_h2(&mut connection, &mut exchange).await;
        let (outcome, lane) = exchange.finish();
        assert_eq!((outcome.error, &outcome.body[..]), (None, &b"ok"[..]));
        assert!(outcome.writes.first_ns < outcome.writes.last_ns && outcome.writes.bytes > LONG_BYTES as u64);
        drop((lane, connection));
        assert!(server.join() == body.to_bytes());
    }
}

/// Polls a long exchange once; how much that wrote.
async fn slice(exchange: &mut H1Exchange) -> u64 {
    let before = exchange.writes().bytes;
    assert!(!once(|cx| exchange.poll(cx)).await, "nothing was answered");
    exchange.writes().bytes - before
}

#[tokio::test]
async fn a_poll_writes_one_slice_and_others_leave_between_two() {
    let authority = Authority::new();
    for tls in [false, true] {
        let config = || tls.then(|| authority.issue(&[NAME]).server());
        let client = tls.then(|| client(&authority));
        let long_server = serve_over(config(), vec![vec![Read(LONG_BYTES), Wait]]);
        let others: Vec<_> = (0..4).map(|_| vec![Read(5), Send(OK), Wait]).collect();
        let others = serve_over(config(), others);
        let mut long = open(&long_server, client.as_ref())
            .await
            .arm(request(long_server.addr, long_body()), ExchangeLimits::default());
        assert!(!once(|cx| long.poll_armed(cx)).await);
        long.release();
        for n in 0..4 {
            let written = slice(&mut long).await;
            assert!(written <= SLICE_BYTES, "{written} bytes in one piece of work");
            assert!(long.writes().bytes < LONG_BYTES as u64, "slice {n}");
            // A request that leaves now: one poll writes it, whatever is left of the long one.
            let connection = open(&others, client.as_ref()).await;
            let mut short =
                connection.arm(request(others.addr, Bytes::from("short")), ExchangeLimits::default());
            assert!(!once(|cx| short.poll_armed(cx)).await);
            short.release();
            let _answered = once(|cx| short.poll(cx)).await;
            assert!(short.writes().bytes > 0);
            poll_fn(|cx| short.poll(cx)).await;
            assert_eq!(short.finish().0.body, b"ok");
        }
    }
}

#[tokio::test]
async fn on_one_http2_connection_a_later_request_passes_a_long_body() {
    let server = h2_peer::serve(None, |mut peer| {
        peer.greet(&[(INITIAL_WINDOW_SIZE, 16 << 20)]);
        peer.send(&window_update(0, 16 << 20));
        let mut frames = Vec::new();
        while frames.iter().filter(|(_, _, ends)| *ends).count() < 2 {
            let frame = peer.next();
            if matches!(frame.kind, HEADERS | DATA) {
                frames.push((frame.kind, frame.stream, frame.flags & END_STREAM != 0));
            }
        }
        peer.send(&[ok_head(1), last_data(1, b"ok"), ok_head(3), last_data(3, b"ok")].concat());
        peer.wait();
        frames
    });
    let mut connection = open_h2(server.addr, None).await;
    // So that its window is known.
    let _read = once(|cx| connection.poll(cx)).await;
    let mut long = arm_h2(&connection, request(server.addr, vec![b'x'; 8 << 20]));
    long.release();
    assert!(!once(|cx| long.poll(cx)).await);
    let written = long.writes().bytes;
    assert!(written <= SLICE_BYTES + 17_000, "{written} bytes in one piece of work");
    let mut short = arm_h2(&connection, request(server.addr, Bytes::from("short")));
    short.release();
    let _answered = once(|cx| short.poll(cx)).await;
    let (mut long_ended, mut short_ended) = (false, false);
    poll_fn(|cx| {
        assert!(connection.poll(cx).is_pending());
        long_ended = long_ended || long.poll(cx).is_ready();
        short_ended = short_ended || short.poll(cx).is_ready();
        if long_ended && short_ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    for exchange in [long, short] {
        assert_eq!(&exchange.finish().0.body[..], b"ok");
    }
    drop(connection);
    let frames = server.join();
    let end_of = |stream| frames.iter().position(|frame| frame.1 == stream && frame.2).unwrap();
    let long_frames = end_of(1);
    assert!(end_of(3) < 20 && long_frames > 500, "after {} of {long_frames} frames", end_of(3));
}

#[tokio::test]
async fn a_server_that_does_not_read_holds_up_nobody_else_and_gets_the_rest_when_it_does() {
    const SIZE: usize = 32 << 20;
    let long_server = serve(vec![vec![Pause(1), Read(SIZE), Send(OK), Wait]]);
    let stuck = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = stuck.local_addr().unwrap();
    let mut long = H1Connection::open(addr, RunClock::start())
        .await
        .unwrap()
        .arm(request(addr, vec![b'x'; SIZE]), ExchangeLimits::default());
    long.release();
    // Until the kernel takes no more: nobody reads there.
    let mut written = u64::MAX;
    while long.writes().bytes != written {
        written = long.writes().bytes;
        assert!(!once(|cx| long.poll(cx)).await);
        tokio::task::yield_now().await;
        let _next = once(|cx| long.poll(cx)).await;
    }
    assert!(written > 0 && written < SIZE as u64);
    let other = open(&long_server, None).await;
    let (outcome, _) =
        other.arm(request(long_server.addr, vec![b'y'; SIZE]), ExchangeLimits::default()).run().await;
    assert_eq!((outcome.error, &outcome.body[..]), (None, &b"ok"[..]));
    let (mut peer, _) = stuck.accept().unwrap();
    let reader = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        let (mut into, mut bytes) = (vec![0; 1 << 20], 0);
        while bytes < SIZE {
            bytes += peer.read(&mut into).unwrap();
        }
        peer.write_all(OK.as_bytes()).unwrap();
        peer
    });
    poll_fn(|cx| long.poll(cx)).await;
    let (outcome, _) = long.finish();
    assert_eq!((outcome.error, &outcome.body[..]), (None, &b"ok"[..]));
    assert!(outcome.writes.first_ns < outcome.writes.last_ns);
    drop(reader.join().unwrap());
}

#[tokio::test]
async fn an_answer_before_the_body_was_sent_counts_and_the_connection_is_not_used_again() {
    const TOO_LARGE: &str = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig";
    let authority = Authority::new();
    for tls in [false, true] {
        let config = tls.then(|| authority.issue(&[NAME]).server());
        let client = tls.then(|| client(&authority));
        let server = serve_over(config, vec![vec![Read(0), Send(TOO_LARGE), Wait]]);
        // Nothing but the head is read at first: the answer comes while the body is on its way.
        let connection = open(&server, client.as_ref()).await;
        let exchange = connection.arm(request(server.addr, vec![b'x'; 48 << 20]), ExchangeLimits::default());
        let (outcome, kept) = exchange.run().await;
        assert_eq!((outcome.error, &outcome.body[..]), (None, &b"big"[..]));
        assert_eq!(outcome.response.unwrap().status.as_u16(), 413);
        assert!(kept.is_none(), "what is left of the request is nobody's");
    }
    let server = h2_peer::serve(None, |mut peer| {
        peer.greet(&[]);
        let head = peer.until(HEADERS);
        let answer = [ok_head(head.stream), last_data(head.stream, b"big"), reset(head.stream, 0)];
        peer.send(&answer.concat());
        peer.wait();
    });
    let mut connection = open_h2(server.addr, None).await;
    let mut exchange = arm_h2(&connection, request(server.addr, long_body()));
    exchange.release();
    run_h2(&mut connection, &mut exchange).await;
    let (outcome, lane) = exchange.finish();
    assert_eq!((outcome.error, &outcome.body[..]), (None, &b"big"[..]));
    assert!(lane.is_some() && !connection.is_closing(), "the stream alone is over");
}

#[tokio::test]
async fn a_reset_within_the_body_is_one_before_the_answer() {
    let authority = Authority::new();
    for tls in [false, true] {
        for end in [Reset, Close] {
            let config = tls.then(|| authority.issue(&[NAME]).server());
            let client = tls.then(|| client(&authority));
            let server = serve_over(config, vec![vec![Read(100_000), end]]);
            let connection = open(&server, client.as_ref()).await;
            let body = Body::of(vec![Bytes::from(vec![b'x'; 8 << 20]); 4], 0);
            let (outcome, kept) =
                connection.arm(request(server.addr, body), ExchangeLimits::default()).run().await;
            assert_eq!(
                error_kind(&outcome),
                Some(ExchangeErrorKind::ResetBeforeResponse),
                "{:?}",
                outcome.error
            );
            assert!(kept.is_none() && outcome.writes.bytes > 0);
        }
    }
}
