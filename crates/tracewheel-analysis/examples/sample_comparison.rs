//! Writes a timeline, a run of it, the comparison of the two and the run's inspection into a directory, for `scripts/check_compare.py`:
//! everything that a comparison has to get right occurs (retries, failures, mixed kinds of TTFT, unknown values, answers
//! that are not streamed, events that share a read, missing kernel stamps), drawn from a seed.
//!
//! `cargo run -p tracewheel-analysis --example sample_comparison -- DIR`

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a tool for tests")]

#[path = "../tests/analysis/fixture.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use the rest")]
mod fixture;

use std::path::PathBuf;

use fixture::{MS, attempt, manifest, produced, refused, rejected, request, run, timeline, unsent};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tracewheel_analysis::{Baseline, CompareOptions, compare, inspect_run};
use tracewheel_record::{AttemptRecord, RequestRecord};
use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::{AttemptStatus, EventKind, Phase, Reason, RequestStatus, Source, TtftKind};

const REQUESTS: i64 = 600;

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("usage: sample_comparison DIR"));
    std::fs::create_dir_all(&dir).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(2026);
    let rows = production(&mut rng);
    let t = timeline(&dir, "timeline.parquet", &rows);
    let exchanges: Vec<_> = rows
        .iter()
        .enumerate()
        .filter(|(_, row)| row.retry_of_row.is_none())
        .filter_map(|(at, row)| replayed(at as u64, row, &mut rng))
        .collect();
    let r = run(&dir, manifest(&t), &exchanges);
    let comparison = compare(&r, Baseline::Timeline(&t), &CompareOptions::default()).unwrap();
    std::fs::write(dir.join("compare.json"), serde_json::to_string_pretty(&comparison).unwrap()).unwrap();
    let inspection = inspect_run(&r).unwrap();
    std::fs::write(dir.join("inspect.json"), serde_json::to_string_pretty(&inspection).unwrap()).unwrap();
    println!("{} {}", r.dir().display(), t.path().display());
}

/// Rows in arrival order; one in twelve is a refusal that is tried again up to twice.
fn production(rng: &mut ChaCha8Rng) -> Vec<RequestRow> {
    let mut rows: Vec<(i64, RequestRow, Option<usize>)> = Vec::new();
    for i in 0..REQUESTS {
        let arrival = i * 40 + rng.random_range(0..40);
        if i % 12 == 5 {
            let first = rows.len();
            rows.push((arrival, refused(arrival, 429), None));
            let later = arrival + rng.random_range(200..2000);
            let chained = rng.random_range(0..3) == 0;
            rows.push((later, if chained { refused(later, 503) } else { logged(later, rng) }, Some(first)));
            if chained {
                let last = later + rng.random_range(200..2000);
                let row = if rng.random_range(0..3) == 0 { refused(last, 500) } else { logged(last, rng) };
                rows.push((last, row, Some(first + 1)));
            }
        } else {
            rows.push((arrival, logged(arrival, rng), None));
        }
    }
    sorted(rows)
}

/// Sorts by arrival and turns the positions of first attempts into rows.
fn sorted(rows: Vec<(i64, RequestRow, Option<usize>)>) -> Vec<RequestRow> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|at| rows[*at].0);
    let row_of = |at: usize| order.iter().position(|other| *other == at).unwrap() as u64;
    let place = |at: &usize| RequestRow { retry_of_row: rows[*at].2.map(row_of), ..rows[*at].1.clone() };
    order.iter().map(place).collect()
}

fn logged(arrival: i64, rng: &mut ChaCha8Rng) -> RequestRow {
    let ttft = 20 + rng.random_range(0..200) * rng.random_range(1..6);
    let tokens = rng.random_range(1..30);
    let e2e = ttft + i64::from(tokens) * rng.random_range(2..12);
    let mut row = RequestRow { output_tokens: Some(tokens as u32), ..produced(arrival, ttft, e2e) };
    // Odd nanoseconds, so that nothing is right by rounding.
    row.prod_ttft_ns = row.prod_ttft_ns.map(|ns| ns + rng.random_range(0..MS));
    row.prod_e2e_ns = row.prod_e2e_ns.map(|ns| ns + MS + rng.random_range(0..MS));
    let kinds = [TtftKind::FirstChunk, TtftKind::FirstChunk, TtftKind::Headers, TtftKind::FirstByte];
    row.prod_ttft_kind = Some(kinds[rng.random_range(0..4)]);
    match rng.random_range(0..20) {
        0 => (row.prod_ttft_ns, row.prod_ttft_kind) = (None, None),
        1 => row.prod_e2e_ns = None,
        2 => (row.client_gone, row.cancel_after_ns) = (Some(true), Some(ttft * MS)),
        3 => row.prod_error = Some("timeout".into()),
        4 => row.stream = Some(false),
        5 => row.output_tokens = None,
        6 => row.prod_status = None,
        _ => {}
    }
    if rng.random_range(0..3) == 0 {
        let mut at = row.prod_ttft_ns.unwrap_or(MS);
        let events = (0..rng.random_range(1..20)).map(|_| {
            at += rng.random_range(0..9 * MS);
            at
        });
        row.prod_event_ns = Some(events.collect());
    }
    row.cached_tokens = Some(rng.random_range(0..100));
    row.cached_tokens_source = Some(Source::Reported);
    row
}

/// What the replay measured of a row; one in fifty is not in the run at all.
fn replayed(
    row: u64,
    logged: &RequestRow,
    rng: &mut ChaCha8Rng,
) -> Option<(RequestRecord, Vec<AttemptRecord>)> {
    let due = logged.arrival_unix_ns.unwrap() / MS;
    let mut attempts = Vec::new();
    let mut at = due;
    let planned = due;
    match rng.random_range(0..50) {
        0 => return None,
        1 => return Some((unsent(row, due, Reason::TooLate), attempts)),
        2 => {
            let last = rejected(row, 1, at, 500);
            return Some((request(&last, RequestStatus::Failed), vec![last]));
        }
        3..=6 => {
            attempts.push(rejected(row, 1, at, 429));
            at += rng.random_range(100..1500);
        }
        _ => {}
    }
    let mut last = stream(row, attempts.len() as u16 + 1, at, rng);
    let mut status = RequestStatus::Ok;
    if rng.random_range(0..40) == 0 {
        (status, last.status, last.reason) =
            (RequestStatus::Cancelled, AttemptStatus::Cancelled, Some(Reason::CancelledAsRecorded));
    }
    let mut record = request(&last, status);
    (record.planned_ns, record.due_ns) = (planned * MS, planned * MS);
    record.backoff_ns = (at - due) * MS;
    record.strata.stream = logged.stream;
    record.phase = if due < 1000 { Phase::Warmup } else { Phase::Measure };
    (record.cached_tokens, record.cached_tokens_source) =
        (Some(rng.random_range(0..100)), Some(Source::Reported));
    attempts.push(last);
    Some((record, attempts))
}

fn stream(row: u64, number: u16, due: i64, rng: &mut ChaCha8Rng) -> AttemptRecord {
    let mut at = due + rng.random_range(5..300);
    let events: Vec<i64> = (0..rng.random_range(0..25))
        .map(|_| {
            at += rng.random_range(0..15);
            at
        })
        .collect();
    let mut attempt = attempt(row, number, due, &events);
    let count = attempt.events.len();
    for read in &mut attempt.reads {
        read.user_ns += rng.random_range(0..MS / 2);
        read.kernel_ns =
            read.kernel_ns.map(|ns| ns + rng.random_range(0..MS / 2)).filter(|_| rng.random_range(0..9) > 0);
    }
    let reported = rng.random_range(0..3) == 0;
    for event in 1..count - 1 {
        // Some events arrive in the read of the one before.
        if event > 1 && rng.random_range(0..6) == 0 {
            attempt.events[event].read = attempt.events[event - 1].read;
        }
        attempt.events[event].tokens = reported.then(|| rng.random_range(1..4));
        if event < 4 && row.is_multiple_of(3) {
            attempt.events[event].kind =
                [EventKind::Reasoning, EventKind::ToolArgs, EventKind::Heartbeat][event - 1];
        }
    }
    if rng.random_range(0..4) == 0 {
        attempt.usage_output_tokens = None;
    }
    attempt
}
