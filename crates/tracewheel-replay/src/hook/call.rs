//! One HTTP call, within a time limit, that a stop ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use tracewheel_clock::{Clock, PreciseWaiter, RunClock, RunNs};
use tracewheel_transport::{
    Endpoint, ExchangeLimits, ExchangeOutcome, H2Options, HttpChoice, Opened, Opening, PreparedRequest,
    TlsClient, TlsRoots, Way as Connecting,
};

use super::answer::Answer;
use super::{CallHeaders, HttpCall};

/// Time between two looks at the stop signal.
const LOOK_NS: i64 = 20_000_000;
/// Largest answer that is read.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// How calls are made, beside where to.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub(crate) clock: Arc<RunClock>,
    /// Certificates that are trusted instead of the system's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Name that the replay's target has a certificate for.
    pub(crate) tls_name: Option<String>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The call can never be made.
    Senseless(String),
    /// It was made in vain this time.
    Failed(String),
    /// The run is being ended.
    Stopped,
}

/// A call that can be made.
#[derive(Debug)]
pub(super) struct Prepared {
    endpoint: Endpoint,
    request: PreparedRequest,
    /// Whether it goes to the replay's target.
    to_target: bool,
}

/// Checks a call.
pub(crate) fn check(call: &HttpCall) -> Result<(), String> {
    prepare(call, false).map(drop)
}

pub(super) fn prepare(call: &HttpCall, to_target: bool) -> Result<Prepared, String> {
    let uri: Uri = call.url.trim().parse().map_err(|error| format!("its url is none: {error}"))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err("its url must begin with http:// or https://".to_owned());
    };
    let endpoint = Endpoint::parse(&format!("{scheme}://{authority}")).map_err(|error| error.to_string())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path: Uri = path.parse().map_err(|error| format!("its url has no usable path: {error}"))?;
    let method = Method::from_bytes(call.method.as_bytes())
        .map_err(|_| format!("{:?} is no HTTP method", call.method))?;
    let body = Bytes::from(call.body.clone().unwrap_or_default());
    let mut request = PreparedRequest::post(path, endpoint.host_header(), body);
    request.method = method;
    headers(&mut request.headers, &call.headers)?;
    Ok(Prepared { endpoint, request, to_target })
}

fn headers(map: &mut HeaderMap, given: &CallHeaders) -> Result<(), String> {
    map.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("tracewheel/", env!("CARGO_PKG_VERSION"))),
    );
    let mut add = |name: &str, value: &str, secret: bool| {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is no header name"))?;
        // The value is not repeated: it may be a secret.
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("{name} has a value that no header can have"))?;
        value.set_sensitive(secret);
        map.insert(name, value);
        Ok::<(), String>(())
    };
    given.plain.iter().try_for_each(|(name, value)| add(name, value, false))?;
    given.secret.iter().try_for_each(|(name, value)| add(name, value.expose(), true))
}

impl Prepared {
    /// Method and address without secrets.
    pub(super) fn told(&self) -> String {
        format!("{} {}{}", self.request.method, self.endpoint.url(), self.request.uri.path())
    }

    /// Makes the call; blocks until its answer is there, the time is over, or `stopped` says so.
    pub(super) fn make(
        &self,
        way: &Way,
        until_ns: i64,
        stopped: &dyn Fn() -> bool,
    ) -> Result<Answer, NoAnswer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(|error| NoAnswer::Failed(format!("no event loop: {error}")))?;
        let connecting = self.connecting(way)?;
        runtime.block_on(async {
            let waiter = PreciseWaiter::new(Arc::clone(&way.clock)).map_err(no_timer)?;
            self.exchange(connecting, way, (waiter, RunNs(until_ns)), stopped).await
        })
    }

    fn connecting(&self, way: &Way) -> Result<Connecting, NoAnswer> {
        let addresses = self.endpoint.resolve().map_err(|error| NoAnswer::Failed(error.to_string()))?;
        let tls = if self.endpoint.is_https() {
            let senseless = |error: &dyn std::fmt::Display| NoAnswer::Senseless(error.to_string());
            let roots = match &way.ca_file {
                Some(path) => TlsRoots::from_file(path).map_err(|error| senseless(&error))?,
                None => TlsRoots::system(),
            };
            let name = way.tls_name.as_deref().filter(|_| self.to_target).unwrap_or(self.endpoint.host());
            let client = TlsClient::new(roots, name).map_err(|error| senseless(&error))?;
            Some(client.with_alpn(HttpChoice::Http1.alpn()))
        } else {
            None
        };
        Ok(Connecting { addr: addresses[0], tls, http: HttpChoice::Http1, h2: H2Options::default() })
    }

    async fn exchange(
        &self,
        connecting: Connecting,
        way: &Way,
        (mut waiter, until): (PreciseWaiter, RunNs),
        stopped: &dyn Fn() -> bool,
    ) -> Result<Answer, NoAnswer> {
        let exchange = async {
            let opened = Opening::new(connecting, Arc::clone(&way.clock)).await;
            let opened = opened.map_err(|error| NoAnswer::Failed(error.to_string()))?;
            let Opened::H1(connection) = opened else {
                return Err(NoAnswer::Failed("it does not speak HTTP/1.1".to_owned()));
            };
            let limits = ExchangeLimits { max_body_bytes: MAX_ANSWER_BYTES, ..ExchangeLimits::default() };
            let (outcome, _connection) = connection.arm(self.request.clone(), limits).run().await;
            of_outcome(outcome)
        };
        let mut exchange = std::pin::pin!(exchange);
        loop {
            if stopped() {
                return Err(NoAnswer::Stopped);
            }
            let now = way.clock.now();
            if now >= until {
                return Err(NoAnswer::Failed("no answer came in time".to_owned()));
            }
            tokio::select! {
                answer = exchange.as_mut() => return answer,
                woke = waiter.wait_until(until.min(now.plus(LOOK_NS))) => { woke.map_err(no_timer)?; }
            }
        }
    }
}

fn of_outcome(outcome: ExchangeOutcome) -> Result<Answer, NoAnswer> {
    match (outcome.error, outcome.response) {
        (Some(error), _) => Err(NoAnswer::Failed(error.to_string())),
        (None, None) => Err(NoAnswer::Failed("no answer came".to_owned())),
        (None, Some(response)) => Ok(Answer {
            status: response.status.as_u16(),
            body: String::from_utf8_lossy(&outcome.body).into_owned(),
        }),
    }
}

fn no_timer(error: io::Error) -> NoAnswer {
    NoAnswer::Failed(format!("no timer: {error}"))
}
