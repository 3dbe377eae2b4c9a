//! Text Generation Inference's own API: an event a token, the last of them with the whole text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, Dialect};
use crate::api::{self, ApiError, Ask, Finish, Wanted, answer, served_model};
use crate::prompt::PromptHasher;
use crate::reply::{TailShape, Text, Token, Usage, Voice};

const STREAM: &str = "/generate_stream";
const PLAIN: &str = "/generate";

/// Tokens of an answer unless told.
const DEFAULT_CAP: u32 = 100;

/// `POST /generate_stream` and `POST /generate`.
pub(crate) struct Tgi;

impl Dialect for Tgi {
    fn paths(&self) -> &'static [&'static str] {
        &[STREAM, PLAIN]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        let (ask, voice) = read(asked)?;
        Ok((ask, Box::new(voice)))
    }

    /// A full queue is 429 here.
    fn status(&self, error: &ApiError) -> u16 {
        match error.status {
            400 => 422,
            503 if error.code == Some("queue_full") => 429,
            status => status,
        }
    }

    fn refusal(&self, error: &ApiError, _request_id: &str) -> String {
        refusal(self.status(error), &error.message).to_string()
    }
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    inputs: Cow<'a, str>,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Debug, Default, Deserialize)]
struct Parameters {
    max_new_tokens: Option<u32>,
}

fn read(asked: &Asked<'_>) -> Result<(Ask, Events), ApiError> {
    let body: Body<'_> = api::json(asked.body)?;
    // A server of this kind has one model, and requests do not name it.
    let model = asked.config.models.first().map_or("mock", String::as_str);
    let model = served_model(Some(model), asked.config)?;
    let mut hasher = PromptHasher::new(asked.config.cache.block_tokens, &[&model, ""]);
    hasher.text(&body.inputs);
    let prompt = hasher.finish();
    let wanted = Wanted {
        cap_name: "max_new_tokens",
        cap: body.parameters.max_new_tokens,
        default_cap: Some(DEFAULT_CAP),
        ..Wanted::default()
    };
    let answer = answer(&wanted, &prompt, asked.config)?;
    let ask = Ask { model, stream: asked.path == STREAM, prompt, answer };
    let voice =
        Events { last: answer.tokens, finish: answer.finish, index: 0, text: String::new(), held: None };
    Ok((ask, voice))
}

/// One answer, an event a token.
struct Events {
    /// The number of the last token.
    last: u32,
    finish: Finish,
    index: u32,
    text: String,
    /// The last token, whose event is the end.
    held: Option<Value>,
}

impl Voice for Events {
    fn token(&mut self, token: Token<'_>) -> String {
        self.index += 1;
        self.text.push_str(token.text);
        let own = json!({ "id": self.index, "text": token.text, "logprob": -0.5, "special": false });
        if self.index == self.last {
            self.held = Some(own);
            return String::new();
        }
        event(&json!({ "index": self.index, "token": own, "generated_text": null, "details": null }))
    }

    /// The last token, the whole text, and why it ends.
    fn tail(&mut self, usage: Usage, shape: TailShape) -> String {
        let mut message = json!({ "index": self.index, "token": self.held.take(), "generated_text": null, "details": null });
        if shape.done {
            message["generated_text"] = self.text.as_str().into();
            message["details"] = if shape.usage { self.details(usage) } else { Value::Null };
        }
        event(&message)
    }

    fn failure(&mut self, error: &ApiError) -> String {
        event(&refusal(error.status, &error.message))
    }

    fn whole(&mut self, text: &Text, usage: Usage) -> String {
        json!({ "generated_text": text.answer, "details": self.details(usage) }).to_string()
    }
}

impl Events {
    fn details(&self, usage: Usage) -> Value {
        let reason = match self.finish {
            Finish::Stop => "eos_token",
            Finish::Length => "length",
        };
        json!({ "finish_reason": reason, "generated_tokens": usage.completion_tokens, "seed": null })
    }
}

fn event(message: &Value) -> String {
    format!("data:{message}\n\n")
}

fn refusal(status: u16, message: &str) -> Value {
    let kind = match status {
        422 => "validation",
        429 => "overloaded",
        _ => "generation",
    };
    json!({ "error": message, "error_type": kind })
}
