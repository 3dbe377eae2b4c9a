//! The plan: counted once, then streamed.

mod count;

use std::sync::Arc;

use tracewheel_timeline::vocab::{BodyState, Operation};
use tracewheel_timeline::{RequestRow, Rows, Timeline};

use crate::attempts::LoggedAttempts;
use crate::digest::Digester;
use crate::history::{self, HistoryRequests, Lived, WhoAsks};
use crate::layout::Layout;
use crate::probes::probes;
use crate::select::{self, Planned, Selection, Selector};
use crate::{
    Assign, CacheMode, History, Lane, MAX_BLOCKS, PlanDigest, PlanHeader, PlanOptions, PlanSurvey,
    PlannedRequest, PrefixCache, PrimingRequests, PromptSpec, WorkloadError, request_id,
};

/// What a replay sends and when. Holds counts and the open timeline; cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan {
    timeline: Timeline,
    header: PlanHeader,
    survey: Arc<PlanSurvey>,
    selector: Selector,
    layout: Layout,
    /// The rows of the window.
    first_row: u64,
    end_row: u64,
    /// What is sent ahead of them.
    lived: Option<Lived>,
}

/// The columns of a row that a planned request carries on.
const COLUMNS: &[&str] = &[
    "arrival_unix_ns",
    "session_hash",
    "tenant_hash",
    "user_hash",
    "turn",
    "think_ns",
    "retry_of_row",
    "operation",
    "method",
    "path",
    "endpoint",
    "model",
    "provider",
    "route",
    "stream",
    "input_tokens",
    "output_tokens",
    "prefix_hashes",
    "prefix_block_tokens",
    "params",
    "body",
    "body_state",
    "cancel_after_ns",
    "tags",
    "request_headers",
];

/// The columns that say what a request asks for and of whom.
const OUTLINE_COLUMNS: &[&str] = &[
    "arrival_unix_ns",
    "session_hash",
    "tenant_hash",
    "retry_of_row",
    "operation",
    "method",
    "path",
    "endpoint",
    "model",
    "provider",
    "route",
    "input_tokens",
    "output_tokens",
    "body_state",
];

impl Plan {
    /// Counts what `options` make of a timeline: one pass over a few of its columns up to the end of the window or the
    /// limit, and one more over three columns of all rows where the timeline holds logged retries. In memory that grows
    /// only with the retried requests whose first attempt lacks a token count (16 bytes each).
    ///
    /// # Errors
    /// A baseline, an empty window or a window without rows, a warm-up that takes all, and rows without token counts
    /// unless the options say what to do with them.
    pub fn build(timeline: &Timeline, options: PlanOptions) -> Result<Plan, WorkloadError> {
        if timeline.meta().baseline {
            return Err(WorkloadError::Baseline);
        }
        let first = timeline.arrivals().next().transpose()?;
        let selector = Selector::new(first.unwrap_or(0), LoggedAttempts::read(timeline)?, &options)?;
        let counted = count::count(timeline, &selector, &options)?;
        let header = counted.header;
        tracing::info!(
            requests = header.requests,
            span_ns = header.span_ns,
            left_out = header.rows_unknown_tokens,
            filled = header.requests_filled,
            logged_retries = header.rows_retries,
            seed = options.seed,
            "plan made"
        );
        let mut plan = Plan {
            timeline: timeline.clone(),
            survey: Arc::new(counted.survey),
            layout: Layout::new(timeline.meta(), options.seed),
            selector,
            first_row: header.rows_before_window,
            end_row: timeline.num_rows() - header.rows_after_window - header.rows_beyond_limit,
            header,
            lived: None,
        };
        if let Some(wanted) = plan.header.options.history {
            plan.look_back(wanted)?;
        }
        Ok(plan)
    }

    /// Finds what lived before the plan's first row.
    fn look_back(&mut self, wanted: History) -> Result<(), WorkloadError> {
        let mut columns = select::COLUMNS.to_vec();
        columns.extend(history::BLOCK_COLUMNS);
        let window = self.requests_of(&columns).unpredicted();
        let rule = (&self.selector, &self.layout);
        let lived = history::survey(&self.timeline, wanted, rule, self.first_row, window)?;
        tracing::info!(
            requests = lived.survey.requests,
            input_tokens = lived.survey.input_tokens,
            distinct_tokens = lived.survey.distinct_tokens,
            rows = lived.survey.rows,
            "history before the window"
        );
        self.header.history = Some(lived.survey);
        self.lived = Some(lived);
        Ok(())
    }

    /// What is known before the first request is read.
    pub fn header(&self) -> &PlanHeader {
        &self.header
    }

    /// What is asked for and how large it is, over all requests.
    pub fn survey(&self) -> &PlanSurvey {
        &self.survey
    }

    /// The requests in planned order, streamed from the timeline in bounded memory. Owns all it needs, so it can move
    /// to another thread; several may run at once.
    pub fn requests(&self) -> PlannedRequests {
        self.requests_of(COLUMNS)
    }

    /// The requests in planned order without what makes their prompts and bodies, which takes a fraction of the time: to
    /// see what they ask for, and of whom.
    pub fn outlines(&self) -> PlannedRequests {
        self.requests_of(OUTLINE_COLUMNS).unpredicted()
    }

    fn requests_of(&self, columns: &[&str]) -> PlannedRequests {
        PlannedRequests {
            rows: self.timeline.columns_in(self.first_row..self.end_row, columns),
            left: self.header.requests,
            selector: self.selector.clone(),
            layout: self.layout,
            timeline_digest: self.header.timeline_digest.as_str().into(),
            model: self.header.options.model.as_deref().map(Arc::from),
            stream_if_unknown: self.header.options.stream_if_unknown.unwrap_or(true),
            history: self.history(),
            cache: Some(PrefixCache::default()),
            assign: None,
            prediction: Prediction::default(),
        }
    }

    /// The requests that are sent ahead of a run in this cache mode: see [`PrimingRequests`].
    pub fn priming(&self, mode: CacheMode) -> PrimingRequests {
        match (mode, self.history()) {
            (CacheMode::Natural, Some(history)) => PrimingRequests::of_history(history),
            _ => PrimingRequests::new(self.requests().unpredicted(), mode, &self.header.timeline_digest),
        }
    }

    /// The requests that bring the history back, if the plan has one.
    fn history(&self) -> Option<HistoryRequests> {
        let who = WhoAsks {
            timeline_digest: self.header.timeline_digest.as_str().into(),
            model: self.header.options.model.as_deref().map(Arc::from),
        };
        let lived = self.lived.as_ref()?;
        Some(HistoryRequests::new(&self.timeline, lived, &self.selector, &self.layout, &who))
    }

    /// Two requests that tell how the target counts prompts ([`Calibration`](crate::Calibration)), in the phase
    /// `calibrate`; none where every body is a recorded one.
    ///
    /// # Errors
    /// When the timeline cannot be read.
    pub fn probes(&self) -> Result<Vec<PlannedRequest>, WorkloadError> {
        for planned in self.requests().unpredicted() {
            let planned = planned?;
            if planned.body_state != BodyState::Full {
                return Ok(probes(&planned, &self.header.timeline_digest));
            }
        }
        Ok(Vec::new())
    }

    /// The digest of every request of the plan. Reads the whole timeline.
    pub fn digest(&self) -> Result<PlanDigest, WorkloadError> {
        let mut digester = Digester::new();
        for request in self.requests() {
            digester.push(&request?);
        }
        Ok(digester.finish())
    }
}

/// What the predictions of cached tokens rest on, and what they add up to, over the requests that were streamed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prediction {
    /// The first row whose prediction is only a lower bound: before it, so many distinct blocks had come that some had to
    /// be forgotten. `None` while all predictions are exact.
    pub forgets_from_row: Option<u64>,
    /// Distinct blocks used last that are remembered in any case.
    pub remembers_blocks: u64,
    /// Sum of the predictions.
    pub cached_tokens: u64,
    /// Input tokens of the requests that have one.
    pub of_tokens: u64,
}

/// The requests of a plan, in planned order. After an error the iterator is over.
#[derive(Debug)]
pub struct PlannedRequests {
    rows: Rows,
    left: u64,
    selector: Selector,
    layout: Layout,
    timeline_digest: Arc<str>,
    model: Option<Arc<str>>,
    stream_if_unknown: bool,
    /// What fills the cache before the first of them; gone once it did.
    history: Option<HistoryRequests>,
    cache: Option<PrefixCache>,
    assign: Option<Assign>,
    prediction: Prediction,
}

impl PlannedRequests {
    /// The same requests without predictions, which saves the memory that these take.
    pub fn unpredicted(mut self) -> Self {
        self.cache = None;
        self
    }

    /// The same requests, each with its lane: predictions then keep the caches apart.
    pub fn assigned(mut self, assign: Assign) -> Self {
        self.assign(assign);
        self
    }

    pub(crate) fn assign(&mut self, assign: Assign) {
        self.assign = Some(assign);
    }

    /// What the predictions so far rest on.
    pub fn prediction(&self) -> Prediction {
        self.prediction
    }

    fn next_request(&mut self) -> Result<Option<PlannedRequest>, WorkloadError> {
        if let (Some(history), Some(cache)) = (self.history.take(), &mut self.cache) {
            for request in history {
                let request = request?;
                let lane = self.assign.as_mut().map(|assign| assign.of(&request)).unwrap_or_default();
                cache.visit_of(lane.cache, &request.prompt.blocks);
            }
        }
        while self.left > 0 {
            let Some(row) = self.rows.next() else { return Ok(None) };
            let (position, row) = row?;
            if let Selection::Planned(planned) = self.selector.select(position, &row)? {
                self.left -= 1;
                return Ok(Some(self.request(position, row, planned)));
            }
        }
        Ok(None)
    }

    fn request(&mut self, position: u64, row: RequestRow, planned: Planned) -> PlannedRequest {
        let copy = 0;
        let request_id = request_id(&self.timeline_digest, position, copy);
        let prompt = self.layout.prompt(request_id, planned.input_tokens, &row);
        let has_hashes = row.prefix_hashes.is_some();
        let mut request = PlannedRequest {
            row: position,
            copy,
            request_id,
            planned_ns: planned.planned_ns,
            phase: planned.phase,
            trace_unix_ns: row.arrival_unix_ns,
            operation: row.operation,
            method: row.method,
            path: row.path,
            model: self.model.clone().or(row.model),
            route: row.route,
            endpoint: row.endpoint,
            provider: row.provider,
            input_tokens: planned.input_tokens,
            output_tokens: planned.output_tokens,
            tokens_filled: planned.filled,
            // What bears no text is a stream only where the log says so.
            stream: row.stream.unwrap_or(self.stream_if_unknown && bears_text(row.operation)),
            cancel_after_ns: row.cancel_after_ns,
            session_hash: row.session_hash,
            turn: row.turn,
            think_ns: row.think_ns,
            tenant_hash: row.tenant_hash,
            user_hash: row.user_hash,
            tags: row.tags,
            params: row.params,
            headers: row.request_headers,
            body: row.body,
            body_state: row.body_state,
            prompt,
            predicted_cached_tokens: None,
            lane: Lane::default(),
        };
        if let Some(assign) = &mut self.assign {
            request.lane = assign.of(&request);
        }
        request.predicted_cached_tokens =
            if has_hashes { self.predict(position, request.lane.cache, &request.prompt) } else { None };
        request
    }

    fn predict(&mut self, position: u64, number: u64, prompt: &PromptSpec) -> Option<u32> {
        let cache = self.cache.as_mut()?;
        let cached_tokens = cache.visit_of(number, &prompt.blocks);
        if cache.forgot() {
            self.prediction.forgets_from_row.get_or_insert(position);
        }
        self.prediction.remembers_blocks = (MAX_BLOCKS / 2) as u64;
        self.prediction.cached_tokens += u64::from(cached_tokens);
        self.prediction.of_tokens += u64::from(prompt.tokens());
        Some(cached_tokens)
    }
}

/// Whether an answer is text, token by token.
fn bears_text(operation: Operation) -> bool {
    !matches!(operation, Operation::Embeddings | Operation::Http)
}

impl Iterator for PlannedRequests {
    type Item = Result<PlannedRequest, WorkloadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_request().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.left = 0;
        }
        next
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.left).ok())
    }
}

#[cfg(test)]
mod tests;
