//! OpenAI's older text completions, which vLLM, SGLang and llama.cpp serve too.

use tracewheel_timeline::vocab::Operation;

use crate::openai::{self, render::PromptShape};
use crate::{Decoder, Knobs, OpenAiEmbeddings, Provider, RenderRequest, ResponseHead};

/// `POST /v1/completions`.
#[derive(Clone, Copy, Debug)]
pub struct OpenAiCompletions;

impl Provider for OpenAiCompletions {
    fn name(&self) -> &'static str {
        "openai-completions"
    }

    fn operation(&self) -> Operation {
        Operation::Completion
    }

    fn endpoint(&self) -> &'static str {
        "/v1/completions"
    }

    fn knobs(&self) -> Knobs {
        Knobs {
            token_detail: true,
            force_length: true,
            prompt_ids: true,
            model_in_body: true,
            stream_usage: true,
            ..Knobs::default()
        }
    }

    fn embeddings(&self) -> Option<&'static dyn Provider> {
        Some(&OpenAiEmbeddings)
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        openai::render::render(PromptShape::Completion, request, out);
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        openai::decoder(head)
    }
}
