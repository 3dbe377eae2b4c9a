use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::{
    ArrivalSource, EventKind, Operation, Phase, Reason, RequestStatus, Source, TtftKind,
};

use super::samples::orderly;
use super::*;
use crate::rows::{EventRow, ReadStampRow, Strata};

fn run_of(entries: &[Entry]) -> (tempfile::TempDir, Run) {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path(), entries, WriterOptions::default());
    entries.iter().for_each(|entry| record(&mut writer, entry).unwrap());
    let summary = writer.finish(&manifest_for(entries), &clock()).unwrap();
    let run = Run::open(&summary.dir).unwrap();
    (dir, run)
}

fn request() -> RequestRecord {
    RequestRecord {
        row: 7,
        due_ns: 1_000,
        trace_unix_ns: Some(55),
        status: RequestStatus::Ok,
        attempts: 2,
        final_attempt: 2,
        input_tokens: Some(100),
        input_tokens_source: Some(Source::Reported),
        first_output_ns: Some(1_500),
        end_ns: Some(9_000),
        strata: Strata { operation: Some(Operation::Messages), model: Some("m".into()), ..Strata::default() },
        ..RequestRecord::default()
    }
}

fn attempts() -> [AttemptRecord; 2] {
    let event = |read, kind| EventRow { read, kind, tokens: None, bytes: 1, choice: 0 };
    let read = |user_ns, kernel_ns| ReadStampRow { user_ns, kernel_ns, bytes: 5 };
    let first = AttemptRecord { row: 7, http_status: Some(429), ..AttemptRecord::default() };
    let second = AttemptRecord {
        row: 7,
        attempt: 2,
        http_status: Some(200),
        usage_reasoning_tokens: Some(4),
        reads: vec![read(1_505, Some(1_500)), read(1_800, None)],
        events: vec![
            event(0, EventKind::Structure),
            event(0, EventKind::Reasoning),
            event(1, EventKind::Text),
            event(1, EventKind::Usage),
        ],
        ..AttemptRecord::default()
    };
    [first, second]
}

#[test]
fn a_run_that_was_removed_since_it_was_opened_is_an_error_and_no_empty_table() {
    let (_dir, run) = run_of(&[Entry::Request(request())]);
    assert_eq!(run.health().unwrap().count(), 0);
    std::fs::remove_dir_all(run.dir()).unwrap();
    let told = run.health().unwrap_err().to_string();
    assert!(told.contains(&run.dir().display().to_string()), "{told}");
    assert!(run.requests().is_err() && run.releases().is_err());
}

#[test]
fn a_run_stands_in_for_what_production_recorded() {
    let [first, second] = attempts();
    let (_dir, run) = run_of(&[Entry::Attempt(first), Entry::Attempt(second), Entry::Request(request())]);
    let rows: Vec<RequestRow> = run.timeline_view().unwrap().map(Result::unwrap).collect();
    let expected = RequestRow {
        arrival_unix_ns: Some(55),
        arrival_precision_ns: 1,
        arrival_source: ArrivalSource::Start,
        operation: Operation::Messages,
        model: Some("m".into()),
        input_tokens: Some(100),
        input_tokens_source: Some(Source::Reported),
        reasoning_tokens: Some(4),
        reasoning_tokens_source: Some(Source::Reported),
        client_gone: Some(false),
        prod_status: Some(200),
        prod_attempts: Some(2),
        prod_ttft_ns: Some(500),
        prod_ttft_kind: Some(TtftKind::FirstChunk),
        prod_e2e_ns: Some(8_000),
        prod_event_ns: Some(vec![500, 800]),
        source_file: run.manifest().id.as_str().into(),
        source_offset: 7,
        ..RequestRow::default()
    };
    assert_eq!(rows, [expected]);
}

#[test]
fn unhappy_requests_say_why_and_other_phases_are_left_out() {
    let ended = |row, phase, status, reason| {
        let base = RequestRecord { row, phase, status, reason, trace_unix_ns: None, ..request() };
        Entry::Request(RequestRecord { attempts: 0, final_attempt: 0, first_output_ns: None, ..base })
    };
    let (_dir, run) = run_of(&[
        ended(0, Phase::Warmup, RequestStatus::Ok, None),
        ended(1, Phase::Measure, RequestStatus::Cancelled, Some(Reason::CancelledAsRecorded)),
        ended(2, Phase::Measure, RequestStatus::Unsent, Some(Reason::TooLate)),
    ]);
    let rows: Vec<RequestRow> = run.timeline_view().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].arrival_unix_ns, Some(1_790_000_000_000_001_000));
    assert_eq!(
        (rows[0].client_gone, rows[0].cancel_after_ns, rows[0].prod_error.clone()),
        (Some(true), Some(8_000), None)
    );
    assert_eq!(rows[1].prod_error.as_deref(), Some("too_late"));
    assert_eq!(
        (rows[1].prod_ttft_ns, rows[1].prod_ttft_kind, rows[1].prod_event_ns.clone()),
        (None, None, None)
    );
}

#[test]
fn exchanges_join_attempts_that_end_in_any_order() {
    let mut entries: Vec<Entry> =
        orderly(30).into_iter().filter(|entry| !matches!(entry, Entry::Flush | Entry::Release(_))).collect();
    let whole = Content::of(&entries);
    // All attempts first, last request first.
    entries.sort_by_key(|entry| match entry {
        Entry::Attempt(row) => (0, row.row % 7, row.row),
        Entry::Request(row) => (1, u64::MAX - row.row, 0),
        _ => (2, 0, 0),
    });
    let (_dir, run) = run_of(&entries);
    let exchanges: Vec<_> = run.exchanges().unwrap().map(Result::unwrap).collect();
    assert_eq!(exchanges.len(), 30);
    for (request, attempts) in exchanges {
        let expected: Vec<_> =
            whole.attempts.iter().filter(|attempt| attempt.row == request.row).cloned().collect();
        assert_eq!(attempts, expected);
        assert_eq!(attempts.len(), usize::from(request.attempts));
    }
}
