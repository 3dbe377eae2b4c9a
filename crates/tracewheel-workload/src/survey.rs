//! What the pass that counts a plan learns about it beside the counts.

use std::collections::BTreeSet;
use std::sync::Arc;

use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::{BodyState, Operation, Phase};

use crate::Histogram;
use crate::select::Planned;

/// Different models kept by name.
const MAX_MODELS: usize = 256;

/// What is asked for, how large it is, and where it comes from: over every request of a plan, in planned order.
#[derive(Clone, Debug, Default)]
pub struct PlanSurvey {
    /// Recorded models, at most 256 of them; empty where the plan names its own for all.
    pub models: BTreeSet<String>,
    /// Row of the first request without a model, and how many there are.
    pub without_model: Option<(u64, u64)>,
    /// Planned input tokens.
    pub input_tokens: Sizes,
    /// Planned output tokens.
    pub output_tokens: Sizes,
    /// BLAKE3 over the planned input and output tokens (u32, little endian), in hexadecimal.
    pub sizes_digest: String,
    /// Requests whose row says that it holds the whole body, which is then sent as it is.
    pub recorded_bodies: u64,
    /// Requests that the recorded client left before the end.
    pub left_by_client: u64,
    /// First and last recorded arrival of the phase `measure`, in Unix nanoseconds.
    pub trace_unix_ns: Option<(i64, i64)>,
    /// Operations that occur, in the order of their first request.
    pub operations: Vec<OperationCount>,
    /// What requests say about where they go; gathered only for plans of free-form requests.
    pub places: Places,
}

/// Methods, paths and bodies of free-form requests.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Recorded methods, at most 64 of them.
    pub methods: BTreeSet<String>,
    /// Row of the first request without a path, and how many there are.
    pub without_path: Option<(u64, u64)>,
    /// The same for requests without a whole body whose method usually has one.
    pub without_body: Option<(u64, u64)>,
    /// The same for requests that have neither a method nor a whole body.
    pub without_method_and_body: Option<(u64, u64)>,
}

/// Different methods kept by name.
const MAX_METHODS: usize = 64;

impl Places {
    /// Counts a request of this row with what it says.
    pub fn take(
        &mut self,
        position: u64,
        (method, path): (Option<&str>, Option<&str>),
        body_state: BodyState,
    ) {
        let count = |into: &mut Option<(u64, u64)>| {
            let (first, count) = into.unwrap_or((position, 0));
            *into = Some((first, count + 1));
        };
        if path.is_none() {
            count(&mut self.without_path);
        }
        let without_body = body_state != BodyState::Full;
        match method {
            None if without_body => count(&mut self.without_method_and_body),
            Some("GET" | "HEAD" | "DELETE" | "OPTIONS") | None => {}
            Some(_) if without_body => count(&mut self.without_body),
            Some(_) => {}
        }
        if let Some(method) = method
            && self.methods.len() < MAX_METHODS
            && !self.methods.contains(method)
        {
            self.methods.insert(method.to_owned());
        }
    }
}

/// How often an operation occurs in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationCount {
    /// The operation.
    pub operation: Operation,
    /// Row of the first request of it.
    pub first_row: u64,
    /// Requests of it.
    pub requests: u64,
}

/// Sizes of many requests.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// Their distribution.
    pub histogram: Histogram,
    /// Their sum.
    pub sum: u64,
}

impl Sizes {
    fn take(&mut self, size: u32) {
        self.histogram.record(i64::from(size));
        self.sum += u64::from(size);
    }
}

/// Collects a [`PlanSurvey`] request by request.
#[derive(Debug)]
pub(crate) struct Surveyor {
    survey: PlanSurvey,
    sizes: blake3::Hasher,
    /// The model seen last: rows mostly repeat it.
    model: Option<Arc<str>>,
    names_model: bool,
    free_form: bool,
}

impl Surveyor {
    /// `names_model`: the plan asks for a model of its own, whatever the rows say.
    pub(crate) fn new(names_model: bool, free_form: bool) -> Surveyor {
        Surveyor {
            survey: PlanSurvey::default(),
            sizes: blake3::Hasher::new(),
            model: None,
            names_model,
            free_form,
        }
    }

    pub(crate) fn take(&mut self, position: u64, row: &RequestRow, planned: &Planned) {
        self.model(position, row);
        self.operation(position, row.operation);
        if self.free_form {
            let place = (row.method.as_deref(), row.path.as_deref());
            self.survey.places.take(position, place, row.body_state);
        }
        let survey = &mut self.survey;
        let mut sizes = [0; 8];
        sizes[..4].copy_from_slice(&planned.input_tokens.to_le_bytes());
        sizes[4..].copy_from_slice(&planned.output_tokens.to_le_bytes());
        self.sizes.update(&sizes);
        survey.input_tokens.take(planned.input_tokens);
        survey.output_tokens.take(planned.output_tokens);
        survey.recorded_bodies += u64::from(row.body_state == BodyState::Full);
        survey.left_by_client += u64::from(row.cancel_after_ns.is_some());
        if let Some(at) = row.arrival_unix_ns.filter(|_| planned.phase == Phase::Measure) {
            let (first, last) = survey.trace_unix_ns.unwrap_or((at, at));
            survey.trace_unix_ns = Some((first.min(at), last.max(at)));
        }
    }

    fn model(&mut self, position: u64, row: &RequestRow) {
        if self.names_model {
            return;
        }
        let survey = &mut self.survey;
        let Some(model) = &row.model else {
            let (first, count) = survey.without_model.unwrap_or((position, 0));
            survey.without_model = Some((first, count + 1));
            return;
        };
        if self.model.as_ref().is_some_and(|last| Arc::ptr_eq(last, model)) {
            return;
        }
        if survey.models.len() < MAX_MODELS && !survey.models.contains(model.as_ref()) {
            survey.models.insert(model.to_string());
        }
        self.model = Some(Arc::clone(model));
    }

    fn operation(&mut self, position: u64, operation: Operation) {
        let known = self.survey.operations.iter_mut().find(|known| known.operation == operation);
        match known {
            Some(known) => known.requests += 1,
            None => {
                self.survey.operations.push(OperationCount { operation, first_row: position, requests: 1 })
            }
        }
    }

    pub(crate) fn finish(mut self) -> PlanSurvey {
        self.survey.sizes_digest = self.sizes.finalize().to_hex().to_string();
        self.survey
    }
}
