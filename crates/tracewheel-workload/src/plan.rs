//! The plan: counted once, then streamed.

use std::sync::Arc;

use tracewheel_timeline::{RequestRow, Rows, Timeline};

use crate::attempts::LoggedAttempts;
use crate::digest::Digester;
use crate::layout::Layout;
use crate::select::{self, Planned, Selection, Selector};
use crate::{
    CacheMode, PlanDigest, PlanHeader, PlanOptions, PlannedRequest, PrefixCache, PrimingRequests,
    PromptStats, UnknownTokens, WorkloadError, request_id,
};

/// What a replay sends and when. Holds counts and the open timeline; cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan {
    timeline: Timeline,
    header: PlanHeader,
    selector: Selector,
    layout: Layout,
    /// The rows of the window.
    first_row: u64,
    end_row: u64,
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
];

/// How many refused rows an error names.
const NAMED_ROWS: usize = 5;

impl Plan {
    /// Counts what `options` make of a timeline: two passes over a few of its columns, in memory that grows
    /// with the logged retries only.
    ///
    /// # Errors
    /// A baseline, an empty window or a window without rows, and rows without token counts unless the options say
    /// what to do with them.
    pub fn build(timeline: &Timeline, options: PlanOptions) -> Result<Plan, WorkloadError> {
        if timeline.meta().baseline {
            return Err(WorkloadError::Baseline);
        }
        let first = timeline.arrivals().next().transpose()?;
        let selector = Selector::new(first.unwrap_or(0), LoggedAttempts::read(timeline)?, &options)?;
        let mut count = Count::new(timeline, &selector, &options);
        for row in timeline.columns_in(0..timeline.num_rows(), select::COLUMNS) {
            let (position, row) = row?;
            if !count.take(position, selector.select(position, &row)?) {
                break;
            }
        }
        count.check(options.unknown_tokens)?;
        Ok(Plan {
            timeline: timeline.clone(),
            layout: Layout::new(timeline.meta(), options.seed),
            selector,
            first_row: count.header.rows_before_window,
            end_row: timeline.num_rows() - count.header.rows_after_window,
            header: count.header,
        })
    }

    /// What is known before the first request is read.
    pub fn header(&self) -> &PlanHeader {
        &self.header
    }

    /// The requests in planned order, streamed from the timeline in bounded memory. Owns all it needs, so it can move
    /// to another thread; several may run at once.
    pub fn requests(&self) -> PlannedRequests {
        PlannedRequests {
            rows: self.timeline.columns_in(self.first_row..self.end_row, COLUMNS),
            left: self.header.requests,
            selector: self.selector.clone(),
            layout: self.layout,
            timeline_digest: self.header.timeline_digest.as_str().into(),
            model: self.header.options.model.as_deref().map(Arc::from),
            stream_if_unknown: self.header.options.stream_if_unknown.unwrap_or(true),
            cache: PrefixCache::default(),
        }
    }

    /// The requests that are sent ahead of a run in this cache mode: see [`PrimingRequests`].
    pub fn priming(&self, mode: CacheMode) -> PrimingRequests {
        PrimingRequests::new(self.requests(), mode, &self.header.timeline_digest)
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

/// The first pass.
struct Count {
    header: PlanHeader,
    limit: u64,
    refused_rows: Vec<u64>,
}

impl Count {
    fn new(timeline: &Timeline, selector: &Selector, options: &PlanOptions) -> Count {
        let header = PlanHeader {
            requests: 0,
            span_ns: 0,
            timeline_digest: timeline.meta().digest.clone(),
            block_tokens: timeline.meta().block_tokens,
            options: options.clone(),
            origin_unix_ns: selector.origin_unix_ns(),
            has_epoch: timeline.meta().has_epoch,
            rows: timeline.num_rows(),
            rows_before_window: 0,
            rows_after_window: 0,
            rows_retries: 0,
            rows_unknown_tokens: 0,
            rows_beyond_limit: 0,
            requests_filled: 0,
            prompts: PromptStats::default(),
        };
        Count { header, limit: options.limit.unwrap_or(u64::MAX), refused_rows: Vec::new() }
    }

    /// Counts one row; false if no later row can matter.
    fn take(&mut self, position: u64, selection: Selection) -> bool {
        let header = &mut self.header;
        match selection {
            Selection::BeforeWindow => header.rows_before_window += 1,
            // Rows are sorted by arrival.
            Selection::AfterWindow => {
                header.rows_after_window = header.rows - position;
                return false;
            }
            Selection::Retry => header.rows_retries += 1,
            Selection::UnknownTokens => {
                header.rows_unknown_tokens += 1;
                if self.refused_rows.len() < NAMED_ROWS {
                    self.refused_rows.push(position);
                }
            }
            Selection::Planned(_) if header.requests == self.limit => header.rows_beyond_limit += 1,
            Selection::Planned(planned) => {
                header.requests += 1;
                header.span_ns = planned.planned_ns;
                header.requests_filled += u64::from(planned.filled);
                header.prompts.take(planned.input_tokens, planned.output_tokens);
            }
        }
        true
    }

    fn check(&mut self, rule: UnknownTokens) -> Result<(), WorkloadError> {
        let header = &self.header;
        if rule == UnknownTokens::Refuse && header.rows_unknown_tokens > 0 {
            return Err(WorkloadError::UnknownTokens {
                count: header.rows_unknown_tokens,
                rows: header.rows_unknown_tokens + header.requests + header.rows_beyond_limit,
                first_rows: std::mem::take(&mut self.refused_rows),
            });
        }
        if header.requests == 0 {
            return Err(WorkloadError::NothingToPlan { rows: header.rows });
        }
        Ok(())
    }
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
    cache: PrefixCache,
}

impl PlannedRequests {
    fn next_request(&mut self) -> Result<Option<PlannedRequest>, WorkloadError> {
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
        let predicted_cached_tokens =
            if row.prefix_hashes.is_some() { self.cache.visit(&prompt.blocks) } else { None };
        PlannedRequest {
            row: position,
            copy,
            request_id,
            planned_ns: planned.planned_ns,
            trace_unix_ns: row.arrival_unix_ns,
            operation: row.operation,
            model: self.model.clone().or(row.model),
            route: row.route,
            endpoint: row.endpoint,
            provider: row.provider,
            input_tokens: planned.input_tokens,
            output_tokens: planned.output_tokens,
            tokens_filled: planned.filled,
            stream: row.stream.unwrap_or(self.stream_if_unknown),
            cancel_after_ns: row.cancel_after_ns,
            session_hash: row.session_hash,
            turn: row.turn,
            think_ns: row.think_ns,
            tenant_hash: row.tenant_hash,
            user_hash: row.user_hash,
            tags: row.tags,
            params: row.params,
            body: row.body,
            body_state: row.body_state,
            prompt,
            predicted_cached_tokens,
        }
    }
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
