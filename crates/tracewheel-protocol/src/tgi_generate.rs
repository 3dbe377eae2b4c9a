//! Text Generation Inference's own route: an event a token, the last with the whole text again.

use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess};
use tracewheel_timeline::vocab::{EventKind, Operation};

use crate::body::{Answer, BodyDecoder, Dialect, Said, State, event};
use crate::lenient::{Length, Sink, count, first, flag, length, skip, take, take_element};
use crate::write::{Parameter, json, number, recorded_number, string};
use crate::{Decoder, Event, Place, Provider, RenderRequest, ResponseHead, ResponseMeta, TokenSource, Usage};

/// `POST /generate_stream`, or `/generate` for a plain answer. The model is the server's only one.
///
/// Lengths cannot be forced. A temperature of 0 and a top-p of 1 are refused by the server and mean the same as none, so
/// they are left out.
#[derive(Clone, Copy, Debug)]
pub struct TgiGenerate;

impl Provider for TgiGenerate {
    fn name(&self) -> &'static str {
        "tgi-generate"
    }

    fn operation(&self) -> Operation {
        Operation::Completion
    }

    fn endpoint(&self) -> &'static str {
        "/generate_stream"
    }

    fn path<'a>(&self, place: &Place<'a>) -> Cow<'a, str> {
        Cow::Borrowed(if place.stream { "/generate_stream" } else { "/generate" })
    }

    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(b"{\"inputs\":");
        string(out, request.prompt);
        out.extend_from_slice(b",\"parameters\":{\"max_new_tokens\":");
        json(out, &request.max_tokens);
        let temperature = recorded_number(request, Parameter::Temperature).unwrap_or(request.temperature);
        if temperature > 0.0 {
            number(out, "temperature", temperature);
            out.extend_from_slice(b",\"do_sample\":true");
        }
        if let Some(top_p) =
            recorded_number(request, Parameter::TopP).filter(|share| *share > 0.0 && *share < 1.0)
        {
            number(out, "top_p", top_p);
        }
        for (parameter, name) in [(Parameter::TopK, "top_k"), (Parameter::Seed, "seed")] {
            if let Some(value) = recorded_number(request, parameter).filter(|value| *value > 0.0) {
                number(out, name, value);
            }
        }
        out.extend_from_slice(b",\"details\":true}}");
    }

    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send> {
        Box::new(BodyDecoder::new(head, Tgi::default()))
    }
}

/// The state of one answer.
#[derive(Default)]
struct Tgi {
    message: Message,
    /// Tokens without text since the last output: pieces of a character.
    silent: u16,
}

impl Dialect for Tgi {
    fn message(
        &mut self,
        _name: &[u8],
        data: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) {
        if data.starts_with(b"[DONE]") {
            return out.push(event(EventKind::Meta, data.len(), end_offset));
        }
        if !self.message.hear(data, end_offset, state, out) {
            return;
        }
        state.usage.update(&self.message.usage);
        let Message { token, special, whole, details, .. } = self.message;
        match token {
            Some(bytes) if bytes > 0 && !special => {
                state.token_source.get_or_insert(TokenSource::TokenIds);
                let tokens = Some(std::mem::take(&mut self.silent).saturating_add(1));
                out.push(Event { tokens, ..event(EventKind::Text, bytes as usize, end_offset) });
            }
            Some(_) => {
                self.silent = self.silent.saturating_add(u16::from(!special));
                out.push(event(EventKind::Structure, data.len(), end_offset));
            }
            None if whole.is_none() && !details => {
                state.warnings.unknown_messages = state.warnings.unknown_messages.saturating_add(1);
                out.push(event(EventKind::Meta, data.len(), end_offset));
            }
            None => {}
        }
        if whole.is_some() || details {
            state.terminal = true;
            out.push(event(EventKind::Terminal, data.len(), end_offset));
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
        let Some(whole) = self.message.whole else { return Ok(Answer::Lacks("generated_text")) };
        state.usage.update(&self.message.usage);
        crate::body::outputs(&[(EventKind::Text, whole)], 0, end_offset, out);
        Ok(Answer::Whole { has_usage: !self.message.usage.is_unknown() })
    }

    fn meta(&self) -> &ResponseMeta {
        &self.message.meta
    }
}

/// What one message says; lengths in bytes. Kept and cleared for the next one.
#[derive(Default)]
struct Message {
    /// The text of `token`, where there is one.
    token: Option<u32>,
    special: bool,
    /// `generated_text`: the whole answer.
    whole: Option<u32>,
    details: bool,
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
            "token" => take(values, &mut Token(self)),
            "generated_text" => take(values, &mut Whole(&mut self.whole)),
            "details" => take(values, &mut Details(self)),
            "error" => flag(values, &mut self.error),
            _ => skip(values),
        }
    }

    /// Plain answers of one route come within an array.
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }
}

struct Token<'m>(&'m mut Message);

impl Sink for Token<'_> {
    fn object(&mut self) {
        self.0.token.get_or_insert(0);
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "text" => {
                let mut bytes = Length::default();
                take(values, &mut bytes)?;
                self.0.token = Some(bytes.0);
                Ok(())
            }
            "special" => flag(values, &mut self.0.special),
            _ => skip(values),
        }
    }
}

/// A text that may be null.
struct Whole<'m>(&'m mut Option<u32>);

impl Sink for Whole<'_> {
    fn text(&mut self, value: &str) {
        *self.0 = Some(length(value));
    }
}

struct Details<'m>(&'m mut Message);

impl Sink for Details<'_> {
    fn object(&mut self) {
        self.0.details = true;
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "finish_reason" => first(values, &mut self.0.meta.finish_reason),
            "generated_tokens" => count(values, &mut self.0.usage.output_tokens, true),
            "input_length" => count(values, &mut self.0.usage.input_tokens, true),
            _ => skip(values),
        }
    }
}

#[cfg(test)]
mod tests;
