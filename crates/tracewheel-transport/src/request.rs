//! A request made ready before it is due.

use http::uri::{Authority, Parts, Scheme};
use http::{HeaderMap, HeaderValue, Method, Uri, Version, header};

use crate::body::Body;

/// A whole request, ready to be encoded. Cloning shares the body.
#[derive(Debug, Clone)]
pub struct PreparedRequest {
    /// Method.
    pub method: Method,
    /// Target in origin form.
    pub uri: Uri,
    /// Headers, `Host` among them. `Content-Length` is added when the request is encoded.
    pub headers: HeaderMap,
    /// Body.
    pub body: Body,
}

impl PreparedRequest {
    /// A POST with `Host` and `Accept-Encoding: identity`: a compressed stream arrives in bursts, not in tokens.
    pub fn post(uri: Uri, host: HeaderValue, body: impl Into<Body>) -> Self {
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(header::HOST, host);
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        PreparedRequest { method: Method::POST, uri, headers, body: body.into() }
    }

    /// The head as HTTP/2 wants it: the host in the target instead of a header, the length of the body named, and nothing
    /// that speaks of one connection. `None` where target and host make no URL.
    pub(crate) fn to_h2(&self, https: bool) -> Option<http::Request<()>> {
        let mut parts = Parts::default();
        parts.scheme = Some(if https { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(Authority::try_from(self.headers.get(header::HOST)?.as_bytes()).ok()?);
        parts.path_and_query = self.uri.path_and_query().cloned();
        let mut request = http::Request::new(());
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = Uri::from_parts(parts).ok()?;
        *request.version_mut() = Version::HTTP_2;
        let mut headers = self.headers.clone();
        for name in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE] {
            headers.remove(name);
        }
        headers.remove("keep-alive");
        headers.remove("proxy-connection");
        if !self.body.is_empty() {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(self.body.len()));
        }
        *request.headers_mut() = headers;
        Some(request)
    }
}
