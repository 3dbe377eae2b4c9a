//! Ollama's own API: lines of JSON, the last of them with the counts.

use std::borrow::Cow;

use http::header::HeaderValue;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::{Asked, Dialect, quoted};
use crate::api::{self, ApiError, Ask, Content, Finish, Wanted, answer, served_model};
use crate::prompt::PromptHasher;
use crate::reply::{TailShape, Text, Token, Usage, Voice};

const CHAT: &str = "/api/chat";
const GENERATE: &str = "/api/generate";

/// `POST /api/chat` and `POST /api/generate`.
pub(crate) struct Ollama;

impl Dialect for Ollama {
    fn paths(&self) -> &'static [&'static str] {
        &[CHAT, GENERATE]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        let (ask, voice) = read(asked)?;
        Ok((ask, Box::new(voice)))
    }

    fn refusal(&self, error: &ApiError, _request_id: &str) -> String {
        json!({ "error": error.message }).to_string()
    }
}

#[derive(Debug, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    system: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    prompt: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    messages: Vec<Message<'a>>,
    /// Streamed unless told otherwise.
    stream: Option<bool>,
    #[serde(default)]
    options: Options,
}

#[derive(Debug, Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    content: Option<Content<'a>>,
}

#[derive(Debug, Default, Deserialize)]
struct Options {
    /// Below 0: no cap.
    num_predict: Option<i64>,
}

fn read(asked: &Asked<'_>) -> Result<(Ask, Lines), ApiError> {
    let body: Body<'_> = api::json(asked.body)?;
    let model = served_model(body.model.as_deref(), asked.config)?;
    let mut hasher = PromptHasher::new(asked.config.cache.block_tokens, &[&model, ""]);
    body.system.iter().chain(&body.prompt).for_each(|text| hasher.text(text));
    body.messages
        .iter()
        .filter_map(|message| message.content.as_ref())
        .for_each(|content| content.hash(&mut hasher));
    let prompt = hasher.finish();
    let cap = body.options.num_predict.and_then(|cap| u32::try_from(cap).ok());
    let wanted = Wanted { cap_name: "num_predict", cap, ..Wanted::default() };
    let answer = answer(&wanted, &prompt, asked.config)?;
    let ask = Ask { model, stream: body.stream.unwrap_or(true), prompt, answer };
    let created = Timestamp::from_second(asked.identity.created_s).unwrap_or_default();
    let voice = Lines {
        chat: asked.path == CHAT,
        head: format!(r#"{{"model":{},"created_at":"{created}""#, quoted(&ask.model)),
        finish: answer.finish,
    };
    Ok((ask, voice))
}

/// One answer, in lines or as one object.
struct Lines {
    chat: bool,
    /// What every line begins with.
    head: String,
    finish: Finish,
}

impl Voice for Lines {
    fn stream_type(&self) -> HeaderValue {
        HeaderValue::from_static("application/x-ndjson")
    }

    fn token(&mut self, token: Token<'_>) -> String {
        format!("{}{},\"done\":false}}\n", self.head, self.said(token.text))
    }

    fn tail(&mut self, usage: Usage, shape: TailShape) -> String {
        if !shape.done {
            return String::new();
        }
        format!("{}{}{}}}\n", self.head, self.said(""), self.end(shape.usage.then_some(usage)))
    }

    fn failure(&mut self, error: &ApiError) -> String {
        json!({ "error": error.message }).to_string() + "\n"
    }

    fn whole(&mut self, text: &Text, usage: Usage) -> String {
        format!("{}{}{}}}", self.head, self.said(&text.answer), self.end(Some(usage)))
    }
}

impl Lines {
    fn said(&self, text: &str) -> String {
        if self.chat {
            format!(r#","message":{{"role":"assistant","content":"{text}"}}"#)
        } else {
            format!(r#","response":"{text}""#)
        }
    }

    /// Nothing is said of durations: they would be the mock's, not a model's.
    fn end(&self, usage: Option<Usage>) -> String {
        let reason = match self.finish {
            Finish::Stop => "stop",
            Finish::Length => "length",
        };
        let counts = usage.map_or_else(String::new, |usage| {
            format!(
                r#","prompt_eval_count":{},"eval_count":{}"#,
                usage.prompt_tokens, usage.completion_tokens
            )
        });
        format!(r#","done":true,"done_reason":"{reason}"{counts}"#)
    }
}
