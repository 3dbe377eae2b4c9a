//! One JSON message of the OpenAI protocols: a chunk of a stream, or a whole answer. Both have the same fields but
//! for `delta` and `message`, and both are read leniently.

use serde::de::{MapAccess, SeqAccess};

use crate::lenient::{
    Count, Elements, First, Is, Length, Number, Payload, Sink, Truthy, count, first, flag, length, measure,
    skip, take, take_element,
};
use crate::{ResponseMeta, Usage};

/// What one message says. Kept and cleared for the next one.
#[derive(Default)]
pub(super) struct Message {
    pub(super) choices: Vec<Choice>,
    pub(super) has_choices: bool,
    pub(super) usage: Option<Usage>,
    /// A truthy `error`, or an object that calls itself one.
    pub(super) error: bool,
    /// llama.cpp's `prompt_progress`.
    pub(super) progress: bool,
    /// Annotations of filters and moderation.
    pub(super) annotation: bool,
    /// llama.cpp's `timings`: a running total, and at the end the counts.
    pub(super) timings: Option<Timings>,
    pub(super) meta: ResponseMeta,
}

/// `timings` of llama.cpp. The prompt figure leaves the cached tokens out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Timings {
    cached: Option<u32>,
    evaluated: Option<u32>,
    pub(super) predicted: Option<u32>,
    prompt_ms: Option<f64>,
    predicted_ms: Option<f64>,
}

impl Timings {
    /// The counts in the inclusive form.
    pub(super) fn usage(&self) -> Usage {
        let input = self.evaluated.map(|evaluated| evaluated.saturating_add(self.cached.unwrap_or(0)));
        Usage {
            input_tokens: input,
            cached_tokens: self.cached,
            output_tokens: self.predicted,
            ..Usage::default()
        }
    }

    /// Milliseconds of the server's work so far.
    fn server_ms(&self) -> Option<i64> {
        let ms = (self.prompt_ms? + self.predicted_ms?).round();
        (0.0..9.0e15).contains(&ms).then_some(ms as i64)
    }
}

impl Message {
    pub(super) fn clear(&mut self) {
        self.timings = None;
        self.choices.clear();
        self.has_choices = false;
        self.usage = None;
        self.error = false;
        self.progress = false;
        self.annotation = false;
    }
}

/// What one choice of a message says; lengths in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) index: u32,
    pub(super) text: u32,
    pub(super) reasoning: u32,
    pub(super) tool_args: u32,
    pub(super) refusal: u32,
    pub(super) opaque: u32,
    pub(super) token_ids: Option<u32>,
    pub(super) role: bool,
    pub(super) finished: bool,
    pub(super) annotation: bool,
}

impl Sink for Message {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "choices" => {
                self.has_choices = true;
                take(values, &mut Choices { choices: &mut self.choices, meta: &mut self.meta })
            }
            "usage" => take(values, &mut UsageSink { usage: &mut self.usage, details: Details::None }),
            "error" => {
                let mut truthy = Truthy::default();
                take(values, &mut truthy)?;
                self.error |= truthy.0;
                Ok(())
            }
            "object" => {
                let mut is_error = Is { wanted: "error", found: false };
                take(values, &mut is_error)?;
                self.error |= is_error.found;
                Ok(())
            }
            "id" => first(values, &mut self.meta.id),
            "model" => first(values, &mut self.meta.model),
            "system_fingerprint" => first(values, &mut self.meta.system_fingerprint),
            "service_tier" => first(values, &mut self.meta.service_tier),
            "prompt_progress" => flag(values, &mut self.progress),
            "timings" => {
                let mut timings = Timings::default();
                take(values, &mut timings)?;
                self.meta.server_ms = timings.server_ms().or(self.meta.server_ms);
                self.timings = Some(timings);
                Ok(())
            }
            "metrics" => {
                let mut metrics = Metrics::default();
                take(values, &mut metrics)?;
                self.meta.server_ms = metrics.server_ms().or(self.meta.server_ms);
                Ok(())
            }
            "prompt_filter_results" | "prompt_annotations" | "moderation" => {
                flag(values, &mut self.annotation)
            }
            _ => skip(values),
        }
    }

    /// Some gateways wrap an error into an array.
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }
}

/// `metrics` of vLLM on the last chunk, or in a whole answer.
#[derive(Default)]
struct Metrics {
    /// Until it was scheduled.
    queue_ms: Option<f64>,
    /// From there to the first token.
    first_ms: Option<f64>,
    /// From there to the last one.
    rest_ms: Option<f64>,
}

impl Metrics {
    /// Milliseconds from the queue to the last token.
    fn server_ms(&self) -> Option<i64> {
        let ms = (self.queue_ms.unwrap_or(0.0) + self.first_ms? + self.rest_ms?).round();
        (0.0..9.0e15).contains(&ms).then_some(ms as i64)
    }
}

impl Sink for Metrics {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        let into = match key {
            "queue_time_ms" => &mut self.queue_ms,
            "time_to_first_token_ms" => &mut self.first_ms,
            "generation_time_ms" => &mut self.rest_ms,
            _ => return skip(values),
        };
        let mut number = Number::default();
        take(values, &mut number)?;
        *into = number.0;
        Ok(())
    }
}

impl Sink for Timings {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        let mut number = Number::default();
        match key {
            "cache_n" => count(values, &mut self.cached, true),
            "prompt_n" => count(values, &mut self.evaluated, true),
            "predicted_n" => count(values, &mut self.predicted, true),
            "prompt_ms" | "predicted_ms" => {
                take(values, &mut number)?;
                let into = if key == "prompt_ms" { &mut self.prompt_ms } else { &mut self.predicted_ms };
                *into = number.0;
                Ok(())
            }
            _ => skip(values),
        }
    }
}

struct Choices<'m> {
    choices: &'m mut Vec<Choice>,
    meta: &'m mut ResponseMeta,
}

impl Sink for Choices<'_> {
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        let mut sink = ChoiceSink { choice: Choice::default(), meta: self.meta, is_object: false };
        let more = take_element(elements, &mut sink)?;
        if sink.is_object {
            self.choices.push(sink.choice);
        }
        Ok(more)
    }
}

struct ChoiceSink<'m> {
    choice: Choice,
    meta: &'m mut ResponseMeta,
    is_object: bool,
}

impl Sink for ChoiceSink<'_> {
    fn object(&mut self) {
        self.is_object = true;
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "index" => {
                let mut index = Count::default();
                take(values, &mut index)?;
                self.choice.index = index.0.unwrap_or(0);
                Ok(())
            }
            "delta" | "message" => take(values, &mut Delta(&mut self.choice)),
            "text" => measure(values, &mut self.choice.text),
            "finish_reason" => {
                let mut reason = Truthy::default();
                if self.choice.index == 0 && self.meta.finish_reason.is_none() {
                    take(values, &mut First(&mut self.meta.finish_reason))?;
                    reason.0 = self.meta.finish_reason.is_some();
                } else {
                    take(values, &mut reason)?;
                }
                self.choice.finished = reason.0;
                Ok(())
            }
            "token_ids" => {
                let mut ids = Elements::default();
                take(values, &mut ids)?;
                self.choice.token_ids = ids.0;
                Ok(())
            }
            "content_filter_results" | "content_filter_result" | "content_filter_offsets" => {
                flag(values, &mut self.choice.annotation)
            }
            _ => skip(values),
        }
    }
}

/// `delta` of a chunk or `message` of a whole answer.
struct Delta<'c>(&'c mut Choice);

impl Sink for Delta<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "content" => take(values, &mut Content(self.0)),
            // Some servers send both, with the same text.
            "reasoning" | "reasoning_content" => {
                let mut length = Length::default();
                take(values, &mut length)?;
                self.0.reasoning = self.0.reasoning.max(length.0);
                Ok(())
            }
            "refusal" => measure(values, &mut self.0.refusal),
            "tool_calls" => take(values, &mut ToolCalls(&mut self.0.tool_args)),
            "function_call" => take(values, &mut Function(&mut self.0.tool_args)),
            "audio" | "images" => take(values, &mut Payload(&mut self.0.opaque)),
            "role" => flag(values, &mut self.0.role),
            _ => skip(values),
        }
    }
}

/// `content`: a string, or an array of parts.
struct Content<'c>(&'c mut Choice);

impl Sink for Content<'_> {
    fn text(&mut self, value: &str) {
        self.0.text = self.0.text.saturating_add(length(value));
    }

    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "text" => measure(values, &mut self.0.text),
            "thinking" => take(values, &mut Thinking(&mut self.0.reasoning)),
            "refusal" => measure(values, &mut self.0.refusal),
            _ => skip(values),
        }
    }
}

/// Reasoning inside of a content part: a string, or an array of parts with `text`.
struct Thinking<'c>(&'c mut u32);

impl Sink for Thinking<'_> {
    fn text(&mut self, value: &str) {
        *self.0 = self.0.saturating_add(length(value));
    }

    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        if key == "text" { measure(values, self.0) } else { skip(values) }
    }
}

/// `tool_calls`: an array of calls, of which name and arguments of the function count.
struct ToolCalls<'c>(&'c mut u32);

impl Sink for ToolCalls<'_> {
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "function" | "custom" => take(values, &mut Function(self.0)),
            _ => skip(values),
        }
    }
}

/// A function's name and arguments, or pieces of them.
struct Function<'c>(&'c mut u32);

impl Sink for Function<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "name" | "arguments" | "input" => measure(values, self.0),
            _ => skip(values),
        }
    }
}

/// `usage`, and the objects inside of it.
struct UsageSink<'m> {
    usage: &'m mut Option<Usage>,
    details: Details,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Details {
    None,
    Input,
    Output,
}

impl Sink for UsageSink<'_> {
    fn object(&mut self) {
        self.usage.get_or_insert_default();
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        let usage = self.usage.get_or_insert_default();
        match (self.details, key) {
            (Details::None, "prompt_tokens") => count(values, &mut usage.input_tokens, true),
            (Details::None, "completion_tokens") => count(values, &mut usage.output_tokens, true),
            (Details::None, "prompt_tokens_details") => {
                take(values, &mut UsageSink { usage: self.usage, details: Details::Input })
            }
            (Details::None, "completion_tokens_details") => {
                take(values, &mut UsageSink { usage: self.usage, details: Details::Output })
            }
            (Details::Input, "cached_tokens") => count(values, &mut usage.cached_tokens, true),
            (Details::Input, "cache_write_tokens") => count(values, &mut usage.cache_write_tokens, true),
            (Details::Output, "reasoning_tokens") => count(values, &mut usage.reasoning_tokens, true),
            // Where servers put them that have no details; the details win.
            (Details::None, "reasoning_tokens") => count(values, &mut usage.reasoning_tokens, false),
            (Details::None, "cached_tokens" | "prompt_cache_hit_tokens" | "cache_read_input_tokens") => {
                count(values, &mut usage.cached_tokens, false)
            }
            (Details::None, "cache_creation_input_tokens") => {
                count(values, &mut usage.cache_write_tokens, false)
            }
            _ => skip(values),
        }
    }
}
