//! Exchanges over TLS: the same milestones, the same valve, and a name for every way in which it fails.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "../../tracewheel-net/tests/support/pki.rs"]
mod pki;
#[path = "support/script.rs"]
mod script;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use tracewheel_clock::{Clock, RunClock};
use tracewheel_transport::{
    ConnectError, ConnectErrorKind, Endpoint, ExchangeErrorKind, ExchangeLimits, H1Connection, H2Options,
    HttpChoice, Opening, PreparedRequest, TlsClient, TlsErrorKind, TlsRoots, Way,
};

use pki::{Authority, Identity};
use script::Act::{Bytes as Raw, Close, Pause, Read, Reset, Send, Wait};
use script::{Server, serve, serve_over};

const NAME: &str = "server.test";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A client that trusts what this PEM says.
fn client(pem: &str, name: &str) -> TlsClient {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.pem");
    std::fs::write(&path, pem).unwrap();
    TlsClient::new(TlsRoots::from_file(&path).unwrap(), name).unwrap()
}

fn request(body: impl Into<Bytes>) -> PreparedRequest {
    let endpoint = Endpoint::parse("https://server.test").unwrap();
    PreparedRequest::post(endpoint.uri("/v1/x").unwrap(), endpoint.host_header(), body.into())
}

async fn open(addr: SocketAddr, client: &TlsClient) -> Result<H1Connection, ConnectError> {
    H1Connection::open_tls(addr, client.clone(), RunClock::start()).await
}

async fn refused(addr: SocketAddr, client: &TlsClient) -> (TlsErrorKind, String) {
    let error = open(addr, client).await.unwrap_err();
    match error.kind {
        ConnectErrorKind::Tls(kind) => (kind, error.source.to_string()),
        other => panic!("{other:?}"),
    }
}

fn versions() -> [(&'static rustls::SupportedProtocolVersion, &'static str); 2] {
    [(&rustls::version::TLS12, "TLSv1.2"), (&rustls::version::TLS13, "TLSv1.3")]
}

#[tokio::test]
async fn an_exchange_over_tls_is_stamped_and_tells_what_was_negotiated() {
    let authority = Authority::new();
    let identity = authority.issue(&[NAME]);
    let client = client(authority.pem(), NAME);
    for (version, name) in versions() {
        let script = vec![
            Read(2),
            Pause(5),
            Send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"),
            Pause(5),
            Send("abc"),
            Pause(5),
            Send("def"),
            Read(3),
            Send(OK),
            Wait,
        ];
        let server = serve_over(Some(identity.server_of(&[version], &[b"http/1.1"])), vec![script]);
        let clock = RunClock::start();
        let connection =
            H1Connection::open_tls(server.addr, client.clone(), Arc::clone(&clock)).await.unwrap();
        let connect = connection.connect_stamps();
        let facts = Arc::clone(connection.tls().unwrap());
        assert_eq!((facts.version.as_deref(), facts.alpn.as_deref()), (Some(name), Some("http/1.1")));
        assert!(facts.cipher_suite.as_ref().unwrap().starts_with("TLS"), "{facts:?}");
        let certificate = facts.certificate.as_ref().unwrap();
        assert_eq!(certificate.subject.as_deref(), Some("CN=Test server"));
        assert_eq!(certificate.issuer.as_deref(), Some("CN=Test CA"));

        let (outcome, kept) = connection.arm(request("{}"), ExchangeLimits::default()).run().await;
        assert_eq!((outcome.error.as_ref(), outcome.body.as_slice()), (None, b"abcdef".as_slice()));
        let reads = &outcome.reads;
        let order = [
            connect.start_ns,
            connect.connected_ns,
            connect.tls_ns.unwrap(),
            outcome.writes.first_ns.unwrap(),
            outcome.writes.last_ns.unwrap(),
            reads[outcome.response.as_ref().unwrap().read as usize].user_ns,
            reads[outcome.read_completing(1).unwrap() as usize].user_ns,
            outcome.end_ns.unwrap(),
            clock.now(),
        ];
        assert!(order.windows(2).all(|pair| pair[0] <= pair[1]), "{name}: {order:?}");
        assert_eq!(outcome.response.as_ref().unwrap().read, 0, "{name}: tickets are no part of the answer");
        assert_eq!(reads.len(), 3, "{name}");
        assert_eq!((outcome.read_completing(3), outcome.read_completing(4)), (Some(1), Some(2)), "{name}");

        let again = kept.expect("kept").arm(request("{.}"), ExchangeLimits::default());
        let (outcome, kept) = again.run().await;
        assert_eq!((outcome.error, outcome.body.as_slice()), (None, b"ok".as_slice()), "{name}");
        assert!(kept.is_some());
        let heard = String::from_utf8(server.heard()[0].clone()).unwrap();
        assert!(heard.starts_with("POST /v1/x HTTP/1.1\r\n") && heard.ends_with("\r\n\r\n{}"), "{heard}");
    }
}

#[tokio::test]
async fn nothing_leaves_before_the_release_although_all_is_encrypted() {
    let authority = Authority::new();
    let tls = authority.issue(&[NAME]).server();
    let server = serve_over(Some(tls), vec![vec![Read(40_000), Send(OK), Wait]]);
    let clock = RunClock::start();
    let connection = H1Connection::open_tls(server.addr, client(authority.pem(), NAME), Arc::clone(&clock));
    let mut exchange = connection.await.unwrap().arm(request(vec![b'x'; 40_000]), ExchangeLimits::default());
    for _ in 0..10 {
        let armed = poll_fn(|cx| Poll::Ready(exchange.poll_armed(cx))).await;
        assert!(armed.is_pending(), "session tickets that come meanwhile are no answer");
        tracewheel_clock::blocking::sleep(1_000_000);
        tokio::task::yield_now().await;
    }
    assert_eq!((exchange.writes().bytes, server.heard_bytes()), (0, 0));
    let release = clock.now();
    exchange.release();
    let _first = poll_fn(|cx| Poll::Ready(exchange.poll(cx))).await;
    let writes = exchange.writes();
    assert!(writes.bytes > 40_000, "one write call has it all, encrypted: {}", writes.bytes);
    assert_eq!(writes.first_ns, writes.last_ns);
    assert!(writes.first_call_ns.unwrap() >= release);
    poll_fn(|cx| exchange.poll(cx)).await;
    let (outcome, _) = exchange.finish();
    assert_eq!((outcome.error, outcome.body.as_slice()), (None, b"ok".as_slice()));
}

#[tokio::test]
async fn a_request_armed_on_a_connection_that_closes_is_given_back_unsent() {
    let authority = Authority::new();
    let tls = authority.issue(&[NAME]).server();
    let client = client(authority.pem(), NAME);
    // The handshake happens with the server's first read or write.
    for closing in [
        vec![Send(""), Pause(3), Close],
        vec![Send("HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"), Close],
    ] {
        let scripts = vec![closing, vec![Read(4), Send(OK), Wait]];
        let server = serve_over(Some(Arc::clone(&tls)), scripts);
        let opened = open(server.addr, &client).await;
        let Ok(first) = opened else { panic!("{opened:?}") };
        let mut exchange = first.arm(request("once"), ExchangeLimits::default());
        poll_fn(|cx| exchange.poll_armed(cx)).await;
        assert_eq!(exchange.writes().bytes, 0);
        let again = open(server.addr, &client).await.unwrap();
        let (outcome, _) = again.arm(exchange.into_request(), ExchangeLimits::default()).run().await;
        assert_eq!(outcome.error, None);
        assert_eq!(server.heard().len(), 1, "the server saw the request exactly once");
    }
}

#[tokio::test]
async fn a_large_request_goes_out_in_slices_and_whole() {
    const SIZE: usize = 3 << 20;
    let authority = Authority::new();
    let tls = authority.issue(&[NAME]).server();
    let server = serve_over(Some(tls), vec![vec![Read(SIZE), Send(OK), Wait]]);
    let connection = open(server.addr, &client(authority.pem(), NAME)).await.unwrap();
    let mut exchange = connection.arm(request(vec![b'x'; SIZE]), ExchangeLimits::default());
    let armed = poll_fn(|cx| Poll::Ready(exchange.poll_armed(cx))).await;
    assert!(armed.is_pending());
    exchange.release();
    let first = poll_fn(|cx| Poll::Ready(exchange.poll(cx))).await;
    assert!(first.is_pending());
    let written = exchange.writes().bytes;
    assert!((1..=256 << 10).contains(&written), "one poll writes few slices: {written}");
    poll_fn(|cx| exchange.poll(cx)).await;
    let (outcome, _) = exchange.finish();
    assert_eq!((outcome.error, outcome.body.as_slice()), (None, b"ok".as_slice()));
    assert!(outcome.writes.bytes > SIZE as u64, "what is counted is what was on the wire");
    assert_eq!(server.heard()[0].len(), server.heard_bytes());
}

#[tokio::test]
async fn a_flood_over_tls_arrives_whole() {
    let authority = Authority::new();
    let tls = authority.issue(&[NAME]).server();
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n";
    let server = serve_over(Some(tls), vec![vec![Read(0), Send(head), script::Act::Flood(3_000_000), Wait]]);
    let connection = open(server.addr, &client(authority.pem(), NAME)).await.unwrap();
    let (outcome, kept) = connection.arm(request(""), ExchangeLimits::default()).run().await;
    assert_eq!((outcome.error, outcome.body.len()), (None, 3_000_000));
    assert!(kept.is_some());
    let wire: u64 = outcome.reads.iter().map(|read| u64::from(read.bytes)).sum();
    assert!(wire > 3_000_000, "all encrypted bytes are in the reads: {wire}");
    assert_eq!(outcome.marks.last().unwrap().end_offset, 3_000_000);
}

#[tokio::test]
async fn a_second_connection_resumes_the_session() {
    let authority = Authority::new();
    let identity = authority.issue(&[NAME]);
    for (version, name) in versions() {
        let client = client(authority.pem(), NAME);
        let script = vec![Read(0), Send(OK), Wait];
        let tls = identity.server_of(&[version], &[b"http/1.1"]);
        let server = serve_over(Some(tls), vec![script.clone(), script]);
        for resumed in [false, true] {
            let connection = open(server.addr, &client).await.unwrap();
            let facts = Arc::clone(connection.tls().unwrap());
            assert_eq!(facts.resumed, resumed, "{name}");
            assert!(facts.certificate.is_some(), "{name}: known also of a resumed session");
            let (outcome, _) = connection.arm(request(""), ExchangeLimits::default()).run().await;
            assert_eq!(outcome.error, None, "{name}");
        }
    }
}

#[tokio::test]
async fn every_certificate_that_is_refused_is_refused_by_its_own_name() {
    let authority = Authority::new();
    let other = Authority::new();
    let cases = [
        (other.issue(&[NAME]), TlsErrorKind::Untrusted),
        (authority.issue_expired(&[NAME]), TlsErrorKind::Expired),
        (authority.issue(&["another.test"]), TlsErrorKind::WrongName),
        (Identity::self_signed(&[NAME]), TlsErrorKind::Untrusted),
    ];
    for (identity, expected) in cases {
        let server = serve_over(Some(identity.server()), vec![vec![Read(0)]]);
        let (kind, said) = refused(server.addr, &client(authority.pem(), NAME)).await;
        assert_eq!(kind, expected, "{said}");
    }
}

#[tokio::test]
async fn a_self_signed_certificate_that_is_named_is_trusted_for_its_names_and_no_other() {
    let identity = Identity::self_signed_until(&[NAME, "127.0.0.1"], 2001);
    let script = vec![Read(0), Send(OK), Wait];
    for name in [NAME, "127.0.0.1"] {
        let server = serve_over(Some(identity.server()), vec![script.clone()]);
        let connection = open(server.addr, &client(identity.pem(), name)).await.unwrap();
        let (outcome, _) = connection.arm(request(""), ExchangeLimits::default()).run().await;
        assert_eq!(outcome.error, None, "{name}");
    }
    let server = serve_over(Some(identity.server()), vec![script]);
    let (kind, said) = refused(server.addr, &client(identity.pem(), "another.test")).await;
    assert_eq!(kind, TlsErrorKind::WrongName, "{said}");
    assert!(TlsClient::new(TlsRoots::system(), "no name").is_err());
}

#[tokio::test]
async fn a_handshake_that_the_peer_ends_is_told_by_how() {
    let authority = Authority::new();
    let client = client(authority.pem(), NAME);
    let hello = vec![Pause(2)];
    for (end, expected, part) in [
        (vec![Close], TlsErrorKind::Closed, ""),
        (vec![Reset], TlsErrorKind::Closed, ""),
        (vec![Raw(b"\x15\x03\x03\x00\x02\x02\x28"), Close], TlsErrorKind::Alert, "HandshakeFailure"),
        (
            vec![Send("HTTP/1.1 400 Bad Request\r\n\r\n"), Close],
            TlsErrorKind::NotTls,
            "HTTP/1.1 400 Bad Request",
        ),
        (vec![Send("220 mail.example ESMTP\r\n"), Close], TlsErrorKind::NotTls, "220 mail"),
    ] {
        let server: Server = serve(vec![[hello.clone(), end].concat()]);
        let (kind, said) = refused(server.addr, &client).await;
        assert_eq!(kind, expected, "{said}");
        assert!(said.contains(part), "{said}");
    }
    let h2_only = authority.issue(&[NAME]).server_of(rustls::ALL_VERSIONS, &[b"h2"]);
    let server = serve_over(Some(h2_only), vec![vec![Read(0)]]);
    let (kind, said) = refused(server.addr, &client).await;
    assert_eq!(kind, TlsErrorKind::NoProtocol);
    assert!(said.contains("another HTTP"), "{said}");
}

#[tokio::test]
async fn a_connection_that_hangs_in_the_handshake_says_that_tcp_stood() {
    let authority = Authority::new();
    let server = serve(vec![vec![Wait]]);
    let tls = Some(client(authority.pem(), NAME));
    let way = Way { addr: server.addr, tls, http: HttpChoice::Http1, h2: H2Options::default() };
    let mut opening = Opening::new(way, RunClock::start());
    assert_eq!(opening.timed_out_as(), ConnectErrorKind::TimedOut);
    poll_fn(|cx| {
        assert!(std::pin::Pin::new(&mut opening).poll(cx).is_pending());
        let stands = opening.timed_out_as() == ConnectErrorKind::TlsTimedOut;
        if stands { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    drop(opening);
    server.join();
}

#[tokio::test]
async fn a_connection_that_breaks_under_tls_is_told_by_where() {
    let authority = Authority::new();
    let tls = authority.issue(&[NAME]).server();
    let client = client(authority.pem(), NAME);
    let chunk = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n";
    let unbounded = "HTTP/1.1 200 OK\r\n\r\nabc";
    for (script, expected) in [
        (vec![Read(4), Reset], Some(ExchangeErrorKind::ResetBeforeResponse)),
        (vec![Read(4), Close], Some(ExchangeErrorKind::ResetBeforeResponse)),
        (vec![Read(4), Send("HTTP/1.1 200 O"), Pause(3), Close], Some(ExchangeErrorKind::ResetInHead)),
        (vec![Read(4), Send(chunk), Pause(3), Reset], Some(ExchangeErrorKind::ResetMidResponse)),
        (vec![Read(4), Send(chunk), Pause(3), Close], Some(ExchangeErrorKind::ResetMidResponse)),
        (vec![Read(4), Send("what?\r\n\r\n"), Pause(3), Close], Some(ExchangeErrorKind::Malformed)),
        // A body without a length ends with TLS's own end; without it, it may have been cut.
        (vec![Read(4), Send(unbounded), Pause(3), Close], None),
        (vec![Read(4), Send(unbounded), Pause(3), Reset], Some(ExchangeErrorKind::ResetMidResponse)),
    ] {
        let server = serve_over(Some(Arc::clone(&tls)), vec![script.clone()]);
        let connection = open(server.addr, &client).await.unwrap();
        let (outcome, kept) = connection.arm(request("body"), ExchangeLimits::default()).run().await;
        assert_eq!(outcome.error.as_ref().map(|error| error.kind), expected, "{script:?}: {outcome:?}");
        assert!(outcome.end_ns.is_some() && kept.is_none());
    }
}
