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

/// Arrivals from the first one on, and tokens.
fn shape(done: &Done) -> Vec<(i64, Option<u32>, Option<u32>)> {
    let first = done.rows[0].arrival_unix_ns.unwrap();
    done.each(|row| (row.arrival_unix_ns.unwrap() - first, row.input_tokens, row.output_tokens))
}

#[test]
fn a_re_encoding_of_a_trace_gives_the_same_requests_to_the_nanosecond() {
    let (Some(azure), Some(vidur)) =
        (import_of("azure2023_code.csv", options()), import_of("vidur_splitwise_code.csv", options()))
    else {
        return;
    };
    assert_eq!((vidur.report.files[0].format, vidur.rows.len()), ("vidur", 8_819));
    assert!(shape(&azure) == shape(&vidur));
    assert!(azure.report.has_epoch && !vidur.report.has_epoch);
    assert_eq!(vidur.rows[1].arrival_unix_ns, Some(52_000_000));
    assert_eq!(vidur.report.span_ns, 3_435_948_056_000);
    let map = mapped("arrival=arrived_at:s,input_tokens=num_prefill_tokens,output_tokens=num_decode_tokens");
    let Some(by_map) = import_of("vidur_splitwise_code.csv", map) else { return };
    assert_eq!(by_map.report.timeline_digest, vidur.report.timeline_digest);
}

#[test]
fn a_cut_written_as_vidur_writes_it_gives_the_cut_again() {
    let azure = try_import(vec![fixture("azure2023_code_last200.csv")], options()).unwrap();
    let mut log = String::from("arrived_at,num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n");
    for (offset_ns, input, output) in shape(&azure) {
        let (seconds, micros) = (offset_ns / SECOND_NS, offset_ns % SECOND_NS / 1_000);
        let fraction = format!("{micros:06}");
        let fraction = fraction.trim_end_matches('0');
        let fraction = if fraction.is_empty() { "0" } else { fraction };
        log += &format!("{seconds}.{fraction},{},{},0,0.5\n", input.unwrap(), output.unwrap());
    }
    let vidur = import(log, options());
    assert_eq!(vidur.report.files[0].format, "vidur");
    assert_eq!(shape(&vidur), shape(&azure));
    assert_eq!(vidur.report.files[0].time_forms["number, s from the log's own start"], 200);
}

#[test]
fn later_azure_releases_carry_their_zone_and_images() {
    for (cut, whole, format, images) in [
        ("azure2024_code_first5.csv", "azure2024_code_head5.csv", "azure-llm-2024", [None; 5]),
        ("azure2024_conv_first5.csv", "azure2024_conv_head5.csv", "azure-llm-2024", [None; 5]),
        (
            "azure_multimodal2025_first5.csv",
            "azure_lmm2025_head5.csv",
            "azure-multimodal-2025",
            [Some(0), Some(1), Some(1), Some(0), Some(1)],
        ),
    ] {
        let done = try_import(vec![fixture(cut)], options()).unwrap();
        assert_eq!((done.report.files[0].format, done.rows.len()), (format, 5), "{cut}");
        assert_eq!(done.report.warnings, Vec::<String>::new());
        assert_eq!(done.each(|row| row.images), images);
        if let Some(whole) = import_of(whole, options()) {
            assert_eq!(whole.report.timeline_digest, done.report.timeline_digest);
        }
    }
    let done = try_import(vec![fixture("azure2024_conv_first5.csv")], options()).unwrap();
    assert_eq!(done.timeline.meta().zone.as_deref(), Some("offset in the text"));
    assert_eq!(done.rows[0].arrival_unix_ns, Some(1_715_472_000_001_163_000));
    assert_eq!((done.rows[0].input_tokens, done.rows[0].output_tokens), (Some(1_452), Some(3)));
    let done = try_import(vec![fixture("azure_multimodal2025_first5.csv")], options()).unwrap();
    assert_eq!(done.rows[0].arrival_unix_ns, Some(1_728_993_600_269_000_000));
    assert_eq!((done.rows[1].input_tokens, done.rows[1].output_tokens), (Some(949), Some(126)));
}

#[test]
fn whole_seconds_without_a_fraction_stand_beside_microseconds() {
    let log = "TIMESTAMP,ContextTokens,GeneratedTokens\n\
               2024-05-12 00:00:00+00:00,10,1\n\
               2024-05-12 00:00:00.001163+00:00,20,2\n\
               2024-05-12 02:00:01+02:00,30,3\n";
    let done = import(log, options());
    assert_eq!(done.report.files[0].format, "azure-llm-2024");
    let base = 1_715_472_000 * SECOND_NS;
    assert_eq!(
        done.each(|row| (row.arrival_unix_ns.unwrap() - base, row.arrival_precision_ns)),
        [(0, SECOND_NS), (1_163_000, 1_000), (SECOND_NS, SECOND_NS)]
    );
    let file = &done.report.files[0];
    assert_eq!(file.time_forms["text with an offset, whole seconds"], 2);
    assert_eq!(file.time_forms["text with an offset, 6 fraction digits"], 1);
    assert!(!file.mixed_times && done.report.precision.finest_ns == 1_000);
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
fn burstgpt_with_eight_columns_gives_sessions_and_durations() {
    let done = try_import(vec![fixture("burstgpt3_first60.csv")], options()).unwrap();
    let report = &done.report;
    assert_eq!(report.files[0].format, "burstgpt");
    assert_eq!((done.rows.len(), report.sessions, report.has_epoch), (60, 28, false));
    let row = &done.rows[0];
    assert_eq!(row.arrival_unix_ns, Some(19_440_110 * SECOND_NS));
    assert_eq!((row.arrival_precision_ns, row.prod_e2e_ns), (100_000_000, Some(43 * SECOND_NS)));
    assert_eq!((row.input_tokens, row.output_tokens), (Some(906), Some(446)));
    assert_eq!(row.model.as_deref(), Some("GPT-4"));
    assert_eq!(row.tags.as_ref().unwrap()["log_type"].as_ref(), "Conversation log");
    assert_eq!((report.known.session, report.known.outcome), (57, 0), "an empty session is none");
    let Some(head) = import_of("burstgpt3_first120.csv", options()) else { return };
    assert_eq!((head.rows.len(), head.report.sessions, head.report.known.session), (120, 45, 114));
    assert_eq!(head.report.known.outcome, 1, "one failure");
    assert!(head.rows.iter().all(|row| row.turn.is_none_or(|turn| turn < 24)));
}

#[test]
fn burstgpt_with_six_columns_keeps_failed_requests_without_inventing_their_tokens() {
    let done = try_import(vec![fixture("burstgpt1_first60.csv")], options()).unwrap();
    assert_eq!((done.report.files[0].format, done.rows.len()), ("burstgpt", 60));
    assert_eq!(done.report.outcomes, [("failed".to_owned(), 4)]);
    let failed: Vec<i64> = done
        .rows
        .iter()
        .filter(|row| row.prod_error.is_some())
        .map(|row| row.arrival_unix_ns.unwrap() / SECOND_NS)
        .collect();
    assert_eq!(failed, [1_106, 4_525, 4_608, 4_725]);
    for row in done.rows.iter().filter(|row| row.prod_error.is_some()) {
        assert_eq!((row.input_tokens, row.output_tokens, row.prod_status), (None, None, None));
        assert_eq!((row.input_tokens_source, row.output_tokens_source), (None, None));
    }
    assert_eq!((done.report.known.input_tokens, done.report.zero_output_tokens), (56, 0));
    let Some(head) = import_of("burstgpt1_first400.csv", options()) else { return };
    let stats = head.stats();
    assert_eq!((head.rows.len(), head.report.known.outcome, stats.ties), (400, 17, 4));
    assert!(close(stats.input_tokens.mean, 543.6, 0.05) && close(stats.output_tokens.mean, 288.8, 0.05));
    assert_eq!((stats.input_tokens.p50, stats.output_tokens.p50), (Some(353.0), Some(238.0)));
}

#[test]
fn the_other_published_figures_hold() {
    if let Some(done) = import_of("mooncake_synthetic_first500.jsonl", options()) {
        let stats = done.stats();
        assert_eq!((stats.requests, stats.ties), (500, 1));
        let prefix = stats.prefix.as_ref().unwrap();
        assert!(
            close(prefix.block_hit_ratio, 0.0845, 0.00005) && close(prefix.token_hit_ratio, 0.0864, 0.00005)
        );
        assert!(close(stats.interarrival_cv, 0.98, 0.005) && close(stats.span_seconds, 139.272, 0.0005));
    }
    if let Some(done) = import_of("mooncake_conversation.jsonl", options()) {
        assert_eq!((done.report.identical_rows, done.report.rows_rejected), (1, 0), "a twin is kept");
        assert_eq!(done.report.files[0].restarts, 0);
    }
    let map = "arrival=request_arrival_delta_s:s,input_tokens=input_tokens,output_tokens=output_tokens,\
               session=session_id,e2e=api_time_s:s,ttft=ttft_s:s";
    if let Some(done) = import_of("ccweka_turns_part1.jsonl", mapped(map)) {
        assert_eq!((done.rows.len(), done.report.sessions), (761, 7));
        let file = &done.report.files[0];
        assert_eq!(file.restarts, 6, "each session counts from its own start: {:?}", file.restarts_at);
        assert!(file.restarts_at.iter().all(|restart| restart.joined));
    }
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
