//! One pass over the plan before anything is sent: what the manifest publishes and what must be refused.

use std::collections::BTreeSet;

use tracewheel_record::manifest::DistributionSection;
use tracewheel_timeline::vocab::BodyState;
use tracewheel_workload::{CacheMode, Plan, WorkloadError};

use crate::histogram::Histogram;

/// Different models kept by name.
const MAX_MODELS: usize = 256;

/// What one pass over the plan tells.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Models that the plan asks for.
    pub(crate) models: BTreeSet<String>,
    /// Row of the first request without a model, and how many there are.
    pub(crate) without_model: Option<(u64, u64)>,
    pub(crate) input_tokens: DistributionSection,
    pub(crate) output_tokens: DistributionSection,
    /// BLAKE3 over the planned input and output sizes in planned order (u32, little endian), in hexadecimal.
    pub(crate) sizes_digest: String,
    /// Requests whose recorded body will be sent as it is.
    pub(crate) recorded_bodies: u64,
    /// Cached share that the plan expects, over the requests for which it can be known.
    pub(crate) planned_cached_share: Option<f64>,
    /// First and last recorded arrival.
    pub(crate) trace_unix_ns: Option<(i64, i64)>,
}

impl Survey {
    /// Goes over the plan; the cache mode says what is expected of the cache.
    pub(crate) fn of(plan: &Plan, cache: CacheMode) -> Result<Survey, WorkloadError> {
        let mut survey = Survey::default();
        let (mut input, mut output) = (Sizes::default(), Sizes::default());
        let (mut cached, mut of) = (0u64, 0u64);
        let mut sizes = blake3::Hasher::new();
        for planned in plan.requests() {
            let planned = planned?;
            match &planned.model {
                Some(model) => {
                    if survey.models.len() < MAX_MODELS && !survey.models.contains(model.as_ref()) {
                        survey.models.insert(model.to_string());
                    }
                }
                None => {
                    let (row, count) = survey.without_model.unwrap_or((planned.row, 0));
                    survey.without_model = Some((row, count + 1));
                }
            }
            sizes.update(&planned.input_tokens.to_le_bytes());
            sizes.update(&planned.output_tokens.to_le_bytes());
            input.add(planned.input_tokens);
            output.add(planned.output_tokens);
            if planned.body_state == BodyState::Full && planned.body.is_some() {
                survey.recorded_bodies += 1;
            }
            let predicted = if planned.body.is_some() {
                planned.predicted_cached_tokens
            } else {
                cache.predicted_cached_tokens(&planned)
            };
            if let Some(predicted) = predicted {
                cached += u64::from(predicted);
                of += u64::from(planned.input_tokens);
            }
            if let Some(at) = planned.trace_unix_ns {
                let (first, last) = survey.trace_unix_ns.unwrap_or((at, at));
                survey.trace_unix_ns = Some((first.min(at), last.max(at)));
            }
        }
        (survey.input_tokens, survey.output_tokens) = (input.section(), output.section());
        survey.sizes_digest = sizes.finalize().to_hex().to_string();
        survey.planned_cached_share = (of > 0).then(|| cached as f64 / of as f64);
        Ok(survey)
    }
}

#[derive(Default)]
struct Sizes {
    histogram: Histogram,
    sum: u64,
}

impl Sizes {
    fn add(&mut self, size: u32) {
        self.histogram.record(i64::from(size));
        self.sum += u64::from(size);
    }

    fn section(&self) -> DistributionSection {
        distribution(&self.histogram, self.sum)
    }
}

/// A histogram of counts as the manifest shows it.
pub(crate) fn distribution(histogram: &Histogram, sum: u64) -> DistributionSection {
    let at = |q: f64| histogram.quantile(q).unwrap_or(0).unsigned_abs();
    let count = histogram.count();
    DistributionSection {
        count,
        mean: if count == 0 { 0.0 } else { sum as f64 / count as f64 },
        min: histogram.min().unwrap_or(0).unsigned_abs(),
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: histogram.max().unwrap_or(0).unsigned_abs(),
    }
}
