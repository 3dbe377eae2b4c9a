//! Any HTTP request: method, path and body from the timeline or the options, an answer of any form.

use std::borrow::Cow;

use tracewheel_timeline::vocab::{EventKind, Operation};

use crate::body::{Answer, BodyDecoder, Dialect, State, event};
use crate::options::AnswerForm;
use crate::provider::{Place, in_path};
use crate::{Decoder, Event, Knobs, Provider, RenderRequest, ResponseHead, ResponseMeta};

mod template;
#[cfg(test)]
mod tests;

pub use template::Template;

/// A request of any kind.
///
/// What of an answer counts as output depends on its form:
///
/// | form | an output event | first output |
/// |---|---|---|
/// | server-sent events | each event with data | the first one |
/// | lines of JSON | each line that is not blank | the first one |
/// | bytes | the first byte, and the rest when the body ends | the first byte |
/// | plain | the whole body | its last byte |
///
/// Output is of the kind `text`, whatever it holds, and no event stands for a token. No form has an end marker: a body
/// that ends as HTTP says is whole, but for an event or a line that was cut.
#[derive(Clone, Copy, Debug)]
pub struct Http;

const HEADERS: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "*/*"), ("accept-encoding", "identity")];

impl Provider for Http {
    fn name(&self) -> &'static str {
        "http"
    }

    fn operation(&self) -> Operation {
        Operation::Http
    }

    fn endpoint(&self) -> &'static str {
        "/"
    }

    fn knobs(&self) -> Knobs {
        Knobs { free_form: true, ..Knobs::default() }
    }

    fn embeddings(&self) -> Option<&'static dyn Provider> {
        Some(&Http)
    }

    fn events_are_tokens(&self) -> bool {
        false
    }

    fn path<'a>(&self, place: &Place<'a>) -> Cow<'a, str> {
        match place.recorded {
            Some(path) if is_path(path) => Cow::Borrowed(path),
            // Logs hold paths with their escapes undone.
            Some(path) => format!("/{}", in_path(path.trim_start_matches('/'))).into(),
            None => Cow::Borrowed(self.endpoint()),
        }
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        out.clear();
        if let Some(template) = request.template {
            template.fill(request, out);
        }
    }

    fn headers(&self, _stream: bool) -> &'static [(&'static str, &'static str)] {
        HEADERS
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        self.decoder_of(head, AnswerForm::Auto)
    }

    fn decoder_of(&self, head: &ResponseHead<'_>, form: AnswerForm) -> Box<dyn Decoder + Send> {
        let form = match form {
            AnswerForm::Auto => form_of(head.content_type.unwrap_or_default()),
            chosen => chosen,
        };
        Box::new(BodyDecoder::free(head, Free::default(), form))
    }
}

/// The form that a content type stands for. What says nothing of the kind is one plain answer.
fn form_of(content_type: &str) -> AnswerForm {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" => AnswerForm::Sse,
        "application/x-ndjson"
        | "application/ndjson"
        | "application/jsonl"
        | "application/x-jsonlines"
        | "application/json-lines"
        | "application/stream+json"
        | "application/x-json-stream" => AnswerForm::Ndjson,
        "application/octet-stream" => AnswerForm::Bytes,
        media if media.starts_with("audio/") || media.starts_with("video/") => AnswerForm::Bytes,
        _ => AnswerForm::Plain,
    }
}

/// Whether a text can stand in a URL as it is: nothing that a URL forbids, and no fragment.
fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"<>\\^`{}|#".contains(&byte))
}

/// The state of one answer.
#[derive(Default)]
struct Free {
    meta: ResponseMeta,
}

impl Dialect for Free {
    fn message(
        &mut self,
        name: &[u8],
        data: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) {
        match name {
            b"error" => state.failed(data, end_offset, out),
            b"ping" | b"heartbeat" | b"keepalive" | b"keep-alive" => {
                out.push(event(EventKind::Heartbeat, data.len(), end_offset));
            }
            _ if data.starts_with(b"[DONE]") => {
                state.terminal = true;
                out.push(event(EventKind::Terminal, data.len(), end_offset));
            }
            _ => out.push(event(EventKind::Text, data.len(), end_offset)),
        }
    }

    fn answer(
        &mut self,
        body: &[u8],
        end_offset: u64,
        _state: &mut State,
        out: &mut Vec<Event>,
    ) -> serde_json::Result<Answer> {
        out.push(event(EventKind::Text, body.len(), end_offset));
        Ok(Answer::Whole { has_usage: false })
    }

    fn meta(&self) -> &ResponseMeta {
        &self.meta
    }
}
