//! Tiny runs and timelines, written through the same writers as real ones.

use std::path::Path;
use std::sync::Arc;

use tracewheel_clock::VirtualClock;
use tracewheel_record::manifest::{EndedBy, OutcomeSection};
use tracewheel_record::{
    AttemptRecord, EventRow, HealthRecord, Manifest, ReadStampRow, RequestRecord, Run, RunWriter, Strata,
};
use tracewheel_timeline::vocab::{
    ArrivalSource, AttemptStatus, EventKind, Operation, Phase, Reason, RequestStatus, Source, TtftKind,
};
use tracewheel_timeline::{RequestRow, Timeline, TimelineMeta, TimelineWriter};

/// One millisecond.
pub const MS: i64 = 1_000_000;

/// Writes a timeline and opens it.
pub fn timeline(dir: &Path, name: &str, rows: &[RequestRow]) -> Timeline {
    let path = dir.join(name);
    let mut writer = TimelineWriter::create(&path, TimelineMeta::default()).unwrap();
    for row in rows {
        writer.push(row).unwrap();
    }
    writer.finish().unwrap();
    Timeline::open(&path).unwrap()
}

/// What production recorded of a streamed chat: times in milliseconds.
pub fn produced(arrival_ms: i64, ttft_ms: i64, e2e_ms: i64) -> RequestRow {
    RequestRow {
        arrival_unix_ns: Some(arrival_ms * MS),
        arrival_precision_ns: 1,
        arrival_source: ArrivalSource::Start,
        operation: Operation::Chat,
        stream: Some(true),
        model: Some(Arc::from("m-a")),
        input_tokens: Some(100),
        input_tokens_source: Some(Source::Reported),
        output_tokens: Some(4),
        output_tokens_source: Some(Source::Reported),
        prod_status: Some(200),
        prod_ttft_ns: Some(ttft_ms * MS),
        prod_ttft_kind: Some(TtftKind::FirstChunk),
        prod_e2e_ns: Some(e2e_ms * MS),
        source_file: Arc::from("sample"),
        ..RequestRow::default()
    }
}

/// A row that production refused.
pub fn refused(arrival_ms: i64, http_status: u16) -> RequestRow {
    RequestRow {
        prod_status: Some(http_status),
        prod_ttft_ns: None,
        prod_ttft_kind: None,
        prod_e2e_ns: Some(5 * MS),
        ..produced(arrival_ms, 0, 0)
    }
}

/// An answer that ended well: due and written at `due_ms`, headers 1 ms and the first byte 2 ms later, then one text
/// event a read at each of `events_ms` (absolute), kernel stamps 1 ms before the user's, `[DONE]` 1 ms after the last.
pub fn answered(row: u64, due_ms: i64, events_ms: &[i64]) -> (RequestRecord, Vec<AttemptRecord>) {
    let attempt = attempt(row, 1, due_ms, events_ms);
    (request(&attempt, RequestStatus::Ok), vec![attempt])
}

/// One successful attempt; see [`answered`].
pub fn attempt(row: u64, number: u16, due_ms: i64, events_ms: &[i64]) -> AttemptRecord {
    let read = |ms: i64| ReadStampRow { user_ns: (ms + 1) * MS, kernel_ns: Some(ms * MS), bytes: 40 };
    let mut reads = vec![read(due_ms + 2)];
    let event = |read, kind, tokens| EventRow { read, kind, tokens, bytes: 8, choice: 0 };
    let mut events = vec![event(0, EventKind::Structure, None)];
    for at in events_ms {
        reads.push(read(*at));
        events.push(event(reads.len() as u32 - 1, EventKind::Text, None));
    }
    let end = events_ms.last().copied().unwrap_or(due_ms + 2) + 1;
    reads.push(read(end));
    events.push(event(reads.len() as u32 - 1, EventKind::Terminal, None));
    AttemptRecord {
        row,
        attempt: number,
        due_ns: due_ms * MS,
        released_ns: Some(due_ms * MS),
        first_write_ns: Some(due_ms * MS + 10_000),
        last_write_ns: Some(due_ms * MS + 20_000),
        headers_ns: Some((due_ms + 1) * MS),
        first_byte_ns: Some((due_ms + 2) * MS),
        end_ns: Some((end + 1) * MS),
        status: AttemptStatus::Ok,
        http_status: Some(200),
        reads,
        events,
        usage_output_tokens: Some(events_ms.len() as u32),
        ..AttemptRecord::default()
    }
}

/// A refusal: an attempt that ends 3 ms after its due time.
pub fn rejected(row: u64, number: u16, due_ms: i64, http_status: u16) -> AttemptRecord {
    AttemptRecord {
        reads: Vec::new(),
        events: Vec::new(),
        usage_output_tokens: None,
        end_ns: Some((due_ms + 3) * MS),
        status: AttemptStatus::Failed,
        reason: Reason::from_http_status(http_status),
        http_status: Some(http_status),
        ..attempt(row, number, due_ms, &[])
    }
}

/// The request behind its last attempt; planned, due and recorded at the attempt's due time.
pub fn request(last: &AttemptRecord, status: RequestStatus) -> RequestRecord {
    RequestRecord {
        row: last.row,
        phase: Phase::Measure,
        planned_ns: last.due_ns,
        due_ns: last.due_ns,
        trace_unix_ns: Some(last.due_ns),
        status,
        reason: last.reason,
        attempts: last.attempt,
        final_attempt: last.attempt,
        input_tokens: Some(100),
        input_tokens_source: Some(Source::Reported),
        output_tokens: last.usage_output_tokens,
        output_tokens_source: last.usage_output_tokens.map(|_| Source::Reported),
        end_ns: last.end_ns,
        strata: Strata { operation: Some(Operation::Chat), stream: Some(true), ..Strata::default() },
        ..RequestRecord::default()
    }
}

/// A planned request that never left.
pub fn unsent(row: u64, planned_ms: i64, reason: Reason) -> RequestRecord {
    RequestRecord {
        row,
        planned_ns: planned_ms * MS,
        due_ns: planned_ms * MS,
        status: RequestStatus::Unsent,
        reason: Some(reason),
        ..RequestRecord::default()
    }
}

/// The manifest of a run over a timeline that ended as planned.
pub fn manifest(timeline: &Timeline) -> Manifest {
    let mut manifest = Manifest::default();
    manifest.plan.timeline_digest = timeline.meta().digest.clone();
    manifest.plan.speed = Some(1.0);
    manifest.plan.mode = Some("open".to_owned());
    manifest.target.url = "http://127.0.0.1:9".to_owned();
    manifest.outcome = Some(OutcomeSection { ended_by: EndedBy::Plan, ..OutcomeSection::default() });
    manifest
}

/// Writes a run and opens it.
pub fn run(dir: &Path, manifest: Manifest, exchanges: &[(RequestRecord, Vec<AttemptRecord>)]) -> Run {
    run_with(dir, "sample", manifest, exchanges, &[])
}

/// Writes a run of that name with its health and opens it.
pub fn run_with(
    dir: &Path,
    name: &str,
    mut manifest: Manifest,
    exchanges: &[(RequestRecord, Vec<AttemptRecord>)],
    health: &[HealthRecord],
) -> Run {
    let measured = exchanges.iter().filter(|(r, _)| !matches!(r.phase, Phase::Calibrate | Phase::Prime));
    manifest.plan.requests = measured.count() as u64;
    let clock = VirtualClock::new();
    let mut writer = RunWriter::create(&dir.join("runs"), name, &manifest, &clock).unwrap();
    for (request, attempts) in exchanges {
        attempts.iter().for_each(|a| writer.attempt(a).unwrap());
        writer.request(request).unwrap();
    }
    health.iter().for_each(|row| writer.health(row).unwrap());
    let summary = writer.finish(&manifest, &clock).unwrap();
    Run::open(&summary.dir).unwrap()
}
