//! A request made ready before it is due.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Uri, header};

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
    pub body: Bytes,
}

impl PreparedRequest {
    /// A POST with `Host` and `Accept-Encoding: identity`: a compressed stream arrives in bursts, not in tokens.
    pub fn post(uri: Uri, host: HeaderValue, body: Bytes) -> Self {
        let mut headers = HeaderMap::with_capacity(16);
        headers.insert(header::HOST, host);
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        PreparedRequest { method: Method::POST, uri, headers, body }
    }
}
