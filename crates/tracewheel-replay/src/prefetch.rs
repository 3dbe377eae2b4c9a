//! The look-ahead: a thread that renders requests before they are due, within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::sync::mpsc;
use tracewheel_clock::{Clock, blocking};
use tracewheel_record::{RequestRecord, Strata};
use tracewheel_timeline::vocab::{BodyState, Operation, Phase, Reason, RequestStatus, Source};
use tracewheel_workload::{Plan, PlannedRequest, WorkloadError};

use crate::config::{LookAhead, SessionMode};
use crate::message::{ReadyRequest, RecorderMessage, close};
use crate::shared::{Abort, Halt, Outbox, Shared};

use render::Rendered;

pub(crate) use render::Renderer;
pub use splice::Splicer;

mod render;
mod splice;

/// How long the renderer sleeps when it is far enough ahead. It is never woken: a wake-up would cost the sender a
/// system call at the very moment of a release.
const NAP_NS: i64 = 10_000_000;

/// Requests that are recorded one by one although they were not sent. A plan of millions that is stopped after
/// seconds must not take minutes, and gigabytes, to say that the rest of it was not sent.
const UNSENT_ROWS: u64 = 100_000;

/// What the plan expects of the target's prefix cache, over the requests of the phase `measure` that were planned
/// before the run ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Predicted {
    cached_tokens: u64,
    of_tokens: u64,
    /// See [`Prediction`](tracewheel_workload::Prediction).
    pub(crate) forgets_from_row: Option<u64>,
    pub(crate) remembers_blocks: u64,
}

impl Predicted {
    /// Cached share of the input tokens, from 0 to 1, over the requests for which it can be known.
    pub(crate) fn share(&self) -> Option<f64> {
        (self.of_tokens > 0).then(|| self.cached_tokens as f64 / self.of_tokens as f64)
    }

    fn take(&mut self, record: &RequestRecord) {
        if record.phase == Phase::Measure
            && let Some(cached) = record.predicted_cached_tokens
        {
            self.cached_tokens += u64::from(cached);
            self.of_tokens += u64::from(record.input_tokens.unwrap_or(0));
        }
    }
}

/// What lies rendered and unreleased. Filled by the renderer, emptied by the workers.
#[derive(Debug)]
pub(crate) struct Budget {
    limits: LookAhead,
    requests: AtomicI64,
    bytes: AtomicI64,
    filled: AtomicBool,
}

impl Budget {
    pub(crate) fn new(limits: LookAhead) -> Arc<Self> {
        Arc::new(Budget {
            limits,
            requests: AtomicI64::new(0),
            bytes: AtomicI64::new(0),
            filled: AtomicBool::new(false),
        })
    }

    /// An empty one with the same limits.
    pub(crate) fn like(other: &Budget) -> Arc<Self> {
        Self::new(other.limits)
    }

    /// Gives the place of a released (or dropped) request back.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.requests.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// A body that has a place became another one.
    pub(crate) fn resize(&self, from_bytes: usize, to_bytes: usize) {
        self.bytes.fetch_add(to_bytes as i64 - from_bytes as i64, Ordering::Relaxed);
    }

    /// Whether the look-ahead was filled once, or the plan ended before.
    pub(crate) fn was_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    pub(crate) fn requests(&self) -> i64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Takes a place, waiting for room; false when the run is being ended. Once full it waits until a quarter is free,
    /// so that both threads work in stretches.
    fn take(&self, bytes: usize, shared: &Shared) -> bool {
        if !self.fits(bytes, 1, 1) {
            self.filled.store(true, Ordering::Release);
            while !self.fits(bytes, 3, 4) {
                if shared.halt() > Halt::Running {
                    return false;
                }
                blocking::sleep(NAP_NS);
            }
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as i64, Ordering::Relaxed);
        shared.halt() == Halt::Running
    }

    fn fits(&self, bytes: usize, part: i64, of: i64) -> bool {
        let requests = self.requests();
        let most = i64::from(self.limits.requests);
        let most_bytes = i64::try_from(self.limits.bytes).unwrap_or(i64::MAX);
        // One request always fits, however large.
        requests <= 0
            || (requests < (most / of * part).max(1)
                && self.bytes.load(Ordering::Relaxed) + bytes as i64 <= most_bytes / of * part)
    }
}

/// Where rendered requests go, and what keeps them in bounds.
pub(crate) struct Prefetch {
    pub(crate) renderer: Renderer,
    pub(crate) inboxes: Vec<mpsc::Sender<ReadyRequest>>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) outbox: Outbox,
}

impl Prefetch {
    /// Renders the whole plan ahead of the workers. After a stop the requests that were not rendered are recorded as
    /// unsent, up to a bound; the run counts the others without a row.
    pub(crate) fn measured(mut self, plan: &Plan) -> Result<Predicted, WorkloadError> {
        let outcome = self.measured_inner(plan);
        if outcome.is_err() {
            self.shared.abort(Abort::PlanUnreadable);
        }
        self.budget.filled.store(true, Ordering::Release);
        outcome
    }

    fn measured_inner(&mut self, plan: &Plan) -> Result<Predicted, WorkloadError> {
        let mut predicted = Predicted::default();
        let mut requests = self.renderer.routing.assigned(plan);
        let (mut number, mut unsent) = (0, 0);
        // Who waits for whom is known within one worker only.
        let by_session = self.renderer.config.sessions.mode == SessionMode::AfterPrevious;
        while unsent < UNSENT_ROWS
            && let Some(planned) = requests.next()
        {
            if self.shared.halt() == Halt::Cut {
                // Counted at the end, without a row: a large plan takes its time even to be gone through.
                break;
            }
            let planned = planned?;
            let record = Box::new(self.planned_record(&planned));
            predicted.take(&record);
            if self.shared.halt() > Halt::Running {
                unsent += 1;
                self.unsent(record);
                continue;
            }
            let rendered = self.renderer.request(&planned, planned.phase);
            if !self.budget.take(rendered.body.own_bytes(), &self.shared) {
                unsent += 1;
                self.unsent(record);
                continue;
            }
            self.note_late(&record);
            let worker = planned.session_hash.filter(|_| by_session).map_or(number, |hash| hash as usize);
            let threads = self.renderer.config.sessions.thread && planned.session_hash.is_some();
            let draft = threads.then(|| Box::new(planned.clone()));
            self.hand_over(worker, ReadyRequest { draft, ..ready(planned, record, rendered) });
            number += 1;
        }
        let prediction = requests.prediction();
        predicted.forgets_from_row = prediction.forgets_from_row;
        predicted.remembers_blocks = prediction.remembers_blocks;
        Ok(predicted)
    }

    /// The request's row in this phase, with the route that it takes.
    fn record(&self, planned: &PlannedRequest, phase: Phase) -> RequestRecord {
        let (_, route, _) = self.renderer.routing.lane(planned.lane);
        RequestRecord { sent_route: route.name.clone(), ..record_of(planned, phase) }
    }

    fn planned_record(&self, planned: &PlannedRequest) -> RequestRecord {
        let mut record = self.record(planned, planned.phase);
        if planned.body.is_none() {
            record.predicted_cached_tokens = self.renderer.config.cache.predicted_cached_tokens(planned);
        }
        record
    }

    /// Renders the prompts that the cache mode wants warm, each once; how many.
    pub(crate) fn prime(mut self, plan: &Plan) -> Result<u64, WorkloadError> {
        let mut primed = 0;
        for planned in self.renderer.routing.primes(plan, self.renderer.config.cache) {
            let planned = planned?;
            if self.shared.halt() > Halt::Running {
                break;
            }
            if matches!(planned.operation, Operation::Embeddings | Operation::Http) {
                // They leave nothing in a prefix cache, and an unknown request may do anything.
                continue;
            }
            let record = Box::new(self.record(&planned, Phase::Prime));
            let rendered = self.renderer.request(&planned, Phase::Prime);
            if self.budget.take(rendered.body.own_bytes(), &self.shared) {
                self.hand_over(primed as usize, ready(planned, record, rendered));
                primed += 1;
            }
        }
        Ok(primed)
    }

    /// Renders the requests that tell how the target counts.
    pub(crate) fn calibrate(mut self, probes: Vec<PlannedRequest>) {
        let mut assign = self.renderer.routing.assign();
        for mut planned in probes {
            planned.lane = assign.of(&planned);
            let record = Box::new(self.record(&planned, Phase::Calibrate));
            let rendered = self.renderer.request(&planned, Phase::Calibrate);
            if self.budget.take(rendered.body.own_bytes(), &self.shared) {
                self.hand_over(0, ready(planned, record, rendered));
            }
        }
    }

    /// Counts a request that is due already and before which none waits: the senders had nothing to send, so it is the
    /// renderer that is late.
    fn note_late(&self, record: &RequestRecord) {
        let due = self.shared.measure_start_ns().map(|start| start.saturating_add(record.due_ns));
        if self.budget.requests() <= 1 && due.is_some_and(|due| due < self.shared.clock.now().0) {
            self.shared.gauges.rendered_late.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn hand_over(&self, number: usize, request: ReadyRequest) {
        let inbox = &self.inboxes[number % self.inboxes.len()];
        if let Err(mpsc::error::SendError(request)) = inbox.blocking_send(request) {
            self.budget.give_back(request.body.own_bytes());
            self.unsent(request.record);
        }
    }

    fn unsent(&self, mut record: Box<RequestRecord>) {
        let reason = if self.shared.aborted().is_some() { Reason::RunAborted } else { Reason::StoppedByUser };
        close(&mut record, RequestStatus::Unsent, Some(reason));
        let start = self.shared.measure_start_ns().unwrap_or_else(|| self.shared.clock.now().0);
        record.planned_ns = record.planned_ns.saturating_add(start);
        record.due_ns = record.planned_ns;
        self.outbox.post_waiting(RecorderMessage::Request(record));
    }
}

fn ready(planned: PlannedRequest, record: Box<RequestRecord>, rendered: Rendered) -> ReadyRequest {
    let Rendered { provider, answer, target, head, method, uri, headers, body } = rendered;
    ReadyRequest {
        provider,
        target,
        head,
        method,
        request_id: planned.request_id,
        cancel_after_ns: planned.cancel_after_ns,
        think_ns: planned.think_ns,
        tokens: u64::from(planned.input_tokens) + u64::from(planned.output_tokens),
        stream: planned.stream,
        answer,
        draft: None,
        record,
        uri,
        headers,
        body,
    }
}

/// The request's row as far as the plan knows it; times are offsets from the plan's time zero until a worker takes it.
fn record_of(planned: &PlannedRequest, phase: Phase) -> RequestRecord {
    RequestRecord {
        row: planned.row,
        copy: planned.copy,
        phase,
        planned_ns: planned.planned_ns,
        due_ns: planned.planned_ns,
        trace_unix_ns: planned.trace_unix_ns,
        asked_input_tokens: (planned.body_state != BodyState::Full).then_some(planned.input_tokens),
        predicted_cached_tokens: planned.predicted_cached_tokens,
        input_tokens: Some(planned.input_tokens),
        input_tokens_source: Some(Source::Estimated),
        strata: Strata {
            operation: Some(planned.operation),
            endpoint: planned.endpoint.clone(),
            model: planned.model.clone(),
            provider: planned.provider.clone(),
            route: planned.route.clone(),
            stream: Some(planned.stream),
            session_hash: planned.session_hash,
            turn: planned.turn,
            tenant_hash: planned.tenant_hash,
            user_hash: planned.user_hash,
            tags: planned.tags.clone(),
            ..Strata::default()
        },
        ..RequestRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracewheel_clock::RunClock;

    #[test]
    fn the_look_ahead_is_bounded_in_count_and_bytes_and_takes_one_giant() {
        let shared = Shared::new(RunClock::start());
        let budget = Budget::new(LookAhead { requests: 4, bytes: 100 });
        assert!(budget.take(1_000, &shared), "one request always fits");
        assert!(!budget.fits(1, 1, 1));
        budget.give_back(1_000);
        for _ in 0..4 {
            assert!(budget.take(10, &shared));
        }
        assert!(!budget.fits(10, 1, 1) && !budget.was_filled());
        shared.raise(Halt::Drain);
        assert!(!budget.take(10, &shared), "a stop ends the waiting");
        assert!(budget.was_filled());
    }
}
