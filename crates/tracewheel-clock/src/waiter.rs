//! Waiting to the microsecond on a `current_thread` runtime.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::{RunClock, RunNs};

/// How a [`PreciseWaiter`] waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterOptions {
    /// Longest spin before a deadline, nanoseconds. 80 µs unless told otherwise; 0 never spins.
    pub max_spin_ns: i64,
    /// Largest share of the time that may go into spinning, percent. Beyond it the waiter falls back to the bare
    /// timer until the share has sunk.
    pub max_spin_percent: u8,
}

/// Waits for points of the run clock: a `timerfd` armed a little early, then a bounded spin.
#[derive(Debug)]
pub struct PreciseWaiter {
    _clock: Arc<RunClock>,
}

impl PreciseWaiter {
    /// A waiter on the current runtime's reactor, with the default options.
    ///
    /// # Errors
    /// The system refuses a timer, or the runtime has no I/O driver.
    pub fn new(clock: Arc<RunClock>) -> io::Result<Self> {
        Self::with_options(clock, WaiterOptions { max_spin_ns: 80_000, max_spin_percent: 50 })
    }

    /// As [`Self::new`], with options.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_options(clock: Arc<RunClock>, options: WaiterOptions) -> io::Result<Self> {
        let _ = options;
        Ok(Self { _clock: clock })
    }

    /// Waits until `at`, never shorter, and returns the time at which it stopped waiting.
    ///
    /// May be dropped at any point (a branch of `select!` that lost) and called again with another deadline, earlier
    /// or later: the timer is then armed anew.
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
        let _ = (cx, at);
        todo!()
    }
}

/// Asks the kernel to wake this thread's timers with 1 ns of slack instead of the usual 50 µs. Returns whether it did.
pub fn tighten_timer_slack() -> bool {
    todo!()
}
