//! A real-time scheduling class for the sending threads, and which cores they run on.
//!
//! A thread in a real-time class is preempted by no normal one, so it wakes when its timer says so, whatever else the
//! machine does. The price: nothing of the normal class runs on its core while it works, and the kernel knows no cap for
//! a single thread. So each sending thread watches its own CPU time and gives the class back when it would starve others.

use std::num::NonZero;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use thread_priority::{
    NormalThreadSchedulePolicy, RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue,
    ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use tracewheel_record::manifest::SchedulingChange;

/// Stretch of time over which CPU time is measured.
const WINDOW_NS: i64 = 200_000_000;
/// Share of one core, in percent, from which a sending thread starves others.
const MAX_PERCENT: i64 = 80;
/// Share below which it may have the class again.
const CALM_PERCENT: i64 = 50;
/// Calm that is asked for after the first step down; each further one doubles it.
const FIRST_CALM_NS: i64 = 2_000_000_000;
/// Longest calm that is asked for.
const MAX_CALM_NS: i64 = 64_000_000_000;
/// Changes that are kept one by one.
pub(crate) const KEPT_CHANGES: usize = 64;

/// A scheduling class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// `SCHED_OTHER`.
    Normal,
    /// `SCHED_FIFO`, at the lowest priority of its kind.
    Realtime,
}

impl Class {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Class::Normal => "other",
            Class::Realtime => "fifo",
        }
    }

    /// Puts the calling thread into this class.
    ///
    /// # Errors
    /// The system's words: mostly that the right (`CAP_SYS_NICE`, or `ulimit -r`) is missing.
    pub(crate) fn take(self) -> Result<(), String> {
        let (priority, policy) = match self {
            Class::Realtime => {
                (ThreadPriority::Min, ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo))
            }
            Class::Normal => (
                // The middle of its scale is niceness 0.
                ThreadPriorityValue::try_from(50).map_or(ThreadPriority::Min, ThreadPriority::Crossplatform),
                ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other),
            ),
        };
        set_thread_priority_and_policy(thread_native_id(), priority, policy).map_err(|error| match error {
            thread_priority::Error::OS(code) => std::io::Error::from_raw_os_error(code).to_string(),
            other => other.to_string(),
        })
    }
}

/// Why a sending thread changed its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It used most of a core for a whole window.
    Cpu,
    /// Prefetch or recorder fell behind.
    OthersBehind,
    /// It has been calm for long enough.
    Calm,
}

impl Why {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Why::Cpu => "cpu",
            Why::OthersBehind => "others_behind",
            Why::Calm => "calm",
        }
    }
}

/// When a sending thread gives the real-time class back and takes it again: a pure state machine over the thread's own
/// CPU time.
#[derive(Debug)]
pub(crate) struct Watch {
    class: Class,
    window_ns: i64,
    window_cpu_ns: i64,
    calm_since_ns: Option<i64>,
    calm_wanted_ns: i64,
}

impl Watch {
    /// A thread that has obtained the class, at `now_ns`.
    pub(crate) fn new(now_ns: i64, cpu_ns: i64) -> Self {
        Watch {
            class: Class::Realtime,
            window_ns: now_ns,
            window_cpu_ns: cpu_ns,
            calm_since_ns: None,
            calm_wanted_ns: FIRST_CALM_NS,
        }
    }

    /// Whether a window has passed, so that [`Self::look`] will say something new.
    pub(crate) fn is_due(&self, now_ns: i64) -> bool {
        now_ns - self.window_ns >= WINDOW_NS
    }

    /// Closes a window: the class to change to, and why. `cpu_ns` is the thread's CPU time so far; `behind` says that
    /// another thread of the run does not keep up.
    pub(crate) fn look(&mut self, now_ns: i64, cpu_ns: i64, behind: bool) -> Option<(Class, Why)> {
        let (wall_ns, used_ns) = (now_ns - self.window_ns, cpu_ns - self.window_cpu_ns);
        let opened_ns = self.window_ns;
        (self.window_ns, self.window_cpu_ns) = (now_ns, cpu_ns);
        let over = |percent: i64| used_ns.saturating_mul(100) > wall_ns.saturating_mul(percent);
        match self.class {
            Class::Realtime if over(MAX_PERCENT) || behind => {
                self.class = Class::Normal;
                self.calm_since_ns = None;
                Some((Class::Normal, if over(MAX_PERCENT) { Why::Cpu } else { Why::OthersBehind }))
            }
            Class::Realtime => None,
            Class::Normal if over(CALM_PERCENT) || behind => {
                self.calm_since_ns = None;
                None
            }
            Class::Normal => {
                let since_ns = *self.calm_since_ns.get_or_insert(opened_ns);
                if now_ns - since_ns < self.calm_wanted_ns {
                    return None;
                }
                self.class = Class::Realtime;
                self.calm_wanted_ns = (2 * self.calm_wanted_ns).min(MAX_CALM_NS);
                Some((Class::Realtime, Why::Calm))
            }
        }
    }

    /// The class could not be had again: it is not asked for any more.
    pub(crate) fn refused(&mut self) {
        self.class = Class::Normal;
        self.calm_wanted_ns = i64::MAX;
    }
}

/// What became of the real-time class and the cores, over all sending threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct SchedulingSeen {
    /// Sending threads that obtained the class.
    pub(crate) obtained: u32,
    /// Why one did not.
    pub(crate) refused: Option<String>,
    /// Why a thread could not be bound to its core.
    pub(crate) unpinned: Option<String>,
    pub(crate) step_downs: u64,
    /// The first ones.
    pub(crate) changes: Vec<SchedulingChange>,
}

/// Which cores the threads of a run are bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores {
    /// The n-th sending thread runs on the n-th of them, in turn.
    senders: Vec<u32>,
    /// Where the other threads run; empty: anywhere.
    others: Vec<u32>,
}

impl Cores {
    /// The cores that are asked for, held against those that this process may use.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn of(asked: &[u32]) -> Result<Option<Cores>, String> {
        if asked.is_empty() {
            return Ok(None);
        }
        let set = sched_getaffinity(Pid::from_raw(0)).map_err(|error| error.to_string())?;
        let allowed: Vec<u32> = (0u32..)
            .take(CpuSet::count())
            .filter(|core| set.is_set(*core as usize).unwrap_or(false))
            .collect();
        Self::among(asked, &allowed).map(Some)
    }

    fn among(asked: &[u32], allowed: &[u32]) -> Result<Cores, String> {
        if let Some(core) = asked.iter().find(|core| !allowed.contains(core)) {
            let listed: Vec<String> = allowed.iter().map(u32::to_string).collect();
            return Err(format!("core {core} is not one that this process may use: {}", listed.join(", ")));
        }
        let others = allowed.iter().copied().filter(|core| !asked.contains(core)).collect();
        Ok(Cores { senders: asked.to_vec(), others })
    }

    /// Binds the calling thread as the sending thread of this number.
    pub(crate) fn bind_sender(&self, number: usize) -> Result<(), String> {
        let at = NonZero::new(self.senders.len()).map_or(0, |cores| number % cores);
        self.senders.get(at..=at).map_or(Ok(()), bind)
    }

    /// Binds the calling thread to the cores that no sending thread is bound to, if there are any.
    pub(crate) fn bind_other(&self) -> Result<(), String> {
        if self.others.is_empty() { Ok(()) } else { bind(&self.others) }
    }
}

fn bind(cores: &[u32]) -> Result<(), String> {
    let mut set = CpuSet::new();
    let bound = cores.iter().try_for_each(|core| set.set(*core as usize));
    bound.and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of a thread that uses these shares of a core, in percent: what it changed to in each.
    fn run(watch: &mut Watch, start: &mut (i64, i64), shares: &[i64]) -> Vec<Option<(Class, Why)>> {
        let windows = shares.iter().map(|share| {
            (start.0, start.1) = (start.0 + WINDOW_NS, start.1 + WINDOW_NS / 100 * share);
            assert!(watch.is_due(start.0));
            watch.look(start.0, start.1, false)
        });
        windows.collect()
    }

    #[test]
    fn a_thread_that_takes_a_core_for_a_window_steps_down_and_up_again_after_a_calm() {
        let mut now = (0, 0);
        let mut watch = Watch::new(0, 0);
        assert!(!watch.is_due(WINDOW_NS - 1));
        let first = run(&mut watch, &mut now, &[10, 80, 81]);
        assert_eq!(first, [None, None, Some((Class::Normal, Why::Cpu))]);
        // Two seconds of calm are ten windows; a busy one begins them anew.
        let calm = run(&mut watch, &mut now, &[10, 10, 10, 60, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]);
        assert_eq!(calm[13], Some((Class::Realtime, Why::Calm)));
        assert!(calm[..13].iter().all(Option::is_none));
        // The next calm has to last twice as long.
        run(&mut watch, &mut now, &[99]);
        let longer = run(&mut watch, &mut now, &[10; 20]);
        assert!(longer[..19].iter().all(Option::is_none));
        assert_eq!(longer[19], Some((Class::Realtime, Why::Calm)));
    }

    #[test]
    fn a_recorder_that_falls_behind_takes_the_class_from_the_senders() {
        let mut watch = Watch::new(0, 0);
        assert_eq!(watch.look(WINDOW_NS, 0, true), Some((Class::Normal, Why::OthersBehind)));
        let calm = (2..=30).map(|window| watch.look(window * WINDOW_NS, 0, true));
        assert!(calm.into_iter().all(|change| change.is_none()), "not before they have caught up");
    }

    #[test]
    fn long_sleeps_are_one_window_and_a_class_once_refused_is_not_asked_for_again() {
        let mut watch = Watch::new(0, 0);
        assert_eq!(watch.look(3_600_000_000_000, 50 * WINDOW_NS, false), None);
        watch.refused();
        let hours = (2..100).map(|hour| watch.look(hour * 3_600_000_000_000, 50 * WINDOW_NS, false));
        assert!(hours.into_iter().all(|change| change.is_none()));
    }

    #[test]
    fn senders_get_the_named_cores_in_turn_and_the_other_threads_the_rest() {
        let cores = Cores::among(&[2, 3], &[0, 1, 2, 3]).unwrap();
        assert_eq!((cores.senders, cores.others), (vec![2, 3], vec![0, 1]));
        let all = Cores::among(&[0, 1], &[0, 1]).unwrap();
        assert!(all.others.is_empty() && all.bind_other().is_ok());
        let told = Cores::among(&[0, 9], &[0, 1]).unwrap_err();
        assert!(told.contains("core 9") && told.contains("0, 1"), "{told}");
        assert_eq!(Cores::of(&[]), Ok(None));
    }

    #[test]
    fn the_normal_class_can_always_be_had() {
        assert_eq!(Class::Normal.take(), Ok(()));
    }
}
