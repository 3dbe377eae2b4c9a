//! What all dialects share of a request: the model, the prompt, the answer's length, and why one is refused.

use std::borrow::Cow;

use serde::Deserialize;

use crate::config::MockConfig;
use crate::engine::chance::{Chance, Draw};
use crate::prompt::{Prompt, PromptHasher};

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
}

/// A request that can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) prompt: Prompt,
    pub(crate) answer: Answer,
}

/// How long an answer will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Tokens, thoughts among them; 0 where nothing is generated.
    pub(crate) tokens: u32,
    /// How many of them, from the first on, are thoughts.
    pub(crate) thoughts: u32,
    pub(crate) cap: u32,
    pub(crate) finish: Finish,
}

/// A request that can't be served. Each dialect puts it in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    /// OpenAI's type; the others derive theirs from the status.
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
    pub(crate) param: Option<&'static str>,
    pub(crate) message: String,
    /// The wait that is asked for.
    pub(crate) retry_after_ns: Option<i64>,
}

impl ApiError {
    pub(crate) fn invalid(param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status: 400,
            kind: "invalid_request_error",
            code: None,
            param,
            message: message.into(),
            retry_after_ns: None,
        }
    }
}

/// What a request says about its answer's length.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// The cap's name, for messages.
    pub(crate) cap_name: &'static str,
    pub(crate) cap: Option<u32>,
    /// The cap if none is given; without it the context's room.
    pub(crate) default_cap: Option<u32>,
    pub(crate) least: Option<u32>,
    pub(crate) ignore_eos: bool,
    /// So many tokens may be thoughts.
    pub(crate) thoughts: u32,
}

/// What a message may hold.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Content<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    #[serde(borrow)]
    Parts(Vec<Part<'a>>),
}

/// A part of a message; what is not text has no tokens here.
#[derive(Debug, Deserialize)]
pub(crate) struct Part<'a> {
    #[serde(borrow, default)]
    pub(crate) text: Option<Cow<'a, str>>,
}

impl Content<'_> {
    pub(crate) fn hash(&self, hasher: &mut PromptHasher) {
        match self {
            Self::Text(text) => hasher.text(text),
            Self::Parts(parts) => Part::hash_all(parts, hasher),
        }
    }
}

impl Part<'_> {
    pub(crate) fn hash_all(parts: &[Self], hasher: &mut PromptHasher) {
        parts.iter().filter_map(|part| part.text.as_deref()).for_each(|text| hasher.text(text));
    }
}

pub(crate) fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::invalid(None, format!("the request body can't be read: {error}")))
}

pub(crate) fn served_model(asked: Option<&str>, config: &MockConfig) -> Result<String, ApiError> {
    let Some(asked) = asked.filter(|name| !name.is_empty()) else {
        return Err(ApiError::invalid(Some("model"), "you must provide a model parameter"));
    };
    if config.models.is_empty() || config.models.iter().any(|name| name == asked) {
        return Ok(asked.to_owned());
    }
    Err(ApiError {
        status: 404,
        code: Some("model_not_found"),
        ..ApiError::invalid(Some("model"), format!("the model `{asked}` does not exist"))
    })
}

/// The answer's length: the natural one, raised to the least, cut at the cap; the cap itself if its end is ignored.
pub(crate) fn answer(wanted: &Wanted, prompt: &Prompt, config: &MockConfig) -> Result<Answer, ApiError> {
    let (context, name) = (config.engine.max_context_tokens, wanted.cap_name);
    let room = context.saturating_sub(prompt.tokens);
    let cap = wanted.cap.unwrap_or_else(|| wanted.default_cap.map_or(room, |cap| cap.min(room)));
    if wanted.cap == Some(0) {
        return Err(ApiError::invalid(Some(name), format!("{name} must be at least 1")));
    }
    if cap > room || room == 0 {
        let message = format!(
            "this model's maximum context length is {context} tokens, but the prompt has {} and {cap} more were asked for",
            prompt.tokens
        );
        return Err(ApiError {
            code: Some("context_length_exceeded"),
            ..ApiError::invalid(Some("messages"), message)
        });
    }
    let least = wanted.least.unwrap_or(0);
    if least > cap {
        return Err(ApiError::invalid(
            Some("min_tokens"),
            format!("min_tokens is {least}, but the answer ends at {cap}"),
        ));
    }
    let mean = config.engine.natural_output_tokens;
    let natural = Chance::new(config.seed).between(
        Draw::OutputLength,
        prompt.digest,
        mean.div_ceil(2),
        mean.saturating_add(mean / 2),
    );
    let full = if wanted.ignore_eos { cap } else { natural.max(least) };
    let tokens = full.min(cap);
    // Half of an answer is for the reader, unless the budget for thoughts ends before.
    let thoughts = wanted.thoughts.min(tokens / 2);
    let finish = if wanted.ignore_eos || full > cap { Finish::Length } else { Finish::Stop };
    Ok(Answer { tokens, thoughts, cap, finish })
}
