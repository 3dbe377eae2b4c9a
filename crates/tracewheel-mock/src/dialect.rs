//! The APIs that are spoken: one file each, and one line in [`DIALECTS`].
//!
//! A dialect reads a request into the common [`Ask`], and gives the [`Voice`] in which the answer is put. What is
//! computed, and when, is the engine's and the same for all.

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use jiff::Timestamp;

use crate::api::{ApiError, Ask};
use crate::config::MockConfig;
use crate::reply::Voice;

mod anthropic_messages;
mod azure_openai;
mod gemini;
mod ollama;
mod openai_chat;
mod openai_embeddings;
mod openai_responses;
mod tgi;

pub(crate) use openai_chat::OpenAi;

/// All of them.
static DIALECTS: [&dyn Dialect; 8] = [
    &OpenAi,
    &openai_embeddings::OpenAiEmbeddings,
    &openai_responses::OpenAiResponses,
    &azure_openai::AzureOpenAi,
    &anthropic_messages::AnthropicMessages,
    &gemini::Gemini,
    &ollama::Ollama,
    &tgi::Tgi,
];

/// One API: where it is served, how it is read, and how it refuses.
pub(crate) trait Dialect: Sync {
    /// Where it is served. A part of a path in braces may be anything that is not empty.
    fn paths(&self) -> &'static [&'static str];

    /// Reads a request.
    fn read(&self, asked: &Asked<'_>) -> Result<(Ask, Box<dyn Voice>), ApiError>;

    /// The headers of which one may carry a key, the first that is there.
    fn key_headers(&self) -> &'static [&'static str] {
        &["authorization"]
    }

    /// The header that carries the request's id.
    fn id_header(&self) -> HeaderName {
        HeaderName::from_static("x-request-id")
    }

    /// The status of a refusal.
    fn status(&self, error: &ApiError) -> u16 {
        error.status
    }

    /// The body of a refusal.
    fn refusal(&self, error: &ApiError, request_id: &str) -> String;

    /// Says in the head how long to wait.
    fn add_wait(&self, headers: &mut HeaderMap, ns: i64) {
        add_retry_after(headers, ns);
    }

    /// Says in the head what is left of a budget.
    fn add_budget(&self, headers: &mut HeaderMap, budget: &BudgetLeft) {
        let what = budget.what;
        insert(headers, format!("x-ratelimit-limit-{what}"), budget.limit.to_string());
        insert(headers, format!("x-ratelimit-remaining-{what}"), budget.left.to_string());
        insert(
            headers,
            format!("x-ratelimit-reset-{what}"),
            format!("{}ms", ceil_div(budget.full_in_ns, 1_000_000)),
        );
    }
}

/// A request to a dialect's path.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    pub(crate) config: &'a MockConfig,
    /// What names the answer.
    pub(crate) identity: Identity<'a>,
}

/// What names an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity<'a> {
    pub(crate) number: u64,
    /// Wall time in seconds.
    pub(crate) created_s: i64,
    pub(crate) fingerprint: &'a str,
}

/// What is left of a budget.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BudgetLeft {
    /// `requests` or `tokens`.
    pub(crate) what: &'static str,
    pub(crate) limit: u32,
    pub(crate) left: u32,
    /// Until all of it is there again, if nothing comes.
    pub(crate) full_in_ns: i64,
    /// Now, in wall time.
    pub(crate) now_unix_ns: i64,
}

impl BudgetLeft {
    /// When all of it is there again, as RFC 3339 has it, in seconds.
    fn full_at(&self) -> String {
        let at = self.now_unix_ns.saturating_add(self.full_in_ns);
        let seconds = Timestamp::from_second(ceil_div(at, 1_000_000_000)).unwrap_or_default();
        seconds.to_string()
    }
}

impl Asked<'_> {
    /// The part of the path that stands where `pattern` has braces, with its escapes resolved.
    fn hole(&self, pattern: &str) -> Option<String> {
        hole(pattern, self.path).map(unescape)
    }

    /// A parameter of the query.
    fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query?.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// The dialect that is spoken at a path.
pub(crate) fn find(path: &str) -> Option<&'static dyn Dialect> {
    let serves = |dialect: &&&'static dyn Dialect| {
        dialect.paths().iter().any(|pattern| *pattern == path || hole(pattern, path).is_some())
    };
    DIALECTS.iter().find(serves).copied()
}

/// All paths at which a model is asked, in the order of the table.
#[cfg(test)]
fn paths() -> impl Iterator<Item = &'static str> {
    DIALECTS.iter().flat_map(|dialect| dialect.paths().iter().copied())
}

/// The header of the standard counts whole seconds; the other one is exact. Both round up.
pub(crate) fn add_retry_after(headers: &mut HeaderMap, ns: i64) {
    headers.insert(RETRY_AFTER, HeaderValue::from(ceil_div(ns, 1_000_000_000)));
    headers.insert(HeaderName::from_static("retry-after-ms"), HeaderValue::from(ceil_div(ns, 1_000_000)));
}

pub(crate) fn ceil_div(ns: i64, unit_ns: i64) -> i64 {
    ns.max(0).saturating_add(unit_ns - 1) / unit_ns
}

/// A server-sent event with a name.
fn named_event(name: &str, data: impl std::fmt::Display) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// A text as JSON has it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Engines' own fields that an API has not, and says so. vLLM takes a salt with some of them (`salted`).
fn refuse_foreign(body: &[u8], salted: bool, refuse: impl Fn(&str) -> String) -> Result<(), ApiError> {
    #[derive(serde::Deserialize)]
    struct Foreign {
        ignore_eos: Option<serde::de::IgnoredAny>,
        min_tokens: Option<serde::de::IgnoredAny>,
        cache_salt: Option<serde::de::IgnoredAny>,
    }
    let foreign: Foreign = crate::api::json(body)?;
    let found = [
        ("ignore_eos", foreign.ignore_eos.is_some()),
        ("min_tokens", foreign.min_tokens.is_some()),
        ("cache_salt", foreign.cache_salt.is_some() && !salted),
    ];
    match found.iter().find(|(_, there)| *there) {
        Some((name, _)) => Err(ApiError::invalid(Some(name), refuse(name))),
        None => Ok(()),
    }
}

fn insert(headers: &mut HeaderMap, name: String, value: String) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
        headers.insert(name, value);
    }
}

fn hole<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let (before, rest) = pattern.split_once('{')?;
    let (_, after) = rest.split_once('}')?;
    path.strip_prefix(before)?.strip_suffix(after).filter(|hole| !hole.is_empty())
}

fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = (*first == b'%')
            .then(|| u8::from_str_radix(std::str::from_utf8(tail.get(..2)?).ok()?, 16).ok())
            .flatten();
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
