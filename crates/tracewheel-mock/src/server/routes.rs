//! What is served where.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, SERVER};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tracewheel_clock::{Clock, RunClock, RunNs};
use tracewheel_net::tls::TlsServer;
use tracewheel_tokens::TextMaker;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::{ApiError, Ask};
use crate::config::{FaultRule, MockConfig};
use crate::dialect::{self, Asked, BudgetLeft, Dialect, Identity, ceil_div};
use crate::engine::chance::{Chance, Draw};
use crate::engine::{Budget, EngineRequest, RateLimited, Refusal, Remaining, Ticket};
use crate::fault::FaultPlan;
use crate::log::{AttemptLog, LogSink};
use crate::reply::{Reply, Voice};
use crate::server::body::{Place, Progress, ReplyBody, TokenStream};
use crate::server::exchange::{Exchange, Tally};
use crate::server::flush::FlushState;
use crate::server::hub::Hub;
use crate::server::io::{Arrival, Connection};
use crate::server::metrics;
use crate::server::tamper::Cut;
use crate::server::wire::Pace;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Headers by which clients tell a retry from a first attempt.
const RETRY_COUNTS: [HeaderName; 2] =
    [HeaderName::from_static("x-stainless-retry-count"), HeaderName::from_static("x-retry-count")];
const SERVER_NAME: HeaderValue =
    HeaderValue::from_static(concat!("tracewheel-mock/", env!("CARGO_PKG_VERSION")));
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// What all connections share.
pub(crate) struct Service {
    pub(crate) config: MockConfig,
    pub(crate) hub: Rc<Hub>,
    /// Set where HTTPS is served.
    pub(crate) tls: Option<TlsServer>,
    pub(crate) clock: Arc<RunClock>,
    pub(crate) sink: LogSink,
    pub(crate) words: Rc<TextMaker>,
    pub(crate) fingerprint: String,
    /// Set once the mock is being stopped.
    pub(crate) stopping: Rc<Cell<bool>>,
    pub(crate) tally: Rc<RefCell<Tally>>,
    pub(crate) faults: RefCell<FaultPlan>,
    pub(crate) flush: FlushState,
    /// When it began to serve.
    started: RunNs,
    next_ticket: Cell<u64>,
}

/// One request under way.
pub(crate) struct Call {
    pub(crate) service: Rc<Service>,
    pub(crate) connection: Rc<Connection>,
    pub(crate) exchange: Rc<Exchange>,
    pub(crate) parts: Parts,
    pub(crate) arrival: Arrival,
    /// What is spoken at the path; OpenAI's where no model is asked.
    pub(crate) dialect: &'static dyn Dialect,
    pub(crate) ticket: Ticket,
    pub(crate) request_id: HeaderValue,
    /// What is to happen to the answer.
    pub(crate) fault: RefCell<Option<Rc<FaultRule>>>,
}

impl Service {
    pub(crate) fn new(
        config: MockConfig,
        tls: Option<TlsServer>,
        hub: Rc<Hub>,
        clock: Arc<RunClock>,
        sink: LogSink,
        stopping: Rc<Cell<bool>>,
    ) -> Rc<Self> {
        let fingerprint = format!("fp_mock_{:016x}", xxh3_64(config.describe().as_bytes()));
        Rc::new(Self {
            faults: RefCell::new(FaultPlan::new(&config)),
            flush: FlushState::default(),
            started: clock.now(),
            config,
            tls,
            hub,
            clock,
            sink,
            words: Rc::new(TextMaker::new()),
            fingerprint,
            stopping,
            tally: Rc::default(),
            next_ticket: Cell::new(1),
        })
    }

    /// A rule took effect on an exchange; once is enough.
    pub(crate) fn note_fault(&self, rule: &FaultRule, exchange: &Exchange) {
        exchange.note(|log| {
            if log.fault.is_none() {
                log.fault = Some(rule.name.clone());
                self.faults.borrow_mut().count(rule);
            }
        });
    }

    /// A rule took effect on something that asked nothing: a connection, or all of them.
    pub(crate) fn note_connection_fault(&self, rule: &FaultRule, connection: u64) {
        self.faults.borrow_mut().count(rule);
        let now = self.clock.now();
        let (mono_ns, unix_ns) = (now.0 + self.clock.monotonic_origin_ns(), self.clock.wall(now));
        self.sink.send(AttemptLog {
            connection,
            fault: Some(rule.name.clone()),
            arrival_user_mono_ns: mono_ns,
            arrival_user_unix_ns: unix_ns,
            end_mono_ns: mono_ns,
            end_unix_ns: unix_ns,
            ..AttemptLog::default()
        });
    }

    /// The rule that hits a connection which came just now.
    pub(crate) fn pick_for_connection(&self) -> Option<Rc<FaultRule>> {
        self.faults.borrow_mut().pick_connection(self.since_start_ms(self.clock.now()))
    }

    /// How often each rule took effect.
    pub(crate) fn fault_effects(&self) -> Vec<(String, u64)> {
        self.faults.borrow().effects()
    }

    /// When it began to serve.
    pub(crate) fn started(&self) -> RunNs {
        self.started
    }

    /// Milliseconds since it began to serve.
    pub(crate) fn since_start_ms(&self, at: RunNs) -> u64 {
        u64::try_from(at.since(self.started) / 1_000_000).unwrap_or(0)
    }

    /// Answers one request of a connection.
    pub(crate) async fn answer(
        self: Rc<Self>,
        connection: Rc<Connection>,
        request: Request<Incoming>,
    ) -> Result<Response<ReplyBody>, Cut> {
        let (parts, body) = request.into_parts();
        let call = self.begin(connection, parts);
        let path = call.parts.uri.path();
        let asks_model = dialect::find(path).is_some();
        if !asks_model && let Some(response) = call.meet_fault(None).await? {
            return Ok(response);
        }
        if let Some(response) = call.flush() {
            return Ok(response);
        }
        let response = match (&call.parts.method, path) {
            (&Method::POST, _) if asks_model => call.generate(body).await?,
            (&Method::GET, "/v1/models") => call.json(StatusCode::OK, models(&call.service.config)),
            (&Method::GET, "/health") => call.json(StatusCode::OK, r#"{"status":"ok"}"#),
            (&Method::GET, "/metrics") => call.metrics(),
            (method, _)
                if asks_model
                    || matches!(path, "/v1/models" | "/health" | "/metrics" | "/reset_prefix_cache") =>
            {
                call.refuse(&ApiError {
                    status: 405,
                    ..ApiError::invalid(None, format!("{method} is not served at {path}"))
                })
            }
            (method, _) => call.refuse(&ApiError {
                status: 404,
                ..ApiError::invalid(None, format!("invalid URL ({method} {path})"))
            }),
        };
        Ok(response)
    }

    fn begin(self: &Rc<Self>, connection: Rc<Connection>, parts: Parts) -> Call {
        let arrival = connection.latest_read().unwrap_or_else(|| connection.now());
        let ticket = Ticket(self.next_ticket.get());
        self.next_ticket.set(ticket.0 + 1);
        let dialect = dialect::find(parts.uri.path()).unwrap_or(&dialect::OpenAi);
        let request_id = parts.headers.get(&REQUEST_ID).cloned().unwrap_or_else(|| {
            HeaderValue::from_str(&format!("mock-{:016x}", ticket.0))
                .expect("hexadecimal digits are header text")
        });
        let origin_ns = self.clock.monotonic_origin_ns();
        let log = AttemptLog {
            request_id: String::from_utf8_lossy(request_id.as_bytes()).into_owned(),
            retry_count: retry_count(&parts.headers),
            connection: connection.number,
            method: parts.method.as_str().to_owned(),
            path: parts.uri.path().to_owned(),
            arrival_kernel_unix_ns: arrival.kernel.map(|at| self.clock.wall(at)),
            arrival_user_unix_ns: self.clock.wall(arrival.user),
            arrival_kernel_mono_ns: arrival.kernel.map(|at| at.0 + origin_ns),
            arrival_user_mono_ns: arrival.user.0 + origin_ns,
            ..AttemptLog::default()
        };
        let exchange = Exchange::new(
            Arc::clone(&self.clock),
            self.sink.clone(),
            Rc::clone(&self.stopping),
            Rc::clone(&self.tally),
            log,
        );
        connection.wire.set_pace(Pace::Whole);
        connection.add(Rc::clone(&exchange));
        let fault = RefCell::default();
        Call {
            service: Rc::clone(self),
            connection,
            exchange,
            parts,
            arrival,
            dialect,
            ticket,
            request_id,
            fault,
        }
    }
}

impl Call {
    async fn generate(&self, body: Incoming) -> Result<Response<ReplyBody>, Cut> {
        if self.service.config.http.require_authorization && self.key().is_none() {
            return Ok(self.refuse(&ApiError {
                status: 401,
                code: Some("invalid_api_key"),
                ..ApiError::invalid(None, "you didn't provide an API key")
            }));
        }
        let body = match self.read_body(body).await {
            Ok(body) => body,
            Err(error) => return Ok(self.refuse(&error)),
        };
        // The request is there when its last byte is.
        let arrived = self.connection.latest_read().unwrap_or(self.arrival);
        let (ask, voice) = match self.read(&body) {
            Ok(read) => read,
            Err(error) => return Ok(self.refuse(&error)),
        };
        self.exchange.note(|log| {
            log.model = Some(ask.model.clone());
            log.stream = Some(ask.stream);
            log.prompt_tokens = Some(ask.prompt.tokens);
        });
        if let Some(response) = self.meet_fault(Some(&ask)).await? {
            return Ok(response);
        }
        let request = self.engine_request(&ask);
        Ok(match self.service.hub.submit(arrived.best(), request) {
            Err(refusal) => self.refuse_by_engine(refusal),
            Ok((remaining, state)) => {
                self.exchange.follow(Rc::clone(&state), ask.answer.tokens > 0);
                let place = Place { hub: Rc::clone(&self.service.hub), ticket: self.ticket, state };
                let mut response = self.reply(&ask, voice, place).await;
                self.add_remaining(response.headers_mut(), remaining);
                response
            }
        })
    }

    /// The key that came with the request.
    fn key(&self) -> Option<&HeaderValue> {
        self.dialect.key_headers().iter().find_map(|name| self.parts.headers.get(*name))
    }

    fn read(&self, body: &[u8]) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        let service = &self.service;
        self.dialect.read(&Asked {
            path: self.parts.uri.path(),
            query: self.parts.uri.query(),
            headers: &self.parts.headers,
            body,
            config: &service.config,
            identity: Identity {
                number: self.ticket.0,
                created_s: service.clock.wall(self.arrival.best()).div_euclid(1_000_000_000),
                fingerprint: &service.fingerprint,
            },
        })
    }

    async fn read_body(&self, body: Incoming) -> Result<Bytes, ApiError> {
        let most = self.service.config.http.max_body_bytes;
        let too_large = || ApiError {
            status: 413,
            ..ApiError::invalid(None, format!("the request body is larger than {most} bytes"))
        };
        let declared =
            self.parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if declared.is_some_and(|length| length > u64::from(most)) {
            return Err(too_large());
        }
        match Limited::new(body, most as usize).collect().await {
            Ok(collected) => Ok(collected.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
            Err(error) => Err(ApiError::invalid(None, format!("the request body ended early: {error}"))),
        }
    }

    fn engine_request(&self, ask: &Ask) -> EngineRequest {
        let key = self.key().map_or(0, |value| xxh3_64(value.as_bytes()));
        EngineRequest {
            ticket: self.ticket,
            key,
            prompt_tokens: ask.prompt.tokens,
            blocks: ask.prompt.blocks.clone(),
            output_tokens: ask.answer.tokens,
            output_cap: ask.answer.cap,
        }
    }

    async fn reply(&self, ask: &Ask, voice: Box<dyn Voice>, place: Place) -> Response<ReplyBody> {
        let service = &self.service;
        let text_key = Chance::new(service.config.seed).bits(Draw::Text, ask.prompt.digest);
        let cache = &service.config.cache;
        let mut reply = Reply::new(ask, voice, if cache.enabled { cache.block_tokens } else { 0 }, text_key);
        if !reply.is_stream() {
            poll_fn(|cx| place.state.poll_complete(cx)).await;
            let cached = place.state.cached_tokens().unwrap_or(0);
            // What generates nothing has had one step's token all the same.
            let tokens = place.state.available().min(ask.answer.tokens);
            return self.json(StatusCode::OK, reply.whole(&service.words, cached, tokens));
        }
        let tamper = self.tamper();
        if let Some(tamper) = &tamper {
            reply.set_tail_shape(tamper.tail_shape());
        }
        let stream_type = reply.stream_type();
        let body = ReplyBody::Stream(TokenStream {
            place,
            exchange: Rc::clone(&self.exchange),
            reply,
            words: Rc::clone(&service.words),
            role_delta: service.config.engine.role_delta,
            progress: Progress::default(),
            tamper,
        });
        self.respond(StatusCode::OK, stream_type, body)
    }

    /// The budget headers of a request that was let through.
    fn add_remaining(&self, headers: &mut HeaderMap, remaining: Remaining) {
        let limits = &self.service.config.limits;
        let now_unix_ns = self.service.clock.wall(self.arrival.best());
        for (what, limit, burst, left) in [
            ("requests", limits.requests_per_minute, limits.request_burst, remaining.requests),
            ("tokens", limits.tokens_per_minute, limits.token_burst, remaining.tokens),
        ] {
            let (Some(limit), Some(left)) = (limit, left) else { continue };
            let (burst, limit) = (burst.unwrap_or(limit).get(), limit.get());
            let full_in_ns = i64::from(burst.saturating_sub(left)) * 60_000_000_000 / i64::from(limit);
            self.dialect.add_budget(headers, &BudgetLeft { what, limit, left, full_in_ns, now_unix_ns });
        }
    }

    fn refuse_by_engine(&self, refusal: Refusal) -> Response<ReplyBody> {
        let limited = match refusal {
            Refusal::QueueFull => {
                return self.refuse(&ApiError {
                    status: 503,
                    kind: "server_error",
                    code: Some("queue_full"),
                    ..ApiError::invalid(None, "too many requests wait already")
                });
            }
            Refusal::RateLimited(limited) => limited,
        };
        let error = rate_limit_error(limited);
        let mut response = self.refuse(&error);
        if let Some(ns) = error.retry_after_ns {
            self.dialect.add_wait(response.headers_mut(), ns);
        }
        response
    }

    fn metrics(&self) -> Response<ReplyBody> {
        let model = self.service.config.models.first().map_or("mock", String::as_str);
        let faults = self.service.fault_effects().iter().map(|(_, count)| count).sum();
        let page = metrics::page(model, &self.service.hub.gauges(), faults, self.service.sink.dropped());
        let body = ReplyBody::whole(page.into(), Rc::clone(&self.exchange), self.tamper());
        self.respond(StatusCode::OK, PLAIN, body)
    }

    pub(crate) fn refuse(&self, error: &ApiError) -> Response<ReplyBody> {
        let status = self.dialect.status(error);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.json(status, self.refusal(error))
    }

    /// The body of a refusal.
    pub(crate) fn refusal(&self, error: &ApiError) -> String {
        self.dialect.refusal(error, &String::from_utf8_lossy(self.request_id.as_bytes()))
    }

    pub(crate) fn json(&self, status: StatusCode, body: impl Into<Bytes>) -> Response<ReplyBody> {
        // To a HEAD only the head is sent, and nobody would ask for the body's end.
        let body = if self.parts.method == Method::HEAD { Bytes::new() } else { body.into() };
        self.respond(status, JSON, ReplyBody::whole(body, Rc::clone(&self.exchange), self.tamper()))
    }

    pub(crate) fn respond(
        &self,
        status: StatusCode,
        kind: HeaderValue,
        body: ReplyBody,
    ) -> Response<ReplyBody> {
        self.exchange.note(|log| log.status = Some(status.as_u16()));
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(SERVER, SERVER_NAME);
        headers.insert(self.dialect.id_header(), self.request_id.clone());
        let answers = self.connection.count_answer();
        if self.service.config.http.close_after_answers.is_some_and(|most| answers >= most.get()) {
            if self.connection.is_http2() {
                self.connection.say_goodbye();
            } else {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
        }
        self.tamper_with_head(headers);
        response
    }
}

pub(crate) fn retry_count(headers: &HeaderMap) -> u32 {
    RETRY_COUNTS.iter().find_map(|name| headers.get(name)?.to_str().ok()?.trim().parse().ok()).unwrap_or(0)
}

fn models(config: &MockConfig) -> String {
    let default = ["mock".to_owned()];
    let names: &[String] = if config.models.is_empty() { &default } else { &config.models };
    let data: Vec<_> = names
        .iter()
        .map(|id| {
            serde_json::json!({
                "id": id, "object": "model", "created": 0, "owned_by": "tracewheel",
                "max_model_len": config.engine.max_context_tokens
            })
        })
        .collect();
    serde_json::json!({ "object": "list", "data": data }).to_string()
}

fn rate_limit_error(limited: RateLimited) -> ApiError {
    let (kind, what) = match limited.budget {
        Budget::Requests => ("requests", "requests a minute"),
        Budget::Tokens => ("tokens", "tokens a minute"),
        Budget::InFlight => ("concurrency", "requests at once"),
    };
    let message = match limited.retry_after_ns {
        Some(ns) => {
            format!("rate limit reached for {what}: please try again in {} ms", ceil_div(ns, 1_000_000))
        }
        None if limited.budget == Budget::InFlight => "too many requests are under way at once".to_owned(),
        None => format!("the request alone is larger than the limit of {what} allows at once"),
    };
    ApiError {
        status: 429,
        kind,
        code: Some("rate_limit_exceeded"),
        param: None,
        message,
        retry_after_ns: limited.retry_after_ns,
    }
}
