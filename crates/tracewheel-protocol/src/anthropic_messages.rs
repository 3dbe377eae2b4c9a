//! Anthropic's Messages: named events, content in blocks, cached tokens counted apart.

use tracewheel_timeline::vocab::{EventKind, Operation};

use crate::body::{Answer, BodyDecoder, Dialect, State, event, outputs};
use crate::write::{self, Parameter, number, sampling};
use crate::{Chat, Decoder, Event, Knobs, Provider, RenderRequest, ResponseHead, ResponseMeta, lenient};

mod message;
#[cfg(test)]
mod tests;

use message::{Kind, Message, Tokens};

/// `POST /v1/messages`.
///
/// The API has no way to force a length: the cap is the recorded one, and answers may be shorter. Seeds and penalties are
/// unknown to it and are left out.
#[derive(Clone, Copy, Debug)]
pub struct AnthropicMessages;

/// The parameters that the protocol knows.
const NAMES: &[(Parameter, &str)] =
    &[(Parameter::Temperature, "temperature"), (Parameter::TopP, "top_p"), (Parameter::TopK, "top_k")];

const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

const STREAM_HEADERS: &[(&str, &str)] = &[
    ("content-type", "application/json"),
    ("accept", "text/event-stream"),
    ("accept-encoding", "identity"),
    VERSION,
];

const PLAIN_HEADERS: &[(&str, &str)] = &[
    ("content-type", "application/json"),
    ("accept", "application/json"),
    ("accept-encoding", "identity"),
    VERSION,
];

impl Provider for AnthropicMessages {
    fn name(&self) -> &'static str {
        "anthropic-messages"
    }

    fn operation(&self) -> Operation {
        Operation::Messages
    }

    fn endpoint(&self) -> &'static str {
        "/v1/messages"
    }

    fn chat(&self) -> Option<Chat> {
        Some(Chat::Anthropic)
    }

    fn knobs(&self) -> Knobs {
        Knobs { model_in_body: true, ..Knobs::default() }
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        write::begin(request, out);
        number(out, "max_tokens", request.max_tokens);
        write::user_message(request, out);
        sampling(request, NAMES, out);
        number(out, "stream", request.stream);
        out.push(b'}');
    }

    fn headers(&self, stream: bool) -> &'static [(&'static str, &'static str)] {
        if stream { STREAM_HEADERS } else { PLAIN_HEADERS }
    }

    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("x-api-key", key.to_owned())
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        Box::new(BodyDecoder::new(head, Anthropic::default()))
    }
}

/// The state of one answer.
#[derive(Default)]
struct Anthropic {
    message: Message,
    tokens: Tokens,
}

impl Dialect for Anthropic {
    fn message(
        &mut self,
        name: &[u8],
        data: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) {
        self.message.clear();
        if let Err(error) = lenient::read_message(data, &mut self.message, Message::clear) {
            return state.malformed(format!("invalid JSON: {error}"), data.len(), end_offset, out);
        }
        let of_name = Kind::of(name);
        let kind = match self.message.kind {
            // Proxies have been seen to drop either of the two.
            Kind::Unknown => of_name,
            kind => kind,
        };
        self.tokens.report(&self.message.tokens, state);
        let other = |kind| event(kind, data.len(), end_offset);
        match kind {
            Kind::Error => state.failed(data, end_offset, out),
            _ if self.message.error => state.failed(data, end_offset, out),
            Kind::Ping => out.push(other(EventKind::Heartbeat)),
            Kind::MessageDelta => out.push(other(EventKind::Usage)),
            Kind::MessageStop => {
                state.terminal = true;
                out.push(other(EventKind::Terminal));
            }
            Kind::MessageStart | Kind::BlockStop => out.push(other(EventKind::Structure)),
            Kind::BlockStart | Kind::BlockDelta => {
                let before = out.len();
                self.outputs(end_offset, out);
                if out.len() == before {
                    out.push(other(EventKind::Structure));
                }
            }
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
        if self.message.error || self.message.kind == Kind::Error {
            return Ok(Answer::Failed);
        }
        if !self.message.has_content {
            return Ok(Answer::Lacks("content"));
        }
        let has_usage = self.tokens.report(&self.message.tokens, state);
        self.outputs(end_offset, out);
        Ok(Answer::Whole { has_usage })
    }

    fn meta(&self) -> &ResponseMeta {
        &self.message.meta
    }
}

impl Anthropic {
    fn outputs(&self, end_offset: u64, out: &mut Vec<Event>) {
        let block = &self.message.block;
        let kinds = [
            (EventKind::Reasoning, block.reasoning),
            (EventKind::Text, block.text),
            (EventKind::ToolArgs, block.tool_args),
            (EventKind::Opaque, block.opaque),
        ];
        outputs(&kinds, 0, end_offset, out);
    }
}
