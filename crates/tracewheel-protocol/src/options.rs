//! What a scenario may say about a protocol, and what of it goes together.

use serde::{Deserialize, Serialize};

use crate::http::Template;
use crate::{Knobs, Provider};

mod engine;

pub use engine::Engine;

/// The name under which the cap on output tokens is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitField {
    /// `max_tokens`: what every server knows.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`: what OpenAI's reasoning models ask for.
    MaxCompletionTokens,
}

/// How the server is asked to say how many tokens each chunk holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenDetail {
    /// Not at all: only the usage at the end.
    #[default]
    None,
    /// `stream_options.continuous_usage_stats` (vLLM, SGLang): a running total on every chunk.
    ContinuousUsage,
    /// `return_token_ids` (vLLM, SGLang): the ids themselves, the exact count. The first chunk then repeats the whole
    /// prompt as ids, which a long prompt's time to the first token shows.
    TokenIds,
    /// `timings_per_token` (llama.cpp): a running total, with the server's own times.
    Timings,
}

/// The form of an answer to a free-form request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// By the content type.
    #[default]
    Auto,
    /// Server-sent events.
    Sse,
    /// A line of JSON an event.
    Ndjson,
    /// Bytes that mean something as they come: sound, logs.
    Bytes,
    /// One answer that means something when it is whole.
    Plain,
}

impl LimitField {
    /// Every choice, with its word.
    pub const ALL: [(&'static str, Self); 2] =
        [("max_tokens", Self::MaxTokens), ("max_completion_tokens", Self::MaxCompletionTokens)];
}

impl TokenDetail {
    /// Every choice, with its word.
    pub const ALL: [(&'static str, Self); 4] = [
        ("none", Self::None),
        ("continuous_usage", Self::ContinuousUsage),
        ("token_ids", Self::TokenIds),
        ("timings", Self::Timings),
    ];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, detail)| *detail == self).map_or("none", |(word, _)| word)
    }
}

impl AnswerForm {
    /// Every choice, with its word.
    pub const ALL: [(&'static str, Self); 5] = [
        ("auto", Self::Auto),
        ("sse", Self::Sse),
        ("ndjson", Self::Ndjson),
        ("bytes", Self::Bytes),
        ("plain", Self::Plain),
    ];
}

/// What a scenario says about the protocol. What it leaves open, the engine or the protocol decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProtocolOptions {
    /// The engine that answers: its preset decides what the other options leave open.
    pub engine: Option<Engine>,
    /// Force answers to their recorded length.
    pub force_length: Option<bool>,
    /// Under which name the cap on output tokens is sent.
    pub limit_field: Option<LimitField>,
    /// How the server is asked to say how many tokens each chunk holds.
    pub token_detail: Option<TokenDetail>,
    /// The version of the API in the path: `2024-10-21` for Azure, `v1beta` for Gemini.
    pub api_version: Option<String>,
    /// Send prompts as token ids: one a word.
    pub prompt_ids: bool,
    /// Let recorded bodies that ask for a stream ask for its usage too. Bodies that are made up always do.
    pub stream_usage: bool,
    /// The form of answers to free-form requests.
    pub answer: AnswerForm,
    /// Method of free-form requests whose row has none; `POST` without it.
    pub method: Option<String>,
    /// Path of free-form requests whose row has none.
    pub path: Option<String>,
    /// Body of free-form requests whose row has none: a text with places such as `{{prompt}}`.
    pub body: Option<String>,
}

/// Options that are whole and go together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled {
    /// See [`RenderRequest`](crate::RenderRequest).
    pub engine: Option<Engine>,
    /// See [`RenderRequest`](crate::RenderRequest).
    pub force_length: bool,
    /// See [`RenderRequest`](crate::RenderRequest).
    pub limit_field: LimitField,
    /// See [`RenderRequest`](crate::RenderRequest).
    pub token_detail: TokenDetail,
    /// `false` where deltas would be padded: byte counts then say something.
    pub include_obfuscation: Option<bool>,
    /// What of its usage a recorded body's stream is to report, where that is not left as recorded.
    pub recorded_usage: Option<TokenDetail>,
    /// The body of free-form requests.
    pub template: Option<Template>,
}

/// An option that does not go with the others, and what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {problem}")]
pub struct OptionError {
    /// The option, by its key in a scenario.
    pub option: &'static str,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl ProtocolOptions {
    /// Fills in what is left open.
    ///
    /// # Errors
    /// An option that the protocol or the engine does not know, or a body that is no template.
    pub fn settle(&self, provider: &dyn Provider) -> Result<Settled, OptionError> {
        let (name, knobs) = (provider.name(), provider.knobs());
        let preset = self.engine.map(Engine::preset);
        if let Some((engine, preset)) = self.engine.zip(preset)
            && !preset.protocols.contains(&name)
        {
            let problem = format!("{engine} does not speak {name}: take {}", preset.protocols.join(", "));
            return Err(OptionError { option: "engine", problem });
        }
        for (option, given, known, where_known) in [
            ("limit_field", self.limit_field.is_some(), knobs.limit_field, "openai-chat and azure-openai"),
            (
                "token_detail",
                self.token_detail.is_some_and(|detail| detail != TokenDetail::None),
                knobs.token_detail,
                "openai-chat and openai-completions",
            ),
            ("api_version", self.api_version.is_some(), knobs.api_version, "azure-openai and gemini"),
            ("prompt_ids", self.prompt_ids, knobs.prompt_ids, "openai-completions"),
            (
                "stream_usage",
                self.stream_usage,
                knobs.stream_usage,
                "openai-chat, openai-completions and azure-openai",
            ),
            ("answer", self.answer != AnswerForm::Auto, knobs.free_form, "http"),
            ("method", self.method.is_some(), knobs.free_form, "http"),
            ("path", self.path.is_some(), knobs.free_form, "http"),
            ("body", self.body.is_some(), knobs.free_form, "http"),
        ] {
            if given && !known {
                let problem = format!("{name} has no such option, only {where_known}: leave it out");
                return Err(OptionError { option, problem });
            }
        }
        let token_detail = self.detail(knobs)?;
        let settled = Settled {
            engine: self.engine,
            force_length: self.forced(provider)?,
            limit_field: self
                .limit_field
                .or(preset.and_then(|preset| preset.limit_field))
                .unwrap_or_default(),
            token_detail,
            recorded_usage: self.stream_usage.then_some(token_detail),
            include_obfuscation: preset.filter(|preset| preset.pads_deltas).map(|_| false),
            template: self.body.as_deref().map(Template::parse).transpose()?,
        };
        self.free_form()?;
        self.ids()?;
        Ok(settled)
    }

    fn forced(&self, provider: &dyn Provider) -> Result<bool, OptionError> {
        let refused = |problem: String| Err(OptionError { option: "lengths", problem });
        match (self.force_length, self.engine) {
            (Some(true), _) if !provider.knobs().force_length => {
                refused(format!("{} has no way to force a length: use `cap`", provider.name()))
            }
            (Some(true), Some(engine)) if !engine.preset().forces_length => {
                refused(format!("{engine} has no way to force a length: use `cap`"))
            }
            (Some(forced), _) => Ok(forced),
            (None, engine) => {
                Ok(provider.knobs().force_length && engine.is_none_or(|engine| engine.preset().forces_length))
            }
        }
    }

    fn detail(&self, knobs: Knobs) -> Result<TokenDetail, OptionError> {
        let preset = self.engine.map(Engine::preset);
        let Some(detail) = self.token_detail else {
            let usual = preset.filter(|_| knobs.token_detail).and_then(|preset| preset.token_details.first());
            return Ok(usual.copied().unwrap_or_default());
        };
        match self.engine.zip(preset) {
            Some((engine, preset))
                if detail != TokenDetail::None && !preset.token_details.contains(&detail) =>
            {
                let known: Vec<_> = preset.token_details.iter().map(|detail| detail.word()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let problem = format!("{engine} does not know {}: take {known}", detail.word());
                Err(OptionError { option: "token_detail", problem })
            }
            _ => Ok(detail),
        }
    }

    fn ids(&self) -> Result<(), OptionError> {
        match self.engine {
            Some(engine) if self.prompt_ids && !engine.preset().takes_ids => Err(OptionError {
                option: "prompt_ids",
                problem: format!("{engine} takes no token ids: leave it out"),
            }),
            _ => Ok(()),
        }
    }

    fn free_form(&self) -> Result<(), OptionError> {
        let wrong = |option, problem: String| Err(OptionError { option, problem });
        if let Some(path) = self.path.as_deref().filter(|path| !path.starts_with('/')) {
            return wrong("path", format!("{path:?} must begin with a slash"));
        }
        let token = |method: &str| !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
        if let Some(method) = self.method.as_deref().filter(|method| !token(method)) {
            return wrong("method", format!("{method:?} is no method: write it in capitals, such as POST"));
        }
        if let Some(version) = &self.api_version
            && (version.is_empty()
                || !version.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)))
        {
            return wrong(
                "api_version",
                format!("{version:?} is no version: letters, digits, dots and dashes only"),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
