//! What the system allows this process. Whatever cannot be read is unknown, never an error.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Pid;
use serde::Serialize;

/// Descriptors that a replay keeps for its own files.
const OWN_DESCRIPTORS: u64 = 48;
/// How long the kernel keeps a port that was closed from this side.
const TIME_WAIT_S: u64 = 60;
/// `CAP_SYS_NICE`, as a bit of the effective capabilities.
const CAP_SYS_NICE: u32 = 23;

/// What the system allows this process; null where it does not tell.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Limits {
    /// Open files now allowed. A replay raises it to the next by itself.
    pub open_files_soft: Option<u64>,
    /// Open files that a process may ask for.
    pub open_files_hard: Option<u64>,
    /// Local ports for connections to one address.
    pub local_ports: Option<u64>,
    /// Streams over HTTP/1.1 that can be in flight at once to one address: each takes a descriptor and a port.
    pub streams_at_once: Option<u64>,
    /// Connections a second to one address where each request takes a fresh one: a closed port rests for 60 s.
    pub fresh_connections_per_second: Option<u64>,
    /// Cores that this process may run on.
    pub cores: Option<u64>,
    /// Cores' worth of time that the control group grants, below which it throttles; null where it does not limit.
    pub quota_cores: Option<f64>,
    /// Memory that the control group grants, in bytes; null where it does not limit.
    pub memory_bytes: Option<u64>,
    /// Memory that is free or can be freed, in bytes.
    pub available_bytes: Option<u64>,
    /// Clock sources that the kernel could use.
    pub clock_sources: Vec<String>,
    /// The frequency governor of the first core.
    pub governor: Option<String>,
    /// Whether this is a virtual machine.
    pub virtual_machine: Option<bool>,
    /// Mean number of tasks that ran or wanted to, over the last minute.
    pub load_1_minute: Option<f64>,
    /// Share of the last 10 s in which some task waited for a core, percent.
    pub cpu_pressure_percent: Option<f64>,
    /// Whether a real-time class may be asked for: by capability or by limit.
    pub realtime: Option<bool>,
}

impl Limits {
    /// Reads them as they are now.
    pub fn read() -> Self {
        Self::read_from(Path::new("/"))
    }

    /// Reads what stands in files below `root`, the rest from the system.
    fn read_from(root: &Path) -> Self {
        let text = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let files = getrlimit(Resource::RLIMIT_NOFILE).ok();
        let ports = ports(&text("proc/sys/net/ipv4/ip_local_port_range"));
        let hard = files.map(|(_, hard)| hard);
        let groups = Groups::of(root, &text("proc/self/cgroup"));
        Limits {
            open_files_soft: files.map(|(soft, _)| soft),
            open_files_hard: hard,
            local_ports: ports,
            streams_at_once: hard
                .zip(ports)
                .map(|(hard, ports)| hard.saturating_sub(OWN_DESCRIPTORS).min(ports)),
            fresh_connections_per_second: ports.map(|ports| ports / TIME_WAIT_S),
            cores: sched_getaffinity(Pid::from_raw(0)).ok().map(|set| cores_in(&set)),
            quota_cores: groups.quota_cores(),
            memory_bytes: groups.memory_bytes(),
            available_bytes: field(&text("proc/meminfo"), "MemAvailable:")
                .and_then(|kilobytes| kilobytes.trim_end_matches("kB").trim().parse::<u64>().ok())
                .map(|kilobytes| kilobytes * 1024),
            clock_sources: text("sys/devices/system/clocksource/clocksource0/available_clocksource")
                .split_ascii_whitespace()
                .map(str::to_owned)
                .collect(),
            governor: Some(text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim().to_owned())
                .filter(|governor| !governor.is_empty()),
            virtual_machine: field(&text("proc/cpuinfo"), "flags")
                .map(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")),
            load_1_minute: text("proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()),
            cpu_pressure_percent: pressure(&text("proc/pressure/cpu")),
            realtime: realtime(&text("proc/self/status")),
        }
    }
}

fn cores_in(set: &CpuSet) -> u64 {
    (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).count() as u64
}

fn ports(range: &str) -> Option<u64> {
    let mut ends = range.split_ascii_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    (last + 1).checked_sub(first)
}

fn pressure(text: &str) -> Option<f64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split(' ').find_map(|word| word.strip_prefix("avg10="))?.parse().ok()
}

fn realtime(status: &str) -> Option<bool> {
    let by_capability = field(status, "CapEff:")
        .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        .map(|bits| bits >> CAP_SYS_NICE & 1 == 1);
    let by_limit = getrlimit(Resource::RLIMIT_RTPRIO).ok().map(|(soft, _)| soft > 0);
    match (by_capability, by_limit) {
        (None, None) => None,
        (capability, limit) => Some(capability.unwrap_or(false) || limit.unwrap_or(false)),
    }
}

/// What follows a name at the start of a line, without the colon.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim_start().trim_start_matches(':').trim())
}

/// The folders of this process's control groups, of either version, from its own upwards: any of them may limit.
struct Groups {
    unified: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
    memory: Vec<PathBuf>,
}

impl Groups {
    fn of(root: &Path, memberships: &str) -> Self {
        let mounted = root.join("sys/fs/cgroup");
        let mut groups = Groups { unified: Vec::new(), cpu: Vec::new(), memory: Vec::new() };
        for line in memberships.lines() {
            // number:controllers:path
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
            let chain = |base: PathBuf| ancestry(&base, path);
            for controller in controllers.split(',') {
                match controller {
                    "" => groups.unified = chain(mounted.clone()),
                    "cpu" => groups.cpu = chain(mounted.join("cpu")),
                    "memory" => groups.memory = chain(mounted.join("memory")),
                    _ => {}
                }
            }
        }
        groups
    }

    /// The smallest quota of all.
    fn quota_cores(&self) -> Option<f64> {
        let new = self.unified.iter().filter_map(|folder| {
            let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
            let mut words = text.split_ascii_whitespace().map(str::parse::<f64>);
            Some(words.next()?.ok()? / words.next()?.ok()?)
        });
        let old = self.cpu.iter().filter_map(|folder| {
            let figure = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<f64>().ok();
            Some(figure("cpu.cfs_quota_us")? / figure("cpu.cfs_period_us")?)
        });
        new.chain(old).filter(|cores| *cores > 0.0).min_by(f64::total_cmp)
    }

    /// The smallest limit of all. The first version says "none" by a number near the largest.
    fn memory_bytes(&self) -> Option<u64> {
        let limit = |folder: &PathBuf, name: &str| {
            fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok()
        };
        let new = self.unified.iter().filter_map(|folder| limit(folder, "memory.max"));
        let old = self.memory.iter().filter_map(|folder| limit(folder, "memory.limit_in_bytes"));
        new.chain(old).filter(|bytes| *bytes < 1 << 60).min()
    }
}

/// `base/path` and every folder above it down to `base`. In a container the path may not exist below the mount; the
/// mount itself is the group then.
fn ancestry(base: &Path, path: &str) -> Vec<PathBuf> {
    let own = base.join(path.trim_start_matches('/'));
    own.ancestors().take_while(|folder| folder.starts_with(base)).map(Path::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_container_of_the_second_version_is_limited_by_the_smallest_of_its_groups() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/pod/box\n"),
            ("sys/fs/cgroup/pod/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/pod/box/memory.max", "max\n"),
            ("sys/fs/cgroup/pod/memory.max", "1073741824\n"),
        ]);
        let limits = Limits::read_from(root.path());
        assert_eq!((limits.quota_cores, limits.memory_bytes), (Some(1.5), Some(1 << 30)));
    }

    #[test]
    fn groups_of_the_first_version_say_none_by_minus_one_and_by_a_huge_number() {
        let root = machine(&[
            ("proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/a\n0::/\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        let limits = Limits::read_from(root.path());
        assert_eq!((limits.quota_cores, limits.memory_bytes), (None, None));
        fs::write(root.path().join("sys/fs/cgroup/cpu/cpu.cfs_quota_us"), "50000").unwrap();
        assert_eq!(Limits::read_from(root.path()).quota_cores, Some(0.5));
    }

    #[test]
    fn what_a_machine_tells_is_read_and_the_rest_is_unknown() {
        let root = machine(&[
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
            ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor lm\n"),
            ("proc/loadavg", "1.25 0.5 0.1 1/100 7\n"),
            ("proc/pressure/cpu", "some avg10=2.50 avg60=0.00 avg300=0.00 total=1\n"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet \n"),
        ]);
        let limits = Limits::read_from(root.path());
        assert_eq!((limits.local_ports, limits.fresh_connections_per_second), (Some(28_232), Some(470)));
        assert_eq!((limits.available_bytes, limits.virtual_machine), (Some(2 << 20), Some(true)));
        assert_eq!((limits.load_1_minute, limits.cpu_pressure_percent), (Some(1.25), Some(2.5)));
        assert_eq!((limits.clock_sources.len(), limits.governor), (2, None));
        let nothing = Limits::read_from(&root.path().join("nowhere"));
        assert_eq!(
            (nothing.local_ports, nothing.streams_at_once, nothing.virtual_machine),
            (None, None, None)
        );
    }

    #[test]
    fn a_capability_allows_a_real_time_class() {
        assert_eq!(realtime("CapEff:\t0000000000800000\n"), Some(true));
        assert!(Limits::read().open_files_soft > Some(0) && Limits::read().cores > Some(0));
    }
}
