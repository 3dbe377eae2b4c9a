//! What a plan keeps in memory does not grow with its requests. A counting allocator watches; nothing is timed.
#![allow(clippy::unwrap_used, reason = "the helpers of a test are a part of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use tracewheel_timeline::{BlockBasis, RequestRow, Timeline, TimelineMeta, TimelineWriter};
use tracewheel_workload::{Plan, PlanOptions};

/// Counts the bytes that live, and the most that ever did.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came; only numbers are kept beside it.
#[allow(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that lived at once while `work` was done, above those that lived before.
fn peak_of(work: impl FnOnce()) -> usize {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

fn timeline(folder: &std::path::Path, rows: u64) -> Timeline {
    let path = folder.join(format!("{rows}.parquet"));
    let meta = TimelineMeta {
        block_tokens: Some(16),
        block_basis: Some(BlockBasis::Tokens),
        ..TimelineMeta::default()
    };
    let mut writer = TimelineWriter::create(&path, meta).unwrap();
    for number in 0..rows {
        // Two blocks that all share and one of a hundred: nothing that an index would have to grow for.
        let refused = number % 10 == 0;
        writer
            .push(&RequestRow {
                arrival_unix_ns: Some(number as i64 * 1_000),
                session_hash: Some(number / 5),
                model: Some("m".into()),
                input_tokens: Some(48),
                output_tokens: (!refused).then_some(7),
                retry_of_row: (number % 10 == 1).then(|| number - 1),
                prefix_hashes: Some(vec![1, 2, 100 + number % 100]),
                ..RequestRow::default()
            })
            .unwrap();
    }
    writer.finish().unwrap();
    Timeline::open(&path).unwrap()
}

/// One test, because a second one would allocate beside it.
#[test]
fn three_times_the_requests_take_no_more_memory_but_for_their_retries() {
    let folder = tempfile::tempdir().unwrap();
    let options = || PlanOptions { thin: Some("0.9".parse().unwrap()), ..PlanOptions::default() };
    let peak = |rows: u64| {
        let timeline = timeline(folder.path(), rows);
        peak_of(|| {
            let plan = Plan::build(&timeline, options()).unwrap();
            assert_eq!(plan.header().rows_retries, rows / 10);
            let mut sent = 0;
            for request in plan.requests() {
                sent += u64::from(request.unwrap().output_tokens == 7);
            }
            assert_eq!(sent, plan.header().requests);
        })
    };
    let (small, large) = (peak(40_000), peak(120_000));
    // 8,000 more retried requests, 16 bytes each and as much again while they are gathered; 16,000 more sessions that
    // are counted, 14 bytes each. A plan that kept its 80,000 more requests would need tens of megabytes.
    let allowed = 8_000 * 48 + 16_000 * 28 + (256 << 10);
    assert!(large < small + allowed, "{small} bytes for 40,000 rows, {large} for 120,000");
}
