//! What Ollama's two native routes have in common: a line of JSON an event, the last one with the counts.

use serde::de::{MapAccess, SeqAccess};
use tracewheel_timeline::vocab::EventKind;

use crate::body::{Answer, Dialect, Said, State, event, outputs};
use crate::lenient::{Payload, Sink, Truthy, count, first, flag, measure, millis, skip, take, take_element};
use crate::write::{Parameter, number, sampling};
use crate::{Event, RenderRequest, ResponseMeta, Usage};

/// The parameters that the routes know, within `options`.
const NAMES: &[(Parameter, &str)] = &[
    (Parameter::Temperature, "temperature"),
    (Parameter::TopP, "top_p"),
    (Parameter::TopK, "top_k"),
    (Parameter::Seed, "seed"),
    (Parameter::PresencePenalty, "presence_penalty"),
    (Parameter::FrequencyPenalty, "frequency_penalty"),
];

/// Writes what stands behind the prompt: the options and the manner of the answer.
pub(crate) fn end(request: &RenderRequest<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"options\":{\"num_predict\":");
    crate::write::json(out, &request.max_tokens);
    sampling(request, NAMES, out);
    out.push(b'}');
    number(out, "stream", request.stream);
    out.push(b'}');
}

/// The state of one answer.
#[derive(Default)]
pub(crate) struct Ollama {
    message: Message,
}

impl Dialect for Ollama {
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
        let before = out.len();
        self.outputs(end_offset, state, out);
        if self.message.done {
            state.terminal = true;
            out.push(event(EventKind::Terminal, data.len(), end_offset));
        } else if out.len() == before {
            let kind = if self.message.known {
                EventKind::Structure
            } else {
                state.warnings.unknown_messages = state.warnings.unknown_messages.saturating_add(1);
                EventKind::Meta
            };
            out.push(event(kind, data.len(), end_offset));
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
        self.outputs(end_offset, state, out);
        Ok(Answer::Whole { has_usage: !self.message.usage.is_unknown() })
    }

    fn meta(&self) -> &ResponseMeta {
        &self.message.meta
    }
}

impl Ollama {
    fn outputs(&self, end_offset: u64, state: &mut State, out: &mut Vec<Event>) {
        state.usage.update(&self.message.usage);
        let Message { reasoning, text, tool_args, .. } = self.message;
        let kinds =
            [(EventKind::Reasoning, reasoning), (EventKind::Text, text), (EventKind::ToolArgs, tool_args)];
        outputs(&kinds, 0, end_offset, out);
    }
}

/// What one line says; lengths in bytes. Kept and cleared for the next one.
#[derive(Default)]
struct Message {
    reasoning: u32,
    text: u32,
    tool_args: u32,
    /// It has a field that lines of an answer have.
    known: bool,
    done: bool,
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
        self.known |= matches!(key, "response" | "message" | "done");
        match key {
            "response" => measure(values, &mut self.text),
            "thinking" => measure(values, &mut self.reasoning),
            "message" => take(values, &mut Inner(self)),
            "done" => flag(values, &mut self.done),
            "done_reason" => first(values, &mut self.meta.finish_reason),
            "model" => first(values, &mut self.meta.model),
            "prompt_eval_count" => count(values, &mut self.usage.input_tokens, true),
            "eval_count" => count(values, &mut self.usage.output_tokens, true),
            "total_duration" => millis(values, 1e6, &mut self.meta.server_ms),
            "error" => {
                let mut truthy = Truthy::default();
                take(values, &mut truthy)?;
                self.error |= truthy.0;
                Ok(())
            }
            _ => skip(values),
        }
    }
}

/// `message` of a chat.
struct Inner<'m>(&'m mut Message);

impl Sink for Inner<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "content" => measure(values, &mut self.0.text),
            "thinking" => measure(values, &mut self.0.reasoning),
            "tool_calls" => take(values, &mut Calls(&mut self.0.tool_args)),
            _ => skip(values),
        }
    }
}

/// Tool calls, whole: names, and the strings in their arguments.
struct Calls<'m>(&'m mut u32);

impl Sink for Calls<'_> {
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "function" => take(values, self),
            "name" => measure(values, self.0),
            "arguments" => take(values, &mut Payload(self.0)),
            _ => skip(values),
        }
    }
}

#[cfg(test)]
mod tests;
