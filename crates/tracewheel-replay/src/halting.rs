//! The words that all threads of a run read and any may say: that it is over and why, and when its measured phase began.

use crate::sync::{AtomicBool, AtomicI64, AtomicU8, Ordering};

/// Why a run stopped itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Abort {
    /// The recorder's queue is full.
    RecorderBehind = 1,
    /// The recorder or its disk failed.
    RecorderFailed = 2,
    /// Too many requests failed in a row, or the target can't be reached.
    TargetFailing = 3,
    /// The plan can't be read on.
    PlanUnreadable = 4,
    /// A thread of the run died.
    ThreadDied = 5,
    /// A hook did not bring the target into its state.
    HookFailed = 6,
}

impl Abort {
    fn from_code(code: u8) -> Option<Self> {
        [
            Abort::RecorderBehind,
            Abort::RecorderFailed,
            Abort::TargetFailing,
            Abort::PlanUnreadable,
            Abort::ThreadDied,
            Abort::HookFailed,
        ]
        .into_iter()
        .find(|abort| *abort as u8 == code)
    }
}

/// How a run is being ended; each level includes the ones before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Halt {
    /// It is not.
    Running = 0,
    /// A person asked for no further releases.
    Drain = 1,
    /// The time for draining is over.
    DrainLimit = 2,
    /// A person cut it.
    Cut = 3,
    /// It stopped itself.
    Abort = 4,
}

/// How the run is being ended, and why where it stopped itself.
#[derive(Debug)]
pub(crate) struct Halting {
    abort: AtomicU8,
    halt: AtomicU8,
}

impl Halting {
    pub(crate) fn new() -> Self {
        Halting { abort: AtomicU8::new(0), halt: AtomicU8::new(Halt::Running as u8) }
    }

    /// Ends the run for `why`, unless it is being ended for another reason already. Whoever sees [`Halt::Abort`] finds
    /// a reason.
    pub(crate) fn abort(&self, why: Abort) {
        let _ = self.abort.compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire);
        self.raise(Halt::Abort);
    }

    /// Why the run stopped itself, if it did.
    pub(crate) fn aborted(&self) -> Option<Abort> {
        Abort::from_code(self.abort.load(Ordering::Acquire))
    }

    /// Goes to `halt` unless the run has gone further already.
    pub(crate) fn raise(&self, halt: Halt) {
        self.halt.fetch_max(halt as u8, Ordering::AcqRel);
    }

    /// How the run is being ended.
    pub(crate) fn level(&self) -> Halt {
        match self.halt.load(Ordering::Acquire) {
            0 => Halt::Running,
            1 => Halt::Drain,
            2 => Halt::DrainLimit,
            3 => Halt::Cut,
            _ => Halt::Abort,
        }
    }
}

/// A point on the run clock that is set once.
#[derive(Debug)]
pub(crate) struct StartMark {
    at_ns: AtomicI64,
    is_set: AtomicBool,
}

impl StartMark {
    pub(crate) fn new() -> Self {
        StartMark { at_ns: AtomicI64::new(0), is_set: AtomicBool::new(false) }
    }

    pub(crate) fn set(&self, at_ns: i64) {
        self.at_ns.store(at_ns, Ordering::Relaxed);
        self.is_set.store(true, Ordering::Release);
    }

    pub(crate) fn get(&self) -> Option<i64> {
        self.is_set.load(Ordering::Acquire).then(|| self.at_ns.load(Ordering::Relaxed))
    }
}
