//! Pressure and throttling: how the system shares out CPU time. Version 2 of control groups only; without it, throttling is
//! unknown and pressure is the machine's.

use std::path::{Path, PathBuf};

use super::text;

/// Where this process's pressure and throttling are told.
#[derive(Debug, Clone)]
pub(crate) struct CpuShare {
    pressure: PathBuf,
    stat: Option<PathBuf>,
}

/// What was told so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuShareUsage {
    /// Time for which some task waited for a CPU.
    pub(crate) pressure_ns: Option<i64>,
    /// Time for which the group was held back by its quota.
    pub(crate) throttled_ns: Option<i64>,
    /// Periods in which it was.
    pub(crate) throttled_periods: Option<i64>,
}

impl CpuShare {
    /// Finds the process's own group.
    pub(crate) fn find() -> Self {
        let group = group_dir(&text("/proc/self/cgroup"), &text("/proc/self/mountinfo"));
        let own = group.as_ref().map(|dir| dir.join("cpu.pressure")).filter(|path| path.exists());
        Self {
            pressure: own.unwrap_or_else(|| PathBuf::from("/proc/pressure/cpu")),
            stat: group.map(|dir| dir.join("cpu.stat")),
        }
    }

    /// Reads the counters as they are now.
    pub(crate) fn read(&self) -> CpuShareUsage {
        let of = |path: &Path| text(&path.to_string_lossy());
        let stat = self.stat.as_deref().map(of).unwrap_or_default();
        CpuShareUsage {
            pressure_ns: waited(&of(&self.pressure)),
            throttled_ns: entry(&stat, "throttled_usec").map(|us| us * 1_000),
            throttled_periods: entry(&stat, "nr_throttled"),
        }
    }
}

/// The folder of the process's group: `0::PATH` of `/proc/self/cgroup` under the mount of type `cgroup2`.
fn group_dir(cgroup: &str, mountinfo: &str) -> Option<PathBuf> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, at) = (fields.next()?, fields.next()?);
        after.starts_with("cgroup2 ").then_some((root, at))
    });
    let (root, at) = mount?;
    // What is mounted may be a part of the hierarchy, as in a container.
    let inside = path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path);
    Some(Path::new(at).join(inside.trim_start_matches('/')))
}

/// The total of the line `some avg10=... total=MICROSECONDS`.
fn waited(pressure: &str) -> Option<i64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    let total = line.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.parse::<i64>().ok()?.checked_mul(1_000)
}

/// The number behind a name on a line of its own.
fn entry(stat: &str, name: &str) -> Option<i64> {
    let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "24 30 0:22 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n\
        26 24 0:24 / /sys/fs/cgroup/cpu rw shared:11 - cgroup cgroup rw,cpu\n\
        25 24 0:23 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_group_lies_under_the_mount_of_the_second_version() {
        let of = |cgroup, mounts| group_dir(cgroup, mounts);
        let cgroup = "1:cpu:/a\n0::/user.slice/run.scope\n";
        assert_eq!(of(cgroup, MOUNTS), Some("/sys/fs/cgroup/unified/user.slice/run.scope".into()));
        // A container sees its own group as the root of the mount.
        let inner = "25 24 0:23 /docker/7 /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(of("0::/docker/7/x\n", inner), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(of("0::/\n", inner), Some("/sys/fs/cgroup/".into()));
        assert_eq!(of("1:cpu:/a\n", MOUNTS), None);
        assert_eq!(of(cgroup, ""), None);
    }

    #[test]
    fn pressure_and_throttling_are_read_and_what_is_not_there_is_unknown() {
        let pressure =
            "some avg10=95.54 avg60=71.67 avg300=44.81 total=14333397590\nfull avg10=0.00 total=7\n";
        assert_eq!(waited(pressure), Some(14_333_397_590_000));
        assert_eq!(waited("full avg10=0.00 total=7\n"), None);
        let stat = "usage_usec 100\nnr_periods 5\nnr_throttled 2\nthrottled_usec 1500\n";
        assert_eq!((entry(stat, "nr_throttled"), entry(stat, "throttled_usec")), (Some(2), Some(1_500)));
        assert_eq!(entry("usage_usec 100\n", "nr_throttled"), None);
        let nowhere = CpuShare { pressure: "/nowhere/cpu".into(), stat: Some("/nowhere/cpu.stat".into()) };
        assert_eq!(nowhere.read(), CpuShareUsage::default());
    }
}
