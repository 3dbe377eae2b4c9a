//! A run seen as a timeline.

use std::sync::Arc;

use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::{ArrivalSource, Phase, RequestStatus, Source, TtftKind};

use super::Exchanges;
use crate::error::Result;
use crate::manifest::Manifest;
use crate::rows::{AttemptRecord, ReadStampRow, RequestRecord};

/// A streaming iterator over a run seen as a timeline: what the replay measured stands where a timeline holds what
/// production recorded, so that a run can be the baseline of another.
///
/// - `arrival_unix_ns` is the recorded arrival, where the timeline had one; else the wall time of `due_ns`.
/// - Every `prod_` time counts from `due_ns`: `prod_ttft_ns` (kind `first_chunk`) to the first output event,
///   `prod_e2e_ns` to the end of the attempt that counted, `prod_event_ns` to each of its output events.
/// - `prod_status` is the HTTP status of the attempt that counted, `prod_error` the reason of a request that
///   failed, was interrupted or never left; a cancelled one is `client_gone` with `cancel_after_ns`.
/// - `source_file` is the run's id, `source_offset` the row of the run's own timeline.
#[derive(Debug)]
pub struct TimelineView {
    exchanges: Exchanges,
    run_id: Arc<str>,
    start_unix_ns: i64,
}

impl TimelineView {
    pub(crate) fn new(exchanges: Exchanges, manifest: &Manifest) -> Self {
        Self { exchanges, run_id: manifest.id.as_str().into(), start_unix_ns: manifest.clock.start_unix_ns }
    }

    fn row(&self, request: &RequestRecord, attempts: &[AttemptRecord]) -> RequestRow {
        let counted = attempts.iter().find(|attempt| attempt.attempt == request.final_attempt);
        let since_due = |at: Option<i64>| at.map(|at| at.saturating_sub(request.due_ns));
        let cancelled = request.status == RequestStatus::Cancelled;
        let failed = matches!(
            request.status,
            RequestStatus::Failed | RequestStatus::Interrupted | RequestStatus::Unsent
        );
        let reported = |tokens: Option<u32>| tokens.map(|_| Source::Reported);
        let cache_write_tokens = counted.and_then(|attempt| attempt.usage_cache_write_tokens);
        let reasoning_tokens = counted.and_then(|attempt| attempt.usage_reasoning_tokens);
        let prod_ttft_ns = since_due(request.first_output_ns);
        let strata = request.strata.clone();
        RequestRow {
            arrival_unix_ns: Some(
                request.trace_unix_ns.unwrap_or_else(|| self.start_unix_ns.saturating_add(request.due_ns)),
            ),
            arrival_precision_ns: 1,
            arrival_source: ArrivalSource::Start,
            session_hash: strata.session_hash,
            tenant_hash: strata.tenant_hash,
            user_hash: strata.user_hash,
            turn: strata.turn,
            operation: strata.operation.unwrap_or_default(),
            method: strata.method,
            path: strata.path,
            endpoint: strata.endpoint,
            model: strata.model,
            model_served: strata.model_served,
            provider: strata.provider,
            route: strata.route,
            stream: strata.stream,
            input_tokens: request.input_tokens,
            input_tokens_source: request.input_tokens_source,
            output_tokens: request.output_tokens,
            output_tokens_source: request.output_tokens_source,
            cached_tokens: request.cached_tokens,
            cached_tokens_source: request.cached_tokens_source,
            cache_write_tokens,
            cache_write_tokens_source: reported(cache_write_tokens),
            reasoning_tokens,
            reasoning_tokens_source: reported(reasoning_tokens),
            client_gone: Some(cancelled),
            cancel_after_ns: since_due(request.end_ns).filter(|_| cancelled),
            prod_status: counted.and_then(|attempt| attempt.http_status),
            prod_error: failed.then(|| request.reason.map_or("unknown", |reason| reason.as_str()).into()),
            prod_attempts: Some(request.attempts),
            prod_ttft_ns,
            prod_ttft_kind: prod_ttft_ns.map(|_| TtftKind::FirstChunk),
            prod_e2e_ns: since_due(request.end_ns),
            prod_event_ns: counted.map(|attempt| output_offsets(attempt, request.due_ns)),
            tags: strata.tags,
            source_file: Arc::clone(&self.run_id),
            source_offset: request.row,
            ..RequestRow::default()
        }
    }
}

impl Iterator for TimelineView {
    type Item = Result<RequestRow>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.exchanges.next()? {
                Ok((request, attempts)) if request.phase == Phase::Measure => {
                    return Some(Ok(self.row(&request, &attempts)));
                }
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// When each output event of an attempt arrived, from the request's due time.
fn output_offsets(attempt: &AttemptRecord, due_ns: i64) -> Vec<i64> {
    let output = attempt.events.iter().filter(|event| event.kind.is_output());
    let reads = output.filter_map(|event| attempt.reads.get(event.read as usize));
    reads.map(|read| read.arrived_ns().saturating_sub(due_ns)).collect()
}

impl ReadStampRow {
    /// When the read's bytes arrived: the kernel's stamp where there is one, else the user-space stamp.
    pub fn arrived_ns(&self) -> i64 {
        self.kernel_ns.unwrap_or(self.user_ns)
    }
}
