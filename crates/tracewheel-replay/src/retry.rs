//! When an attempt is repeated, as data.

mod jitter;
mod preset;
mod server_delay;
mod verdict;

use serde::{Deserialize, Serialize};

pub(crate) use jitter::chance;
pub use jitter::{Jitter, ParseJitterError};
pub(crate) use server_delay::server_delay_ns;
pub(crate) use verdict::{Answer, Failure, Verdict};

/// Headers that a retry's number must not take the place of: they frame the request, route it, or hold its key.
const TAKEN_HEADERS: [&str; 19] = [
    "accept",
    "accept-encoding",
    "api-key",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-api-key",
    "x-goog-api-key",
    "x-request-id",
];
/// Retries that a policy may allow, at most.
const MOST_RETRIES: u32 = 1_000;

/// When and how often an attempt is repeated. Presets equal the official SDKs; every field may be set by hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Name for the manifest: a preset's, or `custom`.
    pub name: String,
    /// How the delay grows.
    pub kind: RetryKind,
    /// Attempts beyond the first.
    pub max_retries: u32,
    /// No retry begins later than this after the request was due, in nanoseconds; `None` is no bound.
    pub total_time_ns: Option<i64>,
    /// Delay before the first retry, before jitter, in nanoseconds.
    pub base_delay_ns: i64,
    /// Largest delay of the formula, in nanoseconds.
    pub max_delay_ns: i64,
    /// What the delay is multiplied by for each further retry, at least 1. Only for [`RetryKind::Exponential`].
    pub multiplier: f64,
    /// What chance makes of a delay.
    pub jitter: Jitter,
    /// Status codes that are repeated.
    pub statuses: Vec<StatusRange>,
    /// `x-should-retry: true` or `false` overrides the status rule.
    pub obey_should_retry: bool,
    /// Repeat when no connection could be made.
    pub on_connect_error: bool,
    /// Repeat when the connection broke, or brought no HTTP, after the request left and before the answer was handed over: a
    /// streamed one with its head, a plain one at its end.
    pub on_reset_before_response: bool,
    /// Repeat after a time-out, within the same bound.
    pub on_timeout: bool,
    /// By which ways a server may ask for a delay.
    pub server_delays: Vec<ServerDelay>,
    /// Longest delay asked for by the server that is obeyed, in nanoseconds.
    pub server_delay_max_ns: i64,
    /// What a longer one leads to.
    pub server_delay_longer: LongerDelay,
    /// Header of every retry that carries its number, from 1; `None` sends none.
    pub count_header: Option<String>,
}

/// How the delay of the formula grows from retry to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetryKind {
    /// Nothing is repeated.
    None,
    /// Always the base delay.
    Fixed,
    /// Base delay times a power of the multiplier, up to the largest delay.
    Exponential,
}

/// An inclusive range of HTTP status codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRange {
    /// First code.
    pub from: u16,
    /// Last code.
    pub to: u16,
}

/// A way in which a server asks for a delay. They are read in the order of [`ServerDelay::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerDelay {
    /// The header `retry-after-ms`: milliseconds.
    RetryAfterMs,
    /// The header `retry-after`: seconds, with decimals too, or an HTTP date.
    RetryAfter,
    /// `google.rpc.RetryInfo` in the details of a Google error body: `retryDelay` such as `12s` or `45.8s`.
    RetryInfo,
}

/// What a server's delay leads to when it is longer than the policy obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LongerDelay {
    /// The request fails at once.
    GiveUp,
    /// The policy's own formula is used.
    BackOff,
    /// The longest delay that is obeyed.
    Shorten,
}

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct RetryPolicyError {
    /// The field as the scenario spells it.
    pub field: &'static str,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

impl RetryKind {
    /// Every kind, with its word.
    pub const ALL: [(&'static str, RetryKind); 3] =
        [("none", RetryKind::None), ("fixed", RetryKind::Fixed), ("exponential", RetryKind::Exponential)];
}

impl ServerDelay {
    /// Every way, with its word, in the order in which they are read.
    pub const ALL: [(&'static str, ServerDelay); 3] = [
        ("retry-after-ms", ServerDelay::RetryAfterMs),
        ("retry-after", ServerDelay::RetryAfter),
        ("retry-info", ServerDelay::RetryInfo),
    ];
}

impl LongerDelay {
    /// Every rule, with its word.
    pub const ALL: [(&'static str, LongerDelay); 3] = [
        ("give-up", LongerDelay::GiveUp),
        ("back-off", LongerDelay::BackOff),
        ("shorten", LongerDelay::Shorten),
    ];
}

impl RetryPolicy {
    /// Whether the policy can be followed.
    ///
    /// # Errors
    /// The first field that can't be, with the remedy.
    pub fn check(&self) -> Result<(), RetryPolicyError> {
        let wrong = |field, problem: String| Err(RetryPolicyError { field, problem });
        if self.max_retries > MOST_RETRIES {
            return wrong("max_retries", format!("{} is above {MOST_RETRIES}", self.max_retries));
        }
        if !(self.multiplier.is_finite() && self.multiplier >= 1.0) {
            return wrong("multiplier", format!("{} must be a number from 1", self.multiplier));
        }
        if self.base_delay_ns < 0 {
            return wrong("base_delay", "it must not be negative".to_owned());
        }
        if self.max_delay_ns < self.base_delay_ns {
            return wrong("max_delay", "it must not be shorter than base_delay".to_owned());
        }
        if self.server_delay_max_ns < 0 {
            return wrong("server_delay_max", "it must not be negative".to_owned());
        }
        if let Some(range) = self.statuses.iter().find(|range| range.from < 100 || range.to < range.from) {
            let problem = format!("{}-{} is no range of status codes from 100 up", range.from, range.to);
            return wrong("statuses", problem);
        }
        let header = self.count_header.as_deref().unwrap_or("x");
        match http::HeaderName::from_bytes(header.as_bytes()) {
            Err(_) => wrong("count_header", format!("{header:?} is no header name")),
            Ok(name) if TAKEN_HEADERS.contains(&name.as_str()) => {
                let problem = format!(
                    "{header:?} means something else in a request: name one of its own, as in `x-stainless-retry-count`"
                );
                wrong("count_header", problem)
            }
            Ok(_) => Ok(()),
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::none()
    }
}

#[cfg(test)]
mod tests;
