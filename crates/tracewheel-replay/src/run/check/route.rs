//! What can be wrong with a route: by itself, and with what it takes.

use std::sync::Arc;

use http::Method;
use tracewheel_protocol::{
    OptionError, PROVIDERS, Place, ProtocolOptions, Provider, Settled, Template, carrier, provider,
};
use tracewheel_transport::Endpoint;
use tracewheel_workload::{CacheMode, Plan};

use super::target::Destination;
use super::{headers, refuse};
use crate::config::Secret;
use crate::route::Route;
use crate::routing::{BoundRoute, MAX_KEYS, MAX_ROUTES, Routing};
use crate::run::survey::{self, Taken, doubled_name};
use crate::worker::Head;
use crate::{ReplayConfig, ReplayError};

/// An option of a route that makes no sense.
#[derive(Debug)]
pub(super) struct RouteError {
    option: &'static str,
    problem: String,
}

impl RouteError {
    pub(super) fn new(option: &'static str, problem: String) -> RouteError {
        RouteError { option, problem }
    }

    /// The refusal, with the route's name where there are several.
    fn of(self, route: &Route) -> ReplayError {
        let at = if route.name.is_empty() { String::new() } else { format!("route {:?}: ", route.name) };
        refuse(self.option, format!("{at}{}", self.problem))
    }
}

/// A route that makes sense by itself.
pub(super) struct SoundRoute {
    pub(super) route: Route,
    pub(super) endpoint: Endpoint,
    provider: &'static dyn Provider,
    settled: Settled,
    heads: Vec<Arc<Head>>,
}

impl SoundRoute {
    /// Its protocol.
    pub(super) fn provider(&self) -> &'static dyn Provider {
        self.provider
    }

    /// The header of its first key.
    pub(super) fn key_header(&self) -> Option<(String, Secret)> {
        let (name, value) = self.provider.key_header(self.route.keys.first()?.secret.expose());
        Some((name.to_owned(), Secret::new(value)))
    }
}

/// The configuration's routes: its table, or the one that its own target makes.
pub(super) fn routes(config: &ReplayConfig) -> Result<Vec<SoundRoute>, ReplayError> {
    let routes = if config.routes.is_empty() { vec![config.own_route()] } else { config.routes.clone() };
    if routes.len() > MAX_ROUTES {
        return Err(refuse("routes", format!("{} are more than {MAX_ROUTES}", routes.len())));
    }
    if let Some(name) = doubled_name(&routes) {
        return Err(refuse("routes", format!("two have the name {name:?}: give each its own")));
    }
    if !config.routes.is_empty()
        && let Some(at) = routes.iter().position(|route| route.name.is_empty())
    {
        return Err(refuse("routes", format!("the {}. has no name", at + 1)));
    }
    routes.into_iter().map(sound).collect()
}

fn sound(route: Route) -> Result<SoundRoute, ReplayError> {
    if route.name.is_empty() {
        Endpoint::parse(&route.target).map_err(|source| ReplayError::Target { source })?;
    }
    match parts(&route) {
        Ok((endpoint, provider, settled, heads)) => {
            Ok(SoundRoute { route, endpoint, provider, settled, heads })
        }
        Err(error) => Err(error.of(&route)),
    }
}

/// The text of an error that begins with the name of the option.
fn without_option(text: &str) -> String {
    text.strip_prefix("target ").unwrap_or(text).to_owned()
}

type Parts = (Endpoint, &'static dyn Provider, Settled, Vec<Arc<Head>>);

fn parts(route: &Route) -> Result<Parts, RouteError> {
    let wrong = RouteError::new;
    let provider = provider(&route.provider).ok_or_else(|| {
        let names: Vec<_> = PROVIDERS.iter().map(|provider| provider.name()).collect();
        wrong("provider", format!("{:?} is not known: take one of {}", route.provider, names.join(", ")))
    })?;
    let settled =
        route.protocol.settle(provider).map_err(|OptionError { option, problem }| wrong(option, problem))?;
    let endpoint = Endpoint::parse(&route.target)
        .map_err(|error| wrong("target", without_option(&error.to_string())))?;
    endpoint
        .uri(&provider.path(&Place { model: "m", stream: true, ..Place::default() }))
        .map_err(|error| wrong("target", format!("{:?} has no usable path: {error}", route.target)))?;
    if route.keys.len() > MAX_KEYS {
        return Err(wrong("keys", format!("{} are more than {MAX_KEYS}", route.keys.len())));
    }
    Ok((endpoint, provider, settled, headers::heads(provider, route)?))
}

/// What each route takes, if it can carry it.
pub(super) fn taken(
    plan: &Plan,
    config: &ReplayConfig,
    routes: &[SoundRoute],
) -> Result<Vec<Taken>, ReplayError> {
    let of_history = config.cache == CacheMode::Natural && crate::manifest::primes(plan, config.cache);
    let criteria: Vec<_> = routes.iter().map(|route| &route.route.takes).collect();
    let taken = survey::taken(plan, config, &criteria, of_history)?;
    let used = taken.iter().filter(|taken| taken.anything()).count();
    if config.prompts.calibrate && used > 1 {
        let problem = format!(
            "{used} routes take requests, and each target may count otherwise: leave it out, or replay one of them at a time"
        );
        return Err(refuse("calibrate", problem));
    }
    for (sound, taken) in routes.iter().zip(&taken) {
        let table = !config.routes.is_empty();
        carries(sound, taken, table).map_err(|error| error.of(&sound.route))?;
    }
    Ok(taken)
}

fn carries(sound: &SoundRoute, taken: &Taken, table: bool) -> Result<(), RouteError> {
    let SoundRoute { route, provider, settled, .. } = sound;
    operations(taken, *provider, table)?;
    if provider.knobs().free_form {
        places(taken, &route.protocol)?;
    }
    let names_model =
        !provider.knobs().free_form || settled.template.as_ref().is_some_and(Template::names_model);
    match taken.without_model.filter(|_| route.model.is_none() && names_model) {
        Some((row, count)) => {
            let problem =
                format!("{count} requests (first: row {row}) have no recorded model: name one for all");
            Err(RouteError::new("model", problem))
        }
        None => Ok(()),
    }
}

/// Refuses free-form requests that nobody says enough about.
fn places(taken: &Taken, options: &ProtocolOptions) -> Result<(), RouteError> {
    let places = &taken.places;
    let told = |(row, count): (u64, u64)| format!("{count} requests (first: row {row})");
    if let Some(found) = places.without_path.filter(|_| options.path.is_none()) {
        let problem = format!(
            "{} have no recorded path: name one for them (`path = \"/v1/...\"` under [protocol])",
            told(found)
        );
        return Err(RouteError::new("path", problem));
    }
    if let Some(method) = places.methods.iter().find(|method| Method::from_bytes(method.as_bytes()).is_err())
    {
        return Err(RouteError::new(
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
        return Err(RouteError::new("body", problem));
    }
    Ok(())
}

/// Refuses what neither the provider nor its companion for embeddings can carry.
fn operations(taken: &Taken, provider: &'static dyn Provider, table: bool) -> Result<(), RouteError> {
    let foreign = taken.operations.iter().find(|found| carrier(provider, found.operation).is_none());
    foreign.map_or(Ok(()), |found| {
        let operation = found.operation.as_str();
        let elsewhere = if table { "another route before this one" } else { "a route of their own" };
        let problem = format!(
            "{} requests (first: row {}) are of the operation {operation}, which {} cannot carry: leave them out (`--leave-out \
             {operation}`), or send them by {elsewhere} ([[routes]] with operations = [{operation:?}] and a protocol that carries them)",
            found.requests,
            found.first_row,
            provider.name(),
        );
        Err(RouteError::new("operations", problem))
    })
}

/// The table of routes, each bound to its target.
pub(super) fn bound(routes: Vec<SoundRoute>, destinations: &[Destination]) -> Arc<Routing> {
    let bound = (0..).zip(routes).map(|(at, sound)| BoundRoute {
        name: Some(sound.route.name.as_str()).filter(|name| !name.is_empty()).map(Arc::from),
        target: destinations.iter().position(|one| one.routes.contains(&at)).unwrap_or(0) as u16,
        takes: sound.route.takes,
        provider: sound.provider,
        settled: sound.settled,
        options: sound.route.protocol,
        model: sound.route.model,
        endpoint: sound.endpoint,
        heads: sound.heads,
    });
    Routing::new(bound.collect())
}
