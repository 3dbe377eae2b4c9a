//! The JSON of `compare --json`. `docs/reference/metrics.md` documents every key; a test holds the page against it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::cache::{CacheBin, CacheBinReport, CacheBinSide, CacheReport, CacheWeighted};
pub use crate::environment::{Difference, EnvironmentReport};
pub use crate::fidelity::{
    Cause, CauseKind, DurationSummary, Fidelity, FidelityBounds, FidelityCriteria, FidelityVerdict,
    GapReport, Judged,
};
pub use crate::interval::{BoundIs, Estimate, Interval};
pub use crate::metric::{Metric, Population, Verdict};
pub use crate::quantile::Percentile;
pub use crate::ratio::RatioInterval;
pub use crate::side::{
    CacheClass, CacheClassReport, CachedDifference, CachedReport, CachedShare, Concurrency, Counts,
    JitterSummary, PromptReport, RetryReport, RetryWave, SideKind, SideReport, StallSummary, StampShare,
    StreamReport, TokenSources, Window,
};

/// Version of the comparison's JSON: a minor version only adds keys.
pub const COMPARISON_VERSION: &str = "1.0";

/// A replay against a baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// [`COMPARISON_VERSION`].
    pub schema: String,
    /// How every number was made.
    pub methods: Methods,
    /// What differs between the two environments: read before any number.
    pub environment: EnvironmentReport,
    /// The verdict over all gates: `agree`, `faster`, `slower` (regressed) or `cannot_tell`.
    pub verdict: Verdict,
    /// Why, in one sentence.
    pub verdict_reason: String,
    /// The percentiles that the verdict rests on.
    pub gates: Vec<Gate>,
    /// Why no latency here proves anything: a side is unfaithful to its schedule. Null where none is.
    pub notice: Option<String>,
    /// What should be known before a number is trusted.
    pub warnings: Vec<Warning>,
    /// What the baseline does not know, so that no number stands for it.
    pub missing: Vec<Missing>,
    /// The replay.
    pub replay: SideReport,
    /// The baseline.
    pub baseline: SideReport,
    /// How exactly the replay's plan was sent.
    pub fidelity: Fidelity,
    /// How exactly the baseline's plan was sent; null for a timeline.
    pub baseline_fidelity: Option<Fidelity>,
    /// Latencies: metric by metric, population by population.
    pub metrics: Vec<MetricComparison>,
    /// Latency by the share of the prompt that came from the cache.
    pub cache: CacheReport,
}

impl Comparison {
    /// The comparison of one metric in one population.
    pub fn metric(&self, metric: Metric, population: Population) -> Option<&MetricComparison> {
        self.metrics.iter().find(|m| m.metric == metric && m.population == population)
    }

    /// Whether a gate is slower than the baseline beyond the tolerance: exit code 11.
    pub fn regressed(&self) -> bool {
        self.verdict == Verdict::Slower
    }
}

/// How the numbers were made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Methods {
    /// `nearest_rank`.
    pub quantile: String,
    /// Name of the interval method.
    pub interval: String,
    /// Name of the ratio's interval method.
    pub ratio: String,
    /// The rule of the verdict, in one sentence.
    pub verdict: String,
    /// Level of every interval.
    pub level: f64,
    /// Relative difference that still counts as agreement.
    pub tolerance: f64,
    /// Absolute difference that still counts as agreement, in nanoseconds.
    pub floor_ns: i64,
    /// A gap longer than this is a stall.
    pub stall_ns: i64,
    /// Which requests of the two sides are compared.
    pub matching: Matching,
    /// What each metric and population is, in one line.
    pub definitions: BTreeMap<String, String>,
}

/// Which requests of the two sides are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Matching {
    /// The same rows of the same timeline.
    ByRow,
    /// The two sides hold different requests: nothing could be matched.
    None,
}

/// One percentile that the verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// The metric.
    pub metric: Metric,
    /// The population.
    pub population: Population,
    /// The percentile.
    pub percentile: Percentile,
    /// What it says; `cannot_tell` where the baseline has no number.
    pub verdict: Verdict,
}

/// Something that weakens a conclusion, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Stable word for scripts.
    pub code: String,
    /// For people, with the remedy.
    pub text: String,
}

impl Warning {
    pub(crate) fn new(code: &str, text: impl Into<String>) -> Self {
        Self { code: code.to_owned(), text: text.into() }
    }
}

/// Something that the baseline does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The metric or table that lacks it.
    pub what: String,
    /// Why, and what would make it known.
    pub why: String,
}

impl Missing {
    pub(crate) fn new(what: &str, why: impl Into<String>) -> Self {
        Self { what: what.to_owned(), why: why.into() }
    }
}

/// One metric in one population, both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricComparison {
    /// The metric.
    pub metric: Metric,
    /// The population.
    pub population: Population,
    /// Which moment each side's TTFT ends at, for example `first_chunk`, or `mixed`; null for other metrics.
    pub stamp: Option<String>,
    /// The replay's sample.
    pub replay: SampleSize,
    /// The baseline's sample; null when the baseline does not know the metric.
    pub baseline: Option<SampleSize>,
    /// One entry a percentile.
    pub percentiles: Vec<PercentileComparison>,
}

impl MetricComparison {
    /// The entry of one percentile.
    pub fn percentile(&self, p: Percentile) -> Option<&PercentileComparison> {
        self.percentiles.iter().find(|entry| entry.percentile == p)
    }
}

/// What a sample consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SampleSize {
    /// Values in the sample, +∞ included.
    pub n: u64,
    /// Values that are +∞: failed and unsent requests.
    pub infinite: u64,
    /// Requests of the population that have no such value (a stream without output has no TTFT).
    pub without_value: u64,
}

/// Where a value lies in the other side's interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Below its lower end.
    Below,
    /// Within it: the two sides show no difference here.
    Within,
    /// Above its upper end.
    Above,
}

/// One percentile of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PercentileComparison {
    /// The percentile.
    pub percentile: Percentile,
    /// The replay's quantile; null without values.
    pub replay: Option<Estimate>,
    /// The baseline's quantile; null where it does not know the metric.
    pub baseline: Option<Estimate>,
    /// Replay / baseline; null where either is missing, not positive, or both are +∞.
    pub ratio: Option<RatioInterval>,
    /// The relative difference that counts as agreement here: the larger of `tolerance` and `floor_ns` / baseline.
    pub tolerance: Option<f64>,
    /// What the ratio says; null where there is no baseline.
    pub verdict: Option<Verdict>,
}

impl PercentileComparison {
    /// Where the replay's quantile lies in the baseline's interval; `None` where either is missing. Says whether a
    /// difference shows; the verdict asks for more, namely that there can be no difference beyond the tolerance.
    pub fn placement(&self) -> Option<Placement> {
        let (replay, baseline) = (self.replay?, self.baseline?);
        Some(match replay.value() {
            value if value < baseline.lo() => Placement::Below,
            value if value > baseline.hi() => Placement::Above,
            _ => Placement::Within,
        })
    }
}
