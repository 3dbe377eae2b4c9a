//! How late each way of waiting is, in one run: prints p50, p90, p99 and the largest lateness in microseconds.
//!
//! The ways take turns of a few hundred waits each, so that a busy minute of the machine falls on all of them; each has
//! a thread of its own, because timer slack belongs to the thread. Nothing is asserted but that no wait ends early.
//! `cargo bench -p benches --bench waiter`; without `--bench` (under `cargo test`) it makes a few waits only.
#![allow(clippy::print_stdout, missing_docs)]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use tracewheel_clock::{Clock, PreciseWaiter, RunClock, RunNs, WaiterOptions, blocking, tighten_timer_slack};

/// Gaps between deadlines are spread evenly up to this, nanoseconds.
const LONGEST_GAP_NS: u64 = 4_000_000;

/// A way of waiting: waits for a turn's deadlines and says how late it was for each.
struct Way {
    name: &'static str,
    turns: SyncSender<Vec<i64>>,
    lateness: Receiver<Vec<i64>>,
    all: Vec<i64>,
}

impl Way {
    /// `make` is called on the thread that waits.
    fn new<W: FnMut(RunNs)>(
        name: &'static str,
        clock: &Arc<RunClock>,
        make: impl FnOnce(Arc<RunClock>) -> W + Send + 'static,
    ) -> Self {
        let (turns, gaps) = sync_channel::<Vec<i64>>(1);
        let (late, lateness) = sync_channel(1);
        let clock = Arc::clone(clock);
        thread::spawn(move || {
            let mut wait = make(Arc::clone(&clock));
            while let Ok(gaps) = gaps.recv() {
                let mut turn = Vec::with_capacity(gaps.len());
                for gap_ns in gaps {
                    let at = clock.now().plus(gap_ns);
                    wait(at);
                    turn.push(clock.now().since(at));
                }
                if late.send(turn).is_err() {
                    return;
                }
            }
        });
        Self { name, turns, lateness, all: Vec::new() }
    }

    fn take_turn(&mut self, gaps: &[i64]) {
        self.turns.send(gaps.to_vec()).expect("the thread waits for turns");
        self.all.extend(self.lateness.recv().expect("the thread answers each turn"));
    }
}

fn naive(clock: Arc<RunClock>) -> impl FnMut(RunNs) {
    move |at| blocking::sleep(at.since(clock.now()))
}

fn nanosleep(clock: &RunClock) -> impl FnMut(RunNs) + use<> {
    let origin_ns = clock.monotonic_origin_ns();
    move |at| {
        let at_ns = at.0 + origin_ns;
        let at = TimeSpec::new(at_ns / 1_000_000_000, at_ns % 1_000_000_000);
        clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at).expect("slept");
    }
}

fn precise(clock: Arc<RunClock>, options: WaiterOptions) -> impl FnMut(RunNs) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let mut waiter = {
        let _inside = runtime.enter();
        PreciseWaiter::with_options(clock, options).expect("a timer")
    };
    move |at| {
        runtime.block_on(waiter.wait_until(at)).expect("waited");
    }
}

fn main() {
    let full = std::env::args().any(|argument| argument == "--bench");
    let (turns, waits) = if full { (20, 100) } else { (1, 5) };
    let clock = RunClock::start();
    let mut ways = [
        Way::new("sleep for the rest (naive)", &clock, naive),
        Way::new("clock_nanosleep", &clock, |clock| nanosleep(&clock)),
        Way::new("clock_nanosleep, slack 1 ns", &clock, |clock| {
            tighten_timer_slack();
            nanosleep(&clock)
        }),
        Way::new("PreciseWaiter, no spin", &clock, |clock| {
            precise(clock, WaiterOptions { max_spin_ns: 0, ..WaiterOptions::default() })
        }),
        Way::new("PreciseWaiter", &clock, |clock| precise(clock, WaiterOptions::default())),
    ];
    let mut state = 7u64;
    for _ in 0..turns {
        let gaps: Vec<i64> = (0..waits)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                ((state >> 33) % LONGEST_GAP_NS) as i64
            })
            .collect();
        for way in &mut ways {
            way.take_turn(&gaps);
        }
    }
    println!(
        "{:<28} {:>8} {:>8} {:>8} {:>9}   lateness, µs; {} waits each",
        "",
        "p50",
        "p90",
        "p99",
        "max",
        turns * waits
    );
    for way in &mut ways {
        print_way(way);
    }
}

fn print_way(way: &mut Way) {
    way.all.sort_unstable();
    assert!(way.all[0] >= 0, "{} was early", way.name);
    let rank = |percent: usize| way.all[(way.all.len() * percent).div_ceil(100) - 1] as f64 / 1e3;
    println!("{:<28} {:>8.1} {:>8.1} {:>8.1} {:>9.1}", way.name, rank(50), rank(90), rank(99), rank(100));
}
