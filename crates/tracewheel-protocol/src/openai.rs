//! What the chat and the completions protocol have in common: all but the path and the place of the prompt.

mod dialect;
mod message;
pub(crate) mod render;
mod template;

use crate::body::BodyDecoder;
use crate::{Decoder, ResponseHead};

const STREAM_HEADERS: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "text/event-stream"), ("accept-encoding", "identity")];

const PLAIN_HEADERS: &[(&str, &str)] =
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
pub(crate) fn decoder(head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
    Box::new(BodyDecoder::new(head, dialect::OpenAi::default()))
}

#[cfg(test)]
mod tests;
