//! What response headers tell about the server and the request.

use serde::Serialize;

/// The response headers worth keeping, as one row of an attempt.
///
/// Unknown is `None`. Names are matched without regard to case; the first header of a name counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReportedHeaders {
    /// The server's id of the request: `x-request-id`, else `request-id`, else `apim-request-id`.
    pub request_id: Option<String>,
    /// `server`.
    pub server: Option<String>,
    /// Milliseconds that the server says it spent: `openai-processing-ms`, else `x-envoy-upstream-service-time`. On a
    /// stream it covers at most the time to the headers.
    pub server_ms: Option<f64>,
    /// Requests allowed in the current window.
    pub rate_limit_requests: Option<u64>,
    /// Requests left in the current window.
    pub rate_remaining_requests: Option<u64>,
    /// Tokens allowed in the current window.
    pub rate_limit_tokens: Option<u64>,
    /// Tokens left in the current window.
    pub rate_remaining_tokens: Option<u64>,
    /// `content-encoding`, when the body was encoded although nobody asked: its chunk times show the encoder.
    pub content_encoding: Option<String>,
}
