//! How late each way of waiting is, in one run: prints p50, p99 and the largest lateness in microseconds.
//!
//! `cargo bench -p benches --bench waiter`; without `--bench` (under `cargo test`) it makes a few waits only. Nothing is
//! asserted but that no wait ends early.
#![allow(clippy::print_stdout, missing_docs)]

use tracewheel_doctor::waits::{Effort, measure};

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let waits = measure(if full { Effort::Long } else { Effort::Trial });
    println!(
        "{:<38}{:>8}{:>9}{:>9}   lateness, µs; {} waits each",
        "", "p50", "p99", "max", waits[0].lateness.n
    );
    for wait in waits {
        let late = wait.lateness;
        assert!(late.p50_ns >= Some(0), "{} was early", wait.method);
        let us = |ns: Option<i64>| ns.map_or(f64::NAN, |ns| ns as f64 / 1e3);
        println!(
            "{:<38}{:>8.1}{:>9.1}{:>9.1}",
            wait.method,
            us(late.p50_ns),
            us(late.p99_ns),
            us(late.max_ns)
        );
    }
}
