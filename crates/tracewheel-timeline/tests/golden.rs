//! A file of every version ever written stays readable.
//!
//! `cargo test -p tracewheel-timeline --test golden -- --ignored` writes the file of the current version; only a new
//! version may do so, and under a new name.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use tracewheel_timeline::{
    ArrivalSource, BlockBasis, BodyState, Operation, RequestRow, Source, Timeline, TimelineMeta,
    TimelineWriter, TtftKind, VERSION, Version,
};

const DIGEST_V1_1: &str = "a7d4223efb34de3cd9928d83108b85d7ec8d21d123910b6f314543086f7ac83b";
const DIGEST_V1_0: &str = "527b7434af2cdee0c174ec9cf366aba231f1c515cafa5f775a86396d8dc16128";

fn golden(version: Version) -> PathBuf {
    let name = format!("../../fixtures/golden/timeline-v{version}.parquet");
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn meta() -> TimelineMeta {
    TimelineMeta {
        tool_version: "0.1.0".to_owned(),
        ingest_options: serde_json::json!({"format": "golden", "zone": "utc"}),
        key_fingerprint: Some("0f1e2d3c".to_owned()),
        block_tokens: Some(16),
        block_basis: Some(BlockBasis::Tokens),
        clock_resolution_ns: Some(1_000),
        zone: Some("utc".to_owned()),
        quality: serde_json::json!({"rows_read": 4, "rows_kept": 3}),
        ..TimelineMeta::default()
    }
}

/// What version 1.1 added, in the first row.
fn rows_v1_1() -> Vec<RequestRow> {
    let mut rows = rows();
    let headers = [("content-type".into(), "application/json".into()), ("x-priority".into(), "".into())];
    rows[0].request_headers = Some(BTreeMap::from(headers));
    rows
}

/// Three rows that use every column of version 1.0, and leave every nullable one null at least once.
fn rows() -> Vec<RequestRow> {
    let first = RequestRow {
        arrival_unix_ns: Some(1_795_536_000_123_456_000),
        arrival_precision_ns: 1_000,
        arrival_source: ArrivalSource::Start,
        source_id_hash: Some(u64::MAX),
        session_hash: Some(11),
        tenant_hash: Some(12),
        user_hash: Some(13),
        turn: Some(0),
        think_ns: Some(-5),
        operation: Operation::Chat,
        method: Some("POST".into()),
        path: Some("/v1/chat/completions".into()),
        endpoint: Some("llm.example".into()),
        model: Some("large".into()),
        model_served: Some("large-2026-11".into()),
        provider: Some("example".into()),
        route: Some("default".into()),
        stream: Some(true),
        input_tokens: Some(40),
        input_tokens_source: Some(Source::Reported),
        output_tokens: Some(9),
        output_tokens_source: Some(Source::Derived),
        cached_tokens: Some(16),
        cached_tokens_source: Some(Source::Reported),
        cache_write_tokens: Some(8),
        cache_write_tokens_source: Some(Source::Estimated),
        reasoning_tokens: None,
        reasoning_tokens_source: Some(Source::Absent),
        prefix_hashes: Some(vec![1, 1 << 63, 3]),
        images: Some(1),
        tools: Some(2),
        params: Some("{\"max_tokens\":9}".into()),
        body: Some("{}".into()),
        body_state: BodyState::Full,
        served_by_gateway_cache: Some(false),
        client_gone: Some(true),
        cancel_after_ns: Some(2_000_000_000),
        prod_status: Some(200),
        prod_attempts: Some(1),
        prod_ttft_ns: Some(300_000_000),
        prod_ttft_kind: Some(TtftKind::FirstChunk),
        prod_e2e_ns: Some(1_900_000_000),
        prod_event_ns: Some(vec![300_000_000, 350_000_001]),
        sample_rate: Some(0.25),
        tags: Some(BTreeMap::from([("region".into(), "eu".into()), ("tier".into(), "".into())])),
        source_file: "yesterday.jsonl".into(),
        ..RequestRow::default()
    };
    let retry = RequestRow {
        arrival_unix_ns: first.arrival_unix_ns,
        arrival_precision_ns: 1_000_000_000,
        arrival_source: ArrivalSource::DerivedFromEnd,
        retry_of_row: Some(0),
        operation: Operation::Http,
        prefix_block_tokens: Some(vec![16, 16, 8]),
        prefix_hashes: Some(Vec::new()),
        reasoning_tokens: Some(0),
        reasoning_tokens_source: Some(Source::Reported),
        prod_status: Some(429),
        prod_error: Some("rate_limited".into()),
        source_file: "yesterday.jsonl".into(),
        source_offset: 512,
        ..RequestRow::default()
    };
    let bare = RequestRow {
        arrival_unix_ns: Some(i64::MAX),
        source_file: "today.jsonl".into(),
        source_offset: u64::MAX,
        ..RequestRow::default()
    };
    vec![first, retry, bare]
}

#[test]
fn the_golden_file_of_version_1_0_reads_as_it_was_written() {
    let timeline = Timeline::open(golden(Version { major: 1, minor: 0 })).unwrap();
    let found: Vec<RequestRow> = timeline.rows().map(|row| row.unwrap().1).collect();
    assert_eq!(found, rows());
    let expected = TimelineMeta { digest: DIGEST_V1_0.to_owned(), ..meta() };
    assert_eq!(*timeline.meta(), TimelineMeta { version: Version { major: 1, minor: 0 }, ..expected });
    assert_eq!(timeline.compute_digest().unwrap(), DIGEST_V1_0);
}

#[test]
fn the_golden_file_of_version_1_1_reads_as_it_was_written() {
    let version = Version { major: 1, minor: 1 };
    let timeline = Timeline::open(golden(version)).unwrap();
    let found: Vec<RequestRow> = timeline.rows().map(|row| row.unwrap().1).collect();
    assert_eq!(found, rows_v1_1());
    assert_eq!(*timeline.meta(), TimelineMeta { version, digest: DIGEST_V1_1.to_owned(), ..meta() });
    assert_eq!(timeline.compute_digest().unwrap(), DIGEST_V1_1);
}

#[test]
#[ignore = "writes the golden file of a new version"]
fn write_the_golden_file() {
    let path = golden(VERSION);
    if path.exists() {
        eprintln!("{} is there: a version that was written stays as it is", path.display());
        return;
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = TimelineWriter::create(&path, meta()).unwrap();
    rows_v1_1().iter().for_each(|row| {
        writer.push(row).unwrap();
    });
    eprintln!("written; its digest is {}", writer.finish().unwrap().digest);
}
