//! Anthropic's Messages: named events, content in blocks, cached tokens counted apart.

use tracewheel_timeline::vocab::{EventKind, Operation};

use crate::body::{BodyDecoder, Dialect, State, event};
use crate::write::{Parameter, number, sampling, string};
use crate::{Decoder, Event, Provider, RenderRequest, ResponseHead, ResponseMeta, lenient};

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

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        out.clear();
        out.reserve(request.prompt.len() + request.prompt.len() / 16 + 512);
        out.extend_from_slice(b"{\"model\":");
        string(out, request.model);
        number(out, "max_tokens", request.max_tokens);
        out.extend_from_slice(b",\"messages\":[{\"role\":\"user\",\"content\":");
        string(out, request.prompt);
        out.extend_from_slice(b"}]");
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
    ) -> serde_json::Result<()> {
        self.message.clear();
        lenient::read_message(body, &mut self.message, Message::clear)?;
        if self.message.error || self.message.kind == Kind::Error {
            state.failed(body, end_offset, out);
        } else if !self.message.has_content {
            state.malformed("the answer has no content".to_owned(), body.len(), end_offset, out);
        } else {
            let reported = self.tokens.report(&self.message.tokens, state);
            let before = out.len();
            self.outputs(end_offset, out);
            if reported {
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

impl Anthropic {
    fn outputs(&self, end_offset: u64, out: &mut Vec<Event>) {
        let block = &self.message.block;
        for (kind, bytes) in [
            (EventKind::Reasoning, block.reasoning),
            (EventKind::Text, block.text),
            (EventKind::ToolArgs, block.tool_args),
            (EventKind::Opaque, block.opaque),
        ] {
            if bytes > 0 {
                out.push(event(kind, bytes as usize, end_offset));
            }
        }
    }
}
