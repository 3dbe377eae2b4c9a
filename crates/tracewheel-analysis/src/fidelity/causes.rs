//! Why requests left late or not at all, as far as the attempts and the health rows tell. Named, not proved: what took the
//! time in which the sending threads were behind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tracewheel_record::HealthRecord;
use tracewheel_record::manifest::EndedBy;

const SECOND_NS: i64 = 1_000_000_000;
/// Share of the machine's CPU time from which it counts as busy.
const BUSY_SHARE: f64 = 0.9;

/// What held requests up, or kept them from leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// They waited for a connection: a handshake at the due time, or the limit on connections.
    Connections,
    /// They were rendered after they were due.
    Prefetch,
    /// The process's group had used up its CPU quota.
    CpuThrottled,
    /// The hypervisor gave the CPU to others.
    CpuSteal,
    /// The sending threads waited in the run queue.
    CpuRunDelay,
    /// Tasks of the group or machine waited for a CPU.
    CpuPressure,
    /// All cores of the machine were busy.
    CpuBusy,
    /// Wall time stepped.
    ClockStep,
    /// The sending threads had a CPU, and their own work (or a pause) held them up.
    SendingThread,
    /// Nothing was recorded about that time.
    Unexplained,
    /// The target was slow to take requests: their writing took long.
    BackPressure,
    /// The run gave up on its target.
    TargetFailed,
    /// The recorder or its disk fell behind.
    Recorder,
    /// This machine, or a limit of the run, had no connection for them.
    LocalResources,
    /// The run stopped itself, or its limits of time and budget passed.
    Limits,
}

impl CauseKind {
    /// All, in the order in which equally frequent ones are told.
    pub const ALL: [Self; 15] = [
        Self::Connections,
        Self::Prefetch,
        Self::CpuThrottled,
        Self::CpuSteal,
        Self::CpuRunDelay,
        Self::CpuPressure,
        Self::CpuBusy,
        Self::ClockStep,
        Self::SendingThread,
        Self::Unexplained,
        Self::BackPressure,
        Self::TargetFailed,
        Self::Recorder,
        Self::LocalResources,
        Self::Limits,
    ];

    /// What a person calls it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Prefetch => "prefetch",
            Self::CpuThrottled => "CPU throttled",
            Self::CpuSteal => "CPU stolen",
            Self::CpuRunDelay => "CPU run queue",
            Self::CpuPressure => "CPU pressure",
            Self::CpuBusy => "CPU busy",
            Self::ClockStep => "clock step",
            Self::SendingThread => "sending thread",
            Self::Unexplained => "unexplained",
            Self::BackPressure => "back-pressure",
            Self::TargetFailed => "target failed",
            Self::Recorder => "recorder",
            Self::LocalResources => "local resources",
            Self::Limits => "limits",
        }
    }

    /// What a person does about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::Connections => {
                "raise or drop --connections; have the target keep connections open, or replay less at once (--thin, --speed)"
            }
            Self::Prefetch => {
                "give the generator more CPU, or replay less at once: prompts are rendered too slowly"
            }
            Self::CpuThrottled => "raise the CPU quota of the generator's container or unit",
            Self::CpuSteal => "use a machine whose CPUs are its own (dedicated, not burstable)",
            Self::CpuRunDelay | Self::CpuPressure | Self::CpuBusy => {
                "take other work off this machine, give it more cores, or replay less at once (--thin, --speed)"
            }
            Self::ClockStep => "let the clock be slewed instead of set (chrony, ntpd) while a replay runs",
            Self::SendingThread => {
                "give the sending more threads (--workers), or replay less at once (--thin, --speed)"
            }
            Self::Unexplained => "replay again; the health rows of this time are missing",
            Self::BackPressure => {
                "the target took requests slowly: look at its accept queue, its proxy and the way to it"
            }
            Self::TargetFailed => "mend the target first: its failures ended the run",
            Self::Recorder => "write the run to a faster disk",
            Self::LocalResources => "raise `ulimit -n` and the range of local ports, or raise --connections",
            Self::Limits => "raise the run's limits of time and budget, or plan less",
        }
    }
}

/// One cause with its evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// What it is.
    pub cause: CauseKind,
    /// Late or unsent requests that it is named for.
    pub requests: u64,
    /// Second of the run clock in which the first of them was due; null for unsent ones.
    pub first_second: Option<i64>,
    /// Second in which the last of them was due.
    pub last_second: Option<i64>,
    /// Which figure shows it, as a column of `health` or a key; null where there is none.
    pub figure: Option<String>,
    /// The figure: nanoseconds where its name ends in `_ns`, else a count.
    pub value: Option<i64>,
    /// The figure as a share of the machine's CPU time; null for what is no time of the machine's.
    pub share: Option<f64>,
    /// The evidence in words.
    pub text: String,
    /// What to do about it.
    pub remedy: String,
}

/// A first attempt of which a byte was written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Departure {
    pub(crate) due_ns: i64,
    pub(crate) written_ns: i64,
    pub(crate) released_ns: Option<i64>,
    /// Last byte written − first byte written.
    pub(crate) write_ns: Option<i64>,
    /// When its connection stood, where it was made for it or had carried nothing before.
    pub(crate) ready_ns: Option<i64>,
}

impl Departure {
    pub(crate) fn late_ns(&self) -> i64 {
        self.written_ns - self.due_ns
    }

    /// Time after the due time for which it had no connection. That a kept connection was not free is only known where a
    /// limit kept the run from making another one.
    fn connection_wait_ns(&self, limited: bool) -> i64 {
        match (self.ready_ns, self.released_ns) {
            (Some(ready), _) => ready - self.due_ns,
            (None, Some(released)) if limited => self.written_ns - released,
            _ => 0,
        }
    }
}

/// What a health row tells of causes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HealthFigures {
    at_ns: i64,
    rendered_late: u32,
    throttled_ns: Option<i64>,
    steal_ns: Option<i64>,
    run_delay_ns: Option<i64>,
    pressure_ns: Option<i64>,
    busy_ns: Option<i64>,
    capacity_ns: Option<i64>,
    stepped: bool,
}

impl From<&HealthRecord> for HealthFigures {
    fn from(row: &HealthRecord) -> Self {
        Self {
            at_ns: row.at_ns,
            rendered_late: row.rendered_late.unwrap_or(0),
            throttled_ns: row.cpu_throttled_ns,
            steal_ns: row.steal_ns,
            run_delay_ns: row.send_run_delay_ns,
            pressure_ns: row.cpu_pressure_ns,
            busy_ns: row.machine_busy_ns,
            capacity_ns: row.machine_capacity_ns,
            stepped: row.clock_stepped == Some(true),
        }
    }
}

impl HealthFigures {
    /// When the row was taken.
    pub(crate) fn at_ns(&self) -> i64 {
        self.at_ns
    }

    /// What took at least half of the time for which the senders were behind.
    fn cause(&self, behind_ns: i64) -> CauseKind {
        let explains = |figure: Option<i64>| figure.filter(|ns| ns.saturating_mul(2) >= behind_ns);
        if self.rendered_late > 0 {
            return CauseKind::Prefetch;
        }
        let lost = [
            (explains(self.throttled_ns), CauseKind::CpuThrottled),
            (explains(self.steal_ns), CauseKind::CpuSteal),
            (explains(self.run_delay_ns), CauseKind::CpuRunDelay),
        ];
        // The largest; of equal ones the first.
        let most = lost.into_iter().filter_map(|(ns, kind)| Some((ns?, kind)));
        if let Some((_, kind)) = most.reduce(|best, next| if next.0 > best.0 { next } else { best }) {
            return kind;
        }
        let used = self.busy_ns.zip(self.capacity_ns).map(|(busy, capacity)| {
            (busy + self.steal_ns.unwrap_or(0)) as f64 >= BUSY_SHARE * capacity as f64 && capacity > 0
        });
        // Where it is known for how long the senders waited for a CPU, that others waited or worked explains nothing.
        let blind = self.run_delay_ns.is_none();
        if blind && explains(self.pressure_ns).is_some() {
            CauseKind::CpuPressure
        } else if blind && used == Some(true) {
            CauseKind::CpuBusy
        } else if self.stepped {
            CauseKind::ClockStep
        } else {
            CauseKind::SendingThread
        }
    }

    fn figure(&self, kind: CauseKind, behind_ns: i64) -> Option<i64> {
        match kind {
            CauseKind::Prefetch => Some(i64::from(self.rendered_late)),
            CauseKind::CpuThrottled => self.throttled_ns,
            CauseKind::CpuSteal => self.steal_ns,
            CauseKind::CpuRunDelay => self.run_delay_ns,
            CauseKind::CpuPressure => self.pressure_ns,
            CauseKind::CpuBusy => self.busy_ns,
            CauseKind::ClockStep => Some(1),
            CauseKind::SendingThread => Some(behind_ns),
            _ => None,
        }
    }
}

/// Requests that never left, by what kept them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unsent {
    /// The run was given up before their turn.
    pub(crate) aborted: u64,
    /// They found no connection.
    pub(crate) stuck: u64,
    /// Others.
    pub(crate) limits: u64,
}

impl Unsent {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.aborted + self.stuck + self.limits
    }
}

/// What causes are found from.
pub(crate) struct Scene<'a> {
    pub(crate) departures: &'a [Departure],
    pub(crate) health: &'a [HealthFigures],
    /// Requests later than this need a cause; `None` where none does.
    pub(crate) late_above_ns: Option<i64>,
    /// The run may open no more than so many connections.
    pub(crate) limited: bool,
    pub(crate) unsent: Unsent,
    pub(crate) ended_by: EndedBy,
}

/// What is gathered for one cause.
#[derive(Default)]
struct Tally {
    requests: u64,
    seconds: Option<(i64, i64)>,
    value: Option<i64>,
    capacity_ns: i64,
}

impl Tally {
    fn take(&mut self, due_ns: i64) {
        let second = due_ns.div_euclid(SECOND_NS);
        let (first, last) = self.seconds.unwrap_or((second, second));
        self.seconds = Some((first.min(second), last.max(second)));
        self.requests += 1;
    }
}

/// The causes, the most frequent first.
pub(crate) fn find(scene: &Scene<'_>) -> Vec<Cause> {
    let mut tallies: BTreeMap<CauseKind, Tally> = BTreeMap::new();
    if let Some(late_above_ns) = scene.late_above_ns {
        late(scene, late_above_ns, &mut tallies);
    }
    unsent(scene, &mut tallies);
    let mut causes: Vec<Cause> = tallies.into_iter().map(|(kind, tally)| told(kind, &tally)).collect();
    causes.sort_by_key(|cause| (std::cmp::Reverse(cause.requests), cause.cause));
    causes
}

fn late(scene: &Scene<'_>, late_above_ns: i64, tallies: &mut BTreeMap<CauseKind, Tally>) {
    let mut senders = Vec::new();
    for departure in scene.departures {
        if departure.write_ns.is_some_and(|ns| ns > late_above_ns) {
            let tally = tallies.entry(CauseKind::BackPressure).or_default();
            tally.take(departure.due_ns);
            tally.value = tally.value.max(departure.write_ns);
        }
        if departure.late_ns() <= late_above_ns {
            continue;
        }
        let wait_ns = departure.connection_wait_ns(scene.limited);
        if wait_ns.saturating_mul(2) >= departure.late_ns() {
            let tally = tallies.entry(CauseKind::Connections).or_default();
            tally.take(departure.due_ns);
            tally.value = tally.value.max(Some(wait_ns));
        } else {
            senders.push(*departure);
        }
    }
    let behind = behind_ns(&senders, scene.health);
    let kinds: Vec<CauseKind> =
        scene.health.iter().zip(&behind).map(|(row, behind)| row.cause(*behind)).collect();
    let mut counted = vec![false; kinds.len()];
    for departure in senders {
        let row = scene.health.partition_point(|row| row.at_ns < departure.written_ns);
        let kind = kinds.get(row).copied().unwrap_or(CauseKind::Unexplained);
        let tally = tallies.entry(kind).or_default();
        tally.take(departure.due_ns);
        if let Some(counted) = counted.get_mut(row)
            && !std::mem::replace(counted, true)
        {
            let figures = &scene.health[row];
            let figure = figures.figure(kind, behind[row]);
            tally.value = tally.value.zip(figure).map(|(sum, more)| sum + more).or(tally.value).or(figure);
            tally.capacity_ns += figures.capacity_ns.unwrap_or(0);
        }
    }
}

/// For each row, the part of its time in which at least one of these requests was overdue. Rows and times ascend.
fn behind_ns(senders: &[Departure], health: &[HealthFigures]) -> Vec<i64> {
    let mut spans: Vec<(i64, i64)> = senders.iter().map(|d| (d.due_ns, d.written_ns)).collect();
    spans.sort_unstable();
    let mut behind = vec![0; health.len()];
    let mut done_ns = i64::MIN;
    for (due_ns, written_ns) in spans {
        let mut from_ns = due_ns.max(done_ns);
        let mut row = health.partition_point(|row| row.at_ns <= from_ns);
        while from_ns < written_ns && row < health.len() {
            let to_ns = written_ns.min(health[row].at_ns);
            behind[row] += to_ns - from_ns;
            (from_ns, row) = (to_ns, row + 1);
        }
        done_ns = done_ns.max(written_ns);
    }
    behind
}

fn unsent(scene: &Scene<'_>, tallies: &mut BTreeMap<CauseKind, Tally>) {
    let aborted = match scene.ended_by {
        EndedBy::Failures => CauseKind::TargetFailed,
        EndedBy::Recorder => CauseKind::Recorder,
        _ => CauseKind::Limits,
    };
    for (kind, requests) in [
        (aborted, scene.unsent.aborted),
        (CauseKind::LocalResources, scene.unsent.stuck),
        (CauseKind::Limits, scene.unsent.limits),
    ] {
        if requests > 0 {
            let tally = tallies.entry(kind).or_default();
            tally.requests += requests;
            tally.value = Some(tally.requests as i64);
        }
    }
}

fn told(kind: CauseKind, tally: &Tally) -> Cause {
    let figure = match kind {
        CauseKind::Connections => Some("connection_wait_ns"),
        CauseKind::Prefetch => Some("rendered_late"),
        CauseKind::CpuThrottled => Some("cpu_throttled_ns"),
        CauseKind::CpuSteal => Some("steal_ns"),
        CauseKind::CpuRunDelay => Some("send_run_delay_ns"),
        CauseKind::CpuPressure => Some("cpu_pressure_ns"),
        CauseKind::CpuBusy => Some("machine_busy_ns"),
        CauseKind::ClockStep => Some("clock_steps"),
        CauseKind::SendingThread => Some("behind_ns"),
        CauseKind::BackPressure => Some("write_time_ns"),
        CauseKind::Unexplained => None,
        CauseKind::TargetFailed | CauseKind::Recorder | CauseKind::LocalResources | CauseKind::Limits => {
            Some("unsent")
        }
    };
    let of_machine = matches!(kind, CauseKind::CpuSteal | CauseKind::CpuBusy) && tally.capacity_ns > 0;
    let share = tally.value.filter(|_| of_machine).map(|ns| ns as f64 / tally.capacity_ns as f64);
    Cause {
        cause: kind,
        requests: tally.requests,
        first_second: tally.seconds.map(|(first, _)| first),
        last_second: tally.seconds.map(|(_, last)| last),
        figure: figure.filter(|_| tally.value.is_some()).map(str::to_owned),
        value: tally.value,
        share,
        text: text(kind, tally, share),
        remedy: kind.remedy().to_owned(),
    }
}

/// The evidence in words, as `the hypervisor took 31.0 % of the CPU time in seconds 12 to 19`.
fn text(kind: CauseKind, tally: &Tally, share: Option<f64>) -> String {
    let value = tally.value.unwrap_or(0);
    let ms = format!("{:.1} ms", value as f64 / 1e6);
    let part = share.map_or(ms.clone(), |share| format!("{:.1} %", 100.0 * share));
    let what = match kind {
        CauseKind::Connections => format!("a connection stood, or was free, up to {ms} after the due time"),
        CauseKind::Prefetch => format!("{value} requests were rendered only after they were due"),
        CauseKind::CpuThrottled => format!("the CPU quota held the generator back for {ms}"),
        CauseKind::CpuSteal => format!("the hypervisor took {part} of the machine's CPU time"),
        CauseKind::CpuRunDelay => format!("the sending threads waited {ms} for a CPU"),
        CauseKind::CpuPressure => format!("tasks waited {ms} for a CPU"),
        CauseKind::CpuBusy => format!("work took {part} of the machine's CPU time"),
        CauseKind::ClockStep => format!("wall time stepped {value} times"),
        CauseKind::SendingThread => {
            format!(
                "the sending threads were behind for {ms} and nothing kept them from a CPU: their own work, or a pause"
            )
        }
        CauseKind::Unexplained => "no health row covers the time".to_owned(),
        CauseKind::BackPressure => format!("writing a request took up to {ms}"),
        CauseKind::TargetFailed => "the run gave up on its target".to_owned(),
        CauseKind::Recorder => "the recorder or its disk could not keep up".to_owned(),
        CauseKind::LocalResources => "there was no descriptor, port or allowed connection".to_owned(),
        CauseKind::Limits => "the run ended, or a limit passed, before their turn".to_owned(),
    };
    match tally.seconds {
        Some((first, last)) if first == last => format!("{what} in second {first}"),
        Some((first, last)) => format!("{what} in seconds {first} to {last}"),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    fn departure(due_ms: i64, late_ms: i64) -> Departure {
        Departure { due_ns: due_ms * MS, written_ns: (due_ms + late_ms) * MS, ..Departure::default() }
    }

    /// A quiet second of a machine of two cores.
    fn row(second: i64) -> HealthFigures {
        HealthFigures {
            at_ns: (second + 1) * SECOND_NS,
            throttled_ns: Some(0),
            steal_ns: Some(0),
            run_delay_ns: Some(MS),
            pressure_ns: Some(0),
            busy_ns: Some(500 * MS),
            capacity_ns: Some(2 * SECOND_NS),
            ..HealthFigures::default()
        }
    }

    fn found(departures: &[Departure], health: &[HealthFigures]) -> Vec<Cause> {
        find(&Scene {
            departures,
            health,
            late_above_ns: Some(5 * MS),
            limited: false,
            unsent: Unsent::default(),
            ended_by: EndedBy::Plan,
        })
    }

    fn kinds(causes: &[Cause]) -> Vec<(CauseKind, u64)> {
        causes.iter().map(|cause| (cause.cause, cause.requests)).collect()
    }

    #[test]
    fn the_time_behind_is_the_union_of_what_is_overdue_row_by_row() {
        // Overdue 100 to 150 and 120 to 160 ms, and 980 to 1,030 ms, which reaches into the next row.
        let senders = [departure(980, 50), departure(120, 40), departure(100, 50)];
        assert_eq!(behind_ns(&senders, &[row(0), row(1), row(2)]), [80 * MS, 30 * MS, 0]);
        // What no row covers is in none.
        assert_eq!(behind_ns(&[departure(990, 50)], &[row(0)]), [10 * MS]);
    }

    #[test]
    fn what_took_half_of_the_time_behind_is_the_cause_and_the_largest_of_several() {
        let late = [departure(100, 20), departure(1_500, 20)];
        for (figures, kind) in [
            (HealthFigures { throttled_ns: Some(10 * MS), ..row(0) }, CauseKind::CpuThrottled),
            (HealthFigures { throttled_ns: Some(10 * MS - 1), ..row(0) }, CauseKind::SendingThread),
            (
                HealthFigures { steal_ns: Some(11 * MS), throttled_ns: Some(10 * MS), ..row(0) },
                CauseKind::CpuSteal,
            ),
            (
                HealthFigures { run_delay_ns: Some(20 * MS), steal_ns: Some(20 * MS), ..row(0) },
                CauseKind::CpuSteal,
            ),
            (HealthFigures { run_delay_ns: Some(20 * MS), ..row(0) }, CauseKind::CpuRunDelay),
            (
                HealthFigures { run_delay_ns: None, pressure_ns: Some(10 * MS), ..row(0) },
                CauseKind::CpuPressure,
            ),
            (HealthFigures { pressure_ns: Some(10 * MS), ..row(0) }, CauseKind::SendingThread),
            (HealthFigures { run_delay_ns: None, busy_ns: Some(1_800 * MS), ..row(0) }, CauseKind::CpuBusy),
            (HealthFigures { busy_ns: Some(1_800 * MS), ..row(0) }, CauseKind::SendingThread),
            (HealthFigures { stepped: true, ..row(0) }, CauseKind::ClockStep),
            (HealthFigures { rendered_late: 3, steal_ns: Some(SECOND_NS), ..row(0) }, CauseKind::Prefetch),
            (HealthFigures { at_ns: SECOND_NS, ..HealthFigures::default() }, CauseKind::SendingThread),
        ] {
            let causes = found(&late, &[figures, row(1)]);
            assert!(causes.iter().any(|cause| cause.cause == kind), "{kind:?}: {causes:?}");
            assert_eq!(causes.iter().map(|cause| cause.requests).sum::<u64>(), 2);
        }
    }

    #[test]
    fn the_evidence_is_summed_over_the_seconds_and_told_with_its_share() {
        let stolen = |second| HealthFigures { steal_ns: Some(620 * MS), ..row(second) };
        let health: Vec<_> =
            (0..20).map(|second| if second < 12 { row(second) } else { stolen(second) }).collect();
        let late: Vec<_> =
            (12..20).flat_map(|second| [100, 200].map(|ms| departure(second * 1_000 + ms, 30))).collect();
        let causes = found(&late, &health);
        assert_eq!(kinds(&causes), [(CauseKind::CpuSteal, 16)]);
        let cause = &causes[0];
        assert_eq!((cause.first_second, cause.last_second), (Some(12), Some(19)));
        assert_eq!(
            (cause.figure.as_deref(), cause.value, cause.share),
            (Some("steal_ns"), Some(8 * 620 * MS), Some(0.31))
        );
        assert_eq!(cause.text, "the hypervisor took 31.0 % of the machine's CPU time in seconds 12 to 19");
    }

    #[test]
    fn a_connection_that_stood_late_is_told_by_the_attempt_itself() {
        let fresh = Departure { ready_ns: Some(118 * MS), released_ns: Some(100 * MS), ..departure(100, 20) };
        let in_time =
            Departure { ready_ns: Some(99 * MS), released_ns: Some(119 * MS), ..departure(100, 20) };
        let kept = Departure { released_ns: Some(101 * MS), ..departure(100, 20) };
        let stolen = [HealthFigures { steal_ns: Some(SECOND_NS), ..row(0) }];
        let causes = found(&[fresh, in_time, kept], &stolen);
        assert_eq!(kinds(&causes), [(CauseKind::CpuSteal, 2), (CauseKind::Connections, 1)]);
        assert_eq!(causes[1].value, Some(18 * MS));
        // Where the run may open no more, a kept connection that was not free is one too.
        let scene = Scene {
            departures: &[kept],
            health: &stolen,
            late_above_ns: Some(5 * MS),
            limited: true,
            unsent: Unsent::default(),
            ended_by: EndedBy::Plan,
        };
        assert_eq!(kinds(&find(&scene)), [(CauseKind::Connections, 1)]);
    }

    #[test]
    fn without_a_health_row_nothing_explains_a_late_request_and_in_time_ones_need_no_cause() {
        assert_eq!(
            kinds(&found(&[departure(100, 20), departure(1_500, 5)], &[])),
            [(CauseKind::Unexplained, 1)]
        );
        assert_eq!(kinds(&found(&[departure(1_500, 6)], &[row(0)])), [(CauseKind::Unexplained, 1)]);
        assert_eq!(found(&[departure(100, 5)], &[row(0)]), []);
    }

    #[test]
    fn long_writes_are_told_beside_whatever_made_requests_late() {
        let slow = Departure { write_ns: Some(70 * MS), ..departure(100, 0) };
        let causes = found(&[slow, departure(200, 20)], &[row(0)]);
        assert_eq!(kinds(&causes), [(CauseKind::SendingThread, 1), (CauseKind::BackPressure, 1)]);
        assert_eq!(causes[1].value, Some(70 * MS));
    }

    #[test]
    fn what_never_left_is_told_by_how_the_run_ended() {
        let of = |ended_by| {
            let unsent = Unsent { aborted: 7, stuck: 2, limits: 1 };
            let scene =
                Scene { departures: &[], health: &[], late_above_ns: None, limited: false, unsent, ended_by };
            kinds(&find(&scene))
        };
        use CauseKind::{Limits, LocalResources, Recorder, TargetFailed};
        assert_eq!(of(EndedBy::Failures), [(TargetFailed, 7), (LocalResources, 2), (Limits, 1)]);
        assert_eq!(of(EndedBy::Recorder), [(Recorder, 7), (LocalResources, 2), (Limits, 1)]);
        assert_eq!(of(EndedBy::Unknown), [(Limits, 8), (LocalResources, 2)]);
    }

    proptest! {
        #[test]
        fn every_late_request_has_exactly_one_cause_and_no_row_is_behind_for_longer_than_it_lasts(
            late in prop::collection::vec((0i64..5_000, 0i64..900), 0..60),
            steal in prop::collection::vec(0i64..2_000, 4),
        ) {
            let departures: Vec<_> = late.iter().map(|(due, late)| departure(*due, *late)).collect();
            let health: Vec<_> =
                steal.iter().zip(0..).map(|(ms, second)| HealthFigures { steal_ns: Some(ms * MS), ..row(second) }).collect();
            let expected = late.iter().filter(|(_, late)| *late > 5).count() as u64;
            let causes = found(&departures, &health);
            prop_assert_eq!(causes.iter().map(|cause| cause.requests).sum::<u64>(), expected);
            for behind in behind_ns(&departures, &health) {
                prop_assert!((0..=SECOND_NS).contains(&behind));
            }
        }
    }
}
