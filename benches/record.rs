//! How many attempts one recorder thread takes: released, recorded with their reads and events, closed with their
//! request, flushed to the journal and rolled into parts. The floor is 20,000 attempts of 16 events a second.
#![allow(missing_docs)]

use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tracewheel_clock::VirtualClock;
use tracewheel_record::{
    AttemptRecord, EventRow, Manifest, ReadStampRow, ReleaseRecord, RequestRecord, Run, RunWriter,
};
use tracewheel_timeline::vocab::{AttemptStatus, EventKind, Operation, Protocol, RequestStatus, Source};

/// Attempts of one flush: a second's worth at the floor.
const FLUSH: u64 = 20_000;

/// An attempt whose times wander as real ones do.
fn attempt(row: u64, events: u32) -> AttemptRecord {
    let mut state = row.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut wander = |limit: i64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % limit as u64) as i64
    };
    let due_ns = row as i64 * 50_000;
    let mut at = due_ns + 5_000_000;
    let reads = (0..events).map(|_| {
        at += 2_000_000 + wander(400_000);
        let bytes = 180 + wander(12) as u32;
        ReadStampRow { user_ns: at + 20_000 + wander(9_000), kernel_ns: Some(at), bytes }
    });
    let reads: Vec<_> = reads.collect();
    let event =
        |read| EventRow { read, kind: EventKind::Text, tokens: Some(1), bytes: 4 + read % 7, choice: 0 };
    AttemptRecord {
        row,
        due_ns,
        released_ns: Some(due_ns + 3_000),
        first_write_ns: Some(due_ns + 9_000 + wander(4_000)),
        last_write_ns: Some(due_ns + 14_000 + wander(4_000)),
        headers_ns: Some(due_ns + 4_000_000 + wander(50_000)),
        first_byte_ns: Some(due_ns + 4_100_000 + wander(50_000)),
        end_ns: Some(at + 40_000),
        connection: Some(wander(64) as u32),
        connection_reused: Some(true),
        protocol: Some(Protocol::H1),
        status: AttemptStatus::Ok,
        http_status: Some(200),
        reads,
        events: (0..events).map(event).collect(),
        usage_input_tokens: Some(wander(4_000) as u32),
        usage_cached_tokens: Some(wander(1_000) as u32),
        usage_output_tokens: Some(events),
        request_id: Some(format!("req_{row:016x}").into()),
        system_fingerprint: Some("fp_44709d6fcb".into()),
        ..AttemptRecord::default()
    }
}

fn request(attempt: &AttemptRecord) -> RequestRecord {
    let mut request = RequestRecord {
        row: attempt.row,
        planned_ns: attempt.due_ns,
        due_ns: attempt.due_ns,
        trace_unix_ns: Some(1_790_000_000_000_000_000 + attempt.due_ns),
        status: RequestStatus::Ok,
        attempts: 1,
        final_attempt: 1,
        input_tokens: attempt.usage_input_tokens,
        input_tokens_source: Some(Source::Reported),
        output_tokens: attempt.usage_output_tokens,
        output_tokens_source: Some(Source::Reported),
        first_output_ns: attempt.reads.first().map(|read| read.user_ns),
        end_ns: attempt.end_ns,
        ..RequestRecord::default()
    };
    request.strata.operation = Some(Operation::Chat);
    request.strata.model = Some("small".into());
    request.strata.route = Some("default".into());
    request.strata.session_hash = Some(attempt.row / 4 * 0x1234_5678_9abc);
    request.strata.turn = Some((attempt.row % 4) as u32);
    request
}

fn manifest(requests: u64) -> Manifest {
    let mut manifest = Manifest::default();
    manifest.plan.requests = requests;
    manifest
}

fn writer(runs_dir: &Path) -> RunWriter {
    let clock = VirtualClock::started_at(1_790_000_000_000_000_000);
    RunWriter::create(runs_dir, "bench", &manifest(0), &clock)
        .expect("the temporary directory can be written")
}

fn record(writer: &mut RunWriter, rows: &[(ReleaseRecord, AttemptRecord, RequestRecord)]) {
    for (done, (release, attempt, request)) in (1_u64..).zip(rows) {
        writer.released(release).expect("the disk has room");
        writer.attempt(attempt).expect("the disk has room");
        writer.request(request).expect("the disk has room");
        if done % FLUSH == 0 {
            writer.flush().expect("the disk has room");
        }
    }
}

fn benches(criterion: &mut Criterion) {
    let runs = tempfile::tempdir().expect("a temporary directory can be made");
    for (events, count) in [(16, 40_000_u64), (256, 5_000)] {
        let rows: Vec<_> = (0..count)
            .map(|row| {
                let attempt = attempt(row, events);
                let due_ns = attempt.due_ns;
                let release =
                    ReleaseRecord { row, attempt: 1, planned_ns: due_ns, due_ns, ..ReleaseRecord::default() };
                let request = request(&attempt);
                (release, attempt, request)
            })
            .collect();
        let mut group = criterion.benchmark_group(format!("record/{events}-event-attempts"));
        group.sample_size(10).throughput(Throughput::Elements(count));
        group.bench_function("write", |bencher| {
            bencher.iter_batched(
                || writer(runs.path()),
                |mut writer| {
                    record(&mut writer, &rows);
                    let clock = VirtualClock::new();
                    writer.finish(&manifest(count), &clock).expect("everything was recorded")
                },
                BatchSize::PerIteration,
            );
        });
        let mut whole = writer(runs.path());
        record(&mut whole, &rows);
        let summary = whole.finish(&manifest(count), &VirtualClock::new()).expect("everything was recorded");
        let run = Run::open(&summary.dir).expect("the run was just closed");
        group.bench_function("read", |bencher| {
            bencher.iter(|| {
                let exchanges = run.exchanges().expect("the run can be read");
                exchanges
                    .map(|exchange| black_box(exchange).expect("the run can be read").1.len())
                    .sum::<usize>()
            });
        });
        group.finish();
    }
}

criterion_group!(record_benches, benches);
criterion_main!(record_benches);
