//! OpenAI chat completions, and what its many clones make of them.

use tracewheel_timeline::vocab::Operation;

use crate::openai::{self, render::PromptShape};
use crate::{Decoder, Provider, RenderRequest, ResponseHead};

/// `POST /v1/chat/completions`.
#[derive(Clone, Copy, Debug)]
pub struct OpenAiChat;

impl Provider for OpenAiChat {
    fn name(&self) -> &'static str {
        "openai-chat"
    }

    fn operation(&self) -> Operation {
        Operation::Chat
    }

    fn endpoint(&self) -> &'static str {
        "/v1/chat/completions"
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        openai::render::render(PromptShape::Chat, request, out);
    }

    fn headers(&self, stream: bool) -> &'static [(&'static str, &'static str)] {
        openai::headers(stream)
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        openai::key_header(key)
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        openai::decoder(head)
    }
}
