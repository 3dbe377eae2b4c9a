//! The trait of a provider, and what a request to one is made of.

use std::borrow::Cow;

use tracewheel_timeline::vocab::Operation;

use crate::{Decoder, ResponseHead};

/// One wire protocol: how a request of it is written and how an answer of it is read.
pub trait Provider: Send + Sync {
    /// The name in scenarios, manifests and the provider table, for example `openai-chat`.
    fn name(&self) -> &'static str;

    /// The operation that it serves.
    fn operation(&self) -> Operation;

    /// The path as documents name it, with its leading slash.
    fn endpoint(&self) -> &'static str;

    /// The path that is appended to a target's base address, with its query: where it depends on nothing, the
    /// [`endpoint`](Self::endpoint) itself. Always the path of a URL, whatever the model's name holds.
    fn path(&self, _model: &str, _stream: bool) -> Cow<'static, str> {
        self.endpoint().into()
    }

    /// Writes the request body into `out`, which is cleared first and keeps its capacity.
    ///
    /// The same request gives the same bytes, always: keys stand in a fixed order and text is escaped as
    /// `serde_json` does it. Nothing is allocated besides `out` unless recorded `params` are given.
    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>);

    /// The fixed request headers, in lower case, for a streamed or a plain answer. Encodings are refused
    /// (`accept-encoding: identity`), because a compressing layer turns a stream into bursts.
    fn headers(&self, stream: bool) -> &'static [(&'static str, &'static str)];

    /// The header that carries `key`: its name in lower case and its whole value. The value is a secret.
    fn key_header(&self, key: &str) -> (&'static str, String);

    /// A decoder for one answer that began with `head`.
    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send>;
}

/// What one request says. Everything is borrowed; building it costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct RenderRequest<'a> {
    /// The model that the target knows.
    pub model: &'a str,
    /// The whole prompt. A chat request sends it as one user message.
    pub prompt: &'a str,
    /// The cap on output tokens.
    pub max_tokens: u32,
    /// Under which name the cap is sent.
    pub limit_field: LimitField,
    /// Ask for a streamed answer.
    pub stream: bool,
    /// Make the output exactly `max_tokens` long: sends `ignore_eos` and `min_tokens`, which vLLM and SGLang know
    /// and the hosted APIs refuse.
    pub force_length: bool,
    /// How the server shall say how many tokens a chunk holds.
    pub token_detail: TokenDetail,
    /// Sampling temperature, sent always: servers put their model's own default in the place of a missing one. A
    /// temperature in `params` wins over it. Must be finite.
    pub temperature: f64,
    /// The recorded sampling parameters (a JSON object as the timeline keeps it). Only numbers that change neither
    /// length nor form of the answer are taken over: `temperature`, `top_p`, `top_k`, `seed`, `presence_penalty`,
    /// `frequency_penalty`. Text that is no JSON object counts as none.
    pub params: Option<&'a str>,
    /// `cache_salt` of vLLM and SGLang: keeps the prefix caches of two runs apart and leaves the prompt as it is.
    /// At most 128 characters of hexadecimal or base64url.
    pub cache_salt: Option<&'a str>,
    /// Whether OpenAI may pad its deltas to hide their lengths; `None` sends nothing, which leaves it to the server.
    pub include_obfuscation: Option<bool>,
}

impl Default for RenderRequest<'_> {
    /// An empty, streamed request at temperature 0 for one token.
    fn default() -> Self {
        RenderRequest {
            model: "",
            prompt: "",
            max_tokens: 1,
            limit_field: LimitField::MaxTokens,
            stream: true,
            force_length: false,
            token_detail: TokenDetail::None,
            temperature: 0.0,
            params: None,
            cache_salt: None,
            include_obfuscation: None,
        }
    }
}

/// The name under which the cap on output tokens is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitField {
    /// `max_tokens`: what every server knows.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`: what OpenAI's reasoning models ask for. The completions protocol has no such field
    /// and sends `max_tokens`.
    MaxCompletionTokens,
}

/// How the server is asked to say how many tokens each chunk holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenDetail {
    /// Not at all: only the usage at the end.
    #[default]
    None,
    /// `stream_options.continuous_usage_stats` (vLLM, SGLang): a running total on every chunk.
    ContinuousUsage,
    /// `return_token_ids` (vLLM, SGLang): the ids themselves, the exact count.
    TokenIds,
}

/// Longest model in a path; no server knows a longer one.
const MODEL_BYTES: usize = 512;

/// A model as part of a path: what could end or change the path is escaped.
pub(crate) fn in_path(model: &str) -> String {
    let mut escaped = String::with_capacity(model.len());
    for byte in model.bytes().take(MODEL_BYTES) {
        if byte.is_ascii_alphanumeric() || b"-._~@/".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_cannot_change_the_path_that_it_stands_in() {
        assert_eq!(in_path("models/g-3.5_x"), "models/g-3.5_x");
        assert_eq!(in_path("a b?c#d:e%"), "a%20b%3Fc%23d%3Ae%25");
        assert_eq!(in_path("\u{e9}"), "%C3%A9");
    }
}
