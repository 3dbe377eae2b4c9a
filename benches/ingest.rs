//! Whole imports, from a log's bytes to the finished timeline: rows and bytes a second.
//!
//! The logs are made here, alike in shape to the published ones: arrivals without order, 24 prefix blocks a row in
//! `mooncake`, three columns in `azure`, eleven mapped and nested columns in `jsonl`. `read` is the log's own size.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench fails as a test does")]

use std::fmt::Write;
use std::io::Cursor;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tracewheel_ingest::{IngestOptions, Input, ingest};

const ROWS: u64 = 50_000;
const BLOCKS: u64 = 24;

/// One log and how it is read.
struct Log {
    name: &'static str,
    text: String,
    map: Option<&'static str>,
}

/// A multiple that scatters row numbers (a Weyl sequence).
fn scattered(row: u64, below: u64) -> u64 {
    row.wrapping_mul(0x9E37_79B9_7F4A_7C15) % below
}

fn azure() -> Log {
    let mut text = String::from("TIMESTAMP,ContextTokens,GeneratedTokens\r\n");
    for row in 0..ROWS {
        let (minute, second) = (row / 60 / 1_000 % 60, row / 1_000 % 60);
        let fraction = scattered(row, 1_000_000);
        let (input, output) = (1 + scattered(row, 7_000), 1 + scattered(row, 500));
        writeln!(text, "2023-11-16 18:{minute:02}:{second:02}.{fraction:06}0,{input},{output}\r").unwrap();
    }
    Log { name: "azure", text, map: None }
}

fn mooncake() -> Log {
    let mut text = String::new();
    for row in 0..ROWS {
        let (timestamp, output) = (row / 10 * 3, 1 + scattered(row, 500));
        let input = BLOCKS * 512 - scattered(row, 512);
        write!(
            text,
            "{{\"timestamp\": {timestamp}, \"input_length\": {input}, \"output_length\": {output}, "
        )
        .unwrap();
        text.push_str("\"hash_ids\": [0");
        for block in 1..BLOCKS {
            write!(text, ", {}", if block < 8 { block } else { row * BLOCKS + block }).unwrap();
        }
        text.push_str("]}\n");
    }
    Log { name: "mooncake", text, map: None }
}

fn jsonl() -> Log {
    let mut text = String::new();
    for row in 0..ROWS {
        let (at, session) = (1_795_536_000_000 + scattered(row, 3_600_000), row % 4_000);
        let (input, output) = (200 + scattered(row, 7_000), 1 + scattered(row, 500));
        writeln!(
            text,
            "{{\"ts\":{at},\"request_id\":\"req-{row:08x}\",\"session\":\"s-{session}\",\"model\":\"m-large\",\
             \"path\":\"/v1/chat/completions\",\"status\":200,\"prompt\":\"{padding}\",\"timing\":{{\"ttft_ms\":312.5,\
             \"total_ms\":{total}}},\"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output},\
             \"details\":{{\"cached_tokens\":128}}}}}}",
            padding = "text that is not kept ".repeat(8),
            total = 400 + output * 20,
        )
        .unwrap();
    }
    let map = "arrival=ts:unix_ms,request_id=request_id,session=session,model=model,path=path,status=status,\
               ttft=timing.ttft_ms,e2e=timing.total_ms,input_tokens=usage.prompt_tokens,\
               output_tokens=usage.completion_tokens,cached_tokens=usage.details.cached_tokens";
    Log { name: "jsonl", text, map: Some(map) }
}

fn imports(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("timeline.parquet");
    for log in [azure(), mooncake(), jsonl()] {
        let run = || {
            let mut options = IngestOptions::new("bench");
            options.map = log.map.map(|map| map.parse().unwrap());
            let input = Input::reader(log.name, Cursor::new(log.text.clone().into_bytes()));
            let report = ingest(vec![input], options, &out).unwrap();
            assert_eq!(report.rows_kept, ROWS);
        };
        for (unit, throughput) in
            [("rows", Throughput::Elements(ROWS)), ("read", Throughput::Bytes(log.text.len() as u64))]
        {
            let mut group = criterion.benchmark_group("ingest");
            group.sample_size(10).throughput(throughput);
            group.bench_function(BenchmarkId::new(log.name, unit), |bencher| bencher.iter(run));
            group.finish();
        }
    }
}

criterion_group!(benches, imports);
criterion_main!(benches);
