//! The look-ahead: a thread that renders requests before they are due, within bounds.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use tokio::sync::mpsc;
use tracewheel_clock::{Clock, blocking};
use tracewheel_protocol::{AnswerForm, Overrides, Place, Provider, RenderRequest, Turn, carrier};
use tracewheel_record::{RequestRecord, Strata};
use tracewheel_timeline::HeaderClass;
use tracewheel_timeline::vocab::{BodyState, Operation, Phase, Reason, RequestStatus, Source};
use tracewheel_tokens::{WORDS, words};
use tracewheel_transport::{Body, Endpoint};
use tracewheel_workload::{Plan, PlannedRequest, PromptRenderer, PromptSpec, WorkloadError};

use crate::config::{LookAhead, ReplayConfig, SessionMode};
use crate::message::{ReadyRequest, RecorderMessage, close};
use crate::routing::{BoundRoute, Routing};
use crate::shared::{Abort, Halt, Outbox, Shared};
use crate::worker::Head;

pub use splice::Splicer;

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

/// Makes the exact bytes of requests.
pub(crate) struct Renderer {
    routing: Arc<Routing>,
    prompts: PromptRenderer,
    ids: TokenIds,
    config: ReplayConfig,
    nonce: u64,
    text: String,
    body: Vec<u8>,
    long: Splicer,
    paths: Paths,
}

/// Where requests go. Plans name few models.
#[derive(Default)]
struct Paths(HashMap<PathKey, Uri>);

/// What a path may depend on: the route's base address and version, the protocol, the model, the manner of the answer, the
/// recorded path.
type PathKey = (usize, &'static str, String, bool, Option<Arc<str>>);

/// Paths that are kept; a plan that names more models gets theirs made anew.
const MOST_PATHS: usize = 1024;

impl Paths {
    fn of(&mut self, (at, endpoint): (usize, &Endpoint), provider: &dyn Provider, place: &Place<'_>) -> Uri {
        let recorded = place.recorded.map(Arc::from);
        let key = (at, provider.name(), place.model.to_owned(), place.stream, recorded);
        if let Some(uri) = self.0.get(&key) {
            return uri.clone();
        }
        let path = provider.path(place);
        let uri = endpoint.uri(&path).expect("what stands in a path is escaped, and the rest was checked");
        if self.0.len() < MOST_PATHS {
            self.0.insert(key, uri.clone());
        }
        uri
    }
}

impl Renderer {
    pub(crate) fn new(
        routing: Arc<Routing>,
        config: &ReplayConfig,
        nonce: u64,
        prompts: PromptRenderer,
    ) -> Self {
        Renderer {
            routing,
            prompts,
            ids: TokenIds::default(),
            config: config.clone(),
            nonce,
            text: String::new(),
            body: Vec::new(),
            long: Splicer::default(),
            paths: Paths::default(),
        }
    }

    /// How and where a request goes, and its exact bytes.
    fn request(&mut self, planned: &PlannedRequest, phase: Phase) -> Rendered {
        let routing = Arc::clone(&self.routing);
        let (at, route, head) = routing.lane(planned.lane);
        let provider =
            carrier(route.provider, planned.operation).expect("operations that none carries were refused");
        let options = &route.options;
        let method = match provider.knobs().free_form {
            true => planned.method.as_deref().or(options.method.as_deref()),
            false => None,
        };
        let method = method
            .map_or(Method::POST, |name| Method::from_bytes(name.as_bytes()).expect("methods were checked"));
        let place = Place {
            model: route.model(planned),
            stream: planned.stream && provider.streams(),
            recorded: planned
                .path
                .as_deref()
                .or(options.path.as_deref())
                .filter(|_| provider.knobs().free_form),
            api_version: options.api_version.as_deref(),
        };
        let uri = self.paths.of((at, &route.endpoint), provider, &place);
        let body = self.body(route, provider, &method, planned, phase);
        let headers = planned.headers.as_ref().filter(|_| provider.knobs().free_form);
        Rendered {
            provider,
            answer: options.answer,
            target: route.target,
            headers: headers.map(|recorded| Box::new(recorded_headers(recorded, &head.set))),
            head: Arc::clone(head),
            method,
            uri,
            body,
        }
    }

    fn body(
        &mut self,
        route: &BoundRoute,
        provider: &dyn Provider,
        method: &Method,
        planned: &PlannedRequest,
        phase: Phase,
    ) -> Body {
        if let (BodyState::Full, Some(body)) = (planned.body_state, &planned.body) {
            let overrides = Overrides { model: route.model.as_deref(), usage: route.settled.recorded_usage };
            return overrides.apply(provider, body).map_or_else(|| body.clone().into(), Body::from);
        }
        if [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS].contains(method) {
            return Body::default();
        }
        let nonce = match phase {
            // What is sent ahead is what the run will send, under the run's own nonce.
            Phase::Prime | Phase::Calibrate => self.nonce,
            _ => self.config.cache.nonce(self.nonce, planned.request_id),
        };
        let request = asking(route, self.config.temperature, provider, planned);
        let by_ids = route.options.prompt_ids;
        let nonce_of = (nonce, nonce == self.nonce);
        if !by_ids
            && let Some(body) = self.long.body(provider, &request, &self.prompts, &planned.prompt, nonce_of)
        {
            return body;
        }
        self.prompts.render(&planned.prompt, nonce, &mut self.text);
        let prompt_ids = by_ids.then(|| self.ids.of(&self.text));
        let request = RenderRequest { prompt: &self.text, prompt_ids, ..request };
        provider.render(&request, &mut self.body);
        Bytes::copy_from_slice(&self.body).into()
    }

    /// The text of a made-up prompt behind so many of its tokens, under the run's own nonce.
    pub(crate) fn text_behind(&mut self, prompt: &PromptSpec, behind_tokens: u32) -> String {
        self.prompts.render(prompt, self.nonce, &mut self.text);
        if behind_tokens == 0 {
            return self.text.clone();
        }
        // Each word stands behind a space.
        let begins = self.text.match_indices(' ').map(|(at, _)| at);
        let words = begins.clone().count() as u64;
        let behind = words * u64::from(behind_tokens) / u64::from(prompt.tokens().max(1));
        let at = begins.clone().nth(behind as usize).unwrap_or(self.text.len());
        self.text[at..].to_owned()
    }

    /// The body of a request that asks `prompt` behind what was said before.
    pub(crate) fn with_turns(
        &mut self,
        provider: &dyn Provider,
        planned: &PlannedRequest,
        turns: &[Turn<'_>],
        prompt: &str,
    ) -> Body {
        let routing = Arc::clone(&self.routing);
        let (_, route, _) = routing.lane(planned.lane);
        let request = asking(route, self.config.temperature, provider, planned);
        provider.render(&RenderRequest { prompt, turns, ..request }, &mut self.body);
        Bytes::copy_from_slice(&self.body).into()
    }
}

/// The recorded headers that are sent: those that may be, and that the scenario has not set.
fn recorded_headers(recorded: &BTreeMap<Arc<str>, Arc<str>>, set: &[HeaderName]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in recorded {
        if HeaderClass::of(name, value) == HeaderClass::Request
            && let Ok(name) = HeaderName::from_bytes(name.as_bytes())
            && let Ok(value) = HeaderValue::from_str(value)
            && !set.contains(&name)
        {
            headers.insert(name, value);
        }
    }
    headers
}

/// All that a made-up request says beside its prompt.
fn asking<'a>(
    route: &'a BoundRoute,
    temperature: f64,
    provider: &dyn Provider,
    planned: &'a PlannedRequest,
) -> RenderRequest<'a> {
    let settled = &route.settled;
    RenderRequest {
        model: route.model(planned),
        template: settled.template.as_ref(),
        max_tokens: planned.output_tokens,
        limit_field: settled.limit_field,
        stream: planned.stream && provider.streams(),
        force_length: settled.force_length,
        engine: settled.engine,
        token_detail: settled.token_detail,
        include_obfuscation: settled.include_obfuscation,
        temperature,
        params: planned.params.as_deref(),
        ..RenderRequest::default()
    }
}

/// A request, ready but for its row.
struct Rendered {
    provider: &'static dyn Provider,
    answer: AnswerForm,
    target: u16,
    head: Arc<Head>,
    method: Method,
    uri: Uri,
    headers: Option<Box<HeaderMap>>,
    body: Body,
}

/// Token ids for made-up prompts: one a word, the same for the same word.
#[derive(Default)]
struct TokenIds {
    by_word: HashMap<&'static str, u32>,
    ids: Vec<u32>,
}

/// The id of the first word. Lower ones are bytes and control tokens in the usual vocabularies; the words' own end far
/// below the smallest of these vocabularies' sizes.
const FIRST_WORD_ID: u32 = 1_000;

impl TokenIds {
    fn of(&mut self, text: &str) -> &[u32] {
        if self.by_word.is_empty() {
            self.by_word = WORDS.iter().copied().zip(FIRST_WORD_ID..).collect();
        }
        self.ids.clear();
        let id = |word: &str| self.by_word.get(word).copied().unwrap_or(FIRST_WORD_ID);
        self.ids.extend(words(text).map(id));
        &self.ids
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
    fn a_prompt_has_one_token_id_a_word_and_equal_words_have_equal_ids() {
        let mut ids = TokenIds::default();
        let text = format!(" {} {} {}", WORDS[3], WORDS[2047], WORDS[3]);
        assert_eq!(ids.of(&text), [1_003, 3_047, 1_003]);
        assert_eq!(ids.of(""), [0; 0]);
    }

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
