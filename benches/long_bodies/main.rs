//! What long prompts cost: the time to render their bodies, and what they do to the send times of short requests.
//!
//! * `rendering`: one body of a prompt, written by the provider in one stretch or put together from pieces, with text that lies there
//!   already, that has to be made, or that nobody shares; and a look-ahead full of them.
//! * `send`, `send-tls`, `send-h2`: a whole replay in this process against a witness in another one. 200 short requests a second in
//!   equal steps, and five of 100,000 tokens a second, each due 0.1 ms before a short one: the worst place. Without the
//!   long ones, with them in slices, and (HTTP/1.1) with them written in one go. The ways take turns within a round.
//!
//! `cargo bench -p benches --bench long_bodies`; after `--`: `--rows rendering,send`, `--rounds N` (three), `--seconds N` a way and
//! round (ten). Without `--bench` (under `cargo test`) each runs briefly.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

#[path = "../fidelity/answer.rs"]
#[allow(dead_code)]
mod answer;
#[path = "../fidelity/figures.rs"]
#[allow(dead_code)]
mod figures;
#[path = "../../crates/tracewheel-net/tests/support/pki.rs"]
mod pki;
mod rendering;
mod send;
#[path = "../fidelity/witness.rs"]
#[allow(dead_code)]
mod witness;
#[path = "../fidelity/witness_h2.rs"]
mod witness_h2;

use std::io;
use std::path::{Path, PathBuf};

use send::Way;
use witness::Script;

const ROWS: [&str; 4] = ["rendering", "send", "send-tls", "send-h2"];

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    if let Some(role) = value("--role") {
        return play(&role, &value);
    }
    let measured = words.iter().any(|word| word == "--bench");
    let rows = value("--rows").unwrap_or_else(|| ROWS.join(","));
    let number = |name: &str, usual: usize| value(name).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (rounds, seconds) = if measured { (number("--rounds", 3), number("--seconds", 10)) } else { (1, 1) };
    for row in rows.split(',') {
        match row {
            "rendering" => rendering::measure(measured),
            "send" => send::measure("HTTP/1.1", Way::Plain, rounds, seconds)?,
            "send-tls" => send::measure("HTTPS", Way::Tls, rounds, seconds)?,
            "send-h2" => send::measure("HTTP/2", Way::Http2, rounds, seconds)?,
            other => return Err(io::Error::other(format!("no row {other}; there are {}", ROWS.join(", ")))),
        }
    }
    Ok(())
}

/// The witness's process.
fn play(role: &str, value: &dyn Fn(&str) -> Option<String>) -> io::Result<()> {
    let number = |name: &str| value(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let script = Script {
        chunks: number("--chunks") as usize,
        first_ns: number("--first-ns"),
        gap_ns: number("--gap-ns"),
        ca_file: value("--ca-file").map(PathBuf::from),
        http2: role == "witness-h2",
    };
    let log = value("--log").unwrap_or_default();
    let serve = if script.http2 { witness_h2::serve } else { witness::serve };
    serve(&script, Path::new(&log))
}
