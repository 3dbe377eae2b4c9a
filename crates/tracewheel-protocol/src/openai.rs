//! What the chat and the completions protocol have in common: all but the path and the place of the prompt.

mod dialect;
mod message;
pub(crate) mod render;
mod template;

use crate::body::BodyDecoder;
use crate::{Decoder, ResponseHead};

/// A decoder for one answer that began with `head`.
pub(crate) fn decoder(head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
    Box::new(BodyDecoder::new(head, dialect::OpenAi::default()))
}

#[cfg(test)]
mod tests;
