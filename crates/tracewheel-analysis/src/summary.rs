//! What a single run says: the summary at the end of a replay, and the inspection of a run.

mod routes;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tracewheel_record::Run;
use tracewheel_record::manifest::RunState;

use crate::alignment::Alignment;
use crate::compare::{check_bounds, check_level, check_stall};
use crate::comparison::{
    CacheReport, Estimate, Fidelity, Metric, Percentile, Population, SampleSize, SideReport, Warning,
};
use crate::error::Result;
use crate::fidelity::FidelityBounds;
use crate::interval::INTERVAL_METHOD;
use crate::latencies::{self, Sample};
use crate::metric::definitions;
use crate::quantile::{QUANTILE_METHOD, nearest_rank};
use crate::side::observed::{FirstStamp, Observed};
use crate::side::{self, Side};
use crate::{cache, warnings};

pub use routes::RouteClass;

/// Version of the summary's JSON: a minor version only adds keys.
pub const SUMMARY_VERSION: &str = "1.0";

/// How to summarise.
#[derive(Debug, Clone, PartialEq)]
pub struct SummaryOptions {
    /// Level of every interval, between 0.5 and 0.999; 0.95 by default.
    pub level: f64,
    /// A gap longer than this is a stall, in nanoseconds; 500 ms by default.
    pub stall_ns: i64,
    /// What the sending is judged by; the run's own bounds by default.
    pub fidelity: Option<FidelityBounds>,
}

impl Default for SummaryOptions {
    fn default() -> Self {
        Self { level: crate::interval::DEFAULT_LEVEL, stall_ns: 500_000_000, fidelity: None }
    }
}

/// What a replay measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplaySummary {
    /// [`SUMMARY_VERSION`].
    pub schema: String,
    /// `nearest_rank`.
    pub quantile: String,
    /// Name of the interval method.
    pub interval: String,
    /// What each metric and population is, in one line.
    pub definitions: BTreeMap<String, String>,
    /// The run.
    pub run: SideReport,
    /// How exactly the plan was sent.
    pub fidelity: Fidelity,
    /// Latencies: metric by metric, population by population.
    pub metrics: Vec<MetricSummary>,
    /// Measured requests by what they asked for and in which manner.
    #[serde(default)]
    pub operations: Vec<OperationClass>,
    /// Measured requests by the route of the scenario that they took; empty where it has none.
    #[serde(default)]
    pub routes: Vec<RouteClass>,
    /// Latency by cached share of the prompt.
    pub cache: CacheReport,
    /// What should be known before a number is trusted.
    pub warnings: Vec<Warning>,
}

impl ReplaySummary {
    /// The summary of one metric in one population.
    pub fn metric(&self, metric: Metric, population: Population) -> Option<&MetricSummary> {
        self.metrics.iter().find(|m| m.metric == metric && m.population == population)
    }
}

/// One metric in one population.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricSummary {
    /// The metric.
    pub metric: Metric,
    /// The population.
    pub population: Population,
    /// What the sample consists of.
    pub sample: SampleSize,
    /// One entry a percentile.
    pub percentiles: Vec<PercentileSummary>,
}

/// One percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PercentileSummary {
    /// The percentile.
    pub percentile: Percentile,
    /// The quantile; null without values.
    pub estimate: Option<Estimate>,
}

/// What stands in a run directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInspection {
    /// [`SUMMARY_VERSION`].
    pub schema: String,
    /// The run's id.
    pub id: String,
    /// `open`, `closed` or `recovered`.
    pub state: RunState,
    /// Version of the tool that wrote it.
    pub tool_version: String,
    /// Where it was sent, without secrets.
    pub target: String,
    /// Digest of the timeline that was replayed.
    pub timeline_digest: String,
    /// Requests by phase and status.
    pub phases: Vec<PhaseCount>,
    /// Tokens of successful measured requests.
    pub tokens: TokenTotals,
    /// The summary of the measured requests; null when there are none.
    pub summary: Option<ReplaySummary>,
}

/// Requests of one phase and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCount {
    /// The phase.
    pub phase: String,
    /// The status.
    pub status: String,
    /// How many.
    pub requests: u64,
}

/// Measured requests of one operation and one manner of answer: a class of its own, because an embedding or a plain answer
/// says nothing about a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationClass {
    /// The operation; `unknown` where the run does not say.
    pub operation: String,
    /// Whether a stream of output was asked for.
    pub streamed: bool,
    /// How many.
    pub requests: u64,
    /// How many of them were successful.
    pub ok: u64,
    /// Median end-to-end latency of these (`e2e`, population `success`), in nanoseconds; null where none has one.
    pub e2e_p50_ns: Option<i64>,
    /// The same at 95 %.
    pub e2e_p95_ns: Option<i64>,
}

/// Sums of tokens over successful measured requests that report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TokenTotals {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Of those, served from the cache.
    pub cached: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
}

/// Summarises a run: counts, latencies, precision of sending, rates. A run without measured requests has counts of 0 and no
/// latency.
///
/// # Errors
/// An unreadable run, or options out of range.
pub fn summarise(run: &Run, options: &SummaryOptions) -> Result<ReplaySummary> {
    check_level(options.level)?;
    check_stall(options.stall_ns)?;
    check_bounds(options.fidelity)?;
    let side = side::load_run(run, options.stall_ns, options.fidelity)?;
    of_side(run, side, options.level)
}

fn of_side(run: &Run, side: Side<'_>, level: f64) -> Result<ReplaySummary> {
    let alignment = Alignment::alone(&side.roster, side.unsent_without_row);
    let mut metrics = Vec::new();
    for metric in Metric::OF_REQUESTS {
        for population in Population::ALL {
            let sample = latencies::replay_sample(&alignment, metric, population, level);
            metrics.push(row(metric, population, &sample));
        }
    }
    let slots = side.roster.requests.len();
    let pooled =
        latencies::pooled(&side, slots, &|at, metric| alignment.replay_stream_slot(at, metric), level)?;
    metrics.push(row(Metric::Gap, Population::Success, &pooled.gap));
    metrics.push(row(Metric::Itl, Population::Success, &pooled.itl));
    let tpot = latencies::replay_sample(&alignment, Metric::Tpot, Population::Success, level);
    metrics.push(row(Metric::Tpot, Population::Success, &tpot));
    let cache = cache::report(&alignment, &[], level);
    Ok(ReplaySummary {
        schema: SUMMARY_VERSION.to_owned(),
        quantile: QUANTILE_METHOD.to_owned(),
        interval: INTERVAL_METHOD.to_owned(),
        definitions: definitions(),
        fidelity: side.fidelity.clone().unwrap_or_default(),
        metrics,
        operations: operation_classes(&side.roster.requests),
        routes: routes::route_classes(&side.roster.requests),
        cache,
        warnings: warnings::of_run(run.manifest(), &side),
        run: side.report,
    })
}

fn row(metric: Metric, population: Population, sample: &Sample) -> MetricSummary {
    let percentiles = Percentile::REPORTED
        .map(|p| PercentileSummary { percentile: p, estimate: sample.at(p).map(|m| m.estimate) });
    MetricSummary { metric, population, sample: sample.size, percentiles: percentiles.to_vec() }
}

/// By operation, streams first.
fn operation_classes(requests: &[Observed]) -> Vec<OperationClass> {
    let mut classes: BTreeMap<(&str, bool), (u64, u64, Vec<i64>)> = BTreeMap::new();
    for request in requests {
        let operation = request.operation.map_or("unknown", |operation| operation.as_str());
        let (all, ok, e2e) = classes.entry((operation, !request.streamed)).or_default();
        *all += 1;
        *ok += u64::from(request.is_ok());
        if request.is_ok() {
            e2e.extend(request.latency(Metric::E2e, Population::Success, FirstStamp::Output));
        }
    }
    let class = |((operation, plain), (requests, ok, mut e2e)): ((&str, bool), (u64, u64, Vec<i64>))| {
        e2e.sort_unstable();
        OperationClass {
            operation: operation.to_owned(),
            streamed: !plain,
            requests,
            ok,
            e2e_p50_ns: nearest_rank(&e2e, Percentile::P50),
            e2e_p95_ns: nearest_rank(&e2e, Percentile::P95),
        }
    };
    classes.into_iter().map(class).collect()
}

/// Says what stands in a run directory, closed or not.
///
/// # Errors
/// An unreadable run.
pub fn inspect_run(run: &Run) -> Result<RunInspection> {
    let options = SummaryOptions::default();
    let side = side::load_run(run, options.stall_ns, options.fidelity)?;
    let manifest = run.manifest();
    let phases = side.phases.iter().map(|((phase, status), requests)| PhaseCount {
        phase: phase.to_string(),
        status: status.to_string(),
        requests: *requests,
    });
    let phases = phases.collect();
    let mut tokens = TokenTotals::default();
    for request in side.roster.requests.iter().filter(|r| r.is_ok()) {
        tokens.input += u64::from(request.input_tokens.unwrap_or(0));
        tokens.cached += u64::from(request.cached_tokens.unwrap_or(0));
        tokens.output += u64::from(request.output_tokens.unwrap_or(0));
    }
    let empty = side.roster.requests.is_empty();
    Ok(RunInspection {
        schema: SUMMARY_VERSION.to_owned(),
        id: manifest.id.clone(),
        state: manifest.state,
        tool_version: manifest.tool_version.clone(),
        target: manifest.target.url.clone(),
        timeline_digest: manifest.plan.timeline_digest.clone(),
        phases,
        tokens,
        summary: if empty { None } else { Some(of_side(run, side, options.level)?) },
    })
}
