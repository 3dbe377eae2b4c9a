//! The latency tables: every metric, population and percentile of one side or of two.

use crate::alignment::Alignment;
use crate::comparison::{MetricComparison, PercentileComparison, SampleSize};
use crate::error::Result;
use crate::interval::{Measured, Series};
use crate::metric::{Metric, Population};
use crate::pooled::{Histogram, Pool};
use crate::quantile::Percentile;
use crate::ratio;
use crate::side::Side;
use crate::side::streams::OutputStream;

/// What the tables are made with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) level: f64,
    pub(crate) tolerance: f64,
    pub(crate) floor_ns: i64,
}

/// One side's sample of one metric: its size and its reported percentiles.
pub(crate) struct Sample {
    pub(crate) size: SampleSize,
    measured: Vec<(Percentile, Measured)>,
}

impl Sample {
    fn of_series(values: Vec<Option<i64>>, size: SampleSize, level: f64) -> Self {
        let series = Series::new(values);
        let measured = Percentile::REPORTED.into_iter().filter_map(|p| Some((p, series.measure(p, level)?)));
        Self { size, measured: measured.collect() }
    }

    pub(crate) fn at(&self, p: Percentile) -> Option<&Measured> {
        self.measured.iter().find(|(percentile, _)| *percentile == p).map(|(_, measured)| measured)
    }
}

/// The replay's sample of a metric that has one value a request.
pub(crate) fn replay_sample(
    alignment: &Alignment<'_>,
    metric: Metric,
    population: Population,
    level: f64,
) -> Sample {
    let slots = alignment.replay_slots(metric, population);
    Sample::of_series(slots.values, slots.size, level)
}

fn baseline_sample(
    alignment: &Alignment<'_>,
    metric: Metric,
    population: Population,
    level: f64,
) -> Option<Sample> {
    let slots = alignment.baseline_slots(metric, population)?;
    Some(Sample::of_series(slots.values, slots.size, level))
}

/// The pooled samples of a side: gaps and inter-token latencies, in two passes over its streams.
pub(crate) struct PooledSamples {
    pub(crate) gap: Sample,
    pub(crate) itl: Sample,
}

/// Pools the gaps of the streams that have a slot; `slots` is how many there are.
pub(crate) fn pooled(
    side: &Side<'_>,
    slots: usize,
    slot: &dyn Fn(usize, Metric) -> Option<usize>,
    level: f64,
) -> Result<PooledSamples> {
    let (mut gaps, mut tokens) = (Histogram::default(), Histogram::default());
    side.visit_streams(&mut |at, stream| {
        if slot(at, Metric::Gap).is_some() {
            stream.gaps().for_each(|gap| gaps.add(gap, 1));
        }
        if slot(at, Metric::Itl).is_some() {
            stream.inter_token().for_each(|(ns, count)| tokens.add(ns, count));
        }
    })?;
    let mut gaps = Pool::new(gaps, &Percentile::REPORTED, slots);
    let mut tokens = Pool::new(tokens, &Percentile::REPORTED, slots);
    side.visit_streams(&mut |at, stream: &OutputStream| {
        if let Some(slot) = slot(at, Metric::Gap) {
            stream.gaps().for_each(|gap| gaps.add(slot, gap, 1));
        }
        if let Some(slot) = slot(at, Metric::Itl) {
            stream.inter_token().for_each(|(ns, count)| tokens.add(slot, ns, count));
        }
    })?;
    Ok(PooledSamples { gap: of_pool(&gaps, level), itl: of_pool(&tokens, level) })
}

fn of_pool(pool: &Pool, level: f64) -> Sample {
    let measured = Percentile::REPORTED.into_iter().filter_map(|p| Some((p, pool.measure(p, level)?)));
    let size = SampleSize { n: pool.total(), ..SampleSize::default() };
    Sample { size, measured: measured.collect() }
}

/// Every metric of the replay beside the baseline's.
pub(crate) fn compare_all(
    alignment: &Alignment<'_>,
    sides: (&Side<'_>, &Side<'_>),
    rules: Rules,
) -> Result<Vec<MetricComparison>> {
    let mut rows = Vec::new();
    let stamp = stamp_name(sides.1);
    for metric in Metric::OF_REQUESTS {
        for population in Population::ALL {
            let replay = replay_sample(alignment, metric, population, rules.level);
            let baseline = baseline_sample(alignment, metric, population, rules.level);
            let stamp = (metric == Metric::Ttft && baseline.is_some()).then(|| stamp.clone()).flatten();
            rows.push(row(metric, population, stamp, &replay, baseline.as_ref(), rules, alignment));
        }
    }
    let slots = sides.0.roster.requests.len();
    let replay = pooled(sides.0, slots, &|at, m| alignment.replay_stream_slot(at, m), rules.level)?;
    let baseline = if alignment.baseline_knows(Metric::Gap) {
        let slots = if alignment.is_by_row() { slots } else { sides.1.roster.requests.len() };
        Some(pooled(sides.1, slots, &|at, m| alignment.baseline_stream_slot(at, m), rules.level)?)
    } else {
        None
    };
    let success = Population::Success;
    let other = baseline.as_ref();
    rows.push(row(Metric::Gap, success, None, &replay.gap, other.map(|b| &b.gap), rules, alignment));
    let other = other.filter(|_| alignment.baseline_knows(Metric::Itl));
    rows.push(row(Metric::Itl, success, None, &replay.itl, other.map(|b| &b.itl), rules, alignment));
    let replay = replay_sample(alignment, Metric::Tpot, success, rules.level);
    let baseline = baseline_sample(alignment, Metric::Tpot, success, rules.level);
    rows.push(row(Metric::Tpot, success, None, &replay, baseline.as_ref(), rules, alignment));
    Ok(rows)
}

/// The kinds of moment at which the compared TTFTs end: one word, or `mixed`.
fn stamp_name(baseline: &Side<'_>) -> Option<String> {
    let mut kinds = baseline.logged.ttft_kinds.keys();
    match (kinds.next(), kinds.next()) {
        (None, _) => Some("first_chunk".to_owned()),
        (Some(kind), None) => Some(kind.as_str().to_owned()),
        (Some(_), Some(_)) => Some("mixed".to_owned()),
    }
}

fn row(
    metric: Metric,
    population: Population,
    stamp: Option<String>,
    replay: &Sample,
    baseline: Option<&Sample>,
    rules: Rules,
    alignment: &Alignment<'_>,
) -> MetricComparison {
    let percentiles = Percentile::REPORTED.map(|p| {
        let (mine, theirs) = (replay.at(p), baseline.and_then(|b| b.at(p)));
        percentile(p, mine, theirs, rules, alignment.is_by_row())
    });
    MetricComparison {
        metric,
        population,
        stamp,
        replay: replay.size,
        baseline: baseline.map(|b| b.size),
        percentiles: percentiles.to_vec(),
    }
}

fn percentile(
    p: Percentile,
    replay: Option<&Measured>,
    baseline: Option<&Measured>,
    rules: Rules,
    paired: bool,
) -> PercentileComparison {
    let mut entry = PercentileComparison {
        percentile: p,
        replay: replay.map(|m| m.estimate),
        baseline: baseline.map(|m| m.estimate),
        ratio: None,
        tolerance: None,
        verdict: None,
    };
    if let (Some(replay), Some(baseline)) = (replay, baseline) {
        let rho = if paired { replay.spectrum.correlation(&baseline.spectrum) } else { 0.0 };
        let tolerance = ratio::tolerance_at(&baseline.estimate, rules.tolerance, rules.floor_ns);
        entry.ratio = ratio::ratio(&replay.estimate, &baseline.estimate, rho);
        entry.tolerance = Some(tolerance);
        entry.verdict = Some(ratio::verdict(
            &replay.estimate,
            &baseline.estimate,
            entry.ratio.as_ref(),
            tolerance,
            rules.floor_ns,
        ));
    }
    entry
}
