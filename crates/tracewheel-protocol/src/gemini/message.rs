//! One JSON message of the Gemini protocol: a chunk of a stream, or a whole answer; both have the same fields.

use serde::de::{MapAccess, SeqAccess};

use crate::body::Said;
use crate::lenient::{
    Count, Payload, Sink, Truthy, count, first, flag, length, measure, skip, take, take_element,
};
use crate::{ResponseMeta, Usage};

/// What one message says. Kept and cleared for the next one.
#[derive(Default)]
pub(super) struct Message {
    pub(super) candidates: Vec<Candidate>,
    pub(super) has_candidates: bool,
    /// A finish reason, or the reason why the prompt was blocked.
    pub(super) finished: bool,
    /// A truthy `error`.
    pub(super) error: bool,
    pub(super) usage: Option<Counts>,
    pub(super) meta: ResponseMeta,
}

impl Said for Message {
    fn is_error(&self) -> bool {
        self.error
    }

    fn meta_mut(&mut self) -> &mut ResponseMeta {
        &mut self.meta
    }

    /// Keeps the room of its candidates.
    fn clear(&mut self) {
        self.candidates.clear();
        self.has_candidates = false;
        self.finished = false;
        self.error = false;
        self.usage = None;
    }
}

/// What one candidate of a message holds; lengths in bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct Candidate {
    pub(super) index: u32,
    pub(super) reasoning: u32,
    pub(super) text: u32,
    pub(super) tool_args: u32,
    pub(super) opaque: u32,
}

/// Counts as the protocol has them: cached tokens within the prompt's, thoughts beside the candidates'.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    prompt: Option<u32>,
    cached: Option<u32>,
    candidates: Option<u32>,
    thoughts: Option<u32>,
}

impl Counts {
    /// The normal form: all output tokens together.
    pub(super) fn inclusive(&self) -> Usage {
        let output = match (self.candidates, self.thoughts) {
            (None, None) => None,
            (candidates, thoughts) => Some(candidates.unwrap_or(0).saturating_add(thoughts.unwrap_or(0))),
        };
        Usage {
            input_tokens: self.prompt,
            cached_tokens: self.cached,
            output_tokens: output,
            reasoning_tokens: self.thoughts,
            ..Usage::default()
        }
    }
}

impl Sink for Message {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "candidates" => {
                self.has_candidates = true;
                take(values, &mut Candidates(self))
            }
            "usageMetadata" => take(values, self.usage.get_or_insert_default()),
            "promptFeedback" => take(values, &mut Feedback(self)),
            "error" => flag(values, &mut self.error),
            "responseId" => first(values, &mut self.meta.id),
            "modelVersion" => first(values, &mut self.meta.model),
            _ => skip(values),
        }
    }

    /// Errors come within an array at times.
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }
}

impl Sink for Counts {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "promptTokenCount" => count(values, &mut self.prompt, true),
            "cachedContentTokenCount" => count(values, &mut self.cached, true),
            "candidatesTokenCount" => count(values, &mut self.candidates, true),
            "thoughtsTokenCount" => count(values, &mut self.thoughts, true),
            _ => skip(values),
        }
    }
}

/// `promptFeedback`: a prompt that was blocked has no candidates.
struct Feedback<'m>(&'m mut Message);

impl Sink for Feedback<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        if key != "blockReason" {
            return skip(values);
        }
        first(values, &mut self.0.meta.finish_reason)?;
        self.0.finished |= self.0.meta.finish_reason.is_some();
        Ok(())
    }
}

struct Candidates<'m>(&'m mut Message);

impl Sink for Candidates<'_> {
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        let mut sink =
            CandidateSink { candidate: Candidate::default(), finish: Truthy::default(), message: self.0 };
        let more = take_element(elements, &mut sink)?;
        let CandidateSink { candidate, finish, .. } = sink;
        if more {
            self.0.finished |= finish.0;
            self.0.candidates.push(candidate);
        }
        Ok(more)
    }
}

struct CandidateSink<'m> {
    candidate: Candidate,
    finish: Truthy,
    message: &'m mut Message,
}

impl Sink for CandidateSink<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "content" => take(values, &mut Content(&mut self.candidate)),
            "index" => {
                let mut index = Count::default();
                take(values, &mut index)?;
                self.candidate.index = index.0.unwrap_or(0);
                Ok(())
            }
            "finishReason" if self.message.meta.finish_reason.is_none() => {
                first(values, &mut self.message.meta.finish_reason)?;
                self.finish.0 = self.message.meta.finish_reason.is_some();
                Ok(())
            }
            "finishReason" => take(values, &mut self.finish),
            _ => skip(values),
        }
    }
}

struct Content<'c>(&'c mut Candidate);

impl Sink for Content<'_> {
    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        if key == "parts" { take(values, &mut Parts(self.0)) } else { skip(values) }
    }
}

struct Parts<'c>(&'c mut Candidate);

impl Sink for Parts<'_> {
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        let mut part = Part { candidate: self.0, text: 0, thought: Truthy::default() };
        let more = take_element(elements, &mut part)?;
        let Part { text, thought, .. } = part;
        let sum = if thought.0 { &mut self.0.reasoning } else { &mut self.0.text };
        *sum = sum.saturating_add(text);
        Ok(more)
    }
}

/// One part. Whether its text is a thought may stand behind it.
struct Part<'c> {
    candidate: &'c mut Candidate,
    text: u32,
    thought: Truthy,
}

impl Sink for Part<'_> {
    fn text(&mut self, value: &str) {
        self.text = self.text.saturating_add(length(value));
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, key: &str, values: &mut A) -> Result<(), A::Error> {
        match key {
            "text" => measure(values, &mut self.text),
            "thought" => take(values, &mut self.thought),
            "functionCall" => take(values, &mut Payload(&mut self.candidate.tool_args)),
            "executableCode" => take(values, &mut Payload(&mut self.candidate.tool_args)),
            "thoughtSignature" => measure(values, &mut self.candidate.opaque),
            "inlineData" | "codeExecutionResult" | "fileData" => {
                take(values, &mut Payload(&mut self.candidate.opaque))
            }
            _ => skip(values),
        }
    }
}
