//! A day at 200 requests a second: 17.28 million.
//!
//! The whole of it by a simulated clock: the plan streamed from its file through the timer wheel, every release taken out
//! at the instant the wheel names. And a part of it for real, 10 times as fast, over sockets.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use tracewheel_clock::{Clock, RunNs, VirtualClock};
use tracewheel_timeline::Timeline;
use tracewheel_wheel::Wheel;
use tracewheel_workload::{Plan, PlanOptions};

use crate::client::{self, Lab};
use crate::cost;
use crate::figures::{Figures, Spread};
use crate::trace::{self, Bursts};
use crate::witness::{Script, Witness};

use super::{Line, get};

type All = BTreeMap<&'static str, Figures>;

const MIB: f64 = 1024.0 * 1024.0;
/// A day's requests at [`RATE`].
const REQUESTS: usize = 17_280_000;
const RATE: f64 = 200.0;
/// Requests that lie in the wheel at once, as many as a replay looks ahead.
const AHEAD: usize = 4_096;
/// How much faster the part runs that runs for real, and how many requests it has.
const SPEED: f64 = 10.0;
const PART: usize = 120_000;

pub(super) fn run(lab: &Lab) -> io::Result<Figures> {
    let requests = if lab.quick { REQUESTS / 20 } else { REQUESTS };
    trace::write(&lab.trace(), Bursts::at(RATE).take(requests), 1)?;
    let myself = std::env::current_exe()?.display().to_string();
    let trace_path = lab.trace().display().to_string();
    let command = [&myself, "--role", "day", "--log", &trace_path].map(str::to_owned);
    let cost = cost::of(&command, &lab.folder)?;
    let told = std::fs::read_to_string(lab.folder.join("client.out"))?;
    let numbers: Vec<f64> = told.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [count, worst_ns, hours, early_mib, late_mib] = numbers[..] else {
        return Err(io::Error::other(format!("the simulated day said {told:?}")));
    };
    let mut figures = Figures::from([
        ("count", count),
        ("worst_ns", worst_ns),
        ("hours", hours),
        ("early_mib", early_mib),
        ("late_mib", late_mib),
        ("seconds", cost.wall_ns as f64 / 1e9),
    ]);
    figures.extend(real_part(lab)?);
    Ok(figures)
}

fn real_part(lab: &Lab) -> io::Result<Figures> {
    let count = if lab.full_day { REQUESTS } else { lab.count(PART) };
    let script = Script { chunks: 0, first_ns: 0, gap_ns: 0, ca_file: None, http2: false };
    let witness = Witness::start(&script, &lab.folder)?;
    let target = format!("http://127.0.0.1:{}", witness.port);
    let (speed, limit) = (SPEED.to_string(), count.to_string());
    let replayed = client::replay(lab, &target, &[], &["--speed", &speed, "--limit", &limit])?;
    let seen = witness.end()?;
    let offsets: Vec<i64> = Bursts::at(RATE).take(count).map(|at| (at as f64 / SPEED) as i64).collect();
    let errors = client::send_errors(&replayed.run, &seen, &offsets)?;
    let part = count / 5;
    let median = |errors: &[i64]| Spread::of(errors.to_vec()).us(0.5);
    let (first, last) = (&errors[..part], &errors[count - part..]);
    let mut rss = Vec::new();
    for row in replayed.run.health().map_err(io::Error::other)? {
        rss.extend(row.map_err(io::Error::other)?.rss_bytes);
    }
    let at = |share: f64| rss.get((share * rss.len() as f64) as usize).copied().unwrap_or(0) as f64 / MIB;
    Ok(Figures::from([
        ("part", count as f64),
        ("first_p50", Spread::around_median(first).us(0.5)),
        ("last_p50", Spread::around_median(last).us(0.5)),
        ("shift", median(last) - median(first)),
        ("rss_early", at(0.3)),
        ("rss_late", at(0.95)),
    ]))
}

pub(super) fn judge(figures: &Figures, _: &All) -> Vec<Line> {
    let f = |name| get(figures, name);
    vec![
        Line {
            what: format!(
                "{:.1} h at 200/s, {:.2} million requests, simulated clock (plan, wheel)",
                f("hours"),
                f("count") / 1e6
            ),
            goal: "flat memory, every release at its instant".to_owned(),
            beside: "–".to_owned(),
            measured: format!(
                "worst release {:.0} ns off; {:.0} MiB after a tenth, {:.0} MiB at the end; {:.0} s",
                f("worst_ns"),
                f("early_mib"),
                f("late_mib"),
                f("seconds")
            ),
            reached: Some(f("worst_ns") == 0.0 && f("late_mib") <= f("early_mib") + 16.0),
        },
        Line {
            what: format!("the first {:.0} of them for real, 10 times as fast", f("part")),
            goal: "flat memory, the last as punctual as the first".to_owned(),
            beside: format!("first fifth: p50 {:.0} µs", f("first_p50")),
            measured: format!(
                "last fifth: p50 {:.0} µs, shifted by {:+.1} µs; {:.0} MiB after 30 %, {:.0} MiB at the end",
                f("last_p50"),
                f("shift"),
                f("rss_early"),
                f("rss_late")
            ),
            reached: Some(f("shift").abs() < 60.0 && f("rss_late") <= 1.25 * f("rss_early") + 8.0),
        },
    ]
}

/// What the simulated day found.
pub(crate) struct Simulation {
    requests: u64,
    worst_ns: i64,
    last_ns: i64,
    early_bytes: i64,
    late_bytes: i64,
}

impl std::fmt::Display for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hours = self.last_ns as f64 / 3.6e12;
        let (early, late) = (self.early_bytes as f64 / MIB, self.late_bytes as f64 / MIB);
        write!(f, "{} {} {hours:.2} {early:.1} {late:.1}", self.requests, self.worst_ns)
    }
}

/// Streams the plan through the wheel under a clock that jumps to each next deadline.
pub(crate) fn simulate(path: &Path) -> io::Result<Simulation> {
    let timeline = Timeline::open(path).map_err(io::Error::other)?;
    let plan = Plan::build(&timeline, PlanOptions::default()).map_err(io::Error::other)?;
    let mut requests = plan.requests();
    let clock = VirtualClock::new();
    let mut wheel: Wheel<i64> = Wheel::new(0);
    let mut found = Simulation { requests: 0, worst_ns: 0, last_ns: 0, early_bytes: 0, late_bytes: 0 };
    let tenth = timeline.num_rows() / 10;
    loop {
        while wheel.len() < AHEAD
            && let Some(planned) = requests.next()
        {
            let planned_ns = planned.map_err(io::Error::other)?.planned_ns;
            wheel.insert(planned_ns, planned_ns);
        }
        let Some(at) = wheel.next_deadline() else { break };
        clock.advance_to(RunNs(at));
        let now = clock.now().0;
        while let Some((_, planned_ns)) = wheel.pop_due(now) {
            found.worst_ns = found.worst_ns.max((now - planned_ns).abs());
            found.last_ns = planned_ns;
            found.requests += 1;
            if found.requests == tenth {
                found.early_bytes = resident_bytes()?;
            }
        }
    }
    found.late_bytes = resident_bytes()?;
    Ok(found)
}

fn resident_bytes() -> io::Result<i64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()).and_then(|kib| kib.parse::<i64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("the system tells no resident size"))
}
