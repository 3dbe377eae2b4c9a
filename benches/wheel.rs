//! The timer wheel beside a binary heap, in the same run: quote the ratio, not the figures.
//!
//! `fill_and_drain`: all in, then all out. `hold`: with so many pending, the earliest out and a new one in, again and
//! again; this is what a replay does. `set_and_cancel`: a time-out that never comes, which the heap can only mark as
//! dead and carry along.
#![allow(missing_docs)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tracewheel_wheel::Wheel;

const PENDING: [u64; 2] = [100_000, 1_000_000];
/// Mean gap between pending deadlines: 20,000 a second.
const GAP_NS: i64 = 50_000;
const TIMEOUT_NS: i64 = 60_000_000_000;
/// Steps measured at a time.
const STEPS: u64 = 10_000;

type Heap = BinaryHeap<Reverse<(i64, u64, u32)>>;

/// A small generator (splitmix64), so that both are given the same deadlines.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: i64) -> i64 {
        (self.next() % limit.unsigned_abs()) as i64
    }
}

fn deadlines(pending: u64) -> Vec<i64> {
    let mut chance = Chance(7);
    (0..pending).map(|_| chance.below(pending as i64 * GAP_NS)).collect()
}

fn filled_wheel(deadlines: &[i64]) -> Wheel<u32> {
    let mut wheel = Wheel::with_capacity(0, deadlines.len() + STEPS as usize);
    for (n, &deadline_ns) in deadlines.iter().enumerate() {
        wheel.insert(deadline_ns, n as u32);
    }
    wheel
}

fn filled_heap(deadlines: &[i64]) -> Heap {
    let mut heap = Heap::with_capacity(deadlines.len() + STEPS as usize);
    for (n, &deadline_ns) in deadlines.iter().enumerate() {
        heap.push(Reverse((deadline_ns, n as u64, n as u32)));
    }
    heap
}

fn fill_and_drain(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fill_and_drain");
    group.sample_size(10);
    for pending in PENDING {
        let deadlines = deadlines(pending);
        group.throughput(Throughput::Elements(pending));
        group.bench_with_input(BenchmarkId::new("wheel", pending), &deadlines, |bencher, deadlines| {
            bencher.iter(|| {
                let mut wheel = filled_wheel(deadlines);
                let mut last_ns = i64::MIN;
                while let Some((deadline_ns, _)) = wheel.pop_due(i64::MAX) {
                    assert!(deadline_ns >= last_ns);
                    last_ns = deadline_ns;
                }
            });
        });
        group.bench_with_input(BenchmarkId::new("heap", pending), &deadlines, |bencher, deadlines| {
            bencher.iter(|| {
                let mut heap = filled_heap(deadlines);
                let mut last_ns = i64::MIN;
                while let Some(Reverse((deadline_ns, ..))) = heap.pop() {
                    assert!(deadline_ns >= last_ns);
                    last_ns = deadline_ns;
                }
            });
        });
    }
    group.finish();
}

fn hold(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hold");
    group.sample_size(20);
    group.throughput(Throughput::Elements(STEPS));
    for pending in PENDING {
        let deadlines = deadlines(pending);
        let reach_ns = pending as i64 * GAP_NS * 2;
        let (mut wheel, mut chance) = (filled_wheel(&deadlines), Chance(11));
        group.bench_function(BenchmarkId::new("wheel", pending), |bencher| {
            bencher.iter(|| {
                for _ in 0..STEPS {
                    // As a worker does: ask when, then pop at that time.
                    let at_ns = wheel.next_deadline().expect("never empty");
                    let (deadline_ns, n) = wheel.pop_due(at_ns).expect("due");
                    wheel.insert(deadline_ns + chance.below(reach_ns), n);
                }
            });
        });
        let (mut heap, mut chance) = (filled_heap(&deadlines), Chance(11));
        let mut inserted = pending;
        group.bench_function(BenchmarkId::new("heap", pending), |bencher| {
            bencher.iter(|| {
                for _ in 0..STEPS {
                    let Reverse((at_ns, ..)) = *heap.peek().expect("never empty");
                    let Some(Reverse((deadline_ns, _, n))) = heap.pop() else { unreachable!("peeked") };
                    assert!(at_ns == deadline_ns);
                    heap.push(Reverse((deadline_ns + chance.below(reach_ns), inserted, n)));
                    inserted += 1;
                }
            });
        });
    }
    group.finish();
}

fn set_and_cancel(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("set_and_cancel");
    group.sample_size(20);
    group.throughput(Throughput::Elements(STEPS));
    for pending in PENDING {
        let deadlines = deadlines(pending);
        group.bench_function(BenchmarkId::new("wheel", pending), |bencher| {
            bencher.iter_batched_ref(
                || filled_wheel(&deadlines),
                |wheel| {
                    for n in 0..STEPS {
                        let key = wheel.insert(TIMEOUT_NS + n as i64, 0);
                        black_box(wheel.cancel(key));
                    }
                },
                BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("heap (insert only)", pending), |bencher| {
            bencher.iter_batched_ref(
                || filled_heap(&deadlines),
                |heap| {
                    for n in 0..STEPS {
                        heap.push(Reverse((TIMEOUT_NS + n as i64, n, 0)));
                    }
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(wheel, fill_and_drain, hold, set_and_cancel);
criterion_main!(wheel);
