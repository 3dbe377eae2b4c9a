//! Ollama's native chat.

use tracewheel_timeline::vocab::Operation;

use crate::body::BodyDecoder;
use crate::ollama::{self, Ollama};
use crate::write;
use crate::{Chat, Decoder, Knobs, OpenAiEmbeddings, Provider, RenderRequest, ResponseHead};

/// `POST /api/chat`: a line of JSON an event.
#[derive(Clone, Copy, Debug)]
pub struct OllamaChat;

impl Provider for OllamaChat {
    fn name(&self) -> &'static str {
        "ollama-chat"
    }

    fn operation(&self) -> Operation {
        Operation::Chat
    }

    fn endpoint(&self) -> &'static str {
        "/api/chat"
    }

    fn knobs(&self) -> Knobs {
        Knobs { model_in_body: true, ..Knobs::default() }
    }

    fn embeddings(&self) -> Option<&'static dyn Provider> {
        Some(&OpenAiEmbeddings)
    }

    fn chat(&self) -> Option<Chat> {
        Some(Chat::Ollama)
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        write::begin(request, out);
        write::user_message(request, out);
        ollama::end(request, out);
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        Box::new(BodyDecoder::of_lines(head, Ollama::default()))
    }
}
