//! Google's Gemini: candidates in parts, the model in the path, no end marker but a finish reason.

use std::borrow::Cow;

use tracewheel_timeline::vocab::{EventKind, Operation};

use crate::body::{Answer, BodyDecoder, Dialect, Said, State, event, outputs};
use crate::provider::{Place, in_path};
use crate::write::{self, Parameter, json, sampling};
use crate::{
    Chat, Decoder, Event, GeminiEmbeddings, Knobs, Provider, RenderRequest, ResponseHead, ResponseMeta,
};

mod message;
#[cfg(test)]
mod tests;

use message::{Candidate, Message};

/// `POST /v1beta/models/MODEL:streamGenerateContent?alt=sse`, or `:generateContent` for a plain answer.
///
/// The API has no way to force a length: the cap is the recorded one, thoughts count against it, and answers may be
/// shorter.
#[derive(Clone, Copy, Debug)]
pub struct Gemini;

/// The parameters that the protocol knows.
const NAMES: &[(Parameter, &str)] = &[
    (Parameter::Temperature, "temperature"),
    (Parameter::TopP, "topP"),
    (Parameter::TopK, "topK"),
    (Parameter::Seed, "seed"),
    (Parameter::PresencePenalty, "presencePenalty"),
    (Parameter::FrequencyPenalty, "frequencyPenalty"),
];

impl Provider for Gemini {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn operation(&self) -> Operation {
        Operation::GenerateContent
    }

    fn endpoint(&self) -> &'static str {
        "/v1beta/models/MODEL:streamGenerateContent"
    }

    fn knobs(&self) -> Knobs {
        Knobs { api_version: true, ..Knobs::default() }
    }

    fn embeddings(&self) -> Option<&'static dyn Provider> {
        Some(&GeminiEmbeddings)
    }

    fn path<'a>(&self, place: &Place<'a>) -> Cow<'a, str> {
        let method = if place.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        let version = place.api_version.unwrap_or("v1beta");
        format!("/{version}/models/{}:{method}", in_path(place.model)).into()
    }

    fn chat(&self) -> Option<Chat> {
        Some(Chat::Gemini)
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        write::clear(request, out);
        out.extend_from_slice(b"{\"contents\":");
        Chat::Gemini.messages(request.turns, request.prompt, out);
        out.extend_from_slice(b",\"generationConfig\":{\"maxOutputTokens\":");
        json(out, &request.max_tokens);
        sampling(request, NAMES, out);
        out.extend_from_slice(b"}}");
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("x-goog-api-key", key.to_owned())
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        Box::new(BodyDecoder::new(head, Dialogue::default()))
    }
}

/// The state of one answer.
#[derive(Default)]
struct Dialogue {
    message: Message,
}

impl Dialect for Dialogue {
    fn message(
        &mut self,
        _name: &[u8],
        data: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) {
        if !self.message.hear(data, end_offset, state, out) {
            return;
        }
        // There is no end marker, and figures may follow the last output: only the end of the body ends the answer.
        state.may_end |= self.message.finished;
        let before = out.len();
        self.outputs(end_offset, state, out);
        if out.len() > before {
            return;
        }
        let kind = match &self.message {
            message if message.finished => EventKind::Terminal,
            message if message.usage.is_some() => EventKind::Usage,
            message if message.has_candidates => EventKind::Structure,
            _ => {
                state.warnings.unknown_messages = state.warnings.unknown_messages.saturating_add(1);
                EventKind::Meta
            }
        };
        out.push(event(kind, data.len(), end_offset));
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
        if !self.message.has_candidates && !self.message.finished {
            return Ok(Answer::Lacks("candidates"));
        }
        self.outputs(end_offset, state, out);
        Ok(Answer::Whole { has_usage: self.message.usage.is_some() })
    }

    fn meta(&self) -> &ResponseMeta {
        &self.message.meta
    }
}

impl Dialogue {
    /// Takes the counts over and appends the events of every candidate's output.
    fn outputs(&self, end_offset: u64, state: &mut State, out: &mut Vec<Event>) {
        if let Some(usage) = &self.message.usage {
            state.usage.update(&usage.inclusive());
        }
        for Candidate { index, reasoning, text, tool_args, opaque } in &self.message.candidates {
            let choice = u8::try_from(*index).unwrap_or(u8::MAX);
            let kinds = [
                (EventKind::Reasoning, *reasoning),
                (EventKind::Text, *text),
                (EventKind::ToolArgs, *tool_args),
                (EventKind::Opaque, *opaque),
            ];
            outputs(&kinds, choice, end_offset, out);
        }
    }
}
