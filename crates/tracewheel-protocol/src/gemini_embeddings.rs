//! Gemini's embeddings: the model in the path, content in parts, one vector out.

use std::borrow::Cow;

use tracewheel_timeline::vocab::Operation;

use crate::provider::{Place, in_path};
use crate::write::{self, string};
use crate::{Decoder, Gemini, Knobs, OpenAiEmbeddings, Provider, RenderRequest, ResponseHead};

/// `POST /v1beta/models/MODEL:embedContent`: the embeddings of a mixed timeline beside Gemini's chats.
///
/// The answer is read as [`OpenAiEmbeddings`] reads its own: one opaque event. Most models tell no counts.
#[derive(Clone, Copy, Debug)]
pub struct GeminiEmbeddings;

impl Provider for GeminiEmbeddings {
    fn name(&self) -> &'static str {
        "gemini-embeddings"
    }

    fn operation(&self) -> Operation {
        Operation::Embeddings
    }

    fn endpoint(&self) -> &'static str {
        "/v1beta/models/MODEL:embedContent"
    }

    fn knobs(&self) -> Knobs {
        Knobs { api_version: true, ..Knobs::default() }
    }

    fn streams(&self) -> bool {
        false
    }

    fn path<'a>(&self, place: &Place<'a>) -> Cow<'a, str> {
        let version = place.api_version.unwrap_or("v1beta");
        format!("/{version}/models/{}:embedContent", in_path(place.model)).into()
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        write::clear(request, out);
        out.extend_from_slice(b"{\"content\":{\"parts\":[{\"text\":");
        string(out, request.prompt);
        out.extend_from_slice(b"}]}}");
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        Gemini.key_header(key)
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        OpenAiEmbeddings.decoder(head)
    }
}
