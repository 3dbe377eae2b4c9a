//! The table of what a replay must reach: how punctual it is, what its stamps are worth, what it costs.
//!
//! `cargo bench -p benches --bench fidelity` builds the release binary, measures every row three times (about twenty
//! minutes) and writes the medians into `docs/performance.md`. Each row runs the binary as a process of its own against
//! an independent witness, a server in another process; what it is compared with (a bare timer loop, a reader that records
//! nothing) runs in the same minutes.
//!
//! After `--`: `--rows send-200,cpu-16` picks rows and prints them without writing, `--rounds N`, `--quick` for a fifth
//! of the requests, `--binary FILE` for another binary, `--page FILE` to write elsewhere, `--full-day` to send all of a day's
//! requests for real (over two hours). Without `--bench` (under `cargo test`) only the witness and the reader run, briefly.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used, missing_docs)]

mod answer;
mod client;
mod cost;
mod figures;
mod floor;
mod page;
#[path = "../../crates/tracewheel-net/tests/support/pki.rs"]
mod pki;
mod reader;
mod rows;
mod trace;
mod witness;
mod witness_h2;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use tracewheel_clock::{Clock, RunClock};

use client::Lab;
use figures::medians;
use rows::{Line, ROWS, Row};
use witness::{Script, Witness};

/// What stands on the command line.
#[derive(Debug, Default)]
struct Options(Vec<String>);

impl Options {
    fn has(&self, name: &str) -> bool {
        self.before_command().iter().any(|word| word == name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        let words = self.before_command();
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).map(String::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.value(name).and_then(|value| value.parse().ok())
    }

    fn before_command(&self) -> &[String] {
        self.0.split(|word| word == "--").next().unwrap_or_default()
    }

    fn command(&self) -> &[String] {
        let at = self.0.iter().position(|word| word == "--");
        at.map_or(&[], |at| &self.0[at + 1..])
    }
}

fn main() -> io::Result<()> {
    let options = Options(std::env::args().skip(1).collect());
    match options.value("--role") {
        Some(role) => play(role, &options),
        None if options.has("--bench") => measure(&options),
        None => smoke(),
    }
}

/// One of the processes beside the one that measures.
fn play(role: &str, options: &Options) -> io::Result<()> {
    let port = options.number("--port").unwrap_or(0);
    let count = options.number("--count").unwrap_or(0);
    let log = Path::new(options.value("--log").unwrap_or_default());
    match role {
        "witness" | "witness-h2" => {
            let script = Script {
                chunks: options.number("--chunks").unwrap_or(1),
                first_ns: options.number("--first-ns").unwrap_or(0),
                gap_ns: options.number("--gap-ns").unwrap_or(0),
                ca_file: options.value("--ca-file").map(PathBuf::from),
                http2: role == "witness-h2",
            };
            if script.http2 { witness_h2::serve(&script, log) } else { witness::serve(&script, log) }
        }
        "floor" => floor::send(port, &rows::rate_trace(options.number("--rate").unwrap_or(1), count)),
        "reader" => reader::read(port, options.number("--at-once").unwrap_or(1), count),
        "guard" => cost::guard(options.command(), log),
        "day" => rows::simulate(log).map(|found| println!("{found}")),
        other => Err(io::Error::other(format!("no role {other}"))),
    }
}

/// About what a replay sends for 200 tokens; the number is its id.
fn request(number: usize) -> Vec<u8> {
    let body = " word".repeat(220);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: witness\r\nx-request-id: {number:x}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// Witness and reader without the product: enough to see that both still work.
fn smoke() -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    for (chunks, gap_ns) in [(4, 1_000_000), (50, 0)] {
        let script = Script { chunks, first_ns: 0, gap_ns, ca_file: None, http2: false };
        let witness = Witness::start(&script, folder.path())?;
        reader::read(witness.port, 3, 10)?;
        let seen = witness.end()?;
        assert_eq!(seen.len(), 10, "every request is seen");
        assert!(seen.iter().all(|seen| gap_ns == 0 || seen.written_ns.len() == chunks));
    }
    println!("witness and byte reader work; the table is measured with --bench");
    Ok(())
}

/// Measures the rows that were asked for.
fn measure(options: &Options) -> io::Result<()> {
    let folder = tempfile::tempdir()?;
    let binary = match options.value("--binary") {
        Some(path) => PathBuf::from(path),
        None => build()?,
    };
    let help = Command::new(&binary).args(["replay", "--help"]).output()?;
    let lab = Lab {
        binary,
        folder: folder.path().to_owned(),
        help: String::from_utf8_lossy(&help.stdout).into_owned(),
        quick: options.has("--quick"),
        full_day: options.has("--full-day"),
    };
    let picked: Option<Vec<&str>> = options.value("--rows").map(|rows| rows.split(',').collect());
    if let Some(unknown) = picked.iter().flatten().find(|name| ROWS.iter().all(|row| row.name != **name)) {
        let names = ROWS.map(|row| row.name).join(", ");
        return Err(io::Error::other(format!("no row {unknown}; there are {names}")));
    }
    let rows = ROWS.iter().filter(|row| picked.as_ref().is_none_or(|names| names.contains(&row.name)));
    let clock = RunClock::start();
    let (mut all, mut lines) = (BTreeMap::new(), Vec::new());
    for row in rows {
        let rounds = options.number("--rounds").unwrap_or(row.rounds);
        let found = by_rounds(row, rounds, &lab, &mut all);
        eprint!(
            "{}",
            page::table(&found).lines().skip(2).map(|line| format!("{line}\n")).collect::<String>()
        );
        lines.extend(found);
    }
    println!("{}", page::table(&lines));
    if picked.is_none() || options.has("--page") {
        let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md");
        let path = options.value("--page").map_or(default, PathBuf::from);
        let rounds = options.number("--rounds").unwrap_or(3);
        page::write(&path, &lines, rounds, clock.now().0 / 1_000_000_000)?;
        println!("written to {}", path.display());
    }
    Ok(())
}

/// Runs a row's rounds; a row that can't be run says so in its line.
fn by_rounds(
    row: &Row,
    rounds: usize,
    lab: &Lab,
    all: &mut BTreeMap<&'static str, figures::Figures>,
) -> Vec<Line> {
    let mut figures = Vec::new();
    for round in 0..rounds.max(1) {
        match (row.run)(lab) {
            Ok(found) => {
                let told: Vec<String> =
                    found.iter().map(|(name, value)| format!("{name} {value:.2}")).collect();
                eprintln!("{} round {}: {}", row.name, round + 1, told.join(", "));
                figures.push(found);
            }
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return vec![unmeasured(row, &error.to_string(), None)];
            }
            Err(error) => return vec![unmeasured(row, &error.to_string(), Some(false))],
        }
    }
    let median = medians(&figures);
    let lines = (row.judge)(&median, all);
    all.insert(row.name, median);
    lines
}

fn unmeasured(row: &Row, why: &str, reached: Option<bool>) -> Line {
    let none = || "–".to_owned();
    let why = why.replace(['\n', '|'], " ");
    Line { what: row.name.to_owned(), goal: none(), beside: none(), measured: why, reached }
}

/// Builds the release binary beside this one.
fn build() -> io::Result<PathBuf> {
    let myself = std::env::current_exe()?;
    let release = myself.ancestors().nth(2).ok_or_else(|| io::Error::other("a bench lies in deps/"))?;
    let target = release.parent().ok_or_else(|| io::Error::other("release/ lies in a target folder"))?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "-p", "tracewheel", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target)
        .status()?;
    if status.success() { Ok(release.join("tracewheel")) } else { Err(io::Error::other("the build failed")) }
}
