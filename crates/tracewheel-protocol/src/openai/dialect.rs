//! What the messages of an OpenAI stream or answer mean.

use tracewheel_timeline::vocab::EventKind;

use super::message::{Choice, Message};
use super::template::Template;
use crate::body::{Answer, Dialect, State, event, outputs};
use crate::{Event, ResponseMeta, TokenSource, Usage, lenient};

/// The state of one answer.
#[derive(Default)]
pub(super) struct OpenAi {
    message: Message,
    /// The latest chunk whose like may follow.
    template: Template,
    counters: Vec<Counter>,
}

/// Counts the tokens of one choice from what the server says chunk by chunk.
#[derive(Clone, Copy)]
struct Counter {
    choice: u32,
    /// Token ids that came with chunks without output, kept for the next chunk with output.
    ids: u32,
    /// The running total at the last output; `None` once output came without a total, until the next total.
    total: Option<u32>,
}

/// The end marker of a stream; what follows it in the same message is ignored.
const DONE: &[u8] = b"[DONE]";

/// The most choices that are told apart for token counts.
const MAX_COUNTERS: usize = 256;

impl Dialect for OpenAi {
    fn message(
        &mut self,
        name: &[u8],
        data: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) {
        if data.starts_with(DONE) {
            state.terminal = true;
            out.push(event(EventKind::Terminal, data.len(), end_offset));
            return;
        }
        match name {
            b"" | b"message" | b"data" => {}
            b"error" => return state.failed(data, end_offset, out),
            b"ping" | b"heartbeat" | b"keepalive" | b"keep-alive" => {
                return out.push(event(EventKind::Heartbeat, data.len(), end_offset));
            }
            _ => state.warnings.unknown_names = state.warnings.unknown_names.saturating_add(1),
        }
        match self.read(data) {
            Ok(()) if self.message.error => state.failed(data, end_offset, out),
            Ok(()) => self.chunk(data.len(), end_offset, state, out),
            // A gateway's own notices need not be JSON.
            Err(_) if !matches!(name, b"" | b"message" | b"data") => {
                out.push(event(EventKind::Meta, data.len(), end_offset));
            }
            Err(error) => state.malformed(format!("invalid JSON: {error}"), data.len(), end_offset, out),
        }
    }

    fn answer(
        &mut self,
        body: &[u8],
        end_offset: u64,
        state: &mut State,
        out: &mut Vec<Event>,
    ) -> serde_json::Result<Answer> {
        self.read(body)?;
        if self.message.error {
            return Ok(Answer::Failed);
        }
        if !self.message.has_choices {
            return Ok(Answer::Lacks("choices"));
        }
        let usage = self.usage(state);
        self.outputs(usage, end_offset, state, out);
        Ok(Answer::Whole { has_usage: usage.is_some() })
    }

    fn meta(&self) -> &ResponseMeta {
        &self.message.meta
    }
}

impl OpenAi {
    fn read(&mut self, json: &[u8]) -> serde_json::Result<()> {
        if self.template.reads(json, &mut self.message) {
            return Ok(());
        }
        self.message.clear();
        lenient::read_message(json, &mut self.message, Message::clear)?;
        self.template.learn(json, &self.message);
        Ok(())
    }

    /// The message is a chunk without error: its outputs, or else one event of another kind.
    fn chunk(&mut self, bytes: usize, end_offset: u64, state: &mut State, out: &mut Vec<Event>) {
        let usage = self.usage(state);
        let before = out.len();
        self.outputs(usage, end_offset, state, out);
        if out.len() > before {
            return;
        }
        let opaque = self.message.choices.iter().find(|choice| choice.opaque > 0);
        if let Some(choice) = opaque {
            return outputs(&[(EventKind::Opaque, choice.opaque)], narrow(choice.index), end_offset, out);
        }
        let kind = self.kind_without_output(usage.is_some());
        if kind == EventKind::Meta && !self.is_annotation() {
            state.warnings.unknown_messages = state.warnings.unknown_messages.saturating_add(1);
        }
        out.push(event(kind, bytes, end_offset));
    }

    fn kind_without_output(&self, has_usage: bool) -> EventKind {
        let choices = &self.message.choices;
        if choices.iter().any(|choice| choice.finished) {
            EventKind::Terminal
        } else if choices.iter().any(|choice| choice.role) {
            EventKind::Structure
        } else if has_usage {
            EventKind::Usage
        } else if self.message.progress {
            EventKind::Progress
        } else if self.is_annotation() || !self.message.has_choices {
            EventKind::Meta
        } else {
            EventKind::Structure
        }
    }

    fn is_annotation(&self) -> bool {
        self.message.annotation || self.message.choices.iter().any(|choice| choice.annotation)
    }

    /// Takes the message's usage over into the state.
    fn usage(&self, state: &mut State) -> Option<Usage> {
        if let Some(timings) = &self.message.timings {
            state.usage.update(&timings.usage());
        }
        let usage = self.message.usage.filter(|usage| !usage.is_unknown())?.normalised();
        state.usage.update(&usage);
        Some(usage)
    }

    /// Appends the events of every choice's output.
    fn outputs(&mut self, usage: Option<Usage>, end_offset: u64, state: &mut State, out: &mut Vec<Event>) {
        // A running total beside several choices cannot be split between them.
        let total = match self.message.choices.len() {
            1 => usage
                .and_then(|usage| usage.output_tokens)
                .or_else(|| self.message.timings.and_then(|timings| timings.predicted)),
            _ => None,
        };
        for choice in &self.message.choices {
            let first = out.len();
            let kinds = [
                (EventKind::Reasoning, choice.reasoning),
                (EventKind::Text, choice.text),
                (EventKind::ToolArgs, choice.tool_args),
                (EventKind::Refusal, choice.refusal),
            ];
            outputs(&kinds, narrow(choice.index), end_offset, out);
            let tokens = count(&mut self.counters, choice, total, out.len() > first, state);
            if let (Some(tokens), [before @ .., last]) = (tokens, &mut out[first..]) {
                last.tokens = Some(tokens);
                before.iter_mut().for_each(|event| event.tokens = Some(0));
            }
        }
    }
}

/// Tokens of a choice's output in this chunk, if the server says so, with those of chunks without output before it.
fn count(
    counters: &mut Vec<Counter>,
    choice: &Choice,
    total: Option<u32>,
    has_output: bool,
    state: &mut State,
) -> Option<u16> {
    let known = counters.iter().position(|counter| counter.choice == choice.index);
    let counter = match known {
        Some(position) => &mut counters[position],
        None if counters.len() == MAX_COUNTERS => return None,
        None => {
            counters.push(Counter { choice: choice.index, ids: 0, total: Some(0) });
            counters.last_mut()?
        }
    };
    counter.ids = counter.ids.saturating_add(choice.token_ids.unwrap_or(0));
    if !has_output {
        return None;
    }
    let before = std::mem::replace(&mut counter.total, total);
    let ids = std::mem::take(&mut counter.ids);
    let (tokens, source) = if ids > 0 {
        (ids, TokenSource::TokenIds)
    } else {
        (total?.checked_sub(before?)?, TokenSource::ContinuousUsage)
    };
    // Output without a token is a total that does not run; more than fit is as good as unknown.
    let tokens = u16::try_from(tokens).ok().filter(|tokens| *tokens > 0)?;
    state.token_source.get_or_insert(source);
    Some(tokens)
}

fn narrow(choice: u32) -> u8 {
    u8::try_from(choice).unwrap_or(u8::MAX)
}
