//! Writes timelines, runs, their comparisons and the summary of a run into a directory, for `scripts/check_compare.py` and for
//! the golden texts: everything that a comparison has to get right occurs (retries, failures, requests that never left, mixed
//! kinds of TTFT, unknown values, every bin of cached shares, warm-up and priming, gated turns, copies of a row, answers that
//! are not streamed or bring no output, stalls, events that share a read or carry no token, missing kernel stamps, a run that a
//! person ended, timelines that differ), drawn from a seed.
//!
//! `cargo run -p tracewheel-analysis --example sample_comparison -- DIR` prints a line a document: the arguments that
//! `scripts/check_compare.py` takes.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs, reason = "a tool for tests")]

#[path = "../tests/analysis/fixture.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use the rest")]
mod fixture;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fixture::{MS, attempt, manifest, produced, refused, rejected, request, run_with, timeline, unsent};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tracewheel_analysis::{Baseline, CompareOptions, compare, inspect_run};
use tracewheel_record::manifest::{EndedBy, FidelityBounds, OutcomeSection};
use tracewheel_record::rows::EXTRA_COPY;
use tracewheel_record::{AttemptRecord, HealthRecord, RequestRecord, Run};
use tracewheel_timeline::vocab::{
    ArrivalSource, AttemptStatus, EventKind, Phase, Reason, RequestStatus, Source, TtftKind,
};
use tracewheel_timeline::{RequestRow, Timeline};

const REQUESTS: i64 = 600;

fn main() {
    let dir = PathBuf::from(std::env::args().nth(1).expect("usage: sample_comparison DIR"));
    std::fs::create_dir_all(&dir).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(2026);
    let rows = production(&mut rng);
    let t = timeline(&dir, "timeline.parquet", &rows);
    let r = whole_run(&dir, &t, &rows, &mut rng);
    let again = another_run(&dir, &t, &rows, &mut rng);
    let early = early_run(&dir, &t, &rows, &mut rng);
    let other = timeline(&dir, "other.parquet", &without_latencies(&rows));
    let comparisons = [
        ("compare.json", &r, Baseline::Timeline(&t)),
        ("runs.json", &r, Baseline::Run(&again)),
        ("again.json", &again, Baseline::Timeline(&t)),
        ("early.json", &early, Baseline::Timeline(&t)),
        ("other.json", &r, Baseline::Timeline(&other)),
        ("back.json", &early, Baseline::Run(&r)),
    ];
    let shown = |path: &Path| path.display().to_string();
    for (name, replay, baseline) in comparisons {
        let comparison = compare(replay, baseline, &CompareOptions::default()).unwrap();
        write(&dir, name, &comparison);
        let other = match baseline {
            Baseline::Run(run) => shown(run.dir()),
            Baseline::Timeline(timeline) => shown(timeline.path()),
        };
        println!("{} {other} {}", shown(replay.dir()), shown(&dir.join(name)));
    }
    let whole = CompareOptions { match_rows: false, ..CompareOptions::default() };
    write(&dir, "whole.json", &compare(&early, Baseline::Timeline(&t), &whole).unwrap());
    println!("--whole {} {} {}", shown(early.dir()), shown(t.path()), shown(&dir.join("whole.json")));
    for (name, run) in [("inspect.json", &r), ("inspect-early.json", &early)] {
        write(&dir, name, &inspect_run(run).unwrap());
        println!("{} {}", shown(run.dir()), shown(&dir.join(name)));
    }
}

fn write(dir: &Path, name: &str, document: &impl serde::Serialize) {
    std::fs::write(dir.join(name), serde_json::to_string_pretty(document).unwrap()).unwrap();
}

/// A run that ended as planned.
fn whole_run(dir: &Path, t: &Timeline, rows: &[RequestRow], rng: &mut ChaCha8Rng) -> Run {
    let mut exchanges = exchanges(rows, rng);
    // Sent before the measured phase, to fill the cache.
    for row in 0..5 {
        let mut attempt = stream(row, 1, 0, rng);
        attempt.copy = EXTRA_COPY + row as u32;
        let mut record = request(&attempt, RequestStatus::Ok);
        (record.copy, record.phase) = (attempt.copy, Phase::Prime);
        exchanges.push((record, vec![attempt]));
    }
    let mut m = manifest(t);
    m.target.models_asked = vec!["m-a".to_owned()];
    m.target.models_served = vec!["m-a-0042".to_owned()];
    (m.cache.mode, m.plan.amplification) = (Some("natural".to_owned()), Some(1.0));
    m.policy.connections.request_timeout_ns = Some(600_000 * MS);
    m.other.insert("rows_left_out".to_owned(), 17.into());
    m.other.insert("requests_filled".to_owned(), 23.into());
    m.warnings.push("2 attempts failed for want of a port".to_owned());
    m.fidelity = Some(FidelityBounds { unsent_share: 0.02, ..FidelityBounds::default() });
    let health = |second: u32| HealthRecord {
        second,
        at_ns: i64::from(second) * 1000 * MS,
        loop_delay_max_ns: Some(50_000 + i64::from(second % 7) * 1000),
        kernel_lag_max_ns: (!second.is_multiple_of(3)).then_some(20_000 + i64::from(second)),
        clock_stepped: Some(second == 3),
        ..HealthRecord::default()
    };
    run_with(dir, "sample", m, &exchanges, &(0..24).map(health).collect::<Vec<_>>())
}

/// A run of the same rows, each row of ten twice, at another speed, that reports few cached tokens.
fn another_run(dir: &Path, t: &Timeline, rows: &[RequestRow], rng: &mut ChaCha8Rng) -> Run {
    let mut all = exchanges(rows, rng);
    let copies = exchanges(rows, rng).into_iter().filter(|(record, _)| record.row.is_multiple_of(10));
    all.extend(copies.map(|(mut record, mut attempts)| {
        record.copy = 1;
        attempts.iter_mut().for_each(|attempt| attempt.copy = 1);
        (record, attempts)
    }));
    for (record, _) in &mut all {
        if record.row.is_multiple_of(8) {
            (record.cached_tokens, record.cached_tokens_source) = (None, None);
        }
    }
    let mut m = manifest(t);
    m.target.models_asked = vec!["m-b".to_owned()];
    (m.plan.speed, m.cache.mode) = (Some(1.5), Some("cold".to_owned()));
    m.policy.connections.request_timeout_ns = Some(30_000 * MS);
    m.policy.connections.limit = Some(64);
    m.outcome.as_mut().unwrap().ended_by = EndedBy::Failures;
    hold_up(&mut all);
    run_with(dir, "again", m, &all, &(0..22).map(troubled).collect::<Vec<_>>())
}

/// Makes some requests late, each in a way of its own, and keeps some from leaving.
fn hold_up(exchanges: &mut [(RequestRecord, Vec<AttemptRecord>)]) {
    for (record, attempts) in exchanges {
        let Some(first) = attempts.first_mut() else { continue };
        let due = first.due_ns;
        let mut write = |released_ms: i64, late_ms: i64, write_ms: i64| {
            first.released_ns = Some(due + released_ms * MS + 3);
            first.first_write_ns = Some(due + late_ms * MS + 5);
            first.last_write_ns = Some(due + (late_ms + write_ms) * MS + 7);
        };
        match record.row % 50 {
            3 | 13 | 23 => write(21, 22, 0),
            7 => {
                write(0, 25, 0);
                (first.connection_reused, first.connected_ns) = (Some(false), Some(due + 19 * MS));
                first.tls_ns = record.row.is_multiple_of(4).then_some(due + 24 * MS);
            }
            11 => {
                write(1, 15, 0);
                first.connection_reused = Some(true);
            }
            16 => write(0, 0, 30),
            31 => {
                let mut lost = rejected(record.row, 1, due / MS, 503);
                (lost.first_write_ns, lost.last_write_ns, lost.http_status) = (None, None, None);
                (lost.copy, lost.reason) = (record.copy, Some(Reason::LocalDescriptors));
                (record.status, record.reason) = (RequestStatus::Failed, lost.reason);
                (record.attempts, record.final_attempt) = (1, 1);
                *attempts = vec![lost];
            }
            41 => {
                let copy = record.copy;
                *record = unsent(record.row, record.planned_ns / MS, Reason::RunAborted);
                record.copy = copy;
                attempts.clear();
            }
            _ => {}
        }
    }
}

/// A second of a machine that is in trouble of one kind after the other.
fn troubled(second: u32) -> HealthRecord {
    let mut row = HealthRecord {
        second,
        at_ns: i64::from(second + 1) * 1000 * MS,
        machine_busy_ns: Some(700 * MS),
        machine_capacity_ns: Some(2_000 * MS),
        steal_ns: Some(4 * MS),
        send_run_delay_ns: Some(3 * MS),
        cpu_pressure_ns: Some(2 * MS),
        rendered_late: Some(0),
        clock_bracket_ns: Some(90 + i64::from(second)),
        clock_stepped: Some(false),
        ..HealthRecord::default()
    };
    match second % 9 {
        0 => row.cpu_throttled_ns = Some(640 * MS),
        1 => row.steal_ns = Some(310 * MS),
        2 => row.send_run_delay_ns = Some(505 * MS),
        3 => (row.cpu_pressure_ns, row.send_run_delay_ns) = (Some(900 * MS), None),
        4 => (row.machine_busy_ns, row.send_run_delay_ns) = (Some(1_900 * MS), None),
        5 => row.clock_stepped = Some(true),
        6 => row.rendered_late = Some(second),
        7 => (row.machine_busy_ns, row.machine_capacity_ns, row.steal_ns) = (None, None, None),
        _ => {}
    }
    row
}

/// A run that a person ended after ten seconds.
fn early_run(dir: &Path, t: &Timeline, rows: &[RequestRow], rng: &mut ChaCha8Rng) -> Run {
    let mut all = exchanges(rows, rng);
    for (record, attempts) in &mut all {
        if record.planned_ns >= 10_000 * MS {
            *record = unsent(record.row, record.planned_ns / MS, Reason::StoppedByUser);
            attempts.clear();
        } else if record.planned_ns >= 9_900 * MS && record.attempts > 0 {
            (record.status, record.reason) = (RequestStatus::Interrupted, Some(Reason::InterruptedByUser));
        }
    }
    let mut m = manifest(t);
    m.plan.mode = Some("closed:4".to_owned());
    m.outcome = Some(OutcomeSection {
        ended_by: EndedBy::Cut,
        ended_ns: Some(10_000 * MS),
        ..OutcomeSection::default()
    });
    run_with(dir, "early", m, &all, &[])
}

/// The same traffic as another log would have it: no latencies, sampled, some answered by a gateway's cache.
fn without_latencies(rows: &[RequestRow]) -> Vec<RequestRow> {
    let bare = |(at, row): (usize, &RequestRow)| RequestRow {
        prod_ttft_ns: None,
        prod_ttft_kind: None,
        prod_e2e_ns: None,
        prod_event_ns: None,
        cached_tokens: None,
        cached_tokens_source: None,
        retry_of_row: None,
        sample_rate: Some(0.5),
        served_by_gateway_cache: Some(at.is_multiple_of(50)),
        arrival_source: ArrivalSource::LogWrite,
        ..row.clone()
    };
    rows.iter().enumerate().map(bare).collect()
}

fn exchanges(rows: &[RequestRow], rng: &mut ChaCha8Rng) -> Vec<(RequestRecord, Vec<AttemptRecord>)> {
    let first_attempts = rows.iter().enumerate().filter(|(_, row)| row.retry_of_row.is_none());
    first_attempts.filter_map(|(at, row)| replayed(at as u64, row, rng)).collect()
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
    row.prod_ttft_kind = Some(TtftKind::ALL[rng.random_range(0..TtftKind::ALL.len())]);
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
    (row.cached_tokens, row.cached_tokens_source) = cached(rng);
    if rng.random_range(0..5) == 0 {
        row.model = Some(Arc::from("m-b"));
    }
    row
}

/// Every bin, and now and then nothing.
fn cached(rng: &mut ChaCha8Rng) -> (Option<u32>, Option<Source>) {
    match rng.random_range(0..40) {
        0 => (None, None),
        1..=5 => (Some(0), Some(Source::Reported)),
        _ => (Some(rng.random_range(0..=100)), Some(Source::Reported)),
    }
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
    // By three routes; what a crash took is unknown.
    record.sent_route =
        ["chat-large", "chat-small", "embeddings"].get(record.row as usize % 4).map(|name| (*name).into());
    record.phase = if due < 1000 { Phase::Warmup } else { Phase::Measure };
    if record.row % 9 == 4 {
        // A turn that was due only when the one before had ended.
        (record.gated, record.planned_ns) = (true, record.planned_ns - rng.random_range(0..40) * MS);
    }
    if record.row % 25 == 7 {
        record.budget_wait_ns = rng.random_range(1..30) * MS;
    }
    (record.cached_tokens, record.cached_tokens_source) = cached(rng);
    if record.row % 7 != 3 {
        // A target that forgets an eighth of what the plan expects; where it does not report, the plan still expects.
        let input = record.input_tokens.unwrap_or(0);
        let cached = record.cached_tokens.unwrap_or(input / 2);
        record.predicted_cached_tokens = Some((cached + cached / 7).min(input));
    }
    attempts.push(last);
    Some((record, attempts))
}

fn stream(row: u64, number: u16, due: i64, rng: &mut ChaCha8Rng) -> AttemptRecord {
    let mut at = due + rng.random_range(5..300);
    let events: Vec<i64> = (0..rng.random_range(0..45))
        .map(|_| {
            at += if rng.random_range(0..400) == 0 { 620 } else { rng.random_range(0..15) };
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
        attempt.events[event].tokens = reported.then(|| rng.random_range(0..4));
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
