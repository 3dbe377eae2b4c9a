//! Embeddings as OpenAI has them, which nearly every server has too: a text in, vectors out, no stream.

use serde::de::MapAccess;
use tracewheel_timeline::vocab::{EventKind, Operation};

use crate::body::{Answer, BodyDecoder, Dialect, Said, State, event};
use crate::lenient::{self, Sink, count, first, flag, skip, take};
use crate::write::{self, text};
use crate::{Decoder, Event, Knobs, Provider, RenderRequest, ResponseHead, ResponseMeta, Usage};

#[cfg(test)]
mod tests;

/// `POST /v1/embeddings`. Carries the embeddings of a mixed timeline beside the chats of OpenAI's protocols.
///
/// The answer is no text: it has one opaque event, no tokens and no time to a first output.
#[derive(Clone, Copy, Debug)]
pub struct OpenAiEmbeddings;

impl Provider for OpenAiEmbeddings {
    fn name(&self) -> &'static str {
        "openai-embeddings"
    }

    fn operation(&self) -> Operation {
        Operation::Embeddings
    }

    fn endpoint(&self) -> &'static str {
        "/v1/embeddings"
    }

    fn knobs(&self) -> Knobs {
        Knobs { model_in_body: true, ..Knobs::default() }
    }

    fn streams(&self) -> bool {
        false
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        write::begin(request, out);
        text(out, "input", request.prompt);
        out.push(b'}');
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        decoder(head)
    }
}

/// A decoder for one answer that began with `head`.
pub(crate) fn decoder(head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
    Box::new(BodyDecoder::new(head, Vectors::default()))
}

/// The state of one answer.
#[derive(Default)]
struct Vectors {
    message: Message,
}

impl Dialect for Vectors {
    /// A stream is not what was asked for; an error in one is an error all the same.
    fn message(
        &mut self,
        _name: &[u8],
        data: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) {
        self.message.clear();
        match lenient::read_message(data, &mut self.message, Message::clear) {
            Ok(()) if self.message.error => state.failed(data, end_offset, out),
            _ => state.malformed("embeddings came as a stream".to_owned(), data.len(), end_offset, out),
        }
    }

    fn answer(
        &mut self,
        body: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) -> serde_json::Result<Answer> {
        if !self.message.hear_whole(body)? {
            return Ok(Answer::Failed);
        }
        if !self.message.has_vectors {
            return Ok(Answer::Lacks("embeddings"));
        }
        out.push(event(EventKind::Opaque, body.len(), end_offset));
        state.usage.update(&self.message.usage);
        Ok(Answer::Whole { has_usage: !self.message.usage.is_unknown() })
    }

    fn meta(&self) -> &ResponseMeta {
        &self.message.meta
    }
}

/// What an answer says.
#[derive(Default)]
struct Message {
    has_vectors: bool,
    error: bool,
    usage: Usage,
    meta: ResponseMeta,
}

impl Said for Message {
    fn is_error(&self) -> bool {
        self.error
    }

    fn meta_mut(&mut self) -> &mut ResponseMeta {
        &mut self.meta
    }
}

impl Sink for Message {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "data" | "embedding" | "embeddings" => flag(values, &mut self.has_vectors),
            "usage" | "usageMetadata" => take(values, &mut Counts(&mut self.usage)),
            "error" => flag(values, &mut self.error),
            "object" => {
                let mut is = lenient::Is { wanted: "error", found: false };
                take(values, &mut is)?;
                self.error |= is.found;
                Ok(())
            }
            "id" => first(values, &mut self.meta.id),
            "model" => first(values, &mut self.meta.model),
            "prompt_eval_count" => count(values, &mut self.usage.input_tokens, true),
            _ => skip(values),
        }
    }
}

struct Counts<'m>(&'m mut Usage);

impl Sink for Counts<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "prompt_tokens" | "promptTokenCount" => count(values, &mut self.0.input_tokens, true),
            _ => skip(values),
        }
    }
}
