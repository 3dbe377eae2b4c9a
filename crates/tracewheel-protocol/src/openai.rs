//! What the chat and the completions protocol have in common.

pub(crate) mod render;

/// Headers of a request whose answer is streamed.
pub(crate) const STREAM_HEADERS: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "text/event-stream"), ("accept-encoding", "identity")];

/// Headers of a request whose answer is one JSON object.
pub(crate) const PLAIN_HEADERS: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "application/json"), ("accept-encoding", "identity")];

/// The request headers for a streamed or a plain answer.
pub(crate) fn headers(stream: bool) -> &'static [(&'static str, &'static str)] {
    if stream { STREAM_HEADERS } else { PLAIN_HEADERS }
}

/// A bearer token.
pub(crate) fn key_header(key: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {key}"))
}
/// A decoder for one answer that began with `head`.
pub(crate) fn decoder(_head: &crate::ResponseHead<'_>) -> Box<dyn crate::Decoder + Send> {
    unreachable!("being written")
}
