//! OpenAI's chat completions as Azure serves them: a deployment in the path, filters beside the output.

use std::borrow::Cow;

use tracewheel_timeline::vocab::Operation;

use crate::openai::{self, render::PromptShape};
use crate::provider::in_path;
use crate::{Decoder, Provider, RenderRequest, ResponseHead};

/// `POST /openai/deployments/MODEL/chat/completions?api-version=2024-10-21`: the model asked for is the deployment's
/// name.
///
/// Azure's newer path needs none of this: it is `openai-chat` with `https://RESOURCE.openai.azure.com/openai` as the
/// target.
#[derive(Clone, Copy, Debug)]
pub struct AzureOpenAi;

impl Provider for AzureOpenAi {
    fn name(&self) -> &'static str {
        "azure-openai"
    }

    fn operation(&self) -> Operation {
        Operation::Chat
    }

    fn endpoint(&self) -> &'static str {
        "/openai/deployments/MODEL/chat/completions"
    }

    fn path(&self, model: &str, _stream: bool) -> Cow<'static, str> {
        format!("/openai/deployments/{}/chat/completions?api-version=2024-10-21", in_path(model)).into()
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        // Fields of vLLM's are refused here.
        let request = RenderRequest { force_length: false, cache_salt: None, ..*request };
        openai::render::render(PromptShape::Chat, &request, out);
    }

    fn headers(&self, stream: bool) -> &'static [(&'static str, &'static str)] {
        openai::headers(stream)
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("api-key", key.to_owned())
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        openai::decoder(head)
    }
}
