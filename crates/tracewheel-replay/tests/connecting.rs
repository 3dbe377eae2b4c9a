//! Targets that cannot be reached, or not safely: what is said, and what a good one over TLS leaves in the run.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "../../tracewheel-net/tests/support/pki.rs"]
mod pki;
#[path = "support/server.rs"]
mod server;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use bench::{Bench, Finished, MS};
use pki::{Authority, Identity};
use server::{Reply, Server};
use tracewheel_replay::{ErrorClass, ReplayConfig, StopSignal};
use tracewheel_timeline::{Reason, RequestStatus};

fn ca_file(bench: &Bench, pem: &str) -> Option<PathBuf> {
    let path = bench.dir.path().join("ca.pem");
    std::fs::write(&path, pem).unwrap();
    Some(path)
}

/// Replays a few requests that can't leave; why the run gave up.
fn gives_up(bench: &Bench, config: &ReplayConfig) -> String {
    let finished = bench.run(config);
    assert_eq!(finished.report.counts.unsent, finished.report.counts.planned);
    assert!(finished.requests.iter().all(|request| {
        (request.status, request.reason) == (RequestStatus::Unsent, Some(Reason::RunAborted))
    }));
    assert!(finished.attempts.is_empty());
    finished.report.gave_up.unwrap()
}

/// A server that does this with every connection, one after another.
fn each_connection(act: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(act));
    addr
}

/// Lets nobody in any more: the queue of those who wait to be accepted is made short and filled.
fn fill_backlog(listener: &TcpListener) -> Vec<TcpStream> {
    use nix::sys::socket::{Backlog, listen};
    listen(&listener.as_fd(), Backlog::new(1).unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(300)) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the backlog has an end");
    }
    waiting
}

fn check_tls(finished: &Finished) {
    let manifest = finished.run.manifest();
    let tls = manifest.tls.as_ref().unwrap();
    assert_eq!(tls.version.as_deref(), Some("TLSv1.3"));
    assert_eq!(tls.alpn.as_deref(), Some("http/1.1"));
    assert!(tls.cipher_suite.as_ref().unwrap().starts_with("TLS13_"));
    assert_eq!(tls.certificate_subject.as_deref(), Some("CN=Test server"));
    assert_eq!(tls.certificate_issuer.as_deref(), Some("CN=Test CA"));
    assert_eq!(tls.certificate_not_after.as_ref().unwrap().len(), 20);
    assert_eq!(tls.certificate_sha256.as_ref().unwrap().len(), 64);
    assert_eq!(tls.verified, Some(true));
    assert!(tls.roots.as_ref().unwrap().contains("ca.pem (1 certificates)"));
    let handshakes = tls.handshakes_full.unwrap() + tls.handshakes_resumed.unwrap();
    assert_eq!(handshakes, finished.report.connections);
    assert!(manifest.target.url.starts_with("https://"));
    assert!(manifest.target.resolve_ns.unwrap() >= 0);
}

#[test]
fn a_replay_over_tls_is_a_replay_and_its_manifest_says_with_whom_it_spoke() {
    let server = Server::start(|_| Reply::Stream { chunks: 3, gap_us: 1_000 });
    let authority = Authority::new();
    let proxy = pki::proxy(authority.issue(&["127.0.0.1", "llm.test"]).server(), server.addr);
    let bench = Bench::even(20, 10 * MS);
    for tls_name in [None, Some("llm.test".to_owned())] {
        let name = tls_name.clone().unwrap_or("127.0.0.1".to_owned());
        let finished = bench.run(&ReplayConfig {
            target: format!("https://{proxy}"),
            ca_file: ca_file(&bench, authority.pem()),
            tls_name,
            ..ReplayConfig::default()
        });
        assert_eq!(finished.report.counts.ok, 20, "{:?}", finished.report);
        check_tls(&finished);
        assert_eq!(finished.run.manifest().tls.as_ref().unwrap().name, Some(name));
        let mut fresh = 0;
        for attempt in &finished.attempts {
            assert_eq!(attempt.tls_ns.is_some(), attempt.connection_reused == Some(false));
            if let Some(tls_ns) = attempt.tls_ns {
                fresh += 1;
                assert!(attempt.connect_start_ns.unwrap() <= attempt.connected_ns.unwrap());
                assert!(attempt.connected_ns.unwrap() <= tls_ns);
                assert!(tls_ns <= attempt.first_write_ns.unwrap(), "shaken hands before the request leaves");
            }
            assert!(attempt.first_write_ns.unwrap() >= attempt.due_ns, "never early");
            let wire: u64 = attempt.reads.iter().map(|read| u64::from(read.bytes)).sum();
            assert!(wire > 0 && attempt.headers_ns.unwrap() >= attempt.first_write_ns.unwrap());
        }
        assert!(fresh > 0);
    }
}

#[test]
fn a_certificate_that_is_not_accepted_sends_nothing_and_names_the_remedy() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let bench = Bench::even(3, MS);
    for (identity, said) in [
        (other.issue(&["127.0.0.1"]), ["not trusted", "--ca-file"]),
        (authority.issue_expired(&["127.0.0.1"]), ["not valid now", "renew"]),
        (authority.issue(&["another.test"]), ["another name", "--tls-name"]),
        (Identity::self_signed(&["127.0.0.1"]), ["not trusted", "--ca-file"]),
    ] {
        let proxy = pki::proxy(identity.server(), server.addr);
        let told = gives_up(
            &bench,
            &ReplayConfig {
                target: format!("https://{proxy}"),
                ca_file: ca_file(&bench, authority.pem()),
                ..ReplayConfig::default()
            },
        );
        assert!(said.iter().all(|part| told.contains(part)), "{told}");
        assert!(told.contains(&format!("https://{proxy}")), "{told}");
    }
    assert!(server.heard().is_empty());
}

#[test]
fn the_wrong_scheme_is_told_with_the_right_one() {
    let bench = Bench::even(3, MS);
    let plain = each_connection(|mut stream| {
        let _left = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        tracewheel_clock::blocking::sleep(20 * MS);
    });
    let told =
        gives_up(&bench, &ReplayConfig { target: format!("https://{plain}"), ..ReplayConfig::default() });
    assert!(told.contains("http://") && told.contains("400 Bad Request"), "{told}");

    let server = Server::start(|_| Reply::Hang);
    let proxy = pki::proxy(Authority::new().issue(&["127.0.0.1"]).server(), server.addr);
    let config = ReplayConfig { target: format!("http://{proxy}"), ..ReplayConfig::default() };
    let finished = bench.run(&config);
    assert_eq!(finished.report.reasons["https_expected"], 3, "{:?}", finished.report);
    let first = finished.report.first_failure.unwrap();
    assert!(first.remedy.unwrap().contains("https://"), "{first:?}");
}

#[test]
fn a_handshake_that_hangs_or_is_left_is_told_from_a_connection_that_was_not_made() {
    let bench = Bench::even(2, MS);
    let limit = ReplayConfig { connect_timeout_ns: 300 * MS, ..ReplayConfig::default() };
    let (keep, _kept) = std::sync::mpsc::sync_channel(100);
    let hanging = each_connection(move |stream| {
        let _kept = keep.send(stream);
    });
    let told = gives_up(&bench, &ReplayConfig { target: format!("https://{hanging}"), ..limit.clone() });
    assert!(told.contains("TLS handshake timed out") && told.contains("300 ms"), "{told}");

    let leaving = each_connection(drop);
    let told = gives_up(&bench, &ReplayConfig { target: format!("https://{leaving}"), ..limit.clone() });
    assert!(told.contains("closed within the TLS handshake"), "{told}");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _waiting = fill_backlog(&listener);
    let target = format!("http://{}", listener.local_addr().unwrap());
    let told = gives_up(&bench, &ReplayConfig { target, ..limit });
    assert!(told.contains("timed out") && told.contains("firewalls"), "{told}");
}

#[test]
fn a_target_that_lets_nobody_in_any_more_fails_each_request_after_the_connect_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let bench = Bench::even(12, 20 * MS);
    let serving = std::thread::spawn(move || {
        // Two connections are let in and left at once; then the queue is full.
        for _ in 0..2 {
            drop(listener.accept().unwrap());
        }
        let waiting = fill_backlog(&listener);
        (listener, waiting)
    });
    let finished = bench.run(&ReplayConfig {
        target,
        warm_connections: Some(2),
        connect_timeout_ns: 500 * MS,
        ..ReplayConfig::default()
    });
    let _held = serving.join().unwrap();
    assert_eq!(finished.report.counts.failed, 12);
    let last = finished.request(11);
    assert_eq!(last.reason, Some(Reason::ConnectTimeout), "{:?}", finished.report.reasons);
    assert!(last.end_ns.unwrap() - last.due_ns >= 400 * MS);
}

#[test]
fn a_request_that_gets_no_connection_in_its_time_says_that_the_limit_was_ours() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}", listener.local_addr().unwrap());
    let bench = Bench::even(4, 5 * MS);
    // One connection is let in and hangs; no other one can be made when it is left.
    let serving = std::thread::spawn(move || {
        let first = listener.accept().unwrap();
        let waiting = fill_backlog(&listener);
        (first, listener, waiting)
    });
    let finished = bench.run(&ReplayConfig {
        target,
        warm_connections: Some(1),
        max_connections: Some(1),
        workers: Some(1),
        request_timeout_ns: 2_500 * MS,
        ..ReplayConfig::default()
    });
    let _held = serving.join().unwrap();
    let reasons = &finished.report.reasons;
    assert_eq!((reasons["response_timeout"], reasons["connection_limit"]), (1, 3), "{reasons:?}");
    for attempt in &finished.attempts {
        let limited = attempt.reason == Some(Reason::ConnectionLimit);
        assert_eq!(attempt.connection.is_none(), limited);
    }
}

#[test]
fn what_tls_cannot_use_and_a_name_that_does_not_resolve_are_refused_before_anything_is_sent() {
    let bench = Bench::even(1, MS);
    let refused = |config: ReplayConfig| {
        let Err(error) = bench.try_run(&config, &StopSignal::new()) else { panic!("it ran") };
        (error.class(), error.to_string())
    };
    let https = || ReplayConfig { target: "https://127.0.0.1:1".to_owned(), ..ReplayConfig::default() };
    let (class, told) = refused(ReplayConfig { ca_file: Some("no-such.pem".into()), ..https() });
    assert!(class == ErrorClass::Usage && told.contains("no-such.pem"), "{told}");
    let (class, told) = refused(ReplayConfig { tls_name: Some("no name".to_owned()), ..https() });
    assert!(class == ErrorClass::Usage && told.contains("no name"), "{told}");
    let plain = ReplayConfig { target: "http://127.0.0.1:1".to_owned(), ..https() };
    let (class, told) = refused(ReplayConfig { tls_name: Some("a.test".to_owned()), ..plain });
    assert!(class == ErrorClass::Usage && told.contains("not https"), "{told}");
    let nowhere = ReplayConfig { target: "http://no-such-host.invalid".to_owned(), ..https() };
    let (class, told) = refused(nowhere);
    assert!(class == ErrorClass::Target && told.contains("cannot resolve no-such-host.invalid"), "{told}");
    assert!(!bench.runs().exists(), "no run directory is left");
}
