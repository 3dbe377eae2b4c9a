//! The figures of real traces, read here by a parser of a few lines that shares nothing with the importers.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

use std::path::PathBuf;

use tracewheel_timeline::stats::ClockRule;
use tracewheel_timeline::{
    ArrivalSource, BlockBasis, Operation, RequestRow, Source, Timeline, TimelineMeta, TimelineStats,
    TimelineWriter,
};

/// The text of a trace beside the project, if it is there.
fn trace(name: &str) -> Option<String> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        eprintln!("skipped: the trace {name} is not there");
    }
    text
}

fn row(arrival_unix_ns: i64, precision_ns: i64, input: &str, output: &str) -> RequestRow {
    RequestRow {
        arrival_unix_ns: Some(arrival_unix_ns),
        arrival_precision_ns: precision_ns,
        arrival_source: ArrivalSource::Start,
        operation: Operation::Completion,
        input_tokens: Some(input.trim().parse().unwrap()),
        input_tokens_source: Some(Source::Reported),
        output_tokens: Some(output.trim().parse().unwrap()),
        output_tokens_source: Some(Source::Reported),
        ..RequestRow::default()
    }
}

/// `2023-11-16 18:15:46.6805900`, all of one month: nanoseconds since the month's first midnight.
fn azure(text: &str) -> Vec<RequestRow> {
    let number = |text: &str| text.parse::<i64>().unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let (day, time) = (number(&fields[0][8..10]), &fields[0][11..]);
        let seconds = number(&time[0..2]) * 3600 + number(&time[3..5]) * 60 + number(&time[6..8]);
        let ticks = number(&time[9..16]);
        row(((day - 1) * 86_400 + seconds) * 1_000_000_000 + ticks * 100, 100, fields[1], fields[2])
    };
    text.lines().skip(1).filter(|text| !text.is_empty()).map(line).collect()
}

fn mooncake(text: &str) -> Vec<RequestRow> {
    let field = |line: &str, name: &str| {
        let start = line.find(&format!("\"{name}\": ")).unwrap() + name.len() + 4;
        line[start..].split([',', '}']).next().unwrap().to_owned()
    };
    let line = |line: &str| {
        let ids = line.split('[').nth(1).unwrap().split(']').next().unwrap();
        let arrival = field(line, "timestamp").parse::<i64>().unwrap() * 1_000_000;
        RequestRow {
            prefix_hashes: Some(ids.split(", ").map(|id| id.parse().unwrap()).collect()),
            ..row(arrival, 1_000_000, &field(line, "input_length"), &field(line, "output_length"))
        }
    };
    text.lines().map(line).collect()
}

fn stats(rows: &[RequestRow], meta: TimelineMeta) -> TimelineStats {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let mut writer = TimelineWriter::create(&path, meta).unwrap();
    rows.iter().for_each(|row| {
        writer.push(row).unwrap();
    });
    writer.finish().unwrap();
    TimelineStats::collect(&Timeline::open(&path).unwrap()).unwrap()
}

fn near(found: Option<f64>, expected: f64, tolerance: f64) {
    assert!(found.is_some_and(|found| (found - expected).abs() <= tolerance), "{found:?} is not {expected}");
}

#[test]
fn azure_code_has_its_published_figures() {
    let Some(text) = trace("azure2023_code.csv") else { return };
    let stats = stats(&azure(&text), TimelineMeta::default());
    assert_eq!(stats.requests, 8_819);
    near(stats.span_seconds, 3_435.948, 0.000_5);
    let (input, output) = (&stats.input_tokens, &stats.output_tokens);
    near(input.mean, 2_047.8, 0.05);
    assert_eq!((input.p50, input.max, input.known), (Some(1_469.0), Some(7_437), 8_819));
    near(input.p95, 7_303.3, 0.05);
    near(input.p99, 7_436.0, 0.05);
    near(output.mean, 27.9, 0.05);
    assert_eq!((output.p50, output.p95, output.max), (Some(13.0), Some(90.0), Some(1_899)));
    near(output.p99, 251.5, 0.05);
    near(stats.interarrival_cv, 13.15, 0.005);
    assert_eq!((stats.peak_minute_requests, stats.ties), (Some(632), 0));
    near(stats.peak_to_mean, 4.156, 0.000_6);
    assert_eq!(
        (stats.clock_resolution_ns, stats.clock_resolution_rule),
        (Some(1_000), Some(ClockRule::Unit))
    );
    assert_eq!((stats.prefix.as_ref(), stats.sessions, stats.production.as_ref()), (None, None, None));
    assert_eq!(stats.oddities, []);
}

#[test]
fn azure_conversation_slice_has_its_published_figures() {
    let Some(text) = trace("azure2023_conv_first15min.csv") else { return };
    let stats = stats(&azure(&text), TimelineMeta::default());
    assert_eq!((stats.requests, stats.peak_minute_requests), (4_424, Some(353)));
    near(stats.span_seconds, 899.882, 0.000_5);
    near(stats.input_tokens.mean, 1_172.7, 0.05);
    near(stats.input_tokens.p99, 4_108.5, 0.05);
    near(stats.output_tokens.p99, 625.8, 0.05);
    // The population deviation; the sample deviation would give 1.0756.
    near(stats.interarrival_cv, 1.075_478, 0.000_001);
    near(stats.peak_to_mean, 1.197, 0.000_6);
    assert_eq!(stats.clock_resolution_ns, Some(1_000));
}

#[test]
fn mooncake_conversation_has_its_published_figures() {
    let Some(text) = trace("mooncake_conversation.jsonl") else { return };
    let meta = TimelineMeta {
        block_tokens: Some(512),
        block_basis: Some(BlockBasis::Tokens),
        has_epoch: false,
        ..TimelineMeta::default()
    };
    let stats = stats(&mooncake(&text), meta);
    assert_eq!((stats.requests, stats.ties), (12_031, 10_851));
    near(stats.span_seconds, 3_536.999, 0.000_5);
    near(stats.input_tokens.mean, 12_035.06, 0.005);
    near(stats.output_tokens.mean, 342.62, 0.005);
    assert_eq!((stats.input_tokens.p50, stats.input_tokens.max), (Some(6_909.0), Some(126_195)));
    near(stats.interarrival_cv, 3.03, 0.005);
    assert_eq!(stats.clock_resolution_rule, Some(ClockRule::Step));
    assert_eq!(stats.clock_resolution_ns, Some(3_000_000_000));
    let prefix = stats.prefix.as_ref().unwrap();
    assert_eq!((prefix.blocks, prefix.distinct_blocks, prefix.hit_blocks), (288_500, 182_790, 105_710));
    near(prefix.block_hit_ratio, 0.3664, 0.000_05);
    near(prefix.token_hit_ratio, 0.3736, 0.000_05);
    let odd = stats.oddities.iter().map(|oddity| (oddity.kind.as_str(), oddity.count));
    assert_eq!(odd.collect::<Vec<_>>(), [("equal_arrivals", 10_851), ("identical_rows", 1)]);
}

#[test]
fn the_json_has_the_promised_keys_and_names_its_methods() {
    let rows: Vec<RequestRow> = (0..3).map(|second| row(second * 1_000_000_000, 1, "8", "2")).collect();
    let json = serde_json::to_value(stats(&rows, TimelineMeta::default())).unwrap();
    for key in ["mean", "p50", "p95", "p99", "max", "known"] {
        assert!(json["input_tokens"][key].is_number() && json["output_tokens"][key].is_number(), "{key}");
    }
    for key in ["requests", "span_seconds", "peak_minute_requests", "peak_to_mean", "interarrival_cv"] {
        assert!(json[key].is_number(), "{key}");
    }
    for key in ["prefix", "sessions", "production"] {
        assert!(json[key].is_null() && json.as_object().unwrap().contains_key(key), "{key}");
    }
    assert!(json["oddities"].is_array());
    assert_eq!(json["clock_resolution_ns"], 1);
    assert_eq!(json["methods"]["token_quantiles"], "linear interpolation between order statistics");
    assert_eq!(json["methods"]["latency_quantiles"], "nearest rank");
}
