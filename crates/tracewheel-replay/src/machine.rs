//! What `/proc` says about the machine and about this process. Whatever cannot be read is unknown, never an error.

mod cgroup;
mod sockets;

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracewheel_record::manifest::MachineSection;

pub(crate) use cgroup::{CpuShare, CpuShareUsage};
pub(crate) use sockets::receive_backlog;

/// Nanoseconds in a tick of `/proc`'s CPU times: Linux shows them at 100 a second on every machine.
const TICK_NS: i64 = 10_000_000;

/// CPU time used so far, and memory now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Of this process, all threads, user and system.
    pub(crate) process_ns: Option<i64>,
    /// Of the machine, all cores, everything but idle and waiting for disks.
    pub(crate) busy_ns: Option<i64>,
    /// Taken by the hypervisor, all cores.
    pub(crate) steal_ns: Option<i64>,
    /// All the time that all cores had.
    pub(crate) capacity_ns: Option<i64>,
    /// Resident memory of this process.
    pub(crate) rss_bytes: Option<i64>,
    /// Pressure and throttling.
    pub(crate) share: CpuShareUsage,
}

impl Usage {
    /// Reads the counters as they are now.
    pub(crate) fn read(share: &CpuShare) -> Usage {
        let machine = machine_times(&text("/proc/stat"));
        Usage {
            process_ns: process_time(&text("/proc/self/stat")),
            busy_ns: machine.map(|times| times.busy_ns),
            steal_ns: machine.map(|times| times.steal_ns),
            capacity_ns: machine.map(|times| times.capacity_ns),
            rss_bytes: kilobytes(&text("/proc/self/status"), "VmRSS:"),
            share: share.read(),
        }
    }

    /// CPU times since `earlier`.
    pub(crate) fn since(&self, earlier: &Usage) -> Usage {
        let (now, then) = (&self.share, &earlier.share);
        Usage {
            process_ns: difference(self.process_ns, earlier.process_ns),
            busy_ns: difference(self.busy_ns, earlier.busy_ns),
            steal_ns: difference(self.steal_ns, earlier.steal_ns),
            capacity_ns: difference(self.capacity_ns, earlier.capacity_ns),
            rss_bytes: self.rss_bytes,
            share: CpuShareUsage {
                pressure_ns: difference(now.pressure_ns, then.pressure_ns),
                throttled_ns: difference(now.throttled_ns, then.throttled_ns),
                throttled_periods: difference(now.throttled_periods, then.throttled_periods),
            },
        }
    }
}

/// A counter's growth; unknown where either reading is.
pub(crate) fn difference(now: Option<i64>, then: Option<i64>) -> Option<i64> {
    now.zip(then).map(|(now, then)| now - then)
}

/// What a thread has had of the CPUs so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ThreadTime {
    /// Time that it ran.
    pub(crate) cpu_ns: i64,
    /// Time for which it could have run and waited for a CPU.
    pub(crate) run_delay_ns: i64,
}

impl ThreadTime {
    /// Of a thread of this process; `None` once it has ended, and where the kernel does not tell.
    pub(crate) fn of(thread: i32) -> Option<Self> {
        Self::parse(&text(&format!("/proc/self/task/{thread}/schedstat")))
    }

    /// `RAN WAITED SLICES`, in nanoseconds.
    fn parse(schedstat: &str) -> Option<Self> {
        let mut fields = schedstat.split_ascii_whitespace();
        Some(Self { cpu_ns: fields.next()?.parse().ok()?, run_delay_ns: fields.next()?.parse().ok()? })
    }
}

/// The machine's part of the manifest.
pub(crate) fn describe(workers: u32) -> MachineSection {
    let uname = nix::sys::utsname::uname().ok();
    let cpuinfo = text("/proc/cpuinfo");
    MachineSection {
        cpu: field(&cpuinfo, "model name").map(str::to_owned),
        cores: std::thread::available_parallelism().ok().and_then(|cores| u32::try_from(cores.get()).ok()),
        memory_bytes: kilobytes(&text("/proc/meminfo"), "MemTotal:")
            .and_then(|bytes| u64::try_from(bytes).ok()),
        os: uname.as_ref().map(|uname| uname.sysname().to_string_lossy().into_owned()),
        kernel: uname.as_ref().map(|uname| uname.release().to_string_lossy().into_owned()),
        clock_source: Some(text("/sys/devices/system/clocksource/clocksource0/current_clocksource"))
            .map(|source| source.trim().to_owned())
            .filter(|source| !source.is_empty()),
        scheduling_class: scheduling_class(&text("/proc/self/stat")).map(str::to_owned),
        timer_slack_ns: Some(1),
        workers: Some(workers),
        ..MachineSection::default()
    }
}

/// Lets this process open as many files as the system allows it: every stream in flight holds one, and the usual soft
/// limit of 1,024 is meant for programs that use `select`. A refusal leaves the limit as it was. What it is now; `None` where
/// the system does not tell.
pub(crate) fn raise_descriptor_limit() -> Option<u64> {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _refused = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft)
}

/// This host's name.
pub(crate) fn hostname() -> Option<String> {
    nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned())
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// User and system time: fields 14 and 15 of `/proc/self/stat`, counted behind the name in parentheses.
fn process_time(stat: &str) -> Option<i64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: i64 = fields.nth(11)?.parse().ok()?;
    let system: i64 = fields.next()?.parse().ok()?;
    Some((user + system) * TICK_NS)
}

/// CPU times of a machine, all cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MachineTimes {
    busy_ns: i64,
    steal_ns: i64,
    capacity_ns: i64,
}

/// From the first line of `/proc/stat`: user nice system idle iowait irq softirq steal. What guests used is in user and nice.
fn machine_times(stat: &str) -> Option<MachineTimes> {
    let ticks: Vec<i64> =
        stat.lines().next()?.split_ascii_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some(MachineTimes {
        busy_ns: busy * TICK_NS,
        steal_ns: steal * TICK_NS,
        capacity_ns: (busy + idle + iowait + steal) * TICK_NS,
    })
}

/// The policy: field 41 of `/proc/self/stat`.
fn scheduling_class(stat: &str) -> Option<&'static str> {
    let policy: u32 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(38)?.parse().ok()?;
    ["other", "fifo", "rr", "batch", "iso", "idle", "deadline"].get(policy as usize).copied()
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn kilobytes(text: &str, name: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_ascii_whitespace().nth(1)?.parse::<i64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_texts_are_read() {
        let stat =
            "12 (a) b) R 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 17 0 0 1 0";
        assert_eq!(process_time(stat), Some(3_000_000_000));
        assert_eq!(scheduling_class(stat), Some("fifo"));
        let times = MachineTimes { busy_ns: 190_000_000, steal_ns: 80_000_000, capacity_ns: 4_320_000_000 };
        assert_eq!(machine_times("cpu  1 2 3 400 5 6 7 8 9 10\n"), Some(times));
        assert_eq!(machine_times("cpu  1 2 3\n"), None);
        let ran = ThreadTime { cpu_ns: 5_000, run_delay_ns: 208_622 };
        assert_eq!(ThreadTime::parse("5000 208622 1\n"), Some(ran));
        assert_eq!(ThreadTime::parse(""), None);
        assert_eq!(kilobytes("A: 1 kB\nVmRSS:\t 12 kB\n", "VmRSS:"), Some(12_288));
        assert_eq!(process_time(""), None);
    }

    #[test]
    fn this_machine_says_something_about_itself() {
        let usage = Usage::read(&CpuShare::find());
        assert!(usage.process_ns.is_some() && usage.busy_ns > Some(0) && usage.rss_bytes > Some(0));
        assert!(usage.capacity_ns > usage.busy_ns);
        let machine = describe(1);
        assert!(machine.kernel.is_some() && machine.cores >= Some(1) && machine.scheduling_class.is_some());
    }
}
