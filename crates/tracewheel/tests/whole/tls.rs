//! Targets over TLS, and the two wrong schemes.

use std::net::SocketAddr;

use crate::harness::{Place, QUICK};
use crate::pki::{self, Authority};

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("http://").unwrap().parse().unwrap()
}

const REPLAY: [&str; 6] = ["replay", "t.parquet", "--protocol", "openai-chat", "--model", "m"];

#[test]
fn a_replay_over_tls_needs_the_authority_and_then_says_with_whom_it_spoke() {
    let place = Place::new();
    place.small_timeline(6);
    let mock = place.mock(QUICK);
    let authority = Authority::new();
    let proxy = pki::proxy(authority.issue(&["127.0.0.1"]).server(), address(&mock.url));
    place.write("ca.pem", authority.pem());
    let url = format!("https://{proxy}");
    let target = ["--target", url.as_str()];

    let told = place.fails(30, &[&REPLAY[..], &target[..]].concat());
    assert!(told.contains("not trusted") && told.contains("--ca-file"), "{told}");
    assert!(told.contains("run_aborted 6"), "requests by reason: {told}");

    let report = place.json(0, &[&REPLAY[..], &target[..], &["--ca-file", "ca.pem", "--json"]].concat());
    assert_eq!(report["run"]["counts"]["ok"], 6);
    let run = tracewheel_record::Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    let tls = run.manifest().tls.clone().unwrap();
    assert_eq!((tls.version.as_deref(), tls.verified), (Some("TLSv1.3"), Some(true)));
    assert_eq!(tls.certificate_issuer.as_deref(), Some("CN=Test CA"));

    // The same by a scenario beside its CA file, and by the variable that OpenSSL reads.
    let scenario = format!(
        "version = 1\n[target]\nurl = \"{url}\"\nprotocol = \"openai-chat\"\nmodel = \"m\"\nca_file = \"ca.pem\"\n"
    );
    place.write("scenario.toml", &scenario);
    place.expect(0, &["replay", "t.parquet", "--scenario", "scenario.toml"]);
    let mut by_variable = place.command(&[&REPLAY[..], &target[..]].concat());
    let output = by_variable.env("SSL_CERT_FILE", place.path("ca.pem")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    mock.stop();
}

#[test]
fn the_wrong_scheme_and_a_file_that_is_no_ca_file_are_told_with_the_remedy() {
    let place = Place::new();
    place.small_timeline(2);
    let mock = place.mock(QUICK);
    let proxy = pki::proxy(Authority::new().issue(&["127.0.0.1"]).server(), address(&mock.url));
    let plain = format!("http://{proxy}");
    let told = place.fails(30, &[&REPLAY[..], &["--target", &plain]].concat());
    assert!(told.contains("https_expected 2") && told.contains("write the target as https://"), "{told}");

    let secure = mock.url.replace("http://", "https://");
    let told = place.fails(30, &[&REPLAY[..], &["--target", &secure]].concat());
    assert!(told.contains("TLS"), "{told}");

    place.write("ca.pem", "no certificate");
    let told = place.fails(2, &[&REPLAY[..], &["--target", &secure, "--ca-file", "ca.pem"]].concat());
    assert!(told.contains("BEGIN CERTIFICATE"), "{told}");
    let told = place.fails(2, &[&REPLAY[..], &["--target", &mock.url, "--ca-file", "ca.pem"]].concat());
    assert!(told.contains("not https"), "{told}");
    mock.stop();
}
