//! The trait of a provider, and what a request to one is made of.

use std::borrow::Cow;
use std::fmt;

use tracewheel_timeline::vocab::Operation;

use crate::conversation::{Chat, Turn};
use crate::http::Template;
use crate::options::{AnswerForm, Engine, LimitField, TokenDetail};
use crate::{Decoder, ResponseHead};

/// One wire protocol: how a request of it is written and how an answer of it is read.
pub trait Provider: fmt::Debug + Send + Sync {
    /// The name in scenarios, manifests and the provider table, for example `openai-chat`.
    fn name(&self) -> &'static str;

    /// The operation that it serves.
    fn operation(&self) -> Operation;

    /// The path as documents name it, with its leading slash.
    fn endpoint(&self) -> &'static str;

    /// Which options of [`ProtocolOptions`](crate::ProtocolOptions) mean something to it.
    fn knobs(&self) -> Knobs {
        Knobs::default()
    }

    /// The protocol that carries the embeddings of a mixed timeline, with the same key and to the same target.
    fn embeddings(&self) -> Option<&'static dyn Provider> {
        None
    }

    /// How it writes a conversation down, for protocols that can carry one: earlier answers as messages of their own.
    fn chat(&self) -> Option<Chat> {
        None
    }

    /// Whether its answers can be asked for as a stream.
    fn streams(&self) -> bool {
        true
    }

    /// Whether an output event of its streams is about a token, so that events stand in for a count that is missing.
    fn events_are_tokens(&self) -> bool {
        true
    }

    /// The path that is appended to a target's base address, with its query: where it depends on nothing, the
    /// [`endpoint`](Self::endpoint) itself. Always the path of a URL, whatever the model's name holds.
    fn path<'a>(&self, _place: &Place<'a>) -> Cow<'a, str> {
        Cow::Borrowed(self.endpoint())
    }

    /// Writes the request body into `out`, which is cleared first and keeps its capacity.
    ///
    /// The same request gives the same bytes, always: keys stand in a fixed order and text is escaped as
    /// `serde_json` does it. Nothing is allocated besides `out` unless recorded `params` are given.
    fn render(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>);

    /// The fixed request headers, in lower case, for a streamed or a plain answer. Encodings are refused
    /// (`accept-encoding: identity`), because a compressing layer turns a stream into bursts.
    fn headers(&self, stream: bool) -> &'static [(&'static str, &'static str)] {
        if stream { STREAM_HEADERS } else { PLAIN_HEADERS }
    }

    /// The header that carries `key`: its name in lower case and its whole value. The value is a secret. Usually a
    /// bearer token.
    fn key_header(&self, key: &str) -> (&'static str, String) {
        ("authorization", format!("Bearer {key}"))
    }

    /// A decoder for one answer that began with `head`.
    fn decoder(&self, head: &ResponseHead<'_>) -> Box<dyn Decoder + Send>;

    /// As [`decoder`](Self::decoder), where the form of answers was chosen; for protocols that have one form it says
    /// nothing.
    fn decoder_of(&self, head: &ResponseHead<'_>, _form: AnswerForm) -> Box<dyn Decoder + Send> {
        self.decoder(head)
    }
}

const STREAM_HEADERS: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "text/event-stream"), ("accept-encoding", "identity")];

const PLAIN_HEADERS: &[(&str, &str)] =
    &[("content-type", "application/json"), ("accept", "application/json"), ("accept-encoding", "identity")];

/// The protocol that carries a request of `operation` where a run speaks `main`: any text can be asked for as a chat or a
/// completion, embeddings go to the protocol's own route for them, and only `http` carries other requests.
pub fn carrier(main: &'static dyn Provider, operation: Operation) -> Option<&'static dyn Provider> {
    match (main.operation(), operation) {
        (Operation::Http, _) => Some(main),
        (of_main, _) if of_main == operation => Some(main),
        (_, Operation::Http) | (Operation::Embeddings, _) => None,
        (_, Operation::Embeddings) => main.embeddings(),
        _ => Some(main),
    }
}

/// Which options mean something to a protocol; see [`ProtocolOptions`](crate::ProtocolOptions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// The cap on output tokens has two names.
    pub limit_field: bool,
    /// Chunks can say how many tokens they hold, where the engine does so.
    pub token_detail: bool,
    /// Fields that force an answer's length can be sent, for engines that obey them.
    pub force_length: bool,
    /// Its path has a version in it.
    pub api_version: bool,
    /// A prompt can be a list of token ids.
    pub prompt_ids: bool,
    /// Bodies name the model, in the field `model`.
    pub model_in_body: bool,
    /// Streams report their usage where the field `stream_options` asks for it.
    pub stream_usage: bool,
    /// Method, path and body come from the timeline or the options, and the form of answers may be chosen.
    pub free_form: bool,
}

/// What a path may depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// The model that is asked for.
    pub model: &'a str,
    /// A streamed answer is asked for.
    pub stream: bool,
    /// The path that the timeline recorded, else the one that the options name.
    pub recorded: Option<&'a str>,
    /// The version of the API that the options name.
    pub api_version: Option<&'a str>,
}

/// What one request says. Everything is borrowed; building it costs nothing.
#[derive(Clone, Copy, Debug)]
pub struct RenderRequest<'a> {
    /// The model that the target knows.
    pub model: &'a str,
    /// The whole prompt. A chat request sends it as one user message.
    pub prompt: &'a str,
    /// What was said before it, for protocols that have a [`chat`](Provider::chat).
    pub turns: &'a [Turn<'a>],
    /// The cap on output tokens.
    pub max_tokens: u32,
    /// Under which name the cap is sent.
    pub limit_field: LimitField,
    /// Ask for a streamed answer.
    pub stream: bool,
    /// Make the output exactly `max_tokens` long: sends `ignore_eos` and, unless the engine is known to have none,
    /// `min_tokens`. Hosted APIs refuse both.
    pub force_length: bool,
    /// The engine that answers, where it is known.
    pub engine: Option<Engine>,
    /// The prompt as token ids, for protocols that take them; it wins over [`prompt`](Self::prompt).
    pub prompt_ids: Option<&'a [u32]>,
    /// The body of a free-form request; without one it is empty.
    pub template: Option<&'a Template>,
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
            turns: &[],
            max_tokens: 1,
            limit_field: LimitField::MaxTokens,
            stream: true,
            force_length: false,
            engine: None,
            prompt_ids: None,
            template: None,
            token_detail: TokenDetail::None,
            temperature: 0.0,
            params: None,
            cache_salt: None,
            include_obfuscation: None,
        }
    }
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
