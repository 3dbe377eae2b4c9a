//! Waiting to the microsecond on a `current_thread` runtime.
//!
//! A runtime's own timers count in milliseconds. A `timerfd` armed with the absolute time wakes the event loop tens of
//! microseconds late, and by how much is the machine's and the hour's. So the timer is armed earlier by a margin that
//! the waiter learns from its own wake-ups, and what remains is spun away: at most [`WaiterOptions::max_spin_ns`] a
//! wait and [`WaiterOptions::max_spin_percent`] of the time.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::latency::WakeLatency;
use crate::spin::SpinAllowance;
use crate::timer::Timer;
use crate::{Clock, RunClock, RunNs};

/// Margin before anything is learned, nanoseconds.
const FIRST_MARGIN_NS: i64 = 60_000;
/// Added to the learned latency, nanoseconds: what reading the clock and leaving the event loop take.
const MARGIN_EXTRA_NS: i64 = 2_000;

/// How a [`PreciseWaiter`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterOptions {
    /// Longest spin before a deadline, nanoseconds; 0 never spins.
    pub max_spin_ns: i64,
    /// Largest share of the time that may go into spinning, percent. Beyond it the waiter falls back to the bare
    /// timer until the share has sunk.
    pub max_spin_percent: u8,
}

impl Default for WaiterOptions {
    /// 80 µs, half of the time.
    fn default() -> Self {
        Self { max_spin_ns: 80_000, max_spin_percent: 50 }
    }
}

/// Waits for points of the run clock: a `timerfd` armed a little early, then a bounded spin.
///
/// For one task of a `current_thread` runtime, which should look at its event queue often (`event_interval` of a few
/// ticks): the task is woken when the runtime looks. Any poll sees the time itself, so a task that is woken by something
/// else near the deadline does not wait for the timer's event. A deadline within the margin is waited for without giving
/// the thread away: whoever serves many such in a row should yield now and then.
#[derive(Debug)]
pub struct PreciseWaiter {
    clock: Arc<RunClock>,
    timer: Timer,
    armed: Option<Armed>,
    latency: WakeLatency,
    allowance: SpinAllowance,
    max_spin_ns: i64,
}

/// What the timer is set to.
#[derive(Clone, Copy, Debug)]
struct Armed {
    /// The deadline it serves.
    at: RunNs,
    /// When it expires: the deadline less the margin.
    expires: RunNs,
    /// Whether its expiry has been learned from.
    noted: bool,
}

impl PreciseWaiter {
    /// A waiter on the current runtime's event loop, with the default options. Also tightens the calling thread's
    /// timer slack, so it is made on the thread that will wait.
    ///
    /// # Errors
    /// The system refuses a timer.
    ///
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub fn new(clock: Arc<RunClock>) -> io::Result<Self> {
        Self::with_options(clock, WaiterOptions::default())
    }

    /// As [`Self::new`], with options.
    ///
    /// # Errors
    /// As [`Self::new`].
    ///
    /// # Panics
    /// As [`Self::new`].
    pub fn with_options(clock: Arc<RunClock>, options: WaiterOptions) -> io::Result<Self> {
        tighten_timer_slack();
        let max_spin_ns = options.max_spin_ns.max(0);
        let allowance = SpinAllowance::new(options.max_spin_percent, max_spin_ns, clock.now().0);
        Ok(Self {
            timer: Timer::new()?,
            clock,
            armed: None,
            latency: WakeLatency::new(FIRST_MARGIN_NS),
            allowance,
            max_spin_ns,
        })
    }

    /// Waits until `at`, never shorter, and returns the time at which it stopped waiting.
    ///
    /// Cancel-safe: it may be dropped at any point (a branch of `select!` that lost) and called again with another
    /// deadline, earlier or later. The timer is then armed anew; with the same deadline nothing is done twice.
    ///
    /// # Errors
    /// The timer can't be armed.
    pub async fn wait_until(&mut self, at: RunNs) -> io::Result<RunNs> {
        poll_fn(|cx| self.poll_until(cx, at)).await
    }

    /// As [`Self::wait_until`], for hand-written futures.
    ///
    /// # Errors
    /// The timer can't be armed.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, at: RunNs) -> Poll<io::Result<RunNs>> {
        loop {
            let now = self.clock.now();
            self.note_expiry(now);
            if now >= at {
                return Poll::Ready(Ok(now));
            }
            let armed = self.armed.filter(|armed| armed.at == at);
            let expires = armed.map_or_else(|| at.plus(-self.margin_ns()), |armed| armed.expires);
            if now >= expires {
                if self.allowance.take(at.since(now), now.0) {
                    return Poll::Ready(Ok(self.spin_until(at)));
                }
                self.arm(at, at)?;
            } else if armed.is_none() {
                self.arm(at, expires)?;
            }
            ready!(self.timer.poll_fired(cx))?;
            // A timer that counts otherwise than the clock may fire early: it is set again.
            self.armed = self.armed.filter(|armed| self.clock.now() >= armed.expires);
        }
    }

    /// How much earlier than a deadline the timer is armed at present, nanoseconds. Never above the longest spin.
    pub fn margin_ns(&mut self) -> i64 {
        (self.latency.estimate_ns() + MARGIN_EXTRA_NS).min(self.max_spin_ns)
    }

    /// Learns from an expiry that has not been looked at yet. The timer's own event is not asked for: a poll that
    /// comes for another reason says as well how late this task runs, and a system call here would delay a send.
    fn note_expiry(&mut self, now: RunNs) {
        if let Some(armed) = &mut self.armed
            && !armed.noted
            && now >= armed.expires
        {
            armed.noted = true;
            self.latency.record(now.since(armed.expires));
        }
    }

    fn arm(&mut self, at: RunNs, expires: RunNs) -> io::Result<()> {
        let absolute_ns = expires.0.saturating_add(self.clock.monotonic_origin_ns());
        self.timer.set(absolute_ns)?;
        self.armed = Some(Armed { at, expires, noted: false });
        Ok(())
    }

    fn spin_until(&self, at: RunNs) -> RunNs {
        loop {
            let now = self.clock.now();
            if now >= at {
                return now;
            }
            std::hint::spin_loop();
        }
    }
}

/// Asks the kernel to wake the calling thread's timers with 1 ns of slack instead of the usual 50 µs. Returns whether
/// it agreed.
pub fn tighten_timer_slack() -> bool {
    nix::sys::prctl::set_timerslack(1).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MS: i64 = 1_000_000;

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime").block_on(future)
    }

    fn waiter(clock: &Arc<RunClock>, max_spin_ns: i64, max_spin_percent: u8) -> PreciseWaiter {
        PreciseWaiter::with_options(Arc::clone(clock), WaiterOptions { max_spin_ns, max_spin_percent })
            .expect("a timer")
    }

    #[test]
    fn it_never_returns_early_whatever_its_options() {
        let clock = RunClock::start();
        block_on(async {
            for (max_spin_ns, percent) in [(80_000, 50), (0, 50), (80_000, 0), (5_000_000, 100)] {
                let mut waiter = waiter(&clock, max_spin_ns, percent);
                for n in 0..200 {
                    let at = clock.now().plus(n * 5_000);
                    let woke = waiter.wait_until(at).await.expect("the timer works");
                    assert!(woke >= at && clock.now() >= woke);
                }
            }
        });
    }

    #[test]
    fn a_deadline_in_the_past_is_over_at_once() {
        let clock = RunClock::start();
        block_on(async {
            let mut waiter = waiter(&clock, 80_000, 50);
            for at in [RunNs(i64::MIN), RunNs(-1), RunNs::ZERO] {
                assert!(waiter.wait_until(at).await.expect("no timer needed") >= at);
            }
        });
    }

    #[test]
    fn a_wait_that_lost_a_select_can_be_followed_by_an_earlier_one() {
        let clock = RunClock::start();
        block_on(async {
            let mut far = waiter(&clock, 80_000, 50);
            let mut near = waiter(&clock, 80_000, 50);
            let start = clock.now();
            for deadline in [RunNs::MAX, start.plus(3_600_000 * MS), start.plus(60_000 * MS)] {
                tokio::select! {
                    biased;
                    _ = far.wait_until(deadline) => panic!("an hour has not passed"),
                    woke = near.wait_until(clock.now().plus(2 * MS)) => { woke.expect("the timer works"); }
                }
            }
            let at = clock.now().plus(5 * MS);
            assert!(far.wait_until(at).await.expect("armed anew") >= at);
            assert!(clock.now() < start.plus(60_000 * MS), "it did not wait for the first deadline");
        });
    }

    #[test]
    fn a_wait_that_lost_a_select_can_be_followed_by_a_later_one() {
        let clock = RunClock::start();
        block_on(async {
            let mut waiter = waiter(&clock, 80_000, 50);
            for n in 1..50 {
                let soon = clock.now().plus(n * 20_000);
                tokio::select! {
                    biased;
                    woke = waiter.wait_until(soon) => assert!(woke.expect("the timer works") >= soon),
                    () = tokio::task::yield_now() => {}
                }
                let later = soon.plus(3 * MS);
                assert!(waiter.wait_until(later).await.expect("armed anew") >= later);
            }
        });
    }

    #[test]
    fn waiters_of_several_tasks_each_keep_their_own_deadline() {
        let clock = RunClock::start();
        let met = block_on(async {
            let (sender, mut receiver) = tokio::sync::mpsc::channel(8);
            let base = clock.now().plus(20 * MS);
            for n in [3i64, 1, 2, 0] {
                let (clock, sender) = (Arc::clone(&clock), sender.clone());
                tokio::spawn(async move {
                    let at = base.plus(n * 20 * MS);
                    let woke = waiter(&clock, 80_000, 50).wait_until(at).await.expect("the timer works");
                    sender.send((at, woke)).await.expect("the receiver waits");
                });
            }
            drop(sender);
            let mut met = Vec::new();
            while let Some(one) = receiver.recv().await {
                met.push(one);
            }
            met
        });
        assert_eq!(met.len(), 4);
        assert!(met.iter().all(|(at, woke)| woke >= at));
    }

    #[test]
    fn the_margin_is_learned_and_stays_within_the_longest_spin() {
        let clock = RunClock::start();
        block_on(async {
            let mut waiter = waiter(&clock, 80_000, 50);
            for _ in 0..40 {
                let at = clock.now().plus(500_000);
                waiter.wait_until(at).await.expect("the timer works");
                assert!((0..=80_000).contains(&waiter.margin_ns()));
            }
        });
    }

    #[test]
    fn waiting_leaves_the_thread_to_others() {
        let clock = RunClock::start();
        block_on(async {
            let at = clock.now().plus(50 * MS);
            let mut waiter = waiter(&clock, 80_000, 50);
            let blocker = std::thread::spawn(|| crate::blocking::sleep(1));
            let waited = tokio::spawn(async move { waiter.wait_until(at).await });
            let mut polls = 0u64;
            while !waited.is_finished() {
                polls += 1;
                tokio::task::yield_now().await;
            }
            assert!(polls > 1, "other tasks ran meanwhile");
            assert!(waited.await.expect("no panic").expect("the timer works") >= at);
            blocker.join().expect("slept");
        });
        assert!(Duration::from_nanos(clock.now().0.unsigned_abs()) >= Duration::from_millis(50));
    }

    #[test]
    fn timer_slack_can_be_tightened() {
        assert!(tighten_timer_slack());
        assert_eq!(nix::sys::prctl::get_timerslack(), Ok(1));
    }
}
