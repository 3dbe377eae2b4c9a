//! OpenAI's Responses: named events that count up, the answer as items with parts, no end marker but the last response.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::openai_chat::error_json;
use super::{Asked, Dialect, named_event};
use crate::api::{self, ApiError, Ask, Content, Finish, Wanted, answer, served_model};
use crate::prompt::PromptHasher;
use crate::reply::{TailShape, Text, Token, Usage, Voice};

/// `POST /v1/responses`.
pub(crate) struct OpenAiResponses;

/// OpenAI refuses a smaller `max_output_tokens`.
const LEAST_CAP: u32 = 16;

impl Dialect for OpenAiResponses {
    fn paths(&self) -> &'static [&'static str] {
        &["/v1/responses"]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        let (ask, voice) = read(asked)?;
        Ok((ask, Box::new(voice)))
    }

    fn refusal(&self, error: &ApiError, _request_id: &str) -> String {
        error_json(error, error.code)
    }
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    instructions: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: Input<'a>,
    max_output_tokens: Option<u32>,
    stream: Option<bool>,
    #[serde(borrow, default)]
    previous_response_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    cache_salt: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    #[serde(borrow)]
    Items(Vec<Item<'a>>),
}

#[derive(Debug, Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
}

/// Reads a request.
pub(super) fn read(asked: &Asked<'_>) -> Result<(Ask, ResponsesVoice), ApiError> {
    super::refuse_foreign(asked.body, true, |name| format!("unknown parameter: '{name}'"))?;
    let body: Body<'_> = api::json(asked.body)?;
    let model = served_model(body.model.as_deref(), asked.config)?;
    if body.previous_response_id.is_some() {
        return Err(ApiError {
            code: Some("previous_response_not_found"),
            ..ApiError::invalid(Some("previous_response_id"), "this endpoint keeps no responses")
        });
    }
    if let Some(cap) = body.max_output_tokens.filter(|cap| *cap < LEAST_CAP) {
        return Err(ApiError {
            code: Some("integer_below_min_value"),
            ..ApiError::invalid(
                Some("max_output_tokens"),
                format!("max_output_tokens must be at least {LEAST_CAP}, but is {cap}"),
            )
        });
    }
    let salt = body.cache_salt.as_deref().unwrap_or_default();
    let mut hasher = PromptHasher::new(asked.config.cache.block_tokens, &[&model, salt]);
    body.instructions.iter().for_each(|text| hasher.text(text));
    match &body.input {
        Input::Text(text) => hasher.text(text),
        Input::Items(items) => {
            items
                .iter()
                .filter_map(|item| item.content.as_ref())
                .for_each(|content| content.hash(&mut hasher));
        }
    }
    let prompt = hasher.finish();
    let wanted = Wanted { cap_name: "max_output_tokens", cap: body.max_output_tokens, ..Wanted::default() };
    let answer = answer(&wanted, &prompt, asked.config)?;
    let ask = Ask { model, stream: body.stream.unwrap_or(false), prompt, answer };
    let voice = ResponsesVoice {
        id: format!("{:016x}", asked.identity.number),
        created_s: asked.identity.created_s,
        model: ask.model.clone(),
        max_output_tokens: body.max_output_tokens,
        finish: answer.finish,
        sequence: 0,
        text: String::new(),
    };
    Ok((ask, voice))
}

/// One response, in events or whole.
pub(super) struct ResponsesVoice {
    id: String,
    created_s: i64,
    model: String,
    max_output_tokens: Option<u32>,
    finish: Finish,
    /// The number of the next event.
    sequence: u64,
    /// What was said so far: the last events say it again.
    text: String,
}

impl Voice for ResponsesVoice {
    fn opens_early(&self) -> bool {
        true
    }

    fn opening(&mut self, _usage: Usage) -> Option<String> {
        let response = self.response("in_progress", Vec::new(), Value::Null);
        let events = [
            self.event("response.created", json!({ "response": response })),
            self.event("response.in_progress", json!({ "response": response })),
            self.event(
                "response.output_item.added",
                json!({ "output_index": 0, "item": self.item("in_progress", None) }),
            ),
            self.event("response.content_part.added", self.of_part(json!({ "part": part("") }))),
        ];
        Some(events.concat())
    }

    fn token(&mut self, token: Token<'_>) -> String {
        self.text.push_str(token.text);
        let number = self.next_number();
        let (id, text) = (&self.id, token.text);
        named_event(
            "response.output_text.delta",
            format_args!(
                r#"{{"type":"response.output_text.delta","sequence_number":{number},"item_id":"msg_{id}","output_index":0,"content_index":0,"delta":"{text}","logprobs":[]}}"#
            ),
        )
    }

    fn tail(&mut self, usage: Usage, shape: TailShape) -> String {
        let text = std::mem::take(&mut self.text);
        let item = self.item(self.status(), Some(&text));
        let mut events = vec![
            self.event("response.output_text.done", self.of_part(json!({ "text": text, "logprobs": [] }))),
            self.event("response.content_part.done", self.of_part(json!({ "part": part(&text) }))),
            self.event("response.output_item.done", json!({ "output_index": 0, "item": item })),
        ];
        if shape.done {
            let usage = if shape.usage { usage_json(usage) } else { Value::Null };
            let response = self.response(self.status(), vec![item], usage);
            events.push(self.event(&format!("response.{}", self.status()), json!({ "response": response })));
        }
        events.concat()
    }

    fn failure(&mut self, error: &ApiError) -> String {
        let mut response = self.response("failed", Vec::new(), Value::Null);
        let code = if error.status == 429 { "rate_limit_exceeded" } else { "server_error" };
        response["error"] = json!({ "code": code, "message": error.message });
        self.event("response.failed", json!({ "response": response }))
    }

    fn whole(&mut self, text: &Text, usage: Usage) -> String {
        let item = self.item(self.status(), Some(&text.answer));
        self.response(self.status(), vec![item], usage_json(usage)).to_string()
    }
}

impl ResponsesVoice {
    fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }

    fn event(&mut self, kind: &str, mut fields: Value) -> String {
        fields["type"] = kind.into();
        fields["sequence_number"] = self.next_number().into();
        named_event(kind, fields)
    }

    fn status(&self) -> &'static str {
        match self.finish {
            Finish::Stop => "completed",
            Finish::Length => "incomplete",
        }
    }

    /// The one item: a message, with its text once there is any.
    fn item(&self, status: &str, text: Option<&str>) -> Value {
        let content: Vec<Value> = text.map(part).into_iter().collect();
        json!({
            "id": format!("msg_{}", self.id), "type": "message", "role": "assistant", "status": status,
            "content": content
        })
    }

    /// Fields of an event about the one part.
    fn of_part(&self, mut fields: Value) -> Value {
        fields["item_id"] = format!("msg_{}", self.id).into();
        fields["output_index"] = 0.into();
        fields["content_index"] = 0.into();
        fields
    }

    fn response(&self, status: &str, output: Vec<Value>, usage: Value) -> Value {
        let cut = status == "incomplete";
        json!({
            "id": format!("resp_{}", self.id), "object": "response", "created_at": self.created_s,
            "status": status, "background": false, "error": null,
            "incomplete_details": if cut { json!({ "reason": "max_output_tokens" }) } else { Value::Null },
            "instructions": null, "max_output_tokens": self.max_output_tokens, "model": self.model,
            "output": output, "parallel_tool_calls": true, "previous_response_id": null,
            "reasoning": { "effort": null, "summary": null }, "service_tier": "default", "store": false,
            "temperature": 1.0, "text": { "format": { "type": "text" } }, "tool_choice": "auto", "tools": [],
            "top_p": 1.0, "truncation": "disabled", "usage": usage, "user": null, "metadata": {}
        })
    }
}

fn part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": { "cached_tokens": usage.cached_tokens },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.thought_tokens },
        "total_tokens": u64::from(usage.prompt_tokens) + u64::from(usage.completion_tokens)
    })
}
