//! Google's Gemini: candidates in parts, the model in the path, no end marker but a finish reason.

use std::borrow::Cow;

use tracewheel_timeline::vocab::{EventKind, Operation};

use crate::body::{BodyDecoder, Dialect, State, event};
use crate::openai::headers;
use crate::provider::in_path;
use crate::write::{Parameter, json, sampling, string};
use crate::{Decoder, Event, Provider, RenderRequest, ResponseHead, ResponseMeta, lenient};

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

    fn path(&self, model: &str, stream: bool) -> Cow<'static, str> {
        let method = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("/v1beta/models/{}:{method}", in_path(model)).into()
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        out.clear();
        out.reserve(request.prompt.len() + request.prompt.len() / 16 + 512);
        out.extend_from_slice(b"{\"contents\":[{\"role\":\"user\",\"parts\":[{\"text\":");
        string(out, request.prompt);
        out.extend_from_slice(b"}]}],\"generationConfig\":{\"maxOutputTokens\":");
        json(out, &request.max_tokens);
        sampling(request, NAMES, out);
        out.extend_from_slice(b"}}");
    }

    fn headers(&self, stream: bool) -> &'static [(&'static str, &'static str)] {
        headers(stream)
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
        self.message.clear();
        if let Err(error) = lenient::read_message(data, &mut self.message, Message::clear) {
            return state.malformed(format!("invalid JSON: {error}"), data.len(), end_offset, out);
        }
        if self.message.error {
            return state.failed(data, end_offset, out);
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
    ) -> serde_json::Result<()> {
        self.message.clear();
        lenient::read_message(body, &mut self.message, Message::clear)?;
        if self.message.error {
            state.failed(body, end_offset, out);
        } else if !self.message.has_candidates && !self.message.finished {
            state.malformed("the answer has no candidates".to_owned(), body.len(), end_offset, out);
        } else {
            let before = out.len();
            self.outputs(end_offset, state, out);
            if self.message.usage.is_some() {
                out.push(event(EventKind::Usage, body.len(), end_offset));
            }
            if out.len() == before {
                out.push(event(EventKind::Structure, body.len(), end_offset));
            }
        }
        Ok(())
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
            for (kind, bytes) in [
                (EventKind::Reasoning, *reasoning),
                (EventKind::Text, *text),
                (EventKind::ToolArgs, *tool_args),
                (EventKind::Opaque, *opaque),
            ] {
                if bytes > 0 {
                    out.push(Event { choice, ..event(kind, bytes as usize, end_offset) });
                }
            }
        }
    }
}
