//! Whole replays at given rates, against an endpoint of its own that answers at once.

mod endpoint;

use std::path::Path;
use std::sync::mpsc::sync_channel;

use serde::Serialize;
use tracewheel_analysis::SummaryOptions;
use tracewheel_analysis::fidelity::{Cause, FidelityVerdict};
use tracewheel_record::Run;
use tracewheel_record::manifest::MachineSection;
use tracewheel_replay::{ReplayConfig, StopSignal};
use tracewheel_timeline::{RequestRow, Timeline, TimelineMeta, TimelineWriter};
use tracewheel_workload::{Plan, PlanOptions};

use crate::disk::Scratch;
use crate::{DoctorError, Options, Spread};
use endpoint::Endpoint;

const SECOND_NS: i64 = 1_000_000_000;
/// Tokens of each prompt and chunks of each answer: small, since the machine is tried and not the network.
const PROMPT_TOKENS: u32 = 200;
/// See [`PROMPT_TOKENS`].
const CHUNKS: u32 = 16;

/// The machine, as a run's manifest describes it.
pub type Machine = MachineSection;

/// A replay at one rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rate {
    /// The rate asked for, requests a second on average: arrivals by chance, as of independent users (Poisson).
    pub per_second: u32,
    /// Requests planned.
    pub requests: u64,
    /// Requests a second that left.
    pub achieved_per_second: Option<f64>,
    /// First byte written − due.
    pub lateness: Spread,
    /// The lateness that a p99 may have in a faithful run.
    pub bound_ns: i64,
    /// How a replay at this rate is judged, as every run is; null where there was no schedule to keep.
    pub verdict: Option<FidelityVerdict>,
    /// Why, in one sentence.
    pub reason: String,
    /// What held requests up, the most frequent first; empty for a faithful run.
    pub causes: Vec<Cause>,
    /// Whether the replay was faithful.
    pub kept: bool,
    /// Cores' worth of time that the generator and the endpoint beside it took together; null where the system does
    /// not tell.
    pub cpu_cores: Option<f64>,
    /// Time that the hypervisor gave to others, percent of the machine; null where the system does not tell.
    pub steal_percent: Option<f64>,
    /// Scheduling class that the sending threads had.
    pub scheduling_class: Option<String>,
}

/// Tries one rate; also what its run says about the machine.
pub(crate) fn try_rate(per_second: u32, options: &Options) -> Result<(Rate, Machine), DoctorError> {
    let scratch = Scratch::new(&options.dir)?;
    let offsets = arrivals(per_second, options.seconds);
    let plan = plan(&scratch.path().join("arrivals.parquet"), &offsets)
        .map_err(|source| DoctorError::Replay { per_second, source })?;
    let endpoint = Endpoint::start(CHUNKS)?;
    let config = ReplayConfig {
        target: format!("http://{}", endpoint.addr()),
        realtime: options.realtime,
        ..ReplayConfig::default()
    };
    let (events, _unread) = sync_channel(1);
    let runs = scratch.path().join("runs");
    let report = tracewheel_replay::run(&plan, &config, &runs, &StopSignal::new(), events)
        .map_err(DoctorError::replay(per_second))?;
    let run = Run::open(&report.run_dir).map_err(DoctorError::replay(per_second))?;
    let machine = run.manifest().machine.clone();
    let fidelity = tracewheel_analysis::summarise(&run, &SummaryOptions::default())
        .map_err(DoctorError::replay(per_second))?
        .fidelity;
    let (cpu_cores, steal_percent) = shares(&run, machine.cores).map_err(DoctorError::replay(per_second))?;
    let rate = Rate {
        per_second,
        requests: report.counts.planned,
        achieved_per_second: report.achieved_per_s,
        lateness: fidelity.lateness.into(),
        bound_ns: fidelity.criteria.lateness_p99_ns.degraded_above,
        verdict: fidelity.verdict,
        reason: fidelity.reason,
        causes: fidelity.causes,
        kept: fidelity.verdict == Some(FidelityVerdict::Faithful),
        cpu_cores,
        steal_percent,
        scheduling_class: machine.scheduling_class.clone(),
    };
    Ok((rate, machine))
}

/// CPU time of the process in cores, and stolen time in percent of the machine.
fn shares(
    run: &Run,
    cores: Option<u32>,
) -> Result<(Option<f64>, Option<f64>), tracewheel_record::RecordError> {
    let (mut cpu_ns, mut steal_ns, mut last_ns) = (None, None, 0);
    for second in run.health()? {
        let second = second?;
        let add = |sum: &mut Option<i64>, more: Option<i64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0) + more);
            }
        };
        add(&mut cpu_ns, second.cpu_ns);
        add(&mut steal_ns, second.steal_ns);
        last_ns = second.at_ns.max(last_ns);
    }
    let share = |part: Option<i64>| part.filter(|_| last_ns > 0).map(|part| part as f64 / last_ns as f64);
    let machine = cores.map(f64::from);
    Ok((share(cpu_ns), share(steal_ns).zip(machine).map(|(share, cores)| share / cores * 100.0)))
}

/// Arrivals by chance: gaps of an exponential distribution, the same in every call.
fn arrivals(per_second: u32, seconds: u32) -> Vec<i64> {
    let mean_ns = SECOND_NS as f64 / f64::from(per_second);
    let (mut state, mut at_ns) = (0x646f_6374_6f72_u64, 0.0);
    let count = u64::from(per_second) * u64::from(seconds);
    (0..count.max(2))
        .map(|_| {
            // SplitMix64; the upper 53 bits as a number in (0, 1].
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let chance = (((mixed ^ (mixed >> 31)) >> 11) + 1) as f64 / (1u64 << 53) as f64;
            at_ns -= chance.ln() * mean_ns;
            at_ns as i64
        })
        .collect()
}

fn plan(path: &Path, offsets: &[i64]) -> Result<Plan, Box<dyn std::error::Error + Send + Sync>> {
    let mut writer = TimelineWriter::create(path, TimelineMeta::default())?;
    for offset in offsets {
        writer.push(&RequestRow {
            arrival_unix_ns: Some(*offset),
            model: Some("m".into()),
            stream: Some(true),
            input_tokens: Some(PROMPT_TOKENS),
            output_tokens: Some(CHUNKS),
            ..RequestRow::default()
        })?;
    }
    writer.finish()?;
    Ok(Plan::build(&Timeline::open(path)?, PlanOptions::default())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_have_the_rate_and_the_spread_of_chance() {
        let offsets = arrivals(1_000, 20);
        assert_eq!(offsets.len(), 20_000);
        assert!(offsets.is_sorted());
        let gaps: Vec<f64> = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e6 - 1.0).abs() < 0.03, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn a_rate_is_tried_by_a_whole_replay_that_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { rates: vec![], seconds: 1, dir: dir.path().to_owned(), realtime: false };
        let (rate, machine) = try_rate(50, &options).unwrap();
        assert_eq!((rate.requests, rate.lateness.n), (50, 50));
        assert!(rate.lateness.p50_ns > Some(0) && rate.achieved_per_second > Some(1.0));
        assert!(machine.kernel.is_some() && rate.verdict.is_some() && rate.bound_ns > 0);
        assert!(!rate.kept || rate.causes.is_empty());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
