//! Imports in little memory: the same timeline, however the rows were sorted.

use std::fmt::Write;
use std::path::Path;

use tracewheel_ingest::{IngestOptions, IngestReport, Input, Sorting, SortingWay, ingest};

use crate::mapped;

const MAP: &str = "arrival=ts_ms,e2e=took_ms,request_id=id,attempt=try,status=status,session=session,model=model,\
                   input_tokens=in,output_tokens=out,cached_tokens=cached";
const HEADER: &str = "ts_ms,took_ms,id,try,status,session,model,in,out,cached\n";

/// A multiple that scatters numbers (a Weyl sequence).
fn scattered(number: u64, below: u64) -> u64 {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20) % below
}

/// The rows of a log by arrival: sessions, retries, doubled rows, and now and then a row that cannot be read.
fn rows(count: u64) -> Vec<String> {
    let row = |number: u64| {
        let (at, took) = (1_795_536_000_000 + number * 3, 100 + scattered(number, 60_000));
        let tries = u64::from(number % 50 == 49);
        let id = number - tries;
        let (session, model) = (scattered(number, count / 20 + 1), ["small", "large"][(number % 2) as usize]);
        let (input, output) = (1 + scattered(number, 9_000), 1 + scattered(number, 700));
        let output = if number % 1_000 == 999 { "oops".to_owned() } else { output.to_string() };
        format!(
            "{at},{took},q-{id},{tries},{},s-{session},{model},{input},{output},{}\n",
            if number % 50 == 48 { 429 } else { 200 },
            input / 2
        )
    };
    // Every 300th row stands there twice.
    (0..count).map(|number| if number % 301 == 300 { row(number - 1) } else { row(number) }).collect()
}

fn log(rows: &[String]) -> String {
    rows.iter().fold(HEADER.to_owned(), |log, row| log + row)
}

/// Rows in an order that has nothing to do with their arrivals.
fn shuffled(mut rows: Vec<String>) -> Vec<String> {
    for at in 1..rows.len() {
        rows.swap(at, scattered(at as u64, at as u64 + 1) as usize);
    }
    rows
}

/// The report and the timeline's bytes; nothing else may be left in the folder.
fn import(inputs: Vec<Input>, options: IngestOptions) -> (IngestReport, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("timeline.parquet");
    let report = ingest(inputs, options, &out).unwrap();
    let left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["timeline.parquet"]);
    (report, std::fs::read(out).unwrap())
}

fn within(memory_bytes: u64) -> IngestOptions {
    IngestOptions { memory_bytes, fold_retries: true, ..mapped(MAP) }
}

fn file(folder: &Path, name: &str, content: &str) -> Input {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    Input::path(path)
}

/// The same but for the way in which it was sorted.
fn assert_same(expected: &(IngestReport, Vec<u8>), found: (IngestReport, Vec<u8>), what: &str) {
    let (report, bytes) = found;
    assert_eq!(IngestReport { sorting: expected.0.sorting, ..report }, expected.0, "{what}");
    assert!(bytes == expected.1, "{what}: the files differ");
}

fn way(report: &IngestReport) -> (SortingWay, bool) {
    let Sorting { way, started_over, .. } = report.sorting.unwrap();
    (way, started_over)
}

#[test]
fn a_shuffled_log_in_little_memory_gives_the_file_that_much_memory_gives() {
    let folder = tempfile::tempdir().unwrap();
    let text = log(&shuffled(rows(100_000)));
    let input = || vec![file(folder.path(), "log.csv", &text)];
    let expected = import(input(), within(1 << 30));
    assert_eq!(way(&expected.0), (SortingWay::Memory, false));
    assert!(expected.0.rows_kept > 99_000 && expected.0.retries.marked > 1_500, "{:?}", expected.0);
    assert!(expected.0.rejected_by_reason.values().all(|rows| *rows >= 100), "{:?}", expected.0);

    let spilled = import(input(), within(300_000));
    assert_eq!(way(&spilled.0), (SortingWay::Spilled, true));
    let sorting = spilled.0.sorting.unwrap();
    assert!(sorting.runs > 50 && sorting.spilled_bytes > 100_000 * 100, "{sorting:?}");
    assert_same(&expected, spilled, "spilled");
}

#[test]
fn a_log_that_comes_through_a_pipe_is_read_once_and_spilled() {
    let text = log(&shuffled(rows(20_000)));
    let piped = || vec![Input::reader("log.csv", std::io::Cursor::new(text.clone()))];
    let expected = import(piped(), within(1 << 30));
    let spilled = import(piped(), within(200_000));
    assert_eq!(way(&spilled.0), (SortingWay::Spilled, false));
    assert_same(&expected, spilled, "piped");
}

#[test]
fn a_nearly_sorted_log_is_streamed_and_gives_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = rows(20_000);
    rows.chunks_mut(100).for_each(|some| some.reverse());
    let text = log(&rows);
    let input = || vec![file(folder.path(), "log.csv", &text)];
    let expected = import(input(), within(1 << 30));
    let streamed = import(input(), within(300_000));
    assert_eq!(way(&streamed.0), (SortingWay::Streamed, false));
    assert_eq!(streamed.0.sorting.unwrap().spilled_bytes, 0);
    assert_same(&expected, streamed, "streamed");
}

#[test]
fn logs_of_several_servers_are_merged_as_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let rows = rows(30_000);
    let logs: Vec<String> =
        (0..3).map(|server| log(&rows.iter().skip(server).step_by(3).cloned().collect::<Vec<_>>())).collect();
    let inputs = || {
        let named = logs.iter().enumerate();
        named.map(|(number, text)| file(folder.path(), &format!("{number}.csv"), text)).collect()
    };
    let expected = import(inputs(), within(1 << 30));
    let streamed = import(inputs(), within(300_000));
    assert_eq!(way(&streamed.0), (SortingWay::Streamed, false));
    assert_same(&expected, streamed, "streamed");
}

#[test]
fn a_file_whose_totals_turn_out_late_to_exclude_their_parts_is_read_again() {
    let mut text = "ts_ms,in,cached\n".to_owned();
    for number in 0..20_000 {
        // The second half says that the input does not contain what was cached.
        let cached = if number < 10_000 { 1 } else { 100 };
        writeln!(text, "{},10,{cached}", 1_795_536_000_000_u64 + number).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let within = |memory_bytes| IngestOptions {
        memory_bytes,
        ..mapped("arrival=ts_ms,input_tokens=in,cached_tokens=cached")
    };
    let input = || vec![file(folder.path(), "log.csv", &text)];
    let expected = import(input(), within(1 << 30));
    assert!(expected.0.files[0].input_rule.exclusive);
    let again = import(input(), within(300_000));
    assert_eq!(way(&again.0), (SortingWay::Spilled, true));
    assert_same(&expected, again, "read again");
}

#[test]
fn a_temporary_folder_that_is_not_there_stops_the_import_and_is_named() {
    let options = IngestOptions { temp_folder: Some("/no/such/folder".into()), ..within(10_000) };
    let folder = tempfile::tempdir().unwrap();
    let text = log(&shuffled(rows(2_000)));
    let out = folder.path().join("timeline.parquet");
    let error = ingest(vec![file(folder.path(), "log.csv", &text)], options, &out).unwrap_err().to_string();
    assert!(error.contains("/no/such/folder") && error.contains("--temp-dir"), "{error}");
    assert!(!out.exists());
}
