//! When an attempt is repeated, as data.

mod verdict;

use serde::{Deserialize, Serialize};

pub(crate) use verdict::{Failure, Verdict, jitter, server_delay_ns};

const MS: i64 = 1_000_000;

/// When and how often an attempt is repeated. Presets equal the official SDKs; every field may be set by hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryPolicy {
    /// Name for the manifest: a preset's, or `custom`.
    pub name: String,
    /// Attempts beyond the first.
    pub max_retries: u32,
    /// Delay before the first retry, before jitter, in nanoseconds; doubled for each further one.
    pub base_delay_ns: i64,
    /// Largest delay of the formula, before jitter, in nanoseconds.
    pub max_delay_ns: i64,
    /// Largest part by which jitter shortens a delay: 0.25 means a factor drawn from (0.75, 1].
    pub jitter: f64,
    /// Status codes that are repeated.
    pub statuses: Vec<StatusRange>,
    /// `x-should-retry: true` or `false` overrides the status rule.
    pub obey_should_retry: bool,
    /// Repeat when no connection could be made.
    pub on_connect_error: bool,
    /// Repeat when the connection broke after the request left and before a byte of the answer came.
    pub on_reset_before_response: bool,
    /// Repeat after the request time-out.
    pub on_timeout: bool,
    /// Longest delay asked for by the server that is obeyed, in nanoseconds.
    pub server_delay_max_ns: i64,
    /// What a longer one leads to.
    pub server_delay_longer: LongerDelay,
    /// Header of every retry that carries its number, from 1; `None` sends none.
    pub count_header: Option<String>,
}

/// An inclusive range of HTTP status codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRange {
    /// First code.
    pub from: u16,
    /// Last code.
    pub to: u16,
}

/// What a server's delay leads to when it is longer than the policy obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LongerDelay {
    /// The request fails at once.
    GiveUp,
    /// The policy's own formula is used.
    BackOff,
}

impl RetryPolicy {
    /// Names of the presets.
    pub const PRESETS: [&'static str; 3] = ["none", "openai-sdk", "anthropic-sdk"];

    /// The preset of that name.
    pub fn preset(name: &str) -> Option<RetryPolicy> {
        match name {
            "none" => Some(Self::none()),
            "openai-sdk" => Some(Self::openai_sdk()),
            "anthropic-sdk" => Some(Self::anthropic_sdk()),
            _ => None,
        }
    }

    /// Nothing is repeated.
    pub fn none() -> RetryPolicy {
        RetryPolicy {
            name: "none".to_owned(),
            max_retries: 0,
            base_delay_ns: 0,
            max_delay_ns: 0,
            jitter: 0.0,
            statuses: Vec::new(),
            obey_should_retry: false,
            on_connect_error: false,
            on_reset_before_response: false,
            on_timeout: false,
            server_delay_max_ns: 0,
            server_delay_longer: LongerDelay::BackOff,
            count_header: None,
        }
    }

    /// The OpenAI Python SDK since release 2.52: a server's delay above 120 s means no retry at all.
    pub fn openai_sdk() -> RetryPolicy {
        RetryPolicy {
            name: "openai-sdk".to_owned(),
            server_delay_max_ns: 120_000 * MS,
            server_delay_longer: LongerDelay::GiveUp,
            ..Self::sdk_family()
        }
    }

    /// The Anthropic Python SDK: a server's delay above 60 s is replaced by the formula.
    pub fn anthropic_sdk() -> RetryPolicy {
        RetryPolicy { name: "anthropic-sdk".to_owned(), ..Self::sdk_family() }
    }

    fn sdk_family() -> RetryPolicy {
        let code = |code| StatusRange { from: code, to: code };
        RetryPolicy {
            name: String::new(),
            max_retries: 2,
            base_delay_ns: 500 * MS,
            max_delay_ns: 8_000 * MS,
            jitter: 0.25,
            statuses: vec![code(408), code(409), code(429), StatusRange { from: 500, to: 999 }],
            obey_should_retry: true,
            on_connect_error: true,
            on_reset_before_response: true,
            on_timeout: true,
            server_delay_max_ns: 60_000 * MS,
            server_delay_longer: LongerDelay::BackOff,
            count_header: Some("x-stainless-retry-count".to_owned()),
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::none()
    }
}
