//! Published traces give their published figures.

use tracewheel_ingest::{IngestOptions, RejectReason};
use tracewheel_timeline::stats::ClockRule;
use tracewheel_timeline::{ArrivalSource, BlockBasis, Source};

use crate::{Done, fixture, import, mapped, options, published, try_import};

const SECOND_NS: i64 = 1_000_000_000;

fn close(value: Option<f64>, expected: f64, digits: f64) -> bool {
    value.is_some_and(|value| (value - expected).abs() <= digits)
}

fn import_of(name: &str, options: IngestOptions) -> Option<Done> {
    Some(try_import(vec![published(name)?], options).unwrap())
}

#[test]
fn the_azure_code_trace_gives_its_figures() {
    let Some(done) = import_of("azure2023_code.csv", options()) else { return };
    let stats = done.stats();
    assert_eq!((done.report.files[0].format, stats.requests), ("azure-llm-2023", 8_819));
    assert_eq!(done.report.rows_rejected, 0);
    let (input, output) = (&stats.input_tokens, &stats.output_tokens);
    assert_eq!((input.p50, output.p50), (Some(1_469.0), Some(13.0)));
    assert!(close(input.mean, 2_047.8, 0.05) && close(output.mean, 27.9, 0.05));
    assert!(close(stats.interarrival_cv, 13.15, 0.005), "{:?}", stats.interarrival_cv);
    assert!(close(stats.span_seconds, 3_435.948, 0.0005));
    assert_eq!(done.report.peak.window_ns, SECOND_NS);
    assert_eq!(done.report.precision.finest_ns, 100, "seven digits are written");
    assert_eq!(done.report.precision.found_ns, Some(1_000), "the last of them is always 0");
    assert!(done.report.warnings.is_empty(), "{:?}", done.report.warnings);
}

#[test]
fn the_azure_conversation_trace_gives_its_figures() {
    let Some(done) = import_of("azure2023_conv_first15min.csv", options()) else { return };
    let stats = done.stats();
    assert_eq!(stats.requests, 4_424);
    assert!(close(stats.interarrival_cv, 1.076, 0.001));
    assert_eq!(stats.input_tokens.p50, Some(1_047.0));
}

#[test]
fn the_mooncake_conversation_trace_gives_its_figures_after_chaining_too() {
    let Some(done) = import_of("mooncake_conversation.jsonl", options()) else { return };
    let stats = done.stats();
    let prefix = stats.prefix.as_ref().unwrap();
    assert_eq!((done.report.files[0].format, stats.requests), ("mooncake", 12_031));
    assert_eq!((prefix.blocks, prefix.distinct_blocks), (288_500, 182_790));
    assert!(close(prefix.block_hit_ratio, 0.3664, 0.00005), "{:?}", prefix.block_hit_ratio);
    assert!(close(prefix.token_hit_ratio, 0.3736, 0.00005), "{:?}", prefix.token_hit_ratio);
    assert_eq!(stats.ties, 10_851);
    assert!(close(stats.interarrival_cv, 3.03, 0.005));
    assert_eq!(done.report.precision.found_by, Some(ClockRule::Step));
    assert!(done.report.warnings[0].contains("steps of 3 s"), "{:?}", done.report.warnings);
    assert_eq!(done.report.peak.window_ns, 10 * SECOND_NS);
}

#[test]
fn a_re_encoding_of_a_trace_gives_the_same_requests() {
    let map = mapped("arrival=arrived_at:s,input_tokens=num_prefill_tokens,output_tokens=num_decode_tokens");
    let (Some(azure), Some(vidur)) =
        (import_of("azure2023_code.csv", options()), import_of("vidur_splitwise_code.csv", map))
    else {
        return;
    };
    let first = azure.rows[0].arrival_unix_ns.unwrap();
    let key = |row: &tracewheel_timeline::RequestRow, from: i64| {
        (row.arrival_unix_ns.unwrap() - from, row.input_tokens, row.output_tokens)
    };
    assert_eq!(azure.each(|row| key(row, first)), vidur.each(|row| key(row, 0)));
    assert!(azure.report.has_epoch && !vidur.report.has_epoch);
}

#[test]
fn later_azure_releases_carry_their_zone_and_images() {
    for (name, images) in [
        ("azure2024_code_head5.csv", None),
        ("azure2024_conv_head5.csv", None),
        ("azure_lmm2025_head5.csv", Some(1)),
    ] {
        let Some(done) = import_of(name, options()) else { return };
        assert_eq!((done.report.files[0].format, done.rows.len()), ("azure-llm-2023", 5), "{name}");
        assert_eq!(done.timeline.meta().zone.as_deref(), Some("offset in the text"));
        assert_eq!(done.rows[1].images, images);
    }
}

#[test]
fn agent_calls_with_two_forms_of_time_need_a_zone_and_then_are_all_read() {
    let map = "arrival=start_time_iso,end=end_time_iso,input_tokens=input_tokens,output_tokens=output_tokens,\
               session=session_id,error=is_error,model=request_model";
    let Some(input) = published("exgentic_swebench_calls_part1.jsonl") else { return };
    let error = try_import(vec![input], mapped(map)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("--zone") && error.contains("start_time_iso"), "{error}");
    let zoned = IngestOptions { zone: Some("UTC".parse().unwrap()), ..mapped(map) };
    let Some(done) = import_of("exgentic_swebench_calls_part1.jsonl", zoned) else { return };
    assert_eq!((done.report.rows_kept, done.report.sessions), (1_197, 23));
    assert_eq!(done.report.files[0].zone_rule.len(), 2);
    assert_eq!(done.report.files[0].out_of_order, 14);
    assert_eq!(done.report.known.outcome, 40);
    assert!(done.report.overlapping_turns > 300, "{}", done.report.overlapping_turns);
    let by_number =
        mapped(&map.replace("start_time_iso", "start_time_s").replace("end_time_iso", "end_time_s"));
    let Some(numbers) = import_of("exgentic_swebench_calls_part1.jsonl", by_number) else { return };
    let starts = |done: &Done| done.each(|row| row.arrival_unix_ns.unwrap() / 1_000);
    assert_eq!(starts(&done), starts(&numbers));
}

#[test]
fn rag_components_are_no_mooncake_rows_and_the_refusal_names_their_columns() {
    let Some(input) = published("ragpulse_trace_part1.jsonl") else { return };
    let error = try_import(vec![input], options()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("hash_ids.sys_prompt") && error.contains("arrival="), "{error}");
    let map = mapped(
        "arrival=timestamp:s,input_tokens=input_length,output_tokens=output_length,session=session_id",
    );
    let Some(done) = import_of("ragpulse_trace_part1.jsonl", map) else { return };
    assert_eq!((done.report.rows_kept, done.report.sessions, done.report.has_epoch), (3_800, 2_215, false));
    assert_eq!(done.stats().ties, 36);
}

#[test]
fn the_shipped_azure_cuts_are_read_without_anything_else() {
    let done = try_import(vec![fixture("azure2023_conv_20s.csv")], options()).unwrap();
    assert_eq!((done.rows.len(), done.report.rows_rejected), (129, 0));
    let row = &done.rows[0];
    assert_eq!(row.arrival_unix_ns, Some(1_700_158_716_272_080_000));
    assert_eq!((row.arrival_precision_ns, row.arrival_source), (100, ArrivalSource::Start));
    assert_eq!((row.input_tokens, row.input_tokens_source), (Some(396), Some(Source::Reported)));
    assert_eq!((row.cached_tokens, row.cached_tokens_source), (None, None), "unknown is not zero");
    assert_eq!((&*row.source_file, row.source_offset), ("azure2023_conv_20s.csv", 41));
    assert!((19.0..20.0).contains(&(done.report.span_ns as f64 / 1e9)));
    let zone = done.timeline.meta().zone.clone().unwrap();
    assert!(zone.contains("UTC") && zone.contains("published data set"), "{zone}");
    let code = try_import(vec![fixture("azure2023_code_last200.csv")], options()).unwrap();
    assert_eq!(
        (code.rows.len(), code.rows[199].output_tokens),
        (200, Some(173)),
        "no line end after the last row"
    );
}

#[test]
fn a_zone_that_is_given_is_taken_for_a_published_trace_too() {
    let zoned = IngestOptions { zone: Some("-08:00".parse().unwrap()), ..options() };
    let done = try_import(vec![fixture("azure2023_conv_20s.csv")], zoned).unwrap();
    assert_eq!(done.rows[0].arrival_unix_ns, Some(1_700_158_716_272_080_000 + 8 * 3_600 * SECOND_NS));
}

#[test]
fn the_shipped_mooncake_cut_counts_from_its_own_start() {
    let done = try_import(vec![fixture("mooncake_conversation_first200.jsonl")], options()).unwrap();
    let prefix = done.stats().prefix.unwrap();
    assert_eq!((done.rows.len(), prefix.blocks, prefix.distinct_blocks), (200, 5_537, 5_215));
    let meta = done.timeline.meta();
    assert_eq!(
        (meta.has_epoch, meta.block_tokens, meta.block_basis),
        (false, Some(512), Some(BlockBasis::Tokens))
    );
    assert_eq!(meta.zone.as_deref(), Some("from the log's own start"));
    assert_eq!((done.report.first_arrival_ns, done.report.span_ns), (Some(0), 72 * SECOND_NS));
    assert_eq!(done.rows[0].arrival_precision_ns, 1_000_000);
}

#[test]
fn burstgpt_goes_through_a_column_map() {
    let map = mapped(
        "arrival=Timestamp:s,session=Session ID,e2e=Elapsed time:s,model=Model,input_tokens=Request tokens,\
         output_tokens=Response tokens,tags.kind=Log Type",
    );
    let done = try_import(vec![fixture("burstgpt3_first60.csv")], map).unwrap();
    assert_eq!((done.rows.len(), done.report.sessions, done.report.has_epoch), (60, 28, false));
    assert_eq!(done.rows[0].arrival_unix_ns, Some(19_440_110 * SECOND_NS));
    assert_eq!(done.rows[0].prod_e2e_ns, Some(43 * SECOND_NS));
    assert_eq!(done.rows[0].tags.as_ref().unwrap()["kind"].as_ref(), "Conversation log");
    assert_eq!(done.report.known.session, 57, "an empty session is none");
}

#[test]
fn mooncake_times_are_kept_to_the_nanosecond() {
    let line = |timestamp: &str| {
        format!("{{\"timestamp\": {timestamp}, \"input_length\": 9, \"output_length\": 1}}\n")
    };
    let log: String = ["27482.123456", "9007199254.740993", "1e3", "0.5"].iter().map(|t| line(t)).collect();
    let done = import(log, options());
    assert_eq!(
        done.each(|row| (row.arrival_unix_ns.unwrap(), row.arrival_precision_ns)),
        [(500_000, 100_000), (1_000_000_000, 1_000_000), (27_482_123_456, 1), (9_007_199_254_740_993, 1)]
    );
}

#[test]
fn one_block_id_after_different_blocks_is_no_shared_prefix() {
    let log = r#"
{"timestamp": 1500, "input_length": 800, "output_length": 256, "hash_ids": [3005, 3050]}
{"timestamp": 5000, "input_length": 600, "output_length": 400, "hash_ids": [3008, 3050]}
{"timestamp": 5001, "input_length": 600, "output_length": 400, "hash_ids": [3008, 3050]}"#;
    let done = import(log, options());
    let hashes = done.each(|row| row.prefix_hashes.clone().unwrap());
    assert_ne!(hashes[0][1], hashes[1][1]);
    assert_eq!(hashes[1], hashes[2]);
    assert_eq!(done.report.files[0].blank_lines, 1);
}

#[test]
fn a_wrong_block_size_is_noticed() {
    let log = r#"{"timestamp": 1, "input_length": 800, "output_length": 2, "hash_ids": [1, 2]}"#;
    let coarse = IngestOptions { block_tokens: Some(1024), ..options() };
    let done = import(log, coarse);
    assert_eq!(done.rows[0].prefix_hashes, None);
    assert!(done.report.warnings.iter().any(|warning| warning.contains("wrong block size")));
    let fine = IngestOptions { block_tokens: Some(400), ..options() };
    assert_eq!(import(log, fine).timeline.meta().block_tokens, Some(400));
}

#[test]
fn mooncake_rows_that_are_wrong_are_rejected_with_their_place() {
    let log = "{\"timestamp\": 1, \"input_length\": 8, \"output_length\": 2}\n\
               {\"timestamp\": \n\
               {\"input_length\": 8, \"output_length\": 2}\n\
               {\"timestamp\": 2, \"input_length\": -8, \"output_length\": 2}\n\
               {\"timestamp\": 2, \"input_length\": 8, \"output_length\": 2, \"hash_ids\": {}}\n\
               {\"timestamp\": 2, \"input_length\": null, \"output_length\": 2}\n";
    let done = import(log, options());
    assert_eq!(done.rows.len(), 2);
    assert_eq!(done.rows[1].input_tokens, None);
    let rejects: Vec<_> = done.report.rejects.iter().map(|row| (row.line, row.offset, row.reason)).collect();
    assert_eq!(
        rejects,
        [
            (2, 56, RejectReason::NotJson),
            (3, 71, RejectReason::MissingValue),
            (4, 111, RejectReason::BadNumber),
            (5, 168, RejectReason::BadValue)
        ]
    );
}
