//! Where the routes of a run lead: each server once, with its addresses and its certificates.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracewheel_clock::{Clock, RunClock};
use tracewheel_transport::{Endpoint, H2Options, TlsClient, TlsRoots};

use super::refuse;
use super::route::SoundRoute;
use crate::config::{ConnectionUse, HttpVersion};
use crate::hook::{HookTarget, root};
use crate::run::survey::Taken;
use crate::worker::Target;
use crate::{ReplayConfig, ReplayError};

/// A server that requests go to, and how its connections are made.
pub(crate) struct Destination {
    pub(crate) endpoint: Endpoint,
    pub(crate) addresses: Vec<SocketAddr>,
    /// How long its name took to resolve.
    pub(crate) resolve_ns: i64,
    /// Where the trusted certificates came from, for `https`.
    pub(crate) roots: Option<String>,
    pub(crate) target: Arc<Target>,
    /// The routes that lead to it, by their places in the table.
    pub(super) routes: Vec<usize>,
    way: Way,
}

/// What makes connections interchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    https: bool,
    authority: String,
    ca_file: Option<PathBuf>,
    tls_name: Option<String>,
    http: HttpVersion,
}

impl Way {
    fn of(sound: &SoundRoute) -> Way {
        let (route, endpoint) = (&sound.route, &sound.endpoint);
        Way {
            https: endpoint.is_https(),
            authority: String::from_utf8_lossy(endpoint.host_header().as_bytes()).into_owned(),
            ca_file: route.ca_file.clone(),
            tls_name: route.tls_name.clone(),
            http: route.http,
        }
    }
}

/// Every server that a route leads to by which something is sent, in the order of the routes.
pub(super) fn destinations(
    config: &ReplayConfig,
    routes: &[SoundRoute],
    taken: &[Taken],
) -> Result<Vec<Destination>, ReplayError> {
    let mut found: Vec<Destination> = Vec::new();
    for (at, sound) in used(routes, taken) {
        let way = Way::of(sound);
        match found.iter_mut().find(|known| known.way == way) {
            Some(known) => known.routes.push(at),
            None => found.push(destination(config, (at, sound), way)?),
        }
    }
    Ok(found)
}

/// The routes by which something is sent, with their places; of a plan without requests the first.
fn used<'a>(routes: &'a [SoundRoute], taken: &'a [Taken]) -> impl Iterator<Item = (usize, &'a SoundRoute)> {
    let idle = !taken.iter().any(Taken::anything);
    let with_places = routes.iter().enumerate().zip(taken);
    with_places.filter(move |((at, _), taken)| taken.anything() || (idle && *at == 0)).map(|(route, _)| route)
}

/// What hooks act upon: each base address once, with the first key that is sent there.
pub(super) fn hook_targets(routes: &[SoundRoute], taken: &[Taken]) -> Vec<HookTarget> {
    let mut found: Vec<HookTarget> = Vec::new();
    for (_, sound) in used(routes, taken) {
        let (route, url) = (&sound.route, sound.endpoint.url());
        let engine = route.protocol.engine;
        if let Some(known) = found.iter_mut().find(|known| root(&known.url) == root(&url)) {
            known.engines.extend(engine);
            known.key = known.key.take().or_else(|| sound.key_header());
            continue;
        }
        found.push(HookTarget {
            url,
            key: sound.key_header(),
            ca_file: route.ca_file.clone(),
            tls_name: route.tls_name.clone(),
            engines: engine.into_iter().collect(),
        });
    }
    found
}

fn destination(
    config: &ReplayConfig,
    (at, sound): (usize, &SoundRoute),
    way: Way,
) -> Result<Destination, ReplayError> {
    let endpoint = sound.endpoint.clone();
    let (tls, roots) = tls(&endpoint, &way)?.unzip();
    let clock = RunClock::start();
    let before = clock.now();
    let addresses = endpoint.resolve().map_err(|source| ReplayError::Target { source })?;
    let resolve_ns = clock.now().since(before);
    let target = Target {
        url: endpoint.url(),
        tls,
        http: way.http.choice(),
        h2: h2_options(config),
        addr: reachable(&addresses, config.connect_timeout_ns),
        host: endpoint.host_header(),
    };
    Ok(Destination {
        endpoint,
        addresses,
        resolve_ns,
        roots,
        target: Arc::new(target),
        routes: vec![at],
        way,
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
fn tls(endpoint: &Endpoint, way: &Way) -> Result<Option<(TlsClient, String)>, ReplayError> {
    if !endpoint.is_https() {
        let unused = [("ca_file", way.ca_file.is_some()), ("tls_name", way.tls_name.is_some())];
        return match unused.iter().find(|(_, given)| *given) {
            Some((option, _)) => {
                Err(refuse(option, format!("{} is not https: leave it out", endpoint.url())))
            }
            None => Ok(None),
        };
    }
    let wrong = |source| ReplayError::Tls { source };
    let roots = match &way.ca_file {
        Some(path) => TlsRoots::from_file(path).map_err(wrong)?,
        None => TlsRoots::system(),
    };
    let source = roots.source().to_owned();
    let name = way.tls_name.as_deref().unwrap_or(endpoint.host());
    let client = TlsClient::new(roots, name).map_err(wrong)?;
    Ok(Some((client.with_alpn(way.http.choice().alpn()), source)))
}

/// The first address that answers, else the first. A name with one address is not tried.
fn reachable(addresses: &[SocketAddr], timeout_ns: i64) -> SocketAddr {
    let timeout = Duration::from_nanos(timeout_ns.unsigned_abs());
    let mut candidates = addresses.iter().filter(|_| addresses.len() > 1);
    let answering = candidates.find(|addr| TcpStream::connect_timeout(addr, timeout).is_ok());
    *answering.unwrap_or(&addresses[0])
}
