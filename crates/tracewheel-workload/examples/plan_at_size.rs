//! Plans a timeline and streams the whole plan, as a replay does, and says what memory that took.
//!
//! `cargo run --release -p tracewheel-workload --example plan_at_size -- FILE`
#![allow(clippy::print_stdout, reason = "an example talks")]

use tracewheel_timeline::Timeline;
use tracewheel_workload::{Plan, PlanOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: plan_at_size FILE")?;
    let plan = Plan::build(&Timeline::open(&path)?, PlanOptions::default())?;
    println!("planned {} requests; peak {} MiB", plan.header().requests, peak_mib()?);
    let mut requests = plan.requests();
    let mut blocks = 0;
    for request in requests.by_ref() {
        blocks += request?.prompt.blocks.len();
    }
    let prediction = requests.prediction();
    println!(
        "streamed them with {blocks} blocks; peak {} MiB; {:.2} % of the tokens predicted as cached, exact {}",
        peak_mib()?,
        prediction.cached_tokens as f64 * 100.0 / prediction.of_tokens.max(1) as f64,
        prediction.forgets_from_row.map_or("throughout".to_owned(), |row| format!("before row {row}"))
    );
    Ok(())
}

/// The most memory that this process has held (`VmHWM`), in MiB.
fn peak_mib() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024)
}
