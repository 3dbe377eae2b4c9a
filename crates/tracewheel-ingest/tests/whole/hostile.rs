//! Input that is broken, huge or meant to break: every row is kept or rejected, and nothing panics.

use proptest::prelude::*;
use tracewheel_ingest::{IngestOptions, IngestReport, RejectReason, RestartRule, formats};

use crate::{import, mapped, options, text, try_import};

#[test]
fn byte_order_marks_line_ends_and_a_missing_last_one_change_nothing() {
    let plain = "arrival_unix_ms,input_tokens\n1795536000001,1\n1795536000002,2\n";
    let digest = |log: &[u8]| import(log, options()).report.timeline_digest;
    let crlf = plain.replace('\n', "\r\n");
    for log in [crlf.clone(), plain.trim_end().to_owned(), format!("\u{feff}{plain}"), format!("\n{crlf}\n")]
    {
        assert_eq!(digest(log.as_bytes()), digest(plain.as_bytes()), "{log:?}");
    }
    let json = "\u{feff}{\"arrival_unix_ms\":1795536000001,\"input_tokens\":1}\r\n\r\n{\"arrival_unix_ms\":1795536000002,\"input_tokens\":2}";
    let done = import(json, options());
    assert_eq!(done.each(|row| row.source_offset), [3, 57]);
}

#[test]
fn a_row_of_a_hundred_megabytes_is_one_rejected_row() {
    let huge = vec![b'x'; 100 << 20];
    for (head, row, middle) in [
        ("arrival_unix_ms,input_tokens\n", "1795536000001,1\n", "1795536000002,"),
        ("{\"arrival_unix_ms\":1795536000000}\n", "{\"arrival_unix_ms\":1795536000001}\n", "{\"x\": \""),
    ] {
        let log = [head.as_bytes(), row.as_bytes(), middle.as_bytes(), &huge, b"\n", row.as_bytes()].concat();
        let rows = import(&log, options());
        let reject = &rows.report.rejects[0];
        assert_eq!((reject.reason, reject.line), (RejectReason::RowTooLong, 3));
        assert_eq!(reject.offset, (head.len() + row.len()) as u64);
        assert_eq!(rows.report.rows_rejected, 1);
    }
}

#[test]
fn zeros_and_broken_text_cost_the_rows_that_hold_them() {
    let log = b"arrival_unix_ms,model\n1795536000001,a\n\0\0\0\n1795536000002,\xff\xfe\n1795536000003,\0\n1795536000004,b\n";
    let done = import(log, options());
    let reasons: Vec<_> = done.report.rejects.iter().map(|row| (row.line, row.reason)).collect();
    assert_eq!(reasons, [(3, RejectReason::WrongCellCount), (4, RejectReason::InvalidUtf8)]);
    assert_eq!(done.each(|row| row.model.as_deref().unwrap().to_owned()), ["a", "\0", "b"]);
}

#[test]
fn a_stray_quote_damages_one_row_of_a_csv() {
    let log = "arrival_s,input_tokens,text\n1,10,ok\n2,20,\"never closed\n3,30,ok\n4,40,ok\n";
    let done = import(log, options());
    assert_eq!(done.each(|row| row.input_tokens.unwrap()), [10, 30, 40]);
    assert_eq!(
        (done.report.rejects[0].line, done.report.rejects[0].reason),
        (3, RejectReason::UnclosedQuote)
    );
}

#[test]
fn bad_rows_are_counted_by_reason_and_the_rest_is_written() {
    let log = b"{\"ts\": 1, \"in\": 5}\nnot json\n{\"ts\": 2, \"in\": 5.5}\n{\"ts\": \"x\", \"in\": 1}\n{\"in\": 1}\n{\"ts\": 3, \"in\": \"\xff\"}\n[]\n\0\0\n{\"ts\": 4, \"in\": 6}\n";
    let limit = |most| IngestOptions { max_rejects: Some(most), ..mapped("arrival=ts:ms,input_tokens=in") };
    let done = import(log, limit(6));
    assert_eq!(done.rows.len(), 2);
    let counts = &done.report.rejected_by_reason;
    assert_eq!(counts[&RejectReason::NotJson], 3);
    assert_eq!(counts[&RejectReason::BadNumber], 1);
    assert_eq!(counts[&RejectReason::BadTime], 1);
    assert_eq!(counts[&RejectReason::NoArrival], 1);
    assert_eq!(counts[&RejectReason::InvalidUtf8], 1);
    assert!(done.report.over_reject_limit, "seven are more than six");
    assert!(!import(log, limit(7)).report.over_reject_limit);
    assert!(!import(log, mapped("arrival=ts:ms,input_tokens=in")).report.over_reject_limit);
}

#[test]
fn only_the_first_rejected_rows_are_listed() {
    let log = format!("arrival_s\n1\n{}", "x\n".repeat(500));
    let done = import(log, IngestOptions { listed_rejects: 3, ..options() });
    assert_eq!((done.report.rows_rejected, done.report.rejects.len()), (500, 3));
}

#[test]
fn an_import_that_keeps_nothing_is_over_any_limit() {
    let done = import("arrival_s\nx\n", options());
    assert!(done.report.over_reject_limit);
    let empty = import("arrival_s\n", options());
    assert!(!empty.report.over_reject_limit && empty.report.warnings[0].contains("empty"));
}

#[test]
fn a_failed_import_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("t.parquet");
    let inputs = text("ts\n2025-10-26 12:00:00\n");
    assert!(tracewheel_ingest::ingest(inputs, mapped("arrival=ts"), &out).is_err());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Pieces that the formats are made of, so that random bytes get far into the parsers.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&'static [u8]> = vec![
        b"\n",
        b"\r\n",
        b",",
        b"\"",
        b"{",
        b"}",
        b"[",
        b":",
        b"{\"timestamp\": 5, \"input_length\": 700, \"output_length\": 3, \"hash_ids\": [1, 2]}\n",
        b"{\"t\": 1795536000123, \"n\": 5, \"id\": \"a\"}\n",
        b"\"timestamp\"",
        b"\"t\"",
        b"2023-11-16 18:17:03.9799600,4808,10\r\n",
        b"2024-05-10 00:00:00+00:00,1,2\n",
        b"1795536000123,5,a\n",
        b"1e99",
        b"-0",
        b"null",
        b"\\u00e9",
        b"\xff",
        b"\0",
        b"99999999999999999999999",
        b"\xef\xbb\xbf",
    ];
    prop_oneof![
        4 => proptest::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

/// Kept, rejected and blank rows account for every line of a format that has a row a line.
fn adds_up(report: &IngestReport, bytes: usize) {
    let file = &report.files[0];
    assert_eq!(file.rows_read, file.rows_kept + file.rows_rejected);
    assert_eq!(file.bytes, bytes as u64);
    assert_eq!(report.rows_read, file.rows_read);
    if matches!(file.format, "mooncake" | "jsonl") {
        assert_eq!(file.lines, file.rows_read + file.blank_lines);
    } else {
        // A header, and records of several lines.
        assert!(file.lines > file.rows_read + file.blank_lines || file.lines == file.blank_lines);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_bytes_in_any_format_are_kept_rejected_or_refused(bytes in content(), format in 0..formats().count(), small in any::<bool>()) {
        let (name, _) = formats().nth(format).unwrap();
        let map = if matches!(name, "csv" | "jsonl") { mapped("arrival=t,input_tokens=n,request_id=id") } else { options() };
        let zone = Some("UTC".parse().unwrap());
        let max_row_bytes = if small { 60 } else { 1 << 20 };
        let forced = IngestOptions { format: Some(name.to_owned()), zone, max_row_bytes, ..map };
        let header: &[u8] = match name {
            "azure-llm-2023" | "azure-llm-2024" => b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n",
            "azure-multimodal-2025" => b"TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n",
            "burstgpt" => b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n",
            "vidur" => b"arrived_at,num_prefill_tokens,num_decode_tokens\n",
            "csv" => b"t,n,id\n",
            "jsonl" => b"{\"t\": 1795536000000, \"n\": 1, \"id\": \"x\"}\n",
            _ => b"",
        };
        let log = [header, &bytes].concat();
        let length = log.len();
        match try_import(text(&log), forced) {
            Ok(done) => adds_up(&done.report, length),
            Err(error) => prop_assert!(error.to_string().contains("log"), "{}", error),
        }
    }

    #[test]
    fn a_packed_log_gives_what_its_text_gives_however_it_is_cut_into_members(
        bytes in content(), at in any::<prop::sample::Index>(), damage in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let log = [b"arrival_unix_ms,input_tokens,request_id\n1795536000000,1,x\n".as_slice(), &bytes].concat();
        let zone = Some("UTC".parse().unwrap());
        let options = IngestOptions { zone, ..options() };
        let (first, second) = log.split_at(at.index(log.len()));
        let mut packed = [zstd::encode_all(first, 1).unwrap(), zstd::encode_all(second, 1).unwrap()].concat();
        if let Some(cut) = damage {
            packed.truncate(4 + cut.index(packed.len() - 4));
        }
        let (plain, read) = (try_import(text(&log), options.clone()), try_import(text(&packed), options));
        match (plain, read, damage) {
            (Ok(plain), Ok(read), None) => {
                prop_assert_eq!(plain.report.timeline_digest, read.report.timeline_digest);
                prop_assert_eq!(plain.report.rejected_by_reason, read.report.rejected_by_reason);
            }
            (Ok(plain), Ok(read), Some(_)) => {
                let (plain, read) = (&plain.report.files[0], &read.report.files[0]);
                prop_assert!(read.bytes <= plain.bytes);
                // A quote that never ends swallows more of a whole log than of a cut one.
                if read.format == plain.format && !log.contains(&b'"') {
                    prop_assert!(read.rows_kept <= plain.rows_kept);
                }
            }
            (Err(_), Err(_), None) | (_, _, Some(_)) => {}
            (plain, read, None) => {
                prop_assert!(false, "{:?} {:?}", plain.map(|done| done.report), read.map(|done| done.report));
            }
        }
    }

    #[test]
    fn any_bytes_are_recognised_or_refused(bytes in content()) {
        if let Ok(done) = try_import(text(&bytes), options()) {
            let bom = 0;
            adds_up(&done.report, bytes.len() - bom);
        }
    }

    #[test]
    fn rows_come_back_as_they_were_written(
        rows in proptest::collection::vec((0_i64..4_000_000_000, proptest::option::of(any::<u32>()), "[a-z\",\n ]{0,12}"), 1..30)
    ) {
        let mut log = String::from("arrival_ns,input_tokens,tags.note\n");
        for (at, input, note) in &rows {
            let input = input.map_or(String::new(), |input| input.to_string());
            log.push_str(&format!("{at},{input},\"{}\"\n", note.replace('"', "\"\"")));
        }
        let done = import(&log, IngestOptions { restarts: RestartRule::Keep, ..options() });
        let mut expected = rows.clone();
        expected.sort_by_key(|row| row.0);
        prop_assert_eq!(done.rows.len(), rows.len());
        for (row, (at, input, note)) in done.rows.iter().zip(&expected) {
            prop_assert_eq!((row.arrival_unix_ns, row.input_tokens), (Some(*at), *input));
            let kept = row.tags.as_ref().map_or(String::new(), |tags| tags.values().map(|value| value.to_string()).collect());
            if !matches!(note.trim(), "nan" | "none" | "null" | "") {
                prop_assert_eq!(kept, note.trim());
            }
        }
    }
}
