//! Memory at scale. Run with `cargo test -p tracewheel-timeline --test scale -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

use tracewheel_timeline::{
    ArrivalSource, RequestRow, Source, Timeline, TimelineMeta, TimelineStats, TimelineWriter,
};

const ROWS: u64 = 10_000_000;

/// The most memory that this process has held, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

#[test]
#[ignore = "takes minutes"]
fn ten_million_rows_are_written_and_read_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut writer = TimelineWriter::create(&path, TimelineMeta::default()).unwrap();
    for number in 0..ROWS {
        let scattered = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let row = RequestRow {
            arrival_unix_ns: Some(number as i64 * 8_640_000 + (scattered >> 45) as i64),
            arrival_precision_ns: 1_000,
            arrival_source: ArrivalSource::Start,
            session_hash: Some(scattered >> 44),
            input_tokens: Some((scattered >> 50) as u32),
            input_tokens_source: Some(Source::Reported),
            output_tokens: Some((scattered >> 54) as u32),
            output_tokens_source: Some(Source::Reported),
            model: Some(["small", "large"][(scattered >> 63) as usize].into()),
            prefix_hashes: Some((0..24).map(|block| scattered >> 50 ^ block).collect()),
            ..RequestRow::default()
        };
        writer.push(&row).unwrap();
    }
    let summary = writer.finish().unwrap();
    let written = peak_mib();
    eprintln!("written: {} MiB of file, peak {written} MiB", summary.file_bytes >> 20);
    assert!(written < 400, "{written} MiB");
    let timeline = Timeline::open(&path).unwrap();
    assert_eq!(timeline.rows().map(Result::unwrap).count() as u64, ROWS);
    let read = peak_mib();
    eprintln!("read: peak {read} MiB");
    assert!(read < 400, "{read} MiB");
    let stats = TimelineStats::collect(&timeline).unwrap();
    assert_eq!(stats.requests, ROWS);
    eprintln!("summed up: peak {} MiB", peak_mib());
}
