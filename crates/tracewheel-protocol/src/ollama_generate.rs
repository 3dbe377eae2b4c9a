//! Ollama's native completion.

use tracewheel_timeline::vocab::Operation;

use crate::body::BodyDecoder;
use crate::ollama::{self, Ollama};
use crate::write::{self, text};
use crate::{Decoder, Knobs, OpenAiEmbeddings, Provider, RenderRequest, ResponseHead};

/// `POST /api/generate`: a line of JSON an event. The model's own template is put around the prompt.
#[derive(Clone, Copy, Debug)]
pub struct OllamaGenerate;

impl Provider for OllamaGenerate {
    fn name(&self) -> &'static str {
        "ollama-generate"
    }

    fn operation(&self) -> Operation {
        Operation::Completion
    }

    fn endpoint(&self) -> &'static str {
        "/api/generate"
    }

    fn knobs(&self) -> Knobs {
        Knobs { model_in_body: true, ..Knobs::default() }
    }

    fn embeddings(&self) -> Option<&'static dyn Provider> {
        Some(&OpenAiEmbeddings)
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        write::begin(request, out);
        text(out, "prompt", request.prompt);
        ollama::end(request, out);
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        Box::new(BodyDecoder::of_lines(head, Ollama::default()))
    }
}
