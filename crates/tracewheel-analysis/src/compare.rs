//! A replay against a baseline.

use std::collections::HashSet;

use tracewheel_record::Run;
use tracewheel_timeline::Timeline;

use crate::alignment::Alignment;
use crate::comparison::{
    COMPARISON_VERSION, Comparison, Gate, Matching, Methods, MetricComparison, PercentileComparison,
};
use crate::error::{AnalysisError, Result};
use crate::fidelity::{Fidelity, FidelityBounds};
use crate::interval::{DEFAULT_LEVEL, INTERVAL_METHOD};
use crate::latencies::{self, Rules};
use crate::metric::{Metric, Population, Verdict, definitions};
use crate::quantile::{Percentile, QUANTILE_METHOD};
use crate::side::{self, Side};
use crate::{cache, environment, ratio, warnings};

/// What a replay is compared with.
#[derive(Clone, Copy)]
pub enum Baseline<'a> {
    /// What production recorded.
    Timeline(&'a Timeline),
    /// Another replay of the same timeline.
    Run(&'a Run),
}

/// How to compare.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareOptions {
    /// Level of every interval, between 0.5 and 0.999; 0.95 by default.
    pub level: f64,
    /// Relative difference that still counts as agreement; 0.1 by default.
    pub tolerance: f64,
    /// Absolute difference that still counts as agreement, in nanoseconds; 1 ms by default.
    pub floor_ns: i64,
    /// A gap longer than this is a stall, in nanoseconds; 500 ms by default.
    pub stall_ns: i64,
    /// The percentiles that the overall verdict rests on, in population `user`; p50 and p95 of TTFT and E2E by default.
    pub gates: Vec<(Metric, Percentile)>,
    /// Compare the same rows where both sides hold them; true by default. Without it the whole baseline is taken: what a
    /// bench of a few requests claims about all of production.
    pub match_rows: bool,
    /// What both sides' sending is judged by; each run's own bounds by default.
    pub fidelity: Option<FidelityBounds>,
}

impl Default for CompareOptions {
    fn default() -> Self {
        let percentiles = [Percentile::P50, Percentile::P95];
        Self {
            level: DEFAULT_LEVEL,
            tolerance: 0.1,
            floor_ns: 1_000_000,
            stall_ns: 500_000_000,
            gates: [Metric::Ttft, Metric::E2e]
                .into_iter()
                .flat_map(|m| percentiles.map(|p| (m, p)))
                .collect(),
            match_rows: true,
            fidelity: None,
        }
    }
}

/// Compares a replay with a baseline. Pure: the same inputs give the same comparison.
///
/// # Errors
/// Unreadable inputs, options out of range, a run without measured requests, or no common request.
pub fn compare(replay: &Run, baseline: Baseline<'_>, options: &CompareOptions) -> Result<Comparison> {
    options.check()?;
    let mine = side::load_run(replay, options.stall_ns, options.fidelity)?;
    if mine.roster.requests.is_empty() {
        return Err(AnalysisError::Empty { run: replay.manifest().id.clone() });
    }
    let same_timeline = same_timeline(replay, baseline);
    let matching = if same_timeline && options.match_rows { Matching::ByRow } else { Matching::None };
    let theirs = load_baseline(&mine, baseline, matching, options)?;
    let copies = matches!(baseline, Baseline::Run(_));
    let alignment = Alignment::new(&mine.roster, &theirs.roster, matching, copies, mine.unsent_without_row);
    if theirs.roster.requests.is_empty() || (matching == Matching::ByRow && alignment.matched() == 0) {
        return Err(AnalysisError::NothingMatches {
            baseline: theirs.report.name.clone(),
            remedy: "compare with the timeline that was replayed, or with a run of it over the same window",
        });
    }
    let rules = Rules { level: options.level, tolerance: options.tolerance, floor_ns: options.floor_ns };
    let metrics = latencies::compare_all(&alignment, (&mine, &theirs), rules)?;
    let cache = cache::report(&alignment, &metrics, options.level);
    let environment = match baseline {
        Baseline::Run(run) => environment::between_runs(replay.manifest(), run.manifest()),
        Baseline::Timeline(timeline) => {
            environment::with_production(replay.manifest(), timeline, (&mine, &theirs))
        }
    };
    let gates = gates(options, &metrics);
    let notice = notice(&mine, &theirs);
    let (verdict, verdict_reason) = overall(&gates, &metrics, notice.as_deref());
    let context = warnings::Context {
        replay: replay.manifest(),
        sides: (&mine, &theirs),
        metrics: &metrics,
        alignment: &alignment,
        same_timeline,
    };
    Ok(Comparison {
        schema: COMPARISON_VERSION.to_owned(),
        methods: methods(options, matching),
        environment,
        verdict,
        verdict_reason,
        gates,
        notice,
        warnings: warnings::of_comparison(&context),
        missing: warnings::missing(&context),
        replay: mine.report,
        baseline: theirs.report,
        fidelity: mine.fidelity.unwrap_or_default(),
        baseline_fidelity: theirs.fidelity,
        metrics,
        cache,
    })
}

impl CompareOptions {
    fn check(&self) -> Result<()> {
        check_level(self.level)?;
        check_stall(self.stall_ns)?;
        check_bounds(self.fidelity)?;
        if !(0.0..=10.0).contains(&self.tolerance) {
            let value = self.tolerance.to_string();
            return Err(AnalysisError::Option { name: "tolerance", value, expected: "a share from 0 to 10" });
        }
        if self.floor_ns < 0 {
            let value = self.floor_ns.to_string();
            return Err(AnalysisError::Option { name: "floor_ns", value, expected: "0 ns or more" });
        }
        Ok(())
    }
}

pub(crate) fn check_level(level: f64) -> Result<()> {
    if (0.5..=0.999).contains(&level) {
        return Ok(());
    }
    Err(AnalysisError::Option {
        name: "level",
        value: level.to_string(),
        expected: "a share from 0.5 to 0.999",
    })
}

pub(crate) fn check_stall(stall_ns: i64) -> Result<()> {
    if stall_ns > 0 {
        return Ok(());
    }
    Err(AnalysisError::Option { name: "stall_ns", value: stall_ns.to_string(), expected: "more than 0 ns" })
}

pub(crate) fn check_bounds(bounds: Option<FidelityBounds>) -> Result<()> {
    bounds.map_or(Ok(()), |bounds| bounds.check()).map_err(|value| AnalysisError::Option {
        name: "fidelity",
        value,
        expected: "bounds that a run can be judged by",
    })
}

/// Rows mean the same requests exactly when both sides come from one timeline.
fn same_timeline(replay: &Run, baseline: Baseline<'_>) -> bool {
    let digest = match baseline {
        Baseline::Timeline(timeline) => &timeline.meta().digest,
        Baseline::Run(run) => &run.manifest().plan.timeline_digest,
    };
    let mine = &replay.manifest().plan.timeline_digest;
    !mine.is_empty() && mine == digest
}

fn load_baseline<'a>(
    mine: &Side<'_>,
    baseline: Baseline<'a>,
    matching: Matching,
    options: &CompareOptions,
) -> Result<Side<'a>> {
    match baseline {
        Baseline::Run(run) => side::load_run(run, options.stall_ns, options.fidelity),
        Baseline::Timeline(timeline) => {
            let rows: HashSet<u64> = mine.roster.requests.iter().map(|r| r.key.0).collect();
            let wanted = |row: u64| matching == Matching::None || rows.contains(&row);
            side::load_timeline(timeline, &wanted, options.stall_ns)
        }
    }
}

fn methods(options: &CompareOptions, matching: Matching) -> Methods {
    Methods {
        quantile: QUANTILE_METHOD.to_owned(),
        interval: INTERVAL_METHOD.to_owned(),
        ratio: ratio::RATIO_METHOD.to_owned(),
        verdict: ratio::VERDICT_RULE.to_owned(),
        level: options.level,
        tolerance: options.tolerance,
        floor_ns: options.floor_ns,
        stall_ns: options.stall_ns,
        matching,
        definitions: definitions(),
    }
}

fn gates(options: &CompareOptions, metrics: &[MetricComparison]) -> Vec<Gate> {
    let gate = |(metric, percentile): &(Metric, Percentile)| {
        let population =
            if Metric::OF_REQUESTS.contains(metric) { Population::User } else { Population::Success };
        let row = metrics.iter().find(|m| m.metric == *metric && m.population == population);
        let verdict = row.and_then(|m| m.percentile(*percentile)).and_then(|p| p.verdict);
        let verdict = verdict.unwrap_or(Verdict::CannotTell);
        Gate { metric: *metric, population, percentile: *percentile, verdict }
    };
    options.gates.iter().map(gate).collect()
}

/// Why the latencies prove nothing, where a side's generator did not keep its schedule.
fn notice(mine: &Side<'_>, theirs: &Side<'_>) -> Option<String> {
    let late = |side: &Side<'_>| side.fidelity.as_ref().is_some_and(Fidelity::is_unfaithful);
    let who = match (late(mine), late(theirs)) {
        (false, false) => return None,
        (true, false) => "the replay is",
        (false, true) => "the baseline is",
        (true, true) => "both runs are",
    };
    Some(format!("{who} unfaithful to the schedule: latencies and load are partly the generator's own"))
}

/// The verdict over the gates. A generator that did not keep its schedule proves nothing, whatever the numbers say.
fn overall(gates: &[Gate], metrics: &[MetricComparison], notice: Option<&str>) -> (Verdict, String) {
    if let Some(notice) = notice {
        return (Verdict::CannotTell, notice.to_owned());
    }
    let named = |verdict: Verdict| {
        let names = gates
            .iter()
            .filter(|g| g.verdict == verdict)
            .map(|g| format!("{} {}", g.metric.as_str(), g.percentile));
        names.collect::<Vec<_>>().join(", ")
    };
    let any = |verdict: Verdict| gates.iter().any(|g| g.verdict == verdict);
    if any(Verdict::Slower) {
        (
            Verdict::Slower,
            format!("slower than the baseline beyond the tolerance: {}", named(Verdict::Slower)),
        )
    } else if any(Verdict::CannotTell) || gates.is_empty() {
        (Verdict::CannotTell, undecided(gates, metrics))
    } else if any(Verdict::Faster) {
        (
            Verdict::Faster,
            format!("faster than the baseline beyond the tolerance: {}", named(Verdict::Faster)),
        )
    } else {
        (Verdict::Agree, "every gate lies within the tolerance".to_owned())
    }
}

/// What keeps the gates from a verdict, and what would give one.
fn undecided(gates: &[Gate], metrics: &[MetricComparison]) -> String {
    if gates.is_empty() {
        return "no gate was set".to_owned();
    }
    let names = |wanted: fn(&PercentileComparison) -> bool| {
        let open = gates.iter().filter(|g| g.verdict == Verdict::CannotTell);
        let entry = |g: &&Gate| {
            let row = metrics.iter().find(|m| m.metric == g.metric && m.population == g.population)?;
            row.percentile(g.percentile).copied()
        };
        let names = open
            .filter(|g| entry(g).is_some_and(|p| wanted(&p)))
            .map(|g| format!("{} {}", g.metric.as_str(), g.percentile));
        names.collect::<Vec<_>>().join(", ")
    };
    let no_baseline = names(|p| p.baseline.is_none());
    let no_replay = names(|p| p.baseline.is_some() && p.replay.is_none());
    let open = names(|p| p.baseline.is_some() && p.replay.is_some());
    let mut parts = Vec::new();
    if !open.is_empty() {
        parts.push(format!("{open}: the interval reaches across the tolerance; replay a longer window"));
    }
    if !no_baseline.is_empty() {
        parts.push(format!("{no_baseline}: the baseline does not know it"));
    }
    if !no_replay.is_empty() {
        parts.push(format!("{no_replay}: the replay has no value"));
    }
    parts.join("; ")
}
