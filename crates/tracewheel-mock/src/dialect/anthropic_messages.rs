//! Anthropic's Messages: named events, content in blocks, thinking if asked for, cached tokens counted apart.

use std::borrow::Cow;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, BudgetLeft, Dialect, ceil_div, insert, named_event};
use crate::api::{self, ApiError, Ask, Content, Finish, Wanted, answer, served_model};
use crate::prompt::PromptHasher;
use crate::reply::{TailShape, Text, Token, Usage, Voice};

/// `POST /v1/messages`.
pub(crate) struct AnthropicMessages;

/// The status of an endpoint that has no room.
const OVERLOADED: u16 = 529;

impl Dialect for AnthropicMessages {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/messages"]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        let (ask, voice) = read(asked)?;
        Ok((ask, Box::new(voice)))
    }

    fn key_headers(&self) -> &'static [&'static str] {
        &["x-api-key", "authorization"]
    }

    fn id_header(&self) -> HeaderName {
        HeaderName::from_static("request-id")
    }

    fn status(&self, error: &ApiError) -> u16 {
        if error.code == Some("queue_full") { OVERLOADED } else { error.status }
    }

    fn refusal(&self, error: &ApiError, request_id: &str) -> String {
        let kind = kind_of(self.status(error));
        json!({ "type": "error", "error": { "type": kind, "message": error.message }, "request_id": request_id })
            .to_string()
    }

    /// In whole seconds, and nothing finer.
    fn add_wait(&self, headers: &mut HeaderMap, ns: i64) {
        headers.insert(RETRY_AFTER, HeaderValue::from(ceil_div(ns, 1_000_000_000)));
    }

    fn add_budget(&self, headers: &mut HeaderMap, budget: &BudgetLeft) {
        let what = budget.what;
        insert(headers, format!("anthropic-ratelimit-{what}-limit"), budget.limit.to_string());
        insert(headers, format!("anthropic-ratelimit-{what}-remaining"), budget.left.to_string());
        insert(headers, format!("anthropic-ratelimit-{what}-reset"), budget.full_at());
    }
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    max_tokens: Option<u32>,
    #[serde(borrow, default)]
    system: Option<Content<'a>>,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    stream: Option<bool>,
    #[serde(borrow, default)]
    thinking: Option<Thinking<'a>>,
}

#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
}

#[derive(Debug, Deserialize)]
struct Thinking<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    budget_tokens: Option<u32>,
}

impl Thinking<'_> {
    /// Tokens that may be thoughts; adaptive thinking has no budget.
    fn budget(&self) -> u32 {
        if self.kind == "disabled" { 0 } else { self.budget_tokens.unwrap_or(u32::MAX) }
    }
}

fn read(asked: &Asked<'_>) -> Result<(Ask, MessagesVoice), ApiError> {
    if !asked.headers.contains_key("anthropic-version") {
        return Err(ApiError::invalid(None, "anthropic-version: header is required"));
    }
    super::refuse_foreign(asked.body, false, |name| format!("{name}: extra inputs are not permitted"))?;
    let body: Body<'_> = api::json(asked.body)?;
    let model = served_model(body.model.as_deref(), asked.config)?;
    if body.max_tokens.is_none() {
        return Err(ApiError::invalid(Some("max_tokens"), "max_tokens: field required"));
    }
    if body.messages.is_empty() {
        return Err(ApiError::invalid(Some("messages"), "messages: at least one message is required"));
    }
    let mut hasher = PromptHasher::new(asked.config.cache.block_tokens, &[&model, ""]);
    let messages = body.messages.iter().filter_map(|message| message.content.as_ref());
    body.system.iter().chain(messages).for_each(|content| content.hash(&mut hasher));
    let prompt = hasher.finish();
    let wanted = Wanted {
        cap_name: "max_tokens",
        cap: body.max_tokens,
        thoughts: body.thinking.as_ref().map_or(0, Thinking::budget),
        ..Wanted::default()
    };
    let answer = answer(&wanted, &prompt, asked.config)?;
    let ask = Ask { model, stream: body.stream.unwrap_or(false), prompt, answer };
    let voice = MessagesVoice {
        id: format!("msg_{:016x}", asked.identity.number),
        model: ask.model.clone(),
        finish: answer.finish,
        thinks: answer.thoughts > 0,
        block: 0,
    };
    Ok((ask, voice))
}

/// One message, in events or whole.
struct MessagesVoice {
    id: String,
    model: String,
    finish: Finish,
    thinks: bool,
    /// The block that is open.
    block: u32,
}

impl Voice for MessagesVoice {
    fn opens_early(&self) -> bool {
        true
    }

    /// The message's beginning, that of its first block, and a ping.
    fn opening(&mut self, usage: Usage) -> Option<String> {
        let message = self.message(Vec::new(), None, usage_json(Usage { completion_tokens: 1, ..usage }));
        let start = named_event("message_start", json!({ "type": "message_start", "message": message }));
        let block = if self.thinks { thinking("") } else { text("") };
        let ping = named_event("ping", json!({ "type": "ping" }));
        Some(start + &self.block_start(&block) + &ping)
    }

    fn token(&mut self, token: Token<'_>) -> String {
        let mut out = String::new();
        if !token.thought && self.thinks && self.block == 0 {
            out += &self.delta(r#"{"type":"signature_delta","signature":"bW9jaw=="}"#);
            out += &self.block_stop();
            self.block = 1;
            out += &self.block_start(&text(""));
        }
        let text = token.text;
        let delta = if token.thought {
            format!(r#"{{"type":"thinking_delta","thinking":"{text}"}}"#)
        } else {
            format!(r#"{{"type":"text_delta","text":"{text}"}}"#)
        };
        out + &self.delta(&delta)
    }

    fn tail(&mut self, usage: Usage, shape: TailShape) -> String {
        let delta = json!({ "stop_reason": self.stop_reason(), "stop_sequence": null });
        let mut fields = json!({ "type": "message_delta", "delta": delta });
        if shape.usage {
            fields["usage"] = usage_json(usage);
        }
        let mut out = self.block_stop() + &named_event("message_delta", fields);
        if shape.done {
            out += &named_event("message_stop", json!({ "type": "message_stop" }));
        }
        out
    }

    fn failure(&mut self, error: &ApiError) -> String {
        let error = json!({ "type": kind_of(error.status), "message": error.message });
        named_event("error", json!({ "type": "error", "error": error }))
    }

    fn whole(&mut self, said: &Text, usage: Usage) -> String {
        let thoughts = self.thinks.then(|| {
            let mut block = thinking(&said.thoughts);
            block["signature"] = "bW9jaw==".into();
            block
        });
        let content = thoughts.into_iter().chain([text(&said.answer)]).collect();
        self.message(content, Some(self.stop_reason()), usage_json(usage)).to_string()
    }
}

impl MessagesVoice {
    fn message(&self, content: Vec<Value>, stop_reason: Option<&str>, usage: Value) -> Value {
        json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop_reason, "stop_sequence": null, "usage": usage
        })
    }

    fn stop_reason(&self) -> &'static str {
        match self.finish {
            Finish::Stop => "end_turn",
            Finish::Length => "max_tokens",
        }
    }

    fn block_start(&self, block: &Value) -> String {
        named_event(
            "content_block_start",
            json!({ "type": "content_block_start", "index": self.block, "content_block": block }),
        )
    }

    fn delta(&self, delta: &str) -> String {
        let index = self.block;
        named_event(
            "content_block_delta",
            format_args!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#),
        )
    }

    fn block_stop(&self) -> String {
        named_event("content_block_stop", json!({ "type": "content_block_stop", "index": self.block }))
    }
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn thinking(text: &str) -> Value {
    json!({ "type": "thinking", "thinking": text, "signature": "" })
}

/// Input that was read from the cache or written to it stands apart from the rest.
fn usage_json(usage: Usage) -> Value {
    let rest = usage.prompt_tokens.saturating_sub(usage.cached_tokens).saturating_sub(usage.written_tokens);
    json!({
        "input_tokens": rest,
        "cache_creation_input_tokens": usage.written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.written_tokens, "ephemeral_1h_input_tokens": 0
        },
        "output_tokens": usage.completion_tokens,
        "service_tier": "standard"
    })
}

/// The name of an error, which goes by its status.
fn kind_of(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        OVERLOADED => "overloaded_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}
