//! What a client may ask for: the OpenAI request bodies, read leniently, refused in OpenAI's words.

use std::borrow::Cow;

use serde::Deserialize;

use crate::config::MockConfig;
use crate::engine::chance::{Chance, Draw};
use crate::prompt::{Prompt, PromptHasher};

/// Default answer length of the legacy completions route.
const COMPLETIONS_DEFAULT_MAX_TOKENS: u32 = 16;

/// Which route was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Chat,
    Completion,
}

/// Why an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop,
    Length,
}

impl Finish {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
        }
    }
}

/// A request that can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) operation: Operation,
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) usage_on_every_chunk: bool,
    pub(crate) prompt: Prompt,
    pub(crate) answer: Answer,
}

/// How long an answer will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) tokens: u32,
    pub(crate) cap: u32,
    pub(crate) finish: Finish,
}

/// A request that can't be served, in OpenAI's shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
    pub(crate) param: Option<&'static str>,
    pub(crate) message: String,
}

impl ApiError {
    pub(crate) fn invalid(param: Option<&'static str>, message: impl Into<String>) -> Self {
        Self { status: 400, kind: "invalid_request_error", code: None, param, message: message.into() }
    }

    /// The body of the error answer.
    pub(crate) fn to_json(&self) -> String {
        serde_json::json!({
            "error": { "message": self.message, "type": self.kind, "param": self.param, "code": self.code }
        })
        .to_string()
    }

    /// As [`Self::to_json`], with the status as the error's code: for an error that has no status line to stand in.
    pub(crate) fn to_json_with_status(&self) -> String {
        serde_json::json!({
            "error": { "message": self.message, "type": self.kind, "param": self.param, "code": self.status }
        })
        .to_string()
    }
}

/// Fields that both routes share.
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
#[serde(untagged)]
enum Content<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    #[serde(borrow)]
    Parts(Vec<Part<'a>>),
}

/// A part of a message; what is not text has no tokens here.
#[derive(Debug, Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
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

/// Reads a request body.
pub(crate) fn parse(operation: Operation, body: &[u8], config: &MockConfig) -> Result<Ask, ApiError> {
    let common: Common<'_> = json(body)?;
    let model = served_model(common.model.as_deref(), config)?;
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
    let answer = answer(operation, &common, &prompt, config)?;
    let options = common.stream_options.unwrap_or_default();
    Ok(Ask {
        operation,
        model,
        stream: common.stream.unwrap_or(false),
        include_usage: options.include_usage.unwrap_or(false),
        usage_on_every_chunk: options.continuous_usage_stats.unwrap_or(false),
        prompt,
        answer,
    })
}

fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::invalid(None, format!("the request body can't be read: {error}")))
}

fn served_model(asked: Option<&str>, config: &MockConfig) -> Result<String, ApiError> {
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

fn read_chat(body: &[u8], hasher: &mut PromptHasher) -> Result<(), ApiError> {
    let chat: ChatBody<'_> = json(body)?;
    if chat.messages.is_empty() {
        return Err(ApiError::invalid(Some("messages"), "messages must not be empty"));
    }
    for message in &chat.messages {
        match &message.content {
            None => {}
            Some(Content::Text(text)) => hasher.text(text),
            Some(Content::Parts(parts)) => {
                parts.iter().filter_map(|part| part.text.as_deref()).for_each(|text| hasher.text(text));
            }
        }
    }
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

/// The answer's length: the natural one, raised to `min_tokens`, cut at the cap; the cap itself with `ignore_eos`.
fn answer(
    operation: Operation,
    common: &Common<'_>,
    prompt: &Prompt,
    config: &MockConfig,
) -> Result<Answer, ApiError> {
    let context = config.engine.max_context_tokens;
    let asked = common.max_completion_tokens.or(common.max_tokens);
    let room = context.saturating_sub(prompt.tokens);
    let default = match operation {
        Operation::Chat => room,
        Operation::Completion => COMPLETIONS_DEFAULT_MAX_TOKENS.min(room),
    };
    let cap = asked.unwrap_or(default);
    if asked == Some(0) {
        return Err(ApiError::invalid(Some("max_tokens"), "max_tokens must be at least 1"));
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
    let least = common.min_tokens.unwrap_or(0);
    if least > cap {
        return Err(ApiError::invalid(
            Some("min_tokens"),
            format!("min_tokens is {least}, but the answer ends at {cap}"),
        ));
    }
    if common.ignore_eos.unwrap_or(false) {
        return Ok(Answer { tokens: cap, cap, finish: Finish::Length });
    }
    let mean = config.engine.natural_output_tokens;
    let natural = Chance::new(config.seed).between(
        Draw::OutputLength,
        prompt.digest,
        mean.div_ceil(2),
        mean.saturating_add(mean / 2),
    );
    let wanted = natural.max(least);
    let finish = if wanted > cap { Finish::Length } else { Finish::Stop };
    Ok(Answer { tokens: wanted.min(cap), cap, finish })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> Result<Ask, ApiError> {
        parse(Operation::Chat, body.as_bytes(), &MockConfig::default())
    }

    fn completion(body: &str) -> Result<Ask, ApiError> {
        parse(Operation::Completion, body.as_bytes(), &MockConfig::default())
    }

    #[test]
    fn a_chat_prompt_is_the_words_of_all_messages() {
        let ask = chat(
            r#"{"model":"m","messages":[{"role":"system","content":"be brief"},
            {"role":"user","content":[{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"u"}}]},
            {"role":"assistant","content":null},{"role":"user"}],"stream":true,"temperature":0.5}"#,
        )
        .unwrap();
        assert_eq!((ask.prompt.tokens, ask.stream, ask.include_usage), (4, true, false));
    }

    #[test]
    fn a_completion_prompt_may_be_text_or_token_numbers() {
        let tokens = |prompt: &str| {
            completion(&format!(r#"{{"model":"m","prompt":{prompt}}}"#)).map(|ask| ask.prompt.tokens)
        };
        assert_eq!(tokens(r#""a b c""#), Ok(3));
        assert_eq!(tokens(r#"["a b"]"#), Ok(2));
        assert_eq!(tokens("[5,6,7]"), Ok(3));
        assert_eq!(tokens("[[5,6]]"), Ok(2));
        assert_eq!(tokens(r#"["a","b"]"#).unwrap_err().status, 400);
    }

    #[test]
    fn lengths_can_be_forced() {
        let answer = |rest: &str| {
            chat(&format!(r#"{{"model":"m","messages":[{{"content":"hello"}}]{rest}}}"#))
                .map(|ask| ask.answer)
        };
        let forced = Answer { tokens: 7, cap: 7, finish: Finish::Length };
        assert_eq!(answer(r#","max_tokens":7,"ignore_eos":true"#), Ok(forced));
        assert_eq!(answer(r#","max_completion_tokens":7,"max_tokens":9,"ignore_eos":true"#), Ok(forced));
        assert_eq!(answer(r#","max_tokens":7,"min_tokens":7"#).unwrap().tokens, 7);
        // Naturally 100 to 300 here, so 7 cuts it and 1,000 does not.
        assert_eq!(answer(r#","max_tokens":7"#), Ok(forced));
        let natural = answer(r#","max_tokens":1000"#).unwrap();
        assert!((100..=300).contains(&natural.tokens) && natural.finish == Finish::Stop);
        assert_eq!(answer("").unwrap().tokens, natural.tokens);
        assert_eq!(answer(r#","max_tokens":1000,"min_tokens":500"#).unwrap().tokens, 500);
    }

    #[test]
    fn completions_end_after_sixteen_tokens_unless_told() {
        let ask = completion(r#"{"model":"m","prompt":"x"}"#).unwrap();
        assert_eq!(ask.answer, Answer { tokens: 16, cap: 16, finish: Finish::Length });
    }

    #[test]
    fn impossible_requests_are_refused() {
        let refused = |body: &str| chat(body).unwrap_err();
        assert!(refused("{").message.contains("can't be read"));
        assert_eq!(refused(r#"{"messages":[]}"#).param, Some("model"));
        assert_eq!(refused(r#"{"model":"m","messages":[]}"#).param, Some("messages"));
        assert_eq!(refused(r#"{"model":"m","messages":[{}],"n":2}"#).param, Some("n"));
        assert_eq!(refused(r#"{"model":"m","messages":[{}],"max_tokens":0}"#).param, Some("max_tokens"));
        assert_eq!(
            refused(r#"{"model":"m","messages":[{}],"max_tokens":2,"min_tokens":3}"#).param,
            Some("min_tokens")
        );
        let too_long = refused(r#"{"model":"m","messages":[{"content":"x"}],"max_tokens":131072}"#);
        assert_eq!(too_long.code, Some("context_length_exceeded"));
    }

    #[test]
    fn only_configured_models_are_served() {
        let config = MockConfig { models: vec!["a".into()], ..MockConfig::default() };
        let ask = |body: &str| parse(Operation::Chat, body.as_bytes(), &config);
        assert!(ask(r#"{"model":"a","messages":[{}]}"#).is_ok());
        let error = ask(r#"{"model":"b","messages":[{}]}"#).unwrap_err();
        assert_eq!((error.status, error.code), (404, Some("model_not_found")));
        assert!(error.to_json().contains(r#""type":"invalid_request_error""#));
    }

    #[test]
    fn a_cache_salt_separates_equal_prompts() {
        let blocks = |salt: &str| {
            let words = "w ".repeat(20);
            chat(&format!(r#"{{"model":"m","messages":[{{"content":"{words}"}}],"cache_salt":"{salt}"}}"#))
                .unwrap()
                .prompt
                .blocks
        };
        assert_eq!(blocks("a"), blocks("a"));
        assert_ne!(blocks("a"), blocks("b"));
    }
}
