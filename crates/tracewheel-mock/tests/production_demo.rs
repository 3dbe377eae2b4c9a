//! What the demo's production endpoint is like, in virtual time: real arrivals, retries as the official SDK makes them,
//! against the same endpoint asked one request at a time with everything cached.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;

use tracewheel_clock::RunNs;
use tracewheel_mock::engine::{Emission, EmissionKind, Engine, EngineRequest, RateLimited, Refusal, Ticket};
use tracewheel_mock::{LimitConfig, MockConfig};

const SECOND: f64 = 1e9;
/// What the official SDK does: two retries, the server's wait obeyed.
const ATTEMPTS: u32 = 3;

#[derive(Debug, Clone, Copy)]
struct Row {
    at_ns: i64,
    prompt_tokens: u32,
    output_tokens: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Outcome {
    attempts: u32,
    ttft_ns: Option<i64>,
    e2e_ns: Option<i64>,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn production() -> MockConfig {
    let text = std::fs::read_to_string(root().join("fixtures/demo/production.toml")).unwrap();
    toml::from_str(&text).unwrap()
}

/// Rows of an Azure trace from `from_s` to `to_s` after its first one, moved to begin at zero.
fn azure(path: &str, from_s: f64, to_s: f64) -> Option<Vec<Row>> {
    let text = std::fs::read_to_string(root().join(path)).ok()?;
    let rows: Vec<Row> = text.lines().skip(1).filter_map(azure_row).collect();
    let first = rows.first()?.at_ns;
    let inside = |row: &Row| (from_s..to_s).contains(&((row.at_ns - first) as f64 / SECOND));
    Some(rows.iter().filter(|row| inside(row)).map(|row| Row { at_ns: row.at_ns - first, ..*row }).collect())
}

/// `2023-11-16 18:15:46.6805900,374,44`; the day does not matter.
fn azure_row(line: &str) -> Option<Row> {
    let mut fields = line.trim().split(',');
    let time = fields.next()?.split(' ').nth(1)?;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    let seconds = parts.next()?? * 3600.0 + parts.next()?? * 60.0 + parts.next()??;
    Some(Row {
        at_ns: (seconds * SECOND) as i64,
        prompt_tokens: fields.next()?.parse().ok()?,
        output_tokens: fields.next()?.parse().ok()?,
    })
}

/// Prompts that share nothing with each other, the same for every attempt.
fn request(row: usize, attempt: u32, what: Row) -> EngineRequest {
    EngineRequest {
        ticket: Ticket(row as u64 * 100 + u64::from(attempt)),
        key: 0,
        prompt_tokens: what.prompt_tokens,
        blocks: (0..u64::from(what.prompt_tokens / 16)).map(|n| (row as u64) << 32 | n).collect(),
        output_tokens: what.output_tokens,
        output_cap: what.output_tokens,
    }
}

/// Open loop with retries; latencies count from the first attempt.
fn open_loop(config: &MockConfig, rows: &[Row]) -> Vec<Outcome> {
    let mut engine = Engine::new(config);
    let mut outcomes = vec![Outcome::default(); rows.len()];
    let mut due: BTreeMap<(i64, usize), u32> =
        rows.iter().enumerate().map(|(n, row)| ((row.at_ns, n), 0)).collect();
    let mut out = Vec::new();
    while let Some(((at_ns, row), attempt)) = due.pop_first() {
        engine.advance(RunNs(at_ns), &mut out);
        outcomes[row].attempts += 1;
        if let Err(refusal) = engine.submit(RunNs(at_ns), request(row, attempt, rows[row])) {
            let wait_ns = match refusal {
                Refusal::RateLimited(RateLimited { retry_after_ns: Some(ns), .. }) => ns,
                _ => 750_000_000,
            };
            if attempt + 1 < ATTEMPTS {
                due.insert((at_ns + wait_ns, row), attempt + 1);
            }
        }
    }
    drain(&mut engine, &mut out);
    note(&mut outcomes, rows, &out);
    outcomes
}

/// One at a time, each prompt sent before so that it is cached: what a naive bench measures. A client that waits for
/// each answer meets no budget worth having, so there is none.
fn closed_loop_warm(config: &MockConfig, rows: &[Row]) -> Vec<Outcome> {
    let config = MockConfig { limits: LimitConfig::default(), ..config.clone() };
    let mut engine = Engine::new(&config);
    let mut now = RunNs(0);
    let mut one = |row: usize, attempt: u32| {
        let mut out = Vec::new();
        let at_ns = now.0;
        engine.submit(now, request(row, attempt, rows[row])).unwrap();
        drain(&mut engine, &mut out);
        now = out.last().unwrap().at;
        let first = out.iter().find(|e| is_token(e)).unwrap().at;
        Outcome { attempts: 1, ttft_ns: Some(first.0 - at_ns), e2e_ns: Some(now.0 - at_ns) }
    };
    for row in 0..rows.len() {
        one(row, 0);
    }
    (0..rows.len()).map(|row| one(row, 1)).collect()
}

fn drain(engine: &mut Engine, out: &mut Vec<Emission>) {
    while let Some(at) = engine.next_event() {
        engine.advance(at, out);
    }
}

fn is_token(emission: &Emission) -> bool {
    matches!(emission.kind, EmissionKind::Token { .. })
}

fn note(outcomes: &mut [Outcome], rows: &[Row], out: &[Emission]) {
    for emission in out {
        let row = (emission.ticket.0 / 100) as usize;
        let since = emission.at.0 - rows[row].at_ns;
        if let EmissionKind::Token { index, last } = emission.kind {
            let outcome = &mut outcomes[row];
            outcome.ttft_ns = outcome.ttft_ns.filter(|_| index > 0).or(Some(since));
            outcome.e2e_ns = last.then_some(since);
        }
    }
}

/// What a table shows of a run.
#[derive(Debug)]
struct Figures {
    refused_share: f64,
    failed: usize,
    ttft_ms: [f64; 3],
    e2e_ms: [f64; 3],
}

impl Figures {
    fn of(outcomes: &[Outcome]) -> Self {
        Self {
            refused_share: outcomes.iter().filter(|o| o.attempts > 1).count() as f64 / outcomes.len() as f64,
            failed: outcomes.iter().filter(|o| o.ttft_ns.is_none()).count(),
            ttft_ms: percentiles(outcomes.iter().filter_map(|o| o.ttft_ns).collect()),
            e2e_ms: percentiles(outcomes.iter().filter_map(|o| o.e2e_ns).collect()),
        }
    }
}

/// Nearest rank p50, p95, p99, milliseconds.
fn percentiles(mut ns: Vec<i64>) -> [f64; 3] {
    ns.sort_unstable();
    [50, 95, 99].map(|p| ns[(ns.len() * p).div_ceil(100) - 1] as f64 / 1e6)
}

/// The demo's traffic, or the busiest twenty seconds of the trace that it is cut from.
fn demo_rows() -> Option<Vec<Row>> {
    azure("fixtures/traces/azure2023_conv_20s.csv", 0.0, f64::MAX)
        .or_else(|| azure("../shared/traces/azure2023_conv_first15min.csv", 169.0, 189.0))
}

/// The rows with each arrival moved by less than `most_ns`.
fn shaken(rows: &[Row], most_ns: u64, seed: u64) -> Vec<Row> {
    let shake = |n: usize| (n as u64 + 1).wrapping_mul(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1) >> 20;
    rows.iter()
        .enumerate()
        .map(|(n, row)| Row { at_ns: row.at_ns + (shake(n) % most_ns) as i64, ..*row })
        .collect()
}

fn within(ours: f64, theirs: f64, share: f64) -> bool {
    (ours / theirs - 1.0).abs() <= share
}

#[test]
fn production_throttles_some_first_attempts_and_is_several_times_slower_than_a_warm_bench() {
    let Some(rows) = demo_rows() else {
        println!("skipped: neither the demo's trace nor the one it is cut from is here");
        return;
    };
    production().validate().unwrap();
    let production_figures = Figures::of(&open_loop(&production(), &rows));
    let bench = Figures::of(&closed_loop_warm(&production(), &rows));
    let ratio = production_figures.ttft_ms[1] / bench.ttft_ms[1];
    assert!((0.08..0.25).contains(&production_figures.refused_share), "{production_figures:.2?}");
    assert_eq!(production_figures.failed, 0, "everybody gets an answer in the end");
    assert!((3.0..12.0).contains(&ratio), "{ratio:.1}: {production_figures:.0?} {bench:.0?}");
    assert!((400.0..3000.0).contains(&production_figures.e2e_ms[0]), "{production_figures:.0?}");
}

#[test]
fn production_is_the_same_again_when_arrivals_are_half_a_millisecond_off() {
    let Some(rows) = demo_rows() else {
        println!("skipped: neither the demo's trace nor the one it is cut from is here");
        return;
    };
    let exact = Figures::of(&open_loop(&production(), &rows));
    for seed in 1..=20 {
        let again = Figures::of(&open_loop(&production(), &shaken(&rows, 500_000, seed)));
        assert!(within(again.ttft_ms[1], exact.ttft_ms[1], 0.1), "{again:.0?} {exact:.0?}");
        assert!(within(again.e2e_ms[1], exact.e2e_ms[1], 0.1), "{again:.0?} {exact:.0?}");
    }
}

#[test]
#[ignore = "prints figures for choosing the demo's parameters"]
fn print_the_figures() {
    let Some(rows) = demo_rows() else { return };
    println!(
        "{} requests over {:.1} s",
        rows.len(),
        (rows[rows.len() - 1].at_ns - rows[0].at_ns) as f64 / SECOND
    );
    println!("warm, one at a time: {:.0?}", Figures::of(&closed_loop_warm(&production(), &rows)));
    for per_minute in [420, 480, 540, 600, 660, 720] {
        for burst in [2, 3, 4, 5, 6, 8] {
            let mut config = production();
            config.limits.requests_per_minute = NonZeroU32::new(per_minute);
            config.limits.request_burst = NonZeroU32::new(burst);
            println!(
                "{per_minute} a minute, {burst} at once: {:.2?}",
                Figures::of(&open_loop(&config, &rows))
            );
        }
    }
}
