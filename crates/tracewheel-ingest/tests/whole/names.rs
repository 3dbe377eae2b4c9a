//! Logs without a column map: columns that other tools name in their ways.

use tracewheel_ingest::RejectReason;

use crate::{Done, import, mapped, options, published, refusal, text, try_import};

const MS: i64 = 1_000_000;

/// The map that an error or a warning offers.
fn offered(text: &str) -> String {
    let (_, rest) = text.split_once("--map '").unwrap_or_else(|| panic!("no map in: {text}"));
    rest.split('\'').next().unwrap().to_owned()
}

/// Arrival, input and output tokens, TTFT and E2E in milliseconds, status.
type Told = (i64, Option<u32>, Option<u32>, Option<i64>, Option<i64>, Option<u16>);

fn first(done: &Done) -> Told {
    let row = &done.rows[0];
    (
        row.arrival_unix_ns.unwrap(),
        row.input_tokens,
        row.output_tokens,
        row.prod_ttft_ns.map(|ns| ns / MS),
        row.prod_e2e_ns.map(|ns| ns / MS),
        row.prod_status,
    )
}

#[test]
fn a_gateways_csv_needs_no_map_where_its_names_and_values_agree() {
    let log = "ts,request_id,prompt_tokens,completion_tokens,duration_ms,ttft_ms,status_code,model,secret note\n\
               1795536000.123,r1,812,64,1500,210,200,m-large,hello\n\
               1795536000.456,r2,5,,90,,429,m-large,\n";
    let done = import(log, options());
    assert_eq!(first(&done), (1_795_536_000_123 * MS, Some(812), Some(64), Some(210), Some(1500), Some(200)));
    let file = &done.report.files[0];
    let map = "arrival=ts,ttft=ttft_ms,e2e=duration_ms,input_tokens=prompt_tokens,\
               output_tokens=completion_tokens,status=status_code,request_id=request_id,model=model";
    let mut used: Vec<&str> = file.map.as_deref().unwrap().split(',').collect();
    let mut expected: Vec<&str> = map.split(',').collect();
    used.sort_unstable();
    expected.sort_unstable();
    assert_eq!(used, expected);
    let warning = done.report.warnings.iter().find(|warning| warning.contains("common names")).unwrap();
    assert!(warning.contains("arrival=ts") && warning.contains("--map"), "{warning}");
    assert_eq!(done.timeline.meta().quality["files"][0]["map_guessed"][0], "arrival=ts");
    let again = import(log, mapped(file.map.as_deref().unwrap()));
    assert_eq!(
        again.report.timeline_digest, done.report.timeline_digest,
        "the map that was used can be given"
    );
}

#[test]
fn a_gateways_json_lines_need_no_map_either() {
    let line = |second: u32| {
        format!(
            "{{\"startTime\":\"2026-11-24T16:00:0{second}.5Z\",\"id\":\"c{second}\",\"model\":\"m\",\
             \"usage\":{{\"prompt_tokens\":100,\"completion_tokens\":7,\
             \"prompt_tokens_details\":{{\"cached_tokens\":64}}}},\"latencyMs\":250,\"stream\":true,\
             \"metadata\":{{\"id\":\"x\",\"session_id\":\"s1\"}},\"messages\":\"SECRET\"}}\n"
        )
    };
    let done = import((0..3).map(line).collect::<String>(), options());
    assert_eq!(first(&done), (1_795_536_000_500 * MS, Some(100), Some(7), None, Some(250), None));
    let row = &done.rows[0];
    assert_eq!((row.cached_tokens, row.stream, row.turn), (Some(64), Some(true), Some(0)));
    assert_eq!((done.report.sessions, done.rows.len()), (1, 3));
}

#[test]
fn a_length_without_a_unit_is_left_out_and_offered() {
    let log = "timestamp,prompt_tokens,latency\n2026-11-24T16:00:00Z,10,0.52\n2026-11-24T16:00:01Z,20,1.75\n";
    let done = import(log, options());
    assert_eq!((done.rows[0].input_tokens, done.rows[0].prod_e2e_ns), (Some(10), None));
    assert_eq!(done.report.files[0].map_left, ["e2e=latency:s"]);
    let warning = done.report.warnings.iter().find(|warning| warning.contains("without a unit")).unwrap();
    let done = import(log, mapped(&offered(warning)));
    assert_eq!(done.rows[1].prod_e2e_ns, Some(1_750 * MS));
}

#[test]
fn what_no_one_can_know_is_refused_with_a_map_to_paste() {
    let log = "{\"ts\": 0, \"prompt_len\": 5, \"gen\": 1}\n{\"ts\": 1250, \"prompt_len\": 6, \"gen\": 2}\n";
    let error = refusal(log, options());
    assert!(error.contains("gen, prompt_len, ts") && error.contains("check it"), "{error}");
    assert_eq!(offered(&error), "input_tokens=prompt_len,arrival=ts:ms");
    let done = import(log, mapped(&offered(&error)));
    assert_eq!(done.each(|row| row.arrival_unix_ns.unwrap() / MS), [0, 1250]);
    let error = refusal("who,prompt_tokens\nada,5\n", options());
    assert!(error.contains("--map 'arrival=COLUMN,input_tokens=prompt_tokens'"), "{error}");
    let error = refusal("who,what\nada,5\n", options());
    assert!(error.contains("--map 'arrival=ts,"), "{error}");
}

#[test]
fn own_names_and_common_names_may_stand_side_by_side() {
    let done = import("arrival_unix_ms,prompt_tokens,output_tokens\n1795536000001,3,4\n", options());
    assert_eq!((done.rows[0].input_tokens, done.rows[0].output_tokens), (Some(3), Some(4)));
    assert_eq!(done.report.files[0].map_guessed, ["input_tokens=prompt_tokens"]);
}

#[test]
fn rows_behind_the_sample_are_judged_by_the_same_map() {
    let good = "1795536000,5\n".repeat(40);
    let done = import(format!("ts,prompt_tokens\n{good}1795536001,many\nlater,5\n"), options());
    let reasons: Vec<_> = done.report.rejects.iter().map(|row| (row.line, row.reason)).collect();
    assert_eq!(reasons, [(42, RejectReason::BadNumber), (43, RejectReason::BadTime)]);
}

#[test]
fn a_published_log_without_a_format_of_its_own_is_refused_with_a_map_that_reads_it() {
    let Some(input) = published("ragpulse_trace_part1.jsonl") else { return };
    let error = try_import(vec![input], options()).map(|_| ()).unwrap_err().to_string();
    let map = offered(&error).replace("timestamp:ms", "timestamp:s");
    let Some(input) = published("ragpulse_trace_part1.jsonl") else { return };
    let done = try_import(vec![input], mapped(&map)).unwrap();
    assert_eq!((done.report.rows_kept, done.report.sessions), (3_800, 2_215));
    let Some(input) = published("exgentic_swebench_calls_part1.jsonl") else { return };
    let zoned = tracewheel_ingest::IngestOptions { zone: Some("UTC".parse().unwrap()), ..options() };
    let calls = try_import(vec![input], zoned).unwrap();
    let row = calls.rows.iter().find(|row| row.prod_e2e_ns.is_some()).unwrap();
    assert!(row.input_tokens.is_some() && row.session_hash.is_some() && row.model.is_some());
}

#[test]
fn a_name_is_no_reason_to_read_what_is_no_log() {
    for junk in ["time\n", "\n\n", "id\n1\n", "created,id\nno,1\n"] {
        assert!(try_import(text(junk), options()).is_err(), "{junk:?}");
    }
}
