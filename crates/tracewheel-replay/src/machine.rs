//! What `/proc` says about the machine and about this process. Whatever cannot be read is unknown, never an error.

use std::fs;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracewheel_record::manifest::MachineSection;

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
    /// Resident memory of this process.
    pub(crate) rss_bytes: Option<i64>,
}

impl Usage {
    /// Reads the counters as they are now.
    pub(crate) fn read() -> Usage {
        let (busy_ns, steal_ns) = machine_times(&text("/proc/stat")).unzip();
        Usage {
            process_ns: process_time(&text("/proc/self/stat")),
            busy_ns,
            steal_ns,
            rss_bytes: kilobytes(&text("/proc/self/status"), "VmRSS:"),
        }
    }

    /// CPU times since `earlier`.
    pub(crate) fn since(&self, earlier: &Usage) -> Usage {
        let difference = |now: Option<i64>, then: Option<i64>| now.zip(then).map(|(now, then)| now - then);
        Usage {
            process_ns: difference(self.process_ns, earlier.process_ns),
            busy_ns: difference(self.busy_ns, earlier.busy_ns),
            steal_ns: difference(self.steal_ns, earlier.steal_ns),
            rss_bytes: self.rss_bytes,
        }
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
        kernel_stamps: None,
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

/// Busy and stolen time from the first line of `/proc/stat`: user nice system idle iowait irq softirq steal.
fn machine_times(stat: &str) -> Option<(i64, i64)> {
    let ticks: Vec<i64> =
        stat.lines().next()?.split_ascii_whitespace().skip(1).map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
    Some(((user + nice + system + irq + softirq) * TICK_NS, steal * TICK_NS))
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
        assert_eq!(machine_times("cpu  1 2 3 400 5 6 7 8 9 10\n"), Some((190_000_000, 80_000_000)));
        assert_eq!(kilobytes("A: 1 kB\nVmRSS:\t 12 kB\n", "VmRSS:"), Some(12_288));
        assert_eq!(process_time(""), None);
    }

    #[test]
    fn this_machine_says_something_about_itself() {
        let usage = Usage::read();
        assert!(usage.process_ns.is_some() && usage.busy_ns > Some(0) && usage.rss_bytes > Some(0));
        let machine = describe(1);
        assert!(machine.kernel.is_some() && machine.cores >= Some(1) && machine.scheduling_class.is_some());
    }
}
