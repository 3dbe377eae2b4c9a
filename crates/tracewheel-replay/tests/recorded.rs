//! Recorded bodies: sent byte for byte, but for what was said otherwise.

#![allow(clippy::unwrap_used)] // In a test an unwrap is an assertion.

#[path = "support/bench.rs"]
mod bench;
#[path = "support/server.rs"]
mod server;

use bench::{Bench, MS};
use server::{Reply, Server};
use tracewheel_replay::{ProtocolOptions, ReplayConfig};
use tracewheel_timeline::BodyState;

const CHAT: &str = "{ \"stream\":true, \"messages\":[{\"role\":\"user\",\"content\":\"What is \\u00e9?\"}],\n\"model\": \"gpt-4o\",\"x\":1.50 }";
const PLAIN: &str = "{\"model\":\"gpt-4o\",\"messages\":[]}";
const BROKEN: &str = "{\"model\":\"gpt-4o\",";

fn bodies() -> Bench {
    Bench::new(&[0, MS, 2 * MS], |number, row| {
        row.body = Some([CHAT, PLAIN, BROKEN][number].as_bytes().into());
        row.body_state = BodyState::Full;
        row.stream = Some(number == 0);
    })
}

/// What reached the server, by row.
fn sent(change: impl Fn(&mut ReplayConfig)) -> [String; 3] {
    let server = Server::start(|_| Reply::Stream { chunks: 1, gap_us: 0 });
    let bench = bodies();
    let mut config = ReplayConfig { target: server.url(), ..ReplayConfig::default() };
    change(&mut config);
    let finished = bench.run(&config);
    assert_eq!(finished.run.manifest().prompts.origin.as_deref(), Some("recorded"));
    [0, 1, 2].map(|row| {
        let id = finished.id(&bench, row);
        server.heard().into_iter().find(|heard| heard.id == id).unwrap().body
    })
}

#[test]
fn recorded_bodies_go_out_byte_for_byte() {
    assert_eq!(sent(|_| {}), [CHAT, PLAIN, BROKEN]);
}

#[test]
fn a_model_that_is_named_replaces_the_recorded_one_and_nothing_else() {
    let as_recorded = |body: &str| body.replace("gpt-4o", "llama");
    assert_eq!(
        sent(|config| config.model = Some("llama".to_owned())),
        [as_recorded(CHAT), as_recorded(PLAIN), BROKEN.to_owned()],
        "what is no JSON is nobody's to change"
    );
}

#[test]
fn streams_report_their_usage_where_that_is_asked_for() {
    let asked = ProtocolOptions { stream_usage: true, ..ProtocolOptions::default() };
    let with_usage = CHAT.replacen("{ ", "{\"stream_options\":{\"include_usage\":true}, ", 1);
    assert_eq!(
        sent(|config| config.protocol = asked.clone()),
        [with_usage.as_str(), PLAIN, BROKEN],
        "what asks for no stream stays"
    );
}
