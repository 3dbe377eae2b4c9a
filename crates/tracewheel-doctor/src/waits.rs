//! How late each way of waiting wakes, the ways in turns: a busy moment of the machine falls on all of them.
//!
//! Each way has a thread of its own, because timer slack belongs to the thread.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use serde::Serialize;
use tracewheel_clock::{Clock, PreciseWaiter, RunClock, RunNs, WaiterOptions, blocking, tighten_timer_slack};

use crate::Spread;

/// Gaps between deadlines are spread evenly up to this.
const LONGEST_GAP_NS: u64 = 4_000_000;

/// How many waits are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// A few, to see that it works.
    Trial,
    /// 400 of each way: about 4 s.
    Full,
    /// 2,000 of each way: about 20 s.
    Long,
}

/// How late one way of waiting was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The way.
    pub method: &'static str,
    /// Woken − asked for; never negative.
    pub lateness: Spread,
}

/// The way that replays wait.
pub const REPLAY: &str = "timer and spin, as a replay waits";

/// Measures all ways.
pub fn measure(effort: Effort) -> Vec<Wait> {
    let (turns, waits) = match effort {
        Effort::Trial => (1, 5),
        Effort::Full => (8, 50),
        Effort::Long => (20, 100),
    };
    let clock = RunClock::start();
    let mut ways = [
        Way::new("sleep for the rest", &clock, naive),
        Way::new("clock_nanosleep", &clock, |clock| nanosleep(&clock)),
        Way::new("clock_nanosleep, slack 1 ns", &clock, |clock| {
            tighten_timer_slack();
            nanosleep(&clock)
        }),
        Way::new("timer without spin", &clock, |clock| {
            precise(clock, WaiterOptions { max_spin_ns: 0, ..WaiterOptions::default() })
        }),
        Way::new(REPLAY, &clock, |clock| precise(clock, WaiterOptions::default())),
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
    ways.into_iter().map(|way| Wait { method: way.name, lateness: Spread::of(way.all) }).collect()
}

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
        // A signal ends it early; the rest is waited for then.
        while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at).is_err() {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_waiting_ends_early() {
        let waits = measure(Effort::Trial);
        assert_eq!(waits.len(), 5);
        for wait in waits {
            assert_eq!(wait.lateness.n, 5, "{}", wait.method);
            assert!(wait.lateness.p50_ns >= Some(0) && wait.lateness.max_ns >= wait.lateness.p50_ns);
        }
    }
}
