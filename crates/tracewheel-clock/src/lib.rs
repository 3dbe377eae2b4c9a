//! The only place that reads time: monotonic run clock, its offset to wall time, a virtual clock, precise waiting.
//!
//! Everything in a run is stamped in [`RunNs`], nanoseconds of `CLOCK_MONOTONIC` since the run's start. Wall time
//! enters twice only: to say when a run happened ([`unix_now_ns`], [`Clock::wall`]) and to bring the kernel's receive
//! stamps, which are wall time, onto the run clock ([`RunClock::wall_to_run`]).

pub mod blocking;
mod latency;
mod offset;
mod run_clock;
mod run_ns;
mod spin;
mod thread_cpu;
mod timer;
mod virtual_clock;
mod waiter;

pub use crate::offset::OffsetSample;
pub use crate::run_clock::{Clock, RunClock, unix_now_ns};
pub use crate::run_ns::RunNs;
pub use crate::thread_cpu::thread_cpu_ns;
pub use crate::virtual_clock::VirtualClock;
pub use crate::waiter::{PreciseWaiter, WaiterOptions, tighten_timer_slack};
