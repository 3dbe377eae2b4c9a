//! What to change, from what was found.

use serde::Serialize;

use crate::{Findings, Rate, waits};

/// Descriptors below which a burst of slow streams may meet the limit.
const FEW_DESCRIPTORS: u64 = 20_000;
/// Ports below which fresh connections or many streams may meet the limit.
const FEW_PORTS: u64 = 50_000;
/// Clock sources that are read without a system call; in tests of ours by far the cheapest.
const GOOD_SOURCES: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "xen"];
/// A clock that takes longer to read is not read without a system call.
const SLOW_READ_NS: i64 = 300;
/// Shares of time, in percent, beyond which others on the machine show in the figures.
const MUCH_STEAL: f64 = 2.0;
/// See [`MUCH_STEAL`].
const MUCH_PRESSURE: f64 = 10.0;
/// A wake-up this late at p99 is the machine's.
const LATE_WAKE_NS: i64 = 1_000_000;
/// A disk slower than this falls behind a busy run: 5,000 streams of 100 chunks a second take some 30 MB/s.
const SLOW_DISK: u64 = 50_000_000;
/// Free space below which a long run may fill the disk.
const LITTLE_SPACE: u64 = 10 << 30;
/// Available memory below which a run's bounds (512 MiB of waiting answers among them) may not fit.
const LITTLE_MEMORY: u64 = 2 << 30;
/// Share of a core, per core, beyond which a rate leaves no room.
const BUSY_SHARE: f64 = 0.7;

/// What an advice is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Cores and who else uses them.
    Cpu,
    /// How late timers wake.
    Timer,
    /// Reading the clock, and kernel stamps.
    Clock,
    /// The scheduling class of the sending threads.
    Scheduling,
    /// Descriptors and ports.
    Connections,
    /// Memory.
    Memory,
    /// The disk that runs are written to.
    Disk,
}

/// One thing to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// What it is about.
    pub topic: Topic,
    /// What was found, with its figure.
    pub found: String,
    /// What to do.
    pub remedy: String,
}

/// What to change, what costs most first.
pub(crate) fn advise(findings: &Findings) -> Vec<Advice> {
    let mut all = Vec::new();
    let mut add = |topic, found: String, remedy: &str| {
        all.push(Advice { topic, found, remedy: remedy.to_owned() });
    };
    cpu(findings, &mut add);
    timers(findings, &mut add);
    clock(findings, &mut add);
    connections(findings, &mut add);
    storage(findings, &mut add);
    all
}

fn cpu(findings: &Findings, add: &mut dyn FnMut(Topic, String, &str)) {
    let limits = &findings.limits;
    let cores = limits.cores.map(|cores| cores as f64);
    if let Some(quota) = limits.quota_cores.filter(|quota| Some(*quota) < cores || *quota < 2.0) {
        add(
            Topic::Cpu,
            format!(
                "the control group grants {quota:.2} cores: beyond that all threads stop for tens of milliseconds"
            ),
            "raise or remove the quota (`resources.limits.cpu` in Kubernetes, `--cpus` of a container)",
        );
    }
    if limits.cores == Some(1) {
        add(
            Topic::Cpu,
            "one core: sending, recording and the system share it".to_owned(),
            "give the generator two cores or more",
        );
    }
    let steal = findings.rates.iter().filter_map(|rate| rate.steal_percent).max_by(f64::total_cmp);
    if let Some(steal) = steal.filter(|steal| *steal > MUCH_STEAL) {
        add(
            Topic::Cpu,
            format!("the hypervisor gave {steal:.1} % of this machine's time to others"),
            "use a machine with dedicated cores; compare runs of the same hour only",
        );
    }
    if let Some(pressure) = limits.cpu_pressure_percent.filter(|pressure| *pressure > MUCH_PRESSURE) {
        add(
            Topic::Cpu,
            format!("before this began, tasks waited for a core in {pressure:.0} % of the time"),
            "stop what else runs here, or pin it to other cores",
        );
    }
    if let Some(governor) = limits.governor.as_ref().filter(|governor| *governor == "powersave") {
        add(
            Topic::Cpu,
            format!("the frequency governor is {governor}"),
            "`cpupower frequency-set -g performance` while measuring",
        );
    }
    let busy =
        |rate: &&Rate| cores.zip(rate.cpu_cores).is_some_and(|(cores, used)| used > cores * BUSY_SHARE);
    if let Some(rate) = findings.rates.iter().find(busy) {
        add(
            Topic::Cpu,
            format!(
                "at {} requests a second the generator and its endpoint took {:.1} cores",
                rate.per_second,
                rate.cpu_cores.unwrap_or_default()
            ),
            "run the target on another machine, or give this one more cores",
        );
    }
}

fn timers(findings: &Findings, add: &mut dyn FnMut(Topic, String, &str)) {
    let wake = findings.waits.iter().find(|wait| wait.method == waits::REPLAY);
    if let Some(p99) = wake.and_then(|wait| wait.lateness.p99_ns).filter(|p99| *p99 > LATE_WAKE_NS) {
        add(
            Topic::Timer,
            format!("a replay's wait ended {:.1} ms late at p99", p99 as f64 / 1e6),
            "stop other work; on bare metal keep cores out of deep sleep (`cpupower idle-set -D 10`)",
        );
    }
    let missed = findings.rates.iter().find(|rate| !rate.kept);
    if let Some((rate, cause)) = missed.and_then(|rate| Some((rate, rate.causes.first()?))) {
        add(Topic::Cpu, format!("{} requests a second: {}", rate.per_second, cause.text), &cause.remedy);
    }
    let plain = |rate: &&Rate| rate.scheduling_class.as_deref().is_none_or(|class| class == "other");
    if let Some(rate) = missed.filter(plain) {
        let (found, remedy) = if findings.limits.realtime == Some(true) {
            ("a real-time class is allowed and was not used", "try `--realtime`, here and with `replay`")
        } else {
            (
                "a real-time class is not allowed",
                "allow it (`setcap cap_sys_nice+ep tracewheel`, `--cap-add SYS_NICE`, or `rtprio` in limits.conf) and \
                 use `--realtime`",
            )
        };
        add(
            Topic::Scheduling,
            format!("{} requests a second were not kept, and {found}", rate.per_second),
            remedy,
        );
    }
}

fn clock(findings: &Findings, add: &mut dyn FnMut(Topic, String, &str)) {
    let source = findings.machine.clock_source.as_deref();
    let slow = findings.loopback.clock_read_ns > SLOW_READ_NS;
    if let Some(source) = source.filter(|source| slow || !GOOD_SOURCES.contains(source)) {
        let others = &findings.limits.clock_sources;
        let better = others.iter().find(|other| GOOD_SOURCES.contains(&other.as_str()) && *other != source);
        let found = format!("reading the clock ({source}) takes {} ns", findings.loopback.clock_read_ns);
        match better {
            Some(better) => add(
                Topic::Clock,
                found,
                &format!(
                    "`echo {better} > /sys/devices/system/clocksource/clocksource0/current_clocksource` as root"
                ),
            ),
            None if slow => {
                add(Topic::Clock, found, "use a machine whose clock is read without a system call (tsc)")
            }
            None => {}
        }
    }
    if !findings.loopback.kernel_stamps {
        add(
            Topic::Clock,
            "the kernel does not stamp what arrives: receive times are those of the reading thread"
                .to_owned(),
            "use a Linux kernel itself (not gVisor, not an emulation), or keep the generator's cores idle enough",
        );
    }
}

fn connections(findings: &Findings, add: &mut dyn FnMut(Topic, String, &str)) {
    if let Some(files) = findings.limits.open_files_hard.filter(|files| *files < FEW_DESCRIPTORS) {
        add(
            Topic::Connections,
            format!("{files} open files are allowed: each stream in flight over HTTP/1.1 takes one"),
            "raise the hard limit (`ulimit -Hn`, `LimitNOFILE=`, `--ulimit nofile=65536`)",
        );
    }
    if let Some(ports) = findings.limits.local_ports.filter(|ports| *ports < FEW_PORTS) {
        add(
            Topic::Connections,
            format!("{ports} local ports: so many streams to one address at once, less what still rests"),
            "`sysctl net.ipv4.ip_local_port_range=\"1024 65535\"` where you need more",
        );
    }
}

fn storage(findings: &Findings, add: &mut dyn FnMut(Topic, String, &str)) {
    let memory = [findings.limits.available_bytes, findings.limits.memory_bytes].into_iter().flatten().min();
    if let Some(memory) = memory.filter(|memory| *memory < LITTLE_MEMORY) {
        add(
            Topic::Memory,
            format!("{} MiB of memory", memory >> 20),
            "give the generator 2 GiB, or lower `recorder_queue` and `look_ahead` in the scenario",
        );
    }
    let disk = &findings.disk;
    if disk.synced_bytes_per_second < SLOW_DISK {
        add(
            Topic::Disk,
            format!(
                "{} takes {:.1} MB/s when each megabyte is waited for",
                disk.dir.display(),
                disk.synced_bytes_per_second as f64 / 1e6
            ),
            "write runs to a faster disk (`replay --output`); leave `power_safe` off",
        );
    }
    if let Some(free) = disk.free_bytes.filter(|free| *free < LITTLE_SPACE) {
        add(
            Topic::Disk,
            format!("{} has {:.1} GB free", disk.dir.display(), free as f64 / 1e9),
            "free some, or write runs elsewhere (`replay --output`): a million streams of 100 chunks take about 1 GB",
        );
    }
}

#[cfg(test)]
mod tests {
    use tracewheel_analysis::fidelity::FidelityVerdict;

    use super::*;
    use crate::{Disk, Limits, Loopback, Machine, Spread, waits::Wait};

    fn spread(p50_ns: i64, p99_ns: i64) -> Spread {
        Spread { n: 100, p50_ns: Some(p50_ns), p99_ns: Some(p99_ns), max_ns: Some(p99_ns) }
    }

    fn good() -> Findings {
        Findings {
            machine: Machine { clock_source: Some("tsc".to_owned()), ..Machine::default() },
            limits: Limits {
                open_files_hard: Some(1 << 20),
                local_ports: Some(64_000),
                cores: Some(8),
                available_bytes: Some(16 << 30),
                clock_sources: vec!["tsc".to_owned(), "hpet".to_owned()],
                realtime: Some(false),
                ..Limits::default()
            },
            waits: vec![Wait { method: waits::REPLAY, lateness: spread(1_000, 20_000) }],
            loopback: Loopback {
                round_trip: spread(40_000, 90_000),
                write_call: spread(6_000, 12_000),
                kernel_stamps: true,
                kernel_lag: spread(5_000, 9_000),
                clock_bracket_ns: 60,
                clock_read_ns: 25,
            },
            disk: Disk {
                dir: "runs".into(),
                synced_bytes_per_second: 400_000_000,
                megabyte: spread(2_000_000, 4_000_000),
                free_bytes: Some(100 << 30),
            },
            rates: vec![Rate {
                per_second: 1_000,
                requests: 3_000,
                achieved_per_second: Some(999.0),
                lateness: spread(20_000, 200_000),
                bound_ns: 1_000_000,
                verdict: Some(FidelityVerdict::Faithful),
                reason: String::new(),
                causes: Vec::new(),
                kept: true,
                cpu_cores: Some(0.4),
                steal_percent: Some(0.0),
                scheduling_class: Some("other".to_owned()),
            }],
            keeps_per_second: Some(1_000),
            advice: Vec::new(),
        }
    }

    fn topics(change: impl FnOnce(&mut Findings)) -> Vec<Topic> {
        let mut findings = good();
        change(&mut findings);
        let all = advise(&findings);
        assert!(all.iter().all(|one| !one.found.is_empty() && !one.remedy.is_empty()));
        all.into_iter().map(|one| one.topic).collect()
    }

    #[test]
    fn a_good_machine_is_left_alone() {
        assert_eq!(topics(|_| {}), []);
    }

    #[test]
    fn each_weakness_is_told_with_its_remedy() {
        assert_eq!(topics(|f| f.limits.quota_cores = Some(1.5)), [Topic::Cpu]);
        assert_eq!(topics(|f| f.limits.cores = Some(1)), [Topic::Cpu]);
        assert_eq!(topics(|f| f.limits.cpu_pressure_percent = Some(50.0)), [Topic::Cpu]);
        assert_eq!(topics(|f| f.limits.governor = Some("powersave".to_owned())), [Topic::Cpu]);
        assert_eq!(topics(|f| f.rates[0].steal_percent = Some(5.0)), [Topic::Cpu]);
        assert_eq!(topics(|f| f.rates[0].cpu_cores = Some(7.0)), [Topic::Cpu]);
        assert_eq!(topics(|f| f.waits[0].lateness = spread(5, 3_000_000)), [Topic::Timer]);
        assert_eq!(topics(|f| f.loopback.kernel_stamps = false), [Topic::Clock]);
        assert_eq!(topics(|f| f.limits.open_files_hard = Some(1_024)), [Topic::Connections]);
        assert_eq!(topics(|f| f.limits.local_ports = Some(28_232)), [Topic::Connections]);
        assert_eq!(topics(|f| f.limits.memory_bytes = Some(1 << 30)), [Topic::Memory]);
        assert_eq!(topics(|f| f.disk.synced_bytes_per_second = 1_000_000), [Topic::Disk]);
        assert_eq!(topics(|f| f.disk.free_bytes = Some(1 << 30)), [Topic::Disk]);
    }

    #[test]
    fn a_slow_clock_is_exchanged_for_one_that_the_kernel_has() {
        let with = |source: &str, has: &[&str], read_ns| {
            let mut findings = good();
            findings.machine.clock_source = Some(source.to_owned());
            findings.limits.clock_sources = has.iter().map(|name| (*name).to_owned()).collect();
            findings.loopback.clock_read_ns = read_ns;
            advise(&findings).into_iter().map(|one| one.remedy).collect::<Vec<_>>()
        };
        assert!(with("hpet", &["hpet", "tsc"], 900)[0].contains("echo tsc"));
        assert!(with("hpet", &["hpet"], 900)[0].contains("without a system call"));
        assert_eq!(with("jiffies", &["jiffies"], 20), Vec::<String>::new());
        assert!(with("tsc", &["tsc"], 900)[0].contains("without a system call"));
    }

    #[test]
    fn a_missed_rate_leads_to_a_real_time_class_unless_it_had_one() {
        let missed = |realtime, class: &str| {
            let mut findings = good();
            findings.limits.realtime = Some(realtime);
            findings.rates[0].kept = false;
            findings.rates[0].scheduling_class = Some(class.to_owned());
            advise(&findings).into_iter().map(|one| one.remedy).collect::<Vec<_>>()
        };
        assert!(missed(true, "other")[0].starts_with("try `--realtime`"));
        assert!(missed(false, "other")[0].contains("cap_sys_nice"));
        assert_eq!(missed(true, "fifo"), Vec::<String>::new());
    }
}
