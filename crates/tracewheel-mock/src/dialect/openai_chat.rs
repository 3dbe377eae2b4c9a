//! OpenAI's chat and legacy completions, with the fields that vLLM and SGLang add; read leniently.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Deserialize;

use super::{Asked, Dialect, Identity, quoted};
use crate::api::{ApiError, Ask, Content, Finish, Wanted, answer, json, served_model};
use crate::prompt::PromptHasher;
use crate::reply::{TailShape, Text, Token, Usage, Voice};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

/// Default answer length of the legacy completions route.
const COMPLETIONS_DEFAULT_MAX_TOKENS: u32 = 16;

/// `POST /v1/chat/completions` and `POST /v1/completions`.
pub(crate) struct OpenAi;

impl Dialect for OpenAi {
    fn paths(&self) -> &'static [&'static str] {
        &[CHAT, COMPLETIONS]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        let operation = if asked.path == CHAT { Operation::Chat } else { Operation::Completion };
        let (ask, voice) = read(operation, None, asked)?;
        Ok((ask, Box::new(voice)))
    }

    fn refusal(&self, error: &ApiError, _request_id: &str) -> String {
        error_json(error, error.code)
    }
}

/// Which of the two is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Chat,
    Completion,
}

/// Fields that both share.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Common<'a> {
    #[serde(borrow)]
    model: Option<Cow<'a, str>>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    min_tokens: Option<u32>,
    ignore_eos: Option<bool>,
    n: Option<u32>,
    #[serde(borrow)]
    cache_salt: Option<Cow<'a, str>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamOptions {
    include_usage: Option<bool>,
    continuous_usage_stats: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct ChatBody<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
}

#[derive(Debug, Deserialize)]
struct CompletionBody<'a> {
    #[serde(borrow)]
    prompt: CompletionPrompt<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum CompletionPrompt<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Ids(Vec<u32>),
    #[serde(borrow)]
    Texts(Vec<Cow<'a, str>>),
    IdLists(Vec<Vec<u32>>),
}

/// Reads a request; `model` of the path goes before that of the body.
pub(super) fn read(
    operation: Operation,
    model: Option<&str>,
    asked: &Asked<'_>,
) -> Result<(Ask, OpenAiVoice), ApiError> {
    let (body, config) = (asked.body, asked.config);
    let common: Common<'_> = json(body)?;
    let model = served_model(model.or(common.model.as_deref()), config)?;
    if common.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid(
            Some("n"),
            "this endpoint gives one choice: leave n out or set it to 1",
        ));
    }
    let salt = [model.as_str(), common.cache_salt.as_deref().unwrap_or_default()];
    let mut hasher = PromptHasher::new(config.cache.block_tokens, &salt);
    match operation {
        Operation::Chat => read_chat(body, &mut hasher)?,
        Operation::Completion => read_completion(body, &mut hasher)?,
    }
    let prompt = hasher.finish();
    let wanted = Wanted {
        cap_name: "max_tokens",
        cap: common.max_completion_tokens.or(common.max_tokens),
        default_cap: (operation == Operation::Completion).then_some(COMPLETIONS_DEFAULT_MAX_TOKENS),
        least: common.min_tokens,
        ignore_eos: common.ignore_eos.unwrap_or(false),
        thoughts: 0,
    };
    let answer = answer(&wanted, &prompt, config)?;
    let options = common.stream_options.unwrap_or_default();
    let ask = Ask { model, stream: common.stream.unwrap_or(false), prompt, answer };
    let voice = OpenAiVoice {
        operation,
        include_usage: options.include_usage.unwrap_or(false),
        usage_on_every_chunk: options.continuous_usage_stats.unwrap_or(false),
        filters: false,
        finish: answer.finish,
        head: head(operation, &ask, asked.identity),
    };
    Ok((ask, voice))
}

fn read_chat(body: &[u8], hasher: &mut PromptHasher) -> Result<(), ApiError> {
    let chat: ChatBody<'_> = json(body)?;
    if chat.messages.is_empty() {
        return Err(ApiError::invalid(Some("messages"), "messages must not be empty"));
    }
    chat.messages
        .iter()
        .filter_map(|message| message.content.as_ref())
        .for_each(|content| content.hash(hasher));
    Ok(())
}

fn read_completion(body: &[u8], hasher: &mut PromptHasher) -> Result<(), ApiError> {
    let completion: CompletionBody<'_> = json(body)?;
    let one = || ApiError::invalid(Some("prompt"), "this endpoint takes one prompt a request");
    match completion.prompt {
        CompletionPrompt::Text(text) => hasher.text(&text),
        CompletionPrompt::Ids(ids) => ids.into_iter().for_each(|id| hasher.token_id(id)),
        CompletionPrompt::Texts(texts) => match texts.as_slice() {
            [text] => hasher.text(text),
            _ => return Err(one()),
        },
        CompletionPrompt::IdLists(lists) => match lists.as_slice() {
            [ids] => ids.iter().for_each(|id| hasher.token_id(*id)),
            _ => return Err(one()),
        },
    }
    Ok(())
}

/// What every chunk begins with, up to the choices.
fn head(operation: Operation, ask: &Ask, identity: Identity<'_>) -> String {
    let (id, object) = match (operation, ask.stream) {
        (Operation::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
        (Operation::Chat, false) => ("chatcmpl", "chat.completion"),
        (Operation::Completion, _) => ("cmpl", "text_completion"),
    };
    let Identity { number, created_s, fingerprint } = identity;
    let model = quoted(&ask.model);
    format!(
        r#"{{"id":"{id}-{number:016x}","object":"{object}","created":{created_s},"model":{model},"system_fingerprint":"{fingerprint}","choices":"#
    )
}

/// An answer in chunks, or as one object.
pub(super) struct OpenAiVoice {
    operation: Operation,
    include_usage: bool,
    usage_on_every_chunk: bool,
    /// As Azure says it: what its filters found stands beside the output.
    pub(super) filters: bool,
    finish: Finish,
    head: String,
}

impl Voice for OpenAiVoice {
    fn opens_early(&self) -> bool {
        self.filters
    }

    /// A delta of a chat that carries nothing but the role; before it what Azure's filters found in the prompt.
    fn opening(&mut self, usage: Usage) -> Option<String> {
        let found = if self.filters { format!("data: {PROMPT_FILTERED}\n\n") } else { String::new() };
        let role = match self.operation {
            Operation::Chat => {
                self.chunk(r#""delta":{"role":"assistant","content":""}"#, "null", Some(usage))
            }
            Operation::Completion => String::new(),
        };
        Some(found + &role).filter(|opening| !opening.is_empty())
    }

    fn token(&mut self, token: Token<'_>) -> String {
        let text = token.text;
        let delta = match self.operation {
            Operation::Chat => format!(r#""delta":{{"content":"{text}"}}"#),
            Operation::Completion => format!(r#""text":"{text}""#),
        };
        self.chunk(&delta, "null", token.usage)
    }

    /// The finish reason, usage if asked for, the end marker.
    fn tail(&mut self, usage: Usage, shape: TailShape) -> String {
        let delta = match self.operation {
            Operation::Chat => r#""delta":{}"#,
            Operation::Completion => r#""text":"""#,
        };
        let reason = quoted(finish_reason(self.finish));
        let mut out = self.chunk(delta, &reason, shape.usage.then_some(usage));
        if self.include_usage && shape.usage {
            write!(out, "data: {}[],\"usage\":{}}}\n\n", self.head, usage_json(usage)).expect(INFALLIBLE);
        }
        if shape.done {
            out.push_str("data: [DONE]\n\n");
        }
        out
    }

    /// The status stands as the error's code: there is no status line for it.
    fn failure(&mut self, error: &ApiError) -> String {
        format!("data: {}\n\n", error_json(error, error.status))
    }

    fn whole(&mut self, text: &Text, usage: Usage) -> String {
        let text = &text.answer;
        let reason = finish_reason(self.finish);
        let choice = match self.operation {
            Operation::Chat => format!(r#""message":{{"role":"assistant","content":"{text}"}}"#),
            Operation::Completion => format!(r#""text":"{text}""#),
        };
        let (found, prompt_found) = if self.filters {
            let results =
                format!(r#","prompt_filter_results":[{{"prompt_index":0,"content_filter_results":{SAFE}}}]"#);
            (format!(r#","content_filter_results":{SAFE}"#), results)
        } else {
            (String::new(), String::new())
        };
        format!(
            r#"{}[{{"index":0,{choice},"logprobs":null,"finish_reason":"{reason}"{found}}}]{prompt_found},"usage":{}}}"#,
            self.head,
            usage_json(usage)
        )
    }
}

impl OpenAiVoice {
    fn chunk(&self, delta: &str, reason: &str, usage: Option<Usage>) -> String {
        let mut out = String::with_capacity(self.head.len() + delta.len() + 96);
        write!(out, "data: {}[{{\"index\":0,{delta},\"logprobs\":null,\"finish_reason\":{reason}", self.head)
            .expect(INFALLIBLE);
        if self.filters {
            write!(out, ",\"content_filter_results\":{{}}").expect(INFALLIBLE);
        }
        out.push_str("}]");
        match usage {
            Some(usage) if self.usage_on_every_chunk => {
                write!(out, ",\"usage\":{}", usage_json(usage)).expect(INFALLIBLE);
            }
            // With usage asked for, all chunks but its own say null.
            _ if self.include_usage => out.push_str(",\"usage\":null"),
            _ => {}
        }
        out.push_str("}\n\n");
        out
    }
}

const INFALLIBLE: &str = "writing to a string cannot fail";

/// What Azure's filters say of harmless text.
const SAFE: &str = r#"{"hate":{"filtered":false,"severity":"safe"},"self_harm":{"filtered":false,"severity":"safe"},"sexual":{"filtered":false,"severity":"safe"},"violence":{"filtered":false,"severity":"safe"}}"#;

/// Azure's first chunk: nothing but what its filters found in the prompt.
const PROMPT_FILTERED: &str = concat!(
    r#"{"choices":[],"created":0,"id":"","model":"","object":"","prompt_filter_results":[{"prompt_index":0,"content_filter_results":"#,
    r#"{"hate":{"filtered":false,"severity":"safe"},"self_harm":{"filtered":false,"severity":"safe"},"sexual":{"filtered":false,"severity":"safe"},"violence":{"filtered":false,"severity":"safe"}}}]}"#
);

/// The body of a refusal, with whatever stands for its code.
pub(super) fn error_json(error: &ApiError, code: impl Into<serde_json::Value>) -> String {
    serde_json::json!({
        "error": { "message": error.message, "type": error.kind, "param": error.param, "code": code.into() }
    })
    .to_string()
}

fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}

fn usage_json(usage: Usage) -> String {
    let Usage { prompt_tokens, cached_tokens, completion_tokens, .. } = usage;
    let total = u64::from(prompt_tokens) + u64::from(completion_tokens);
    format!(
        r#"{{"prompt_tokens":{prompt_tokens},"completion_tokens":{completion_tokens},"total_tokens":{total},"prompt_tokens_details":{{"cached_tokens":{cached_tokens}}}}}"#
    )
}

#[cfg(test)]
mod tests;
