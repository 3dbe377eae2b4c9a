//! How far from its planned time each request of a replay reaches the server, beside a bare loop in the same run.
//!
//! One bursty trace for each rate (gamma gaps with a coefficient of variation of 3, fixed seed) is sent three times: by a
//! whole replay (look-ahead, wheel, hyper, recorder), by the same over TLS, and by the floor, a bare loop that sleeps, spins
//! and writes ready bytes onto 64 kept connections. A witness in a thread of its own stamps each request with the kernel's receive time and
//! answers a stream of 16 chunks at once. Printed: |arrival − planned| after the median is taken out, in microseconds.
//!
//! `cargo bench -p benches --bench replay_send_error`; without `--bench` (under `cargo test`) it sends a few requests
//! only. Nothing is asserted but that every request arrived once.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

#[path = "replay_send_error/floor.rs"]
mod floor;
#[path = "../crates/tracewheel-net/tests/support/pki.rs"]
mod pki;
#[path = "replay_send_error/trace.rs"]
mod trace;
#[path = "replay_send_error/witness.rs"]
mod witness;

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use tracewheel_record::Run;
use tracewheel_replay::{ReplayConfig, RunReport, StopSignal};
use tracewheel_workload::{Plan, request_id};

use witness::Witness;

/// Requests a second, and how many of them.
const LOADS: [(u32, usize); 3] = [(50, 500), (200, 2_000), (1_000, 10_000)];
const QUICK: [(u32, usize); 1] = [(1_000, 100)];

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let loads: &[(u32, usize)] = if full { &LOADS } else { &QUICK };
    println!("send error, µs              rate/s       n     p50     p90     p99   p99.9     max");
    for &(rate, count) in loads {
        let offsets = trace::bursty(rate, count);
        let folder = tempfile::tempdir().expect("a folder for the trace");
        let plan = trace::plan(&folder.path().join("trace.parquet"), &offsets);
        let witness = Witness::start(None);
        show("floor: bare loop", rate, &by_floor(&witness, &offsets));
        let plain = ReplayConfig { target: format!("http://{}", witness.addr()), ..ReplayConfig::default() };
        let (errors, report) = by_replay(&witness, &plan, folder.path(), &plain);
        show("replay", rate, &errors);
        account(&report);
        let authority = pki::Authority::new();
        let witness = Witness::start(Some(authority.issue(&["127.0.0.1"]).server()));
        let ca_file = folder.path().join("ca.pem");
        std::fs::write(&ca_file, authority.pem()).expect("the folder is writable");
        let target = format!("https://{}", witness.addr());
        let secure = ReplayConfig { target, ca_file: Some(ca_file), ..ReplayConfig::default() };
        let (errors, report) = by_replay(&witness, &plan, folder.path(), &secure);
        show("replay over TLS", rate, &errors);
        account(&report);
    }
}

fn by_floor(witness: &Witness, offsets: &[i64]) -> Vec<i64> {
    let start_unix_ns = floor::send(witness.addr(), offsets);
    let arrivals = witness.take();
    assert_eq!(arrivals.len(), offsets.len(), "every request arrives once");
    offsets
        .iter()
        .enumerate()
        .map(|(number, offset)| arrivals[&(number as u64)] - start_unix_ns - offset)
        .collect()
}

fn by_replay(witness: &Witness, plan: &Plan, folder: &Path, config: &ReplayConfig) -> (Vec<i64>, RunReport) {
    let (events, _unread) = sync_channel(1);
    let report = tracewheel_replay::run(plan, config, &folder.join("runs"), &StopSignal::new(), events)
        .expect("a replay of a good plan");
    assert_eq!(report.counts.ok, report.counts.planned, "every request is answered");
    let arrivals: HashMap<u64, i64> = witness.take();
    let digest = &plan.header().timeline_digest;
    let errors = plan
        .requests()
        .map(|planned| planned.expect("the plan was read before"))
        .map(|planned| arrivals[&request_id(digest, planned.row, 0)] - planned.planned_ns)
        .collect();
    (errors, report)
}

/// Prints where the replay itself says that the time went, over first attempts.
fn account(report: &RunReport) {
    let run = Run::open(&report.run_dir).expect("a closed run");
    let (mut wheel, mut write) = (Vec::new(), Vec::new());
    for attempt in run.attempts().expect("the attempts are there") {
        let attempt = attempt.expect("a whole part");
        let (Some(released), Some(written)) = (attempt.released_ns, attempt.first_write_ns) else { continue };
        wheel.push(released - attempt.due_ns);
        write.push(written - released);
    }
    let quantiles = |mut values: Vec<i64>| {
        values.sort_unstable();
        let at =
            |q: f64| values[((q * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1] / 1_000;
        format!("p50 {} p99 {} max {}", at(0.5), at(0.99), at(1.0))
    };
    println!(
        "  due to released: {}; released to written: {} µs; {} connections",
        quantiles(wheel),
        quantiles(write),
        report.connections
    );
}

/// Prints the quantiles of the distances from the median.
fn show(name: &str, rate: u32, errors: &[i64]) {
    let mut sorted = errors.to_vec();
    sorted.sort_unstable();
    let median = sorted[sorted.len() / 2];
    let mut distances: Vec<i64> = errors.iter().map(|error| (error - median).abs()).collect();
    distances.sort_unstable();
    let at = |q: f64| {
        distances[((q * distances.len() as f64).ceil() as usize).clamp(1, distances.len()) - 1] / 1_000
    };
    println!(
        "{name:<26} {rate:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}",
        distances.len(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}
