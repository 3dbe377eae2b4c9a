//! What can be refused before anything is sent.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tracewheel_clock::{Clock, RunClock};
use tracewheel_protocol::{
    OptionError, PROVIDERS, Place, ProtocolOptions, Provider, Settled, Template, carrier, provider,
};
use tracewheel_tokens::Vocabulary;
use tracewheel_transport::{BodyBudget, Endpoint, ExchangeLimits, H2Options, TlsClient, TlsRoots};
use tracewheel_workload::{CacheMode, Plan};

use crate::config::{ConnectionUse, Secret, SessionMode};
use crate::hook::{self, HookAction, HookPoint, Stage};
use crate::machine;
use crate::manifest::{self, Known};
use crate::realtime::Cores;
use crate::worker::{Head, Rules, Target};
use crate::{ReplayConfig, ReplayError};

/// Everything that a run needs and that could have been wrong.
pub(super) struct Checked {
    pub(super) provider: &'static dyn Provider,
    /// The protocol's options, whole.
    pub(super) settled: Settled,
    pub(super) endpoint: Endpoint,
    pub(super) addresses: Vec<SocketAddr>,
    /// How long the target's name took to resolve.
    pub(super) resolve_ns: i64,
    /// Where the trusted certificates came from, for an `https` target.
    pub(super) roots: Option<String>,
    /// Where requests go.
    pub(super) targets: Arc<[Arc<Target>]>,
    pub(super) head: Arc<Head>,
    pub(super) rules: Arc<Rules>,
    pub(super) nonce: u64,
    pub(super) vocabulary: Option<Vocabulary>,
    pub(super) workers: u32,
    /// Which cores the run's threads are bound to.
    pub(super) cores: Option<Cores>,
    /// Trusted certificates and the target's name in its own, for hooks.
    hook_tls: (Option<PathBuf>, Option<String>),
    /// The header of the target's key, for hooks.
    hook_key: Option<(String, Secret)>,
}

impl Checked {
    /// What hooks act upon.
    pub(super) fn hook_stage<'a>(
        &self,
        clock: &Arc<RunClock>,
        stopped: &'a (dyn Fn() -> bool + Sync),
    ) -> Stage<'a> {
        Stage {
            way: hook::Way {
                clock: Arc::clone(clock),
                ca_file: self.hook_tls.0.clone(),
                tls_name: self.hook_tls.1.clone(),
            },
            target: self.endpoint.url(),
            key: self.hook_key.clone(),
            stopped,
        }
    }

    pub(super) fn known<'a>(&'a self, plan: &'a Plan, config: &'a ReplayConfig) -> Known<'a> {
        Known {
            plan,
            config,
            provider: self.provider,
            endpoint: &self.endpoint,
            addresses: &self.addresses,
            resolve_ns: self.resolve_ns,
            tls: self.roots.as_deref().zip(self.targets[0].tls.as_ref()),
            nonce: self.nonce,
            vocabulary: self.vocabulary.as_ref(),
            workers: self.workers,
        }
    }
}

/// Descriptors kept for what is no connection: the run's files, timers, event loops, the terminal.
const OWN_DESCRIPTORS: u64 = 48;
/// Connections that a run must be able to open, unless it is told to make do with fewer.
const MIN_CONNECTIONS: u64 = 16;
/// Most sending threads: each is a runtime with its own wheel and queue.
const MAX_WORKERS: u16 = 1024;

/// Checks a configuration and resolves what it names.
pub(super) fn check(plan: &Plan, config: &ReplayConfig) -> Result<Checked, ReplayError> {
    let provider = provider(&config.provider).ok_or_else(|| {
        let names: Vec<_> = PROVIDERS.iter().map(|provider| provider.name()).collect();
        refuse("provider", format!("{:?} is not known: take one of {}", config.provider, names.join(", ")))
    })?;
    numbers(config)?;
    let settled = config
        .protocol
        .settle(provider)
        .map_err(|OptionError { option, problem }| refuse(option, problem))?;
    let cores = Cores::of(&config.pin).map_err(|problem| refuse("pin", problem))?;
    let endpoint = Endpoint::parse(&config.target).map_err(|source| ReplayError::Target { source })?;
    endpoint
        .uri(&provider.path(&Place { model: "m", stream: true, ..Place::default() }))
        .map_err(|error| refuse("target", format!("{:?} has no usable path: {error}", config.target)))?;
    operations(plan, provider)?;
    if provider.knobs().free_form {
        places(plan, &config.protocol)?;
    }
    let vocabulary = config.prompts.tokenizer.as_deref().map(Vocabulary::open).transpose();
    let vocabulary = vocabulary.map_err(|source| ReplayError::Tokenizer { source })?;
    let names_model =
        !provider.knobs().free_form || settled.template.as_ref().is_some_and(Template::names_model);
    if plan.header().options.history.is_some() && config.cache != CacheMode::Natural {
        let problem = format!(
            "what lived before the window is sent ahead only in the cache mode natural, not {}: leave one of the two out",
            config.cache
        );
        return Err(refuse("prime", problem));
    }
    if config.model.is_none()
        && names_model
        && let Some((row, count)) = plan.survey().without_model
    {
        let problem = format!("{count} requests (first: row {row}) have no recorded model: name one for all");
        return Err(refuse("model", problem));
    }
    hooks(plan, config)?;
    let descriptors = machine::raise_descriptor_limit();
    enough_descriptors(descriptors, config)?;
    let (tls, roots) = tls(&endpoint, config)?.unzip();
    let clock = RunClock::start();
    let before = clock.now();
    let addresses = endpoint.resolve().map_err(|source| ReplayError::Target { source })?;
    let resolve_ns = clock.now().since(before);
    let target = Target {
        url: endpoint.url(),
        tls,
        http: config.http.choice(),
        h2: h2_options(config),
        addr: reachable(&addresses, config.connect_timeout_ns),
        host: endpoint.host_header(),
    };
    let head = Head { streamed: headers(provider, config, true)?, plain: headers(provider, config, false)? };
    let workers = workers(config);
    Ok(Checked {
        rules: Arc::new(rules(config, plan.header().options.seed, workers, descriptors)),
        nonce: config.nonce.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
        targets: Arc::new([Arc::new(target)]),
        head: Arc::new(head),
        vocabulary,
        provider,
        settled,
        endpoint,
        addresses,
        resolve_ns,
        roots,
        workers,
        cores,
        hook_tls: (config.ca_file.clone(), config.tls_name.clone()),
        hook_key: config.secret.as_ref().map(|secret| {
            let (name, value) = provider.key_header(secret.expose());
            (name.to_owned(), Secret::new(value))
        }),
    })
}

/// How HTTP/2 is used: where each request is to have a connection of its own, that carries one stream ever.
fn h2_options(config: &ReplayConfig) -> H2Options {
    match config.connection_use {
        ConnectionUse::Reuse => {
            H2Options { streams_per_connection: config.http2_streams, ..H2Options::default() }
        }
        ConnectionUse::PerRequest => H2Options { streams_per_connection: 1, exchanges_per_connection: 1 },
    }
}

/// TLS for an `https` target, and where its trusted certificates came from.
fn tls(endpoint: &Endpoint, config: &ReplayConfig) -> Result<Option<(TlsClient, String)>, ReplayError> {
    if !endpoint.is_https() {
        let unused = [("ca_file", config.ca_file.is_some()), ("tls_name", config.tls_name.is_some())];
        return match unused.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                Err(refuse(option, format!("{} is not https: leave it out", endpoint.url())))
            }
            None => Ok(None),
        };
    }
    let wrong = |source| ReplayError::Tls { source };
    let roots = match &config.ca_file {
        Some(path) => TlsRoots::from_file(path).map_err(wrong)?,
        None => TlsRoots::system(),
    };
    let source = roots.source().to_owned();
    let name = config.tls_name.as_deref().unwrap_or(endpoint.host());
    let client = TlsClient::new(roots, name).map_err(wrong)?;
    Ok(Some((client.with_alpn(config.http.choice().alpn()), source)))
}

/// Refuses free-form requests that nobody says enough about.
fn places(plan: &Plan, options: &ProtocolOptions) -> Result<(), ReplayError> {
    let places = &plan.survey().places;
    let told = |(row, count): (u64, u64)| format!("{count} requests (first: row {row})");
    if let Some(found) = places.without_path.filter(|_| options.path.is_none()) {
        let problem = format!(
            "{} have no recorded path: name one for them (`path = \"/v1/...\"` under [protocol])",
            told(found)
        );
        return Err(refuse("path", problem));
    }
    if let Some(method) = places.methods.iter().find(|method| Method::from_bytes(method.as_bytes()).is_err())
    {
        return Err(refuse(
            "method",
            format!("{method:?} is recorded and is no HTTP method: correct the timeline"),
        ));
    }
    let usually_without = matches!(options.method.as_deref(), Some("GET" | "HEAD" | "DELETE" | "OPTIONS"));
    let unsaid = places.without_body.or(places.without_method_and_body.filter(|_| !usually_without));
    if let Some(found) = unsaid.filter(|_| options.body.is_none()) {
        let problem = format!(
            "{} have no recorded body: give one for them (`body` under [protocol], with places such as {{{{prompt}}}}; `body = \"\"` sends none)",
            told(found)
        );
        return Err(refuse("body", problem));
    }
    Ok(())
}

/// Refuses what neither the provider nor its companion for embeddings can carry.
fn operations(plan: &Plan, provider: &'static dyn Provider) -> Result<(), ReplayError> {
    let foreign = plan.survey().operations.iter().find(|found| carrier(provider, found.operation).is_none());
    foreign.map_or(Ok(()), |found| {
        let problem = format!(
            "{} requests (first: row {}) are of the operation {}, which {} cannot carry: leave them out (`--leave-out {}`)",
            found.requests,
            found.first_row,
            found.operation.as_str(),
            provider.name(),
            found.operation.as_str()
        );
        Err(refuse("operations", problem))
    })
}

/// Refuses hooks that cannot act, and those that would undo what the run prepares.
fn hooks(plan: &Plan, config: &ReplayConfig) -> Result<(), ReplayError> {
    for hook in &config.hooks {
        let refuse = |problem: String| refuse("hooks", format!("{} {}: {problem}", hook.at, hook.name));
        hook::check(hook).map_err(refuse)?;
        let flushes = matches!(hook.action, HookAction::Flush(_));
        if flushes && hook.at == HookPoint::BeforeMeasure && manifest::primes(plan, config.cache) {
            let problem =
                "it would empty the cache that the prime phase has just filled: let it act before-prime";
            return Err(refuse(problem.to_owned()));
        }
    }
    Ok(())
}

fn refuse(option: &'static str, problem: String) -> ReplayError {
    ReplayError::Config { option, problem }
}

fn numbers(config: &ReplayConfig) -> Result<(), ReplayError> {
    let positive = |option, value: i64| match value {
        1.. => Ok(()),
        _ => Err(refuse(option, format!("{value} must be positive"))),
    };
    let lasting = |option, ns: i64| match ns {
        1.. => Ok(()),
        _ => Err(refuse(option, "it must be longer than 0".to_owned())),
    };
    lasting("timeout", config.request_timeout_ns)?;
    lasting("connect_timeout", config.connect_timeout_ns)?;
    positive("look_ahead.requests", i64::from(config.look_ahead.requests))?;
    positive("recorder_queue.messages", i64::from(config.recorder_queue.messages))?;
    positive("closed_loop", config.closed_loop.map_or(1, i64::from))?;
    positive("workers", config.workers.map_or(1, i64::from))?;
    positive("http2_streams", i64::from(config.http2_streams))?;
    if let Some(workers) = config.workers.filter(|workers| *workers > MAX_WORKERS) {
        let problem = format!("{workers} is above {MAX_WORKERS}: one or two a core are enough");
        return Err(refuse("workers", problem));
    }
    positive("connections", config.max_connections.map_or(1, i64::from))?;
    positive("prime_concurrency", i64::from(config.prime_concurrency))?;
    if !config.temperature.is_finite() {
        return Err(refuse("temperature", "it must be a finite number".to_owned()));
    }
    if let Some((field, problem)) = config.budget.problem() {
        return Err(refuse(field, problem.to_owned()));
    }
    let gates =
        [("budget", config.budget.is_on()), ("sessions", config.sessions.mode == SessionMode::AfterPrevious)];
    if let Some((option, _)) = gates.iter().find(|(_, on)| *on && config.closed_loop.is_some()) {
        let problem = "a closed loop decides by itself when requests leave: leave one of the two out";
        return Err(refuse(option, problem.to_owned()));
    }
    config.retry.check().map_err(|error| refuse("retry", error.to_string()))?;
    Ok(())
}

/// The sending threads: one where there are two cores (the target and the recorder want the other), else two.
fn workers(config: &ReplayConfig) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = config.workers.map_or(if cores <= 2 { 1 } else { 2 }, u32::from);
    let bound = config.closed_loop.unwrap_or(u32::MAX).min(config.max_connections.unwrap_or(u32::MAX));
    // A budget is one account, kept by one thread.
    let bound = if config.budget.is_on() { 1 } else { bound };
    wanted.min(bound).max(1)
}

fn rules(config: &ReplayConfig, seed: u64, workers: u32, descriptors: Option<u64>) -> Rules {
    // What waits for the recorder is held too: half of its queue, so that a flooding target never looks like a slow disk.
    let held = config.max_held_bytes.min(config.recorder_queue.bytes / 2);
    Rules {
        test_stall_ns: config.test_stall_ns,
        test_whole_bodies: config.test_whole_bodies,
        retry: config.retry.clone(),
        seed,
        request_timeout_ns: config.request_timeout_ns,
        connect_timeout_ns: config.connect_timeout_ns,
        cancel_as_recorded: config.cancel_as_recorded,
        budget: config.budget,
        sessions: config.sessions,
        limits: ExchangeLimits {
            max_body_bytes: config.max_response_bytes,
            budget: Some(BodyBudget::new(held)),
            ..ExchangeLimits::default()
        },
        descriptor_room: descriptor_room(descriptors, workers),
        connection_use: config.connection_use,
        spares: config.spare_connections.map(|spares| spares.div_ceil(workers) as usize),
        max_connections: config.max_connections.map_or(usize::MAX, |most| (most / workers).max(1) as usize),
    }
}

/// Refuses a run that could hardly open a connection (after the soft limit was raised to the hard one).
fn enough_descriptors(limit: Option<u64>, config: &ReplayConfig) -> Result<(), ReplayError> {
    let wanted = config.max_connections.map_or(MIN_CONNECTIONS, u64::from).min(MIN_CONNECTIONS);
    match limit {
        Some(limit) if limit.saturating_sub(OWN_DESCRIPTORS) < wanted => Err(refuse(
            "connections",
            format!(
                "this process may open {limit} files, {OWN_DESCRIPTORS} of which the run itself needs: raise the hard limit (ulimit -n) to {} at least",
                OWN_DESCRIPTORS + wanted
            ),
        )),
        _ => Ok(()),
    }
}

/// Connections that one worker can have before descriptors run out. Some are left for the run's own files: a run whose
/// target hangs must not fail to be recorded.
fn descriptor_room(limit: Option<u64>, workers: u32) -> usize {
    let room = limit.unwrap_or(u64::MAX).saturating_sub(OWN_DESCRIPTORS) / u64::from(workers);
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

/// The headers that every request carries.
fn headers(provider: &dyn Provider, config: &ReplayConfig, stream: bool) -> Result<HeaderMap, ReplayError> {
    let mut map = HeaderMap::new();
    map.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("tracewheel/", env!("CARGO_PKG_VERSION"))),
    );
    for (name, value) in provider.headers(stream) {
        map.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    for (name, value) in &config.headers {
        let wrong = |what: &str| refuse("headers", format!("{name:?} {what}"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("is no header name"))?;
        let of_key = HeaderName::from_static(provider.key_header("").0);
        if [header::AUTHORIZATION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, of_key].contains(&name)
        {
            return Err(wrong("is set by tracewheel itself (a key comes from the environment or a file)"));
        }
        map.insert(
            name,
            HeaderValue::from_str(value).map_err(|_| wrong("has a value that no header can have"))?,
        );
    }
    if let Some(secret) = &config.secret {
        let (name, value) = provider.key_header(secret.expose());
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| refuse("secret", "the key holds bytes that no header can have".to_owned()))?;
        value.set_sensitive(true);
        map.insert(HeaderName::from_static(name), value);
    }
    Ok(map)
}

/// The first address that answers, else the first. A name with one address is not tried.
fn reachable(addresses: &[SocketAddr], timeout_ns: i64) -> SocketAddr {
    let timeout = Duration::from_nanos(timeout_ns.unsigned_abs());
    let mut candidates = addresses.iter().filter(|_| addresses.len() > 1);
    let answering = candidates.find(|addr| TcpStream::connect_timeout(addr, timeout).is_ok());
    *answering.unwrap_or(&addresses[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_own_files_keep_their_descriptors_and_every_worker_gets_its_part() {
        assert_eq!(descriptor_room(Some(1_048), 2), 500);
        assert_eq!(descriptor_room(Some(10), 2), 1, "one connection is always tried");
        assert!(descriptor_room(None, 1) > 1 << 30);
    }

    #[test]
    fn a_hard_limit_that_leaves_hardly_a_connection_is_refused_by_its_name() {
        let told = enough_descriptors(Some(63), &ReplayConfig::default()).unwrap_err().to_string();
        assert!(told.contains("may open 63 files") && told.contains("(ulimit -n) to 64"), "{told}");
        assert!(enough_descriptors(Some(64), &ReplayConfig::default()).is_ok());
        assert!(enough_descriptors(None, &ReplayConfig::default()).is_ok());
        let few = ReplayConfig { max_connections: Some(2), ..ReplayConfig::default() };
        assert!(enough_descriptors(Some(50), &few).is_ok());
        assert!(enough_descriptors(Some(49), &few).is_err());
    }
}
