//! OpenAI chat completions, and what its many clones make of them.

use tracewheel_timeline::vocab::Operation;

use crate::openai::{self, render::PromptShape};
use crate::{Chat, Decoder, Knobs, OpenAiEmbeddings, Provider, RenderRequest, ResponseHead};

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

    fn knobs(&self) -> Knobs {
        Knobs {
            limit_field: true,
            token_detail: true,
            force_length: true,
            model_in_body: true,
            stream_usage: true,
            ..Knobs::default()
        }
    }

    fn embeddings(&self) -> Option<&'static dyn Provider> {
        Some(&OpenAiEmbeddings)
    }

    fn chat(&self) -> Option<Chat> {
        Some(Chat::OpenAi)
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        openai::render::render(PromptShape::Chat, request, out);
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        openai::decoder(head)
    }
}
