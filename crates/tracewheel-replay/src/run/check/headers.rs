//! The headers that the requests of a route have in common.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use tracewheel_protocol::Provider;

use super::route::RouteError;
use crate::config::Secret;
use crate::route::Route;
use crate::worker::Head;

/// Headers that speak of the connection: with HTTP/2 they make a request malformed (RFC 9113, 8.2.2).
const OF_A_CONNECTION: [&str; 7] =
    ["connection", "expect", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"];

/// Once for each of the route's keys, and once where it has none.
pub(super) fn heads(provider: &dyn Provider, route: &Route) -> Result<Vec<Arc<Head>>, RouteError> {
    let named = route.headers.iter().map(|(name, _)| name);
    let named = named.chain(route.secret_headers.iter().map(|(name, _)| name));
    // What is no header name is refused below.
    let set: Vec<HeaderName> =
        named.filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok()).collect();
    let of = |key: Option<&Secret>| {
        let streamed = headers(provider, route, key, true)?;
        Ok(Arc::new(Head { streamed, plain: headers(provider, route, key, false)?, set: set.clone() }))
    };
    if route.keys.is_empty() {
        return Ok(vec![of(None)?]);
    }
    route.keys.iter().map(|key| of(Some(&key.secret))).collect()
}

fn headers(
    provider: &dyn Provider,
    route: &Route,
    key: Option<&Secret>,
    stream: bool,
) -> Result<HeaderMap, RouteError> {
    let mut map = HeaderMap::new();
    map.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("tracewheel/", env!("CARGO_PKG_VERSION"))),
    );
    for (name, value) in provider.headers(stream) {
        map.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let of_key = HeaderName::from_static(provider.key_header("").0);
    for (name, value) in &route.headers {
        let (name, value) = header_of("headers", name, value)?;
        if [header::AUTHORIZATION, of_key.clone()].contains(&name) {
            return Err(of_itself("headers", &name));
        }
        map.insert(name, value);
    }
    for (name, value) in &route.secret_headers {
        let (name, mut value) = header_of("headers_env", name, value.expose())?;
        // A key in a way of its own is fine where no key goes by the protocol's.
        if key.is_some() && name == of_key {
            return Err(of_itself("headers_env", &name));
        }
        value.set_sensitive(true);
        map.insert(name, value);
    }
    if let Some(key) = key {
        let (_, value) = provider.key_header(key.expose());
        let mut value = HeaderValue::from_str(&value).map_err(|_| {
            RouteError::new("secret", "the key holds bytes that no header can have".to_owned())
        })?;
        value.set_sensitive(true);
        map.insert(of_key, value);
    }
    Ok(map)
}

fn header_of(option: &'static str, name: &str, value: &str) -> Result<(HeaderName, HeaderValue), RouteError> {
    let wrong = |what: &str| RouteError::new(option, format!("{name:?} {what}"));
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("is no header name"))?;
    if [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::HOST].contains(&header) {
        return Err(of_itself(option, &header));
    }
    if OF_A_CONNECTION.contains(&header.as_str()) {
        return Err(wrong(
            "is of one connection, not of a request: leave it out (`--connection-use` and `--http` say how connections are used)",
        ));
    }
    // The value is not repeated: it may be a secret.
    let value = HeaderValue::from_str(value).map_err(|_| wrong("has a value that no header can have"))?;
    Ok((header, value))
}

fn of_itself(option: &'static str, name: &HeaderName) -> RouteError {
    let problem = format!(
        "{name:?} is set by tracewheel itself (a key comes from the environment or a file)",
        name = name.as_str()
    );
    RouteError::new(option, problem)
}
