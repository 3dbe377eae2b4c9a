//! Google's Gemini: candidates in parts, the model in the path, no end marker but a finish reason.

use std::borrow::Cow;

use http::header::{HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Asked, BudgetLeft, Dialect, openai_embeddings, quoted};
use crate::api::{self, ApiError, Ask, Finish, Part, Wanted, answer, served_model};
use crate::prompt::PromptHasher;
use crate::reply::{TailShape, Text, Token, Usage, Voice};

const STREAM: &str = "/v1beta/models/{model}:streamGenerateContent";
const PLAIN: &str = "/v1beta/models/{model}:generateContent";
/// Where Google's own client asks.
const V1_STREAM: &str = "/v1/models/{model}:streamGenerateContent";
const EMBED: &str = "/v1beta/models/{model}:embedContent";
const EMBED_ALL: &str = "/v1beta/models/{model}:batchEmbedContents";
const V1_PLAIN: &str = "/v1/models/{model}:generateContent";

/// `streamGenerateContent`, as server-sent events with `alt=sse` and else as one array in pieces, and `generateContent`.
pub(crate) struct Gemini;

impl Dialect for Gemini {
    fn paths(&self) -> &'static [&'static str] {
        &[STREAM, PLAIN, V1_STREAM, V1_PLAIN, EMBED, EMBED_ALL]
    }

    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError> {
        for (pattern, batch) in [(EMBED, false), (EMBED_ALL, true)] {
            if let Some(model) = asked.hole(pattern) {
                return openai_embeddings::read_gemini(&model, batch, asked);
            }
        }
        let (ask, voice) = read(asked)?;
        Ok((ask, Box::new(voice)))
    }

    fn key_headers(&self) -> &'static [&'static str] {
        &["x-goog-api-key", "authorization"]
    }

    fn refusal(&self, error: &ApiError, _request_id: &str) -> String {
        refusal(error).to_string()
    }

    /// It stands in the body.
    fn add_wait(&self, _headers: &mut HeaderMap, _ns: i64) {}

    /// Nothing of the kind is said.
    fn add_budget(&self, _headers: &mut HeaderMap, _budget: &BudgetLeft) {}
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    contents: Vec<Turn<'a>>,
    #[serde(borrow, default, alias = "system_instruction")]
    system_instruction: Option<Turn<'a>>,
    #[serde(default, alias = "generation_config")]
    generation_config: Config,
}

#[derive(Debug, Deserialize)]
struct Turn<'a> {
    #[serde(borrow, default)]
    parts: Vec<Part<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(alias = "max_output_tokens")]
    max_output_tokens: Option<u32>,
    #[serde(alias = "candidate_count")]
    candidate_count: Option<u32>,
    #[serde(default, alias = "thinking_config")]
    thinking_config: ThinkingConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    /// −1 leaves it to the model.
    #[serde(alias = "thinking_budget")]
    thinking_budget: Option<i64>,
    #[serde(default, alias = "include_thoughts")]
    include_thoughts: bool,
}

fn read(asked: &Asked<'_>) -> Result<(Ask, GeminiVoice), ApiError> {
    let stream = asked.hole(STREAM).or_else(|| asked.hole(V1_STREAM));
    let plain = asked.hole(PLAIN).or_else(|| asked.hole(V1_PLAIN));
    let framing = match (&stream, asked.parameter("alt")) {
        (Some(_), Some("sse")) => Framing::Events,
        (Some(_), _) => Framing::Array,
        (None, _) => Framing::Whole,
    };
    super::refuse_foreign(asked.body, false, |name| {
        format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field.")
    })?;
    let body: Body<'_> = api::json(asked.body)?;
    let model = served_model(stream.or(plain).as_deref(), asked.config)?;
    if body.contents.is_empty() {
        return Err(ApiError::invalid(Some("contents"), "contents is not specified"));
    }
    let settings = &body.generation_config;
    if settings.candidate_count.is_some_and(|count| count != 1) {
        return Err(ApiError::invalid(Some("candidateCount"), "only one candidate can be specified"));
    }
    let mut hasher = PromptHasher::new(asked.config.cache.block_tokens, &[&model, ""]);
    let turns = body.system_instruction.iter().chain(&body.contents);
    turns.for_each(|turn| Part::hash_all(&turn.parts, &mut hasher));
    let prompt = hasher.finish();
    let budget = settings.thinking_config.thinking_budget.unwrap_or(0);
    let wanted = Wanted {
        cap_name: "maxOutputTokens",
        cap: settings.max_output_tokens,
        thoughts: if budget < 0 { u32::MAX } else { u32::try_from(budget).unwrap_or(u32::MAX) },
        ..Wanted::default()
    };
    let answer = answer(&wanted, &prompt, asked.config)?;
    let ask = Ask { model, stream: framing != Framing::Whole, prompt, answer };
    let voice = GeminiVoice {
        framing,
        id: format!("mock{:016x}", asked.identity.number),
        model: ask.model.clone(),
        finish: answer.finish,
        shows_thoughts: settings.thinking_config.include_thoughts,
        begun: false,
    };
    Ok((ask, voice))
}

/// What stands around an answer's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Events,
    Array,
    Whole,
}

/// One answer, in messages of one shape.
struct GeminiVoice {
    framing: Framing,
    id: String,
    model: String,
    finish: Finish,
    /// Thoughts are told, not only counted.
    shows_thoughts: bool,
    begun: bool,
}

impl Voice for GeminiVoice {
    fn stream_type(&self) -> HeaderValue {
        HeaderValue::from_static(match self.framing {
            Framing::Events => "text/event-stream",
            _ => "application/json; charset=UTF-8",
        })
    }

    fn token(&mut self, token: Token<'_>) -> String {
        let text = token.text;
        let part = match (token.thought, self.shows_thoughts) {
            (false, _) => format!(r#"{{"text":"{text}"}}"#),
            (true, true) => format!(r#"{{"text":"{text}","thought":true}}"#),
            (true, false) => return String::new(),
        };
        let message = self.message(&part, None, token.usage);
        self.framed(&message)
    }

    fn tail(&mut self, usage: Usage, shape: TailShape) -> String {
        let reason = shape.done.then_some(self.finish);
        let message = self.message(r#"{"text":""}"#, reason, shape.usage.then_some(usage));
        let end = if self.framing == Framing::Array && shape.done { "\n]" } else { "" };
        self.framed(&message) + end
    }

    fn failure(&mut self, error: &ApiError) -> String {
        let end = if self.framing == Framing::Array { "\n]" } else { "" };
        self.framed(&refusal(error).to_string()) + end
    }

    fn whole(&mut self, said: &Text, usage: Usage) -> String {
        let answer = format!(r#"{{"text":"{}"}}"#, said.answer);
        let parts = if self.shows_thoughts && !said.thoughts.is_empty() {
            format!(r#"{{"text":"{}","thought":true}},{answer}"#, said.thoughts)
        } else {
            answer
        };
        self.message(&parts, Some(self.finish), Some(usage))
    }
}

impl GeminiVoice {
    fn framed(&mut self, message: &str) -> String {
        let first = !std::mem::replace(&mut self.begun, true);
        match self.framing {
            Framing::Events => format!("data: {message}\r\n\r\n"),
            Framing::Array => format!("{}{message}", if first { "[" } else { ",\r\n" }),
            Framing::Whole => message.to_owned(),
        }
    }

    fn message(&self, parts: &str, finish: Option<Finish>, usage: Option<Usage>) -> String {
        let finish = match finish {
            Some(Finish::Stop) => r#","finishReason":"STOP""#,
            Some(Finish::Length) => r#","finishReason":"MAX_TOKENS""#,
            None => "",
        };
        let usage =
            usage.map_or_else(String::new, |usage| format!(r#","usageMetadata":{}"#, usage_json(usage)));
        format!(
            r#"{{"candidates":[{{"content":{{"parts":[{parts}],"role":"model"}}{finish},"index":0}}]{usage},"modelVersion":{},"responseId":"{}"}}"#,
            quoted(&self.model),
            self.id
        )
    }
}

/// Thoughts stand beside the candidates' tokens; what is zero is left out, as Google's JSON does it.
fn usage_json(usage: Usage) -> Value {
    let total = u64::from(usage.prompt_tokens) + u64::from(usage.completion_tokens);
    let mut counts = json!({
        "promptTokenCount": usage.prompt_tokens,
        "totalTokenCount": total,
        "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": usage.prompt_tokens }]
    });
    let others = [
        ("candidatesTokenCount", usage.completion_tokens - usage.thought_tokens),
        ("cachedContentTokenCount", usage.cached_tokens),
        ("thoughtsTokenCount", usage.thought_tokens),
    ];
    for (name, count) in others.into_iter().filter(|(_, count)| *count > 0) {
        counts[name] = count.into();
    }
    if usage.cached_tokens > 0 {
        counts["cacheTokensDetails"] = json!([{ "modality": "TEXT", "tokenCount": usage.cached_tokens }]);
    }
    counts
}

fn refusal(error: &ApiError) -> Value {
    let status: Cow<'_, str> = match error.status {
        400 => "INVALID_ARGUMENT".into(),
        401 => "UNAUTHENTICATED".into(),
        403 => "PERMISSION_DENIED".into(),
        404 => "NOT_FOUND".into(),
        429 => "RESOURCE_EXHAUSTED".into(),
        499 => "CANCELLED".into(),
        500 => "INTERNAL".into(),
        501 => "UNIMPLEMENTED".into(),
        503 => "UNAVAILABLE".into(),
        504 => "DEADLINE_EXCEEDED".into(),
        _ => "UNKNOWN".into(),
    };
    let mut body = json!({ "code": error.status, "message": error.message, "status": status });
    if let Some(ns) = error.retry_after_ns {
        let seconds = format!("{}.{:09}s", ns / 1_000_000_000, ns % 1_000_000_000);
        body["details"] = json!([
            { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": seconds }
        ]);
    }
    json!({ "error": body })
}
