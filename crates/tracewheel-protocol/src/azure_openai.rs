//! OpenAI's chat completions as Azure serves them: a deployment in the path, filters beside the output.

use std::borrow::Cow;

use tracewheel_timeline::vocab::Operation;

use crate::openai::{self, render::PromptShape};
use crate::provider::{Place, in_path};
use crate::{Chat, Decoder, Knobs, OpenAiEmbeddings, Provider, RenderRequest, ResponseHead};

/// `POST /openai/deployments/MODEL/chat/completions?api-version=2024-10-21`, or another version: the model asked for is the deployment's
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

    fn knobs(&self) -> Knobs {
        Knobs { limit_field: true, api_version: true, stream_usage: true, ..Knobs::default() }
    }

    fn embeddings(&self) -> Option<&'static dyn Provider> {
        Some(&AzureEmbeddings)
    }

    fn path<'a>(&self, place: &Place<'a>) -> Cow<'a, str> {
        of_deployment(place, "chat/completions")
    }

    fn chat(&self) -> Option<Chat> {
        Some(Chat::OpenAi)
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        // Fields of vLLM's are refused here.
        let request = RenderRequest { force_length: false, cache_salt: None, ..*request };
        openai::render::render(PromptShape::Chat, &request, out);
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("api-key", key.to_owned())
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        openai::decoder(head)
    }
}

/// `POST /openai/deployments/MODEL/embeddings`: the embeddings of a mixed timeline, beside its chats.
#[derive(Clone, Copy, Debug)]
pub struct AzureEmbeddings;

impl Provider for AzureEmbeddings {
    fn name(&self) -> &'static str {
        "azure-embeddings"
    }

    fn operation(&self) -> Operation {
        Operation::Embeddings
    }

    fn endpoint(&self) -> &'static str {
        "/openai/deployments/MODEL/embeddings"
    }

    fn knobs(&self) -> Knobs {
        Knobs { api_version: true, ..Knobs::default() }
    }

    fn streams(&self) -> bool {
        false
    }

    fn path<'a>(&self, place: &Place<'a>) -> Cow<'a, str> {
        of_deployment(place, "embeddings")
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        OpenAiEmbeddings.render(request, out);
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        AzureOpenAi.key_header(key)
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        OpenAiEmbeddings.decoder(head)
    }
}

fn of_deployment<'a>(place: &Place<'_>, route: &str) -> Cow<'a, str> {
    let version = place.api_version.unwrap_or("2024-10-21");
    format!("/openai/deployments/{}/{route}?api-version={version}", in_path(place.model)).into()
}
