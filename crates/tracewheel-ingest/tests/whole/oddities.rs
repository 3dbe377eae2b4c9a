//! What is odd in a log is handled, counted and told, in the report and in the timeline's own metadata.

use tracewheel_ingest::{IngestError, IngestOptions, RejectReason, RestartRule};

use crate::{fixture, import, mapped, options, text, try_import};

const MS: i64 = 1_000_000;
const SECOND_NS: i64 = 1_000_000_000;

#[test]
fn two_recordings_in_one_file_are_laid_one_behind_the_other() {
    let line = |ms: i64| format!("{{\"timestamp\": {ms}, \"input_length\": 5, \"output_length\": 1}}\n");
    let one: String = (0..100).map(|n| line(n * 30)).collect();
    let done = import(one.repeat(2), options());
    let arrivals = done.each(|row| row.arrival_unix_ns.unwrap());
    assert!(arrivals[..100].iter().zip(0..).all(|(ns, n)| *ns == n * 30 * MS));
    assert!(arrivals[100..].iter().zip(0..).all(|(ns, n)| *ns == (2_970 + n * 30) * MS));
    let file = &done.report.files[0];
    assert_eq!((file.restarts, file.out_of_order), (1, 0));
    let restart = &file.restarts_at[0];
    assert_eq!((restart.line, restart.offset), (101, one.len() as u64));
    assert_eq!((restart.from_ns, restart.to_ns, restart.joined), (2_970 * MS, 0, true));
    let quality = &done.timeline.meta().quality["files"][0];
    assert_eq!((&quality["restarts"], &quality["restarts_at"][0]["line"]), (&1.into(), &101.into()));
    assert!(done.report.warnings.iter().any(|warning| warning.contains("line 101")
        && warning.contains("behind the one before")
        && warning.contains("--restarts keep")));
    let kept = import(one.repeat(2), IngestOptions { restarts: RestartRule::Keep, ..options() });
    assert_eq!((kept.stats().ties, kept.report.identical_rows, kept.report.files[0].restarts), (100, 100, 1));
    assert!(!kept.report.files[0].restarts_at[0].joined);
}

#[test]
fn a_wall_clock_that_was_set_back_is_told_with_its_place_and_its_times_stay() {
    let times = (0..200).chain(80..280).map(|second| format!("{}\n", 1_795_536_000 + second));
    let log: String = std::iter::once("arrival_unix_s\n".to_owned()).chain(times).collect();
    let done = import(&log, options());
    let file = &done.report.files[0];
    assert_eq!((file.restarts, file.restarts_at[0].line, file.restarts_at[0].joined), (1, 202, false));
    assert_eq!(done.report.span_ns, 279 * SECOND_NS);
    assert!(
        done.report
            .warnings
            .iter()
            .any(|warning| warning.contains("a clock that was set back") && warning.contains("119 s back"))
    );
    let joined = import(&log, IngestOptions { restarts: RestartRule::Join, ..options() });
    assert_eq!(joined.report.span_ns, 398 * SECOND_NS);
}

#[test]
fn late_rows_are_sorted_and_counted_and_are_no_restart() {
    let log =
        "arrival_unix_s,input_tokens\n1795536000,1\n1795536300,2\n1795536299,3\n1795536000,4\n1795536301,5\n";
    let done = import(log, options());
    assert_eq!(
        done.each(|row| row.input_tokens.unwrap()),
        [1, 4, 3, 2, 5],
        "equal arrivals keep their order"
    );
    let file = &done.report.files[0];
    assert_eq!((file.out_of_order, file.restarts, done.report.precision.ties), (2, 0, 1));
}

#[test]
fn equal_rows_are_dropped_by_their_id_and_else_kept_and_counted() {
    let with_id = "{\"arrival_unix_s\":1795536000,\"request_id\":\"a\",\"input_tokens\":1}\n".repeat(3);
    let done = import(with_id, options());
    assert_eq!((done.rows.len(), done.report.identical_rows), (1, 0));
    assert_eq!(done.report.rejected_by_reason[&RejectReason::Duplicate], 2);
    let places: Vec<u64> = done.report.rejects.iter().map(|row| row.line).collect();
    assert_eq!(places, [2, 3]);
    let row = |tokens: u32| format!("{{\"arrival_unix_s\":1795536000,\"input_tokens\":{tokens}}}\n");
    let log: String = [1, 2, 1, 2, 3, 1].map(row).concat();
    let done = import(log, options());
    assert_eq!((done.rows.len(), done.report.identical_rows, done.report.precision.ties), (6, 3, 5));
    assert!(done.report.warnings.iter().any(|warning| warning.contains("3 rows equal another row")));
}

#[test]
fn one_file_given_twice_shows_as_equal_rows() {
    let twice = vec![fixture("azure2023_conv_20s.csv"), fixture("azure2023_conv_20s.csv")];
    let done = try_import(twice, options()).unwrap();
    assert_eq!((done.rows.len(), done.report.identical_rows), (258, 129));
}

#[test]
fn zero_tokens_are_kept_as_zero_and_counted() {
    let done = import("arrival_s,input_tokens,output_tokens\n1,0,5\n2,7,0\n3,0,0\n4,,\n", options());
    assert_eq!(
        done.each(|row| (row.input_tokens, row.output_tokens)),
        [(Some(0), Some(5)), (Some(7), Some(0)), (Some(0), Some(0)), (None, None)]
    );
    assert_eq!((done.report.zero_input_tokens, done.report.zero_output_tokens), (2, 2));
}

#[test]
fn times_in_many_forms_are_read_each_as_it_is_written() {
    let log = "{\"t\":1795536000}\n{\"t\":1795536000001}\n{\"t\":1795536000002000}\n{\"t\":1795536000003000000}\n\
               {\"t\":\"1795536000.004\"}\n{\"t\":\"2026-11-24T16:00:00.0050000Z\"}\n\
               {\"t\":\"2026-11-24 17:00:00.006+01:00\"}\n{\"t\":\"2026-11-24 16:00:00.007\"}\n{\"t\":82}\n";
    let zone = Some("UTC".parse().unwrap());
    let done = import(log, IngestOptions { zone, ..mapped("arrival=t") });
    let base = 1_795_536_000 * SECOND_NS;
    assert_eq!(done.each(|row| (row.arrival_unix_ns.unwrap() - base) / MS), (0..8).collect::<Vec<_>>());
    let precisions = done.each(|row| row.arrival_precision_ns);
    assert_eq!(precisions, [SECOND_NS, MS, 1_000, 1, MS, 100, MS, MS]);
    let file = &done.report.files[0];
    assert_eq!(file.time_forms.values().sum::<u64>(), 8);
    assert_eq!(file.time_forms["number, s since 1970"], 2);
    assert_eq!(file.time_forms["text with Z, 7 fraction digits"], 1);
    assert_eq!(file.time_forms["text without a zone, 3 fraction digits"], 1);
    assert_eq!(file.unit_found.as_deref(), Some("unix_s, unix_ms, unix_us, unix_ns"));
    assert!(file.mixed_times && done.report.warnings.iter().any(|warning| warning.contains("several ways")));
    assert_eq!(
        (done.report.rejects[0].line, done.report.rejects[0].reason),
        (9, RejectReason::TimeOutOfRange)
    );
    assert_eq!(done.timeline.meta().quality["files"][0]["time_forms"]["number, us since 1970"], 1);
}

#[test]
fn the_two_ends_of_a_clock_change_are_told_apart_from_a_year_out_of_range() {
    let log = "ts\n2025-03-30 01:59:59\n2025-03-30 02:30:00\n2025-03-30 03:00:00\n9999-12-31 00:00:00\n\
               0001-01-01 00:00:00\n2025-10-26 02:50:00\n2025-10-26 02:10:00\n";
    let zone = Some("Europe/Berlin".parse().unwrap());
    let done = import(log, IngestOptions { zone, ..mapped("arrival=ts") });
    let rejects: Vec<_> = done.report.rejects.iter().map(|row| (row.line, row.reason)).collect();
    assert_eq!(
        rejects,
        [
            (3, RejectReason::SkippedLocalTime),
            (5, RejectReason::TimeOutOfRange),
            (6, RejectReason::TimeOutOfRange)
        ]
    );
    let arrivals = done.each(|row| row.arrival_unix_ns.unwrap() / SECOND_NS);
    assert_eq!(arrivals[1] - arrivals[0], 1, "the skipped hour takes no time");
    assert_eq!(arrivals[3] - arrivals[2], 20 * 60, "the second pass of the doubled hour");
    assert_eq!(done.report.files[0].ambiguous_times, 2);
}

#[test]
fn a_block_of_no_tokens_is_refused() {
    let none = IngestOptions { block_tokens: Some(0), ..options() };
    let error = try_import(vec![fixture("mooncake_conversation_first200.jsonl")], none).map(|_| ());
    assert!(matches!(error, Err(IngestError::Options(text)) if text.contains("--block-tokens")));
}

#[test]
fn every_rejected_row_stands_in_the_list_and_its_content_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("rejects.jsonl");
    let good = "{\"arrival_unix_s\":1795536000,\"request_id\":\"a\",\"input_tokens\":1}\n";
    let bad = "{\"arrival_unix_s\":1795536000,\"input_tokens\":\"SECRET\"}\nSECRET\n".repeat(150);
    let log = format!("{good}{bad}{good}");
    let listed = IngestOptions { rejects_to: Some(list.clone()), listed_rejects: 5, ..options() };
    let done = import(&log, listed.clone());
    assert_eq!((done.report.rows_rejected, done.report.rejects.len()), (301, 5));
    let written = std::fs::read_to_string(&list).unwrap();
    let rows: Vec<serde_json::Value> =
        written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 301);
    assert!(!written.contains("SECRET"));
    assert_eq!(
        rows[0],
        serde_json::json!({
            "file": "log", "line": 2, "offset": good.len(), "reason": "bad_number", "column": "input_tokens"
        })
    );
    assert_eq!((&rows[300]["line"], &rows[300]["reason"]), (&302.into(), &"duplicate".into()));
    for row in &rows {
        let at = usize::try_from(row["offset"].as_u64().unwrap()).unwrap();
        let line = usize::try_from(row["line"].as_u64().unwrap()).unwrap();
        assert_eq!(log[at..].lines().next(), log.lines().nth(line - 1), "both places lead to the row");
    }
    let other = folder.path().join("other.txt");
    std::fs::write(&other, "precious\n").unwrap();
    let error = try_import(text(&log), IngestOptions { rejects_to: Some(other.clone()), ..options() });
    assert!(error.map(|_| ()).unwrap_err().to_string().contains("not replaced"));
    assert_eq!(std::fs::read_to_string(other).unwrap(), "precious\n");
    assert!(!format!("{listed:?}").contains("rejects.jsonl"), "no path of this machine in the metadata");
}

#[test]
fn a_header_among_the_rows_is_no_row() {
    let one = "arrival_s,input_tokens\r\n1,5\r\n2,6\r\n3,7\r\n";
    let done = import(one.repeat(3), options());
    assert_eq!((done.rows.len(), done.report.rows_rejected), (9, 0));
    let file = &done.report.files[0];
    assert_eq!((file.repeated_headers, file.restarts, file.lines), (2, 2, 12));
    assert_eq!(done.rows[8].arrival_unix_ns, Some(7 * SECOND_NS));
}
