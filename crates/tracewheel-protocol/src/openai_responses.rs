//! OpenAI's Responses: named events of typed items, the whole response repeated at the end.

use tracewheel_timeline::vocab::{EventKind, Operation};

use crate::body::{Answer, BodyDecoder, Dialect, State, event, outputs};
use crate::write::{self, Parameter, json, number, sampling, text};
use crate::{
    Chat, Decoder, Event, Knobs, OpenAiEmbeddings, Provider, RenderRequest, ResponseHead, ResponseMeta,
    lenient,
};

mod message;
#[cfg(test)]
mod tests;

use message::{Kind, Message, Status};

/// `POST /v1/responses`.
///
/// Responses are not stored (`store: false`), so that a replay leaves nothing behind. The API has no way to force a
/// length: the cap is the recorded one, 16 at least because less is refused, and answers may be shorter.
/// Penalties and seeds are unknown to it.
#[derive(Clone, Copy, Debug)]
pub struct OpenAiResponses;

/// OpenAI refuses a smaller cap with 400.
const LEAST_CAP: u32 = 16;

/// The parameters that the protocol knows.
const NAMES: &[(Parameter, &str)] = &[(Parameter::Temperature, "temperature"), (Parameter::TopP, "top_p")];

impl Provider for OpenAiResponses {
    fn name(&self) -> &'static str {
        "openai-responses"
    }

    fn operation(&self) -> Operation {
        Operation::Responses
    }

    fn endpoint(&self) -> &'static str {
        "/v1/responses"
    }

    fn knobs(&self) -> Knobs {
        Knobs { model_in_body: true, ..Knobs::default() }
    }

    fn embeddings(&self) -> Option<&'static dyn Provider> {
        Some(&OpenAiEmbeddings)
    }

    fn chat(&self) -> Option<Chat> {
        Some(Chat::Responses)
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        write::begin(request, out);
        if request.turns.is_empty() {
            text(out, "input", request.prompt);
        } else {
            out.extend_from_slice(b",\"input\":");
            Chat::Responses.messages(request.turns, request.prompt, out);
        }
        number(out, "max_output_tokens", request.max_tokens.max(LEAST_CAP));
        sampling(request, NAMES, out);
        if let Some(salt) = request.cache_salt {
            text(out, "cache_salt", salt);
        }
        out.extend_from_slice(b",\"store\":false");
        number(out, "stream", request.stream);
        if let Some(obfuscation) = request.include_obfuscation.filter(|_| request.stream) {
            out.extend_from_slice(b",\"stream_options\":{\"include_obfuscation\":");
            json(out, &obfuscation);
            out.push(b'}');
        }
        out.push(b'}');
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        Box::new(BodyDecoder::new(head, Responses::default()))
    }
}

/// The state of one answer.
#[derive(Default)]
struct Responses {
    message: Message,
}

/// Sent by clones in the manner of the chat protocol; here it says nothing.
const DONE: &[u8] = b"[DONE]";

impl Dialect for Responses {
    fn message(
        &mut self,
        name: &[u8],
        data: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) {
        let other = |kind| event(kind, data.len(), end_offset);
        if data.starts_with(DONE) {
            return out.push(other(EventKind::Meta));
        }
        self.message.clear();
        if let Err(error) = lenient::read_message(data, &mut self.message, Message::clear) {
            return state.malformed(format!("invalid JSON: {error}"), data.len(), end_offset, out);
        }
        let kind = match self.message.kind {
            // Proxies have been seen to drop either of the two.
            Kind::Unknown => Kind::of(name),
            kind => kind,
        };
        if let Some(usage) = self.message.usage {
            state.usage.update(&usage.normalised());
        }
        match kind {
            Kind::Failed => state.failed(data, end_offset, out),
            Kind::Unknown if self.message.error => state.failed(data, end_offset, out),
            Kind::Delta(kind) if self.message.delta > 0 => {
                out.push(event(kind, self.message.delta as usize, end_offset));
            }
            Kind::ItemAdded if self.message.item_name > 0 => {
                out.push(event(EventKind::ToolArgs, self.message.item_name as usize, end_offset));
            }
            Kind::Delta(_) | Kind::ItemAdded | Kind::Structure => out.push(other(EventKind::Structure)),
            Kind::Progress => out.push(other(EventKind::Progress)),
            Kind::Annotation => out.push(other(EventKind::Meta)),
            Kind::Ended => {
                state.terminal = true;
                out.push(other(EventKind::Terminal));
            }
            Kind::Ping => out.push(other(EventKind::Heartbeat)),
            Kind::Unknown => {
                state.warnings.unknown_names = state.warnings.unknown_names.saturating_add(1);
                out.push(other(EventKind::Meta));
            }
        }
    }

    fn answer(
        &mut self,
        body: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) -> serde_json::Result<Answer> {
        self.message.clear();
        lenient::read_message(body, &mut self.message, Message::clear)?;
        let message = &self.message;
        if message.error || message.status == Status::Failed {
            return Ok(Answer::Failed);
        }
        if !message.has_output {
            return Ok(Answer::Lacks("output"));
        }
        let kinds = [
            (EventKind::Reasoning, message.output.reasoning),
            (EventKind::Text, message.output.text),
            (EventKind::ToolArgs, message.output.tool_args),
            (EventKind::Refusal, message.output.refusal),
        ];
        outputs(&kinds, 0, end_offset, out);
        if let Some(usage) = message.usage {
            state.usage.update(&usage.normalised());
        }
        Ok(Answer::Whole { has_usage: message.usage.is_some() })
    }

    fn meta(&self) -> &ResponseMeta {
        &self.message.meta
    }
}
