//! Policies with a name.

use super::{Jitter, LongerDelay, RetryKind, RetryPolicy, ServerDelay, StatusRange};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;

/// The longest sleep that the Anthropic SDK takes for a server's delay: 4,294,967 s, some fifty days.
const ANTHROPIC_LONGEST_NS: i64 = 4_294_967 * SECOND;

impl RetryPolicy {
    /// Names of the policies, and what each is.
    pub const PRESETS: [(&'static str, &'static str); 8] = [
        ("none", "nothing is repeated"),
        ("fixed", "twice, always after 1 s"),
        ("exponential", "four times, 0.5 s doubled up to 30 s, full jitter"),
        ("openai-sdk", "OpenAI's for Python; a server's wait above 120 s ends the request"),
        ("openai-sdk-60s", "the same before 2.52; a wait above 60 s is replaced by the formula"),
        ("anthropic-sdk", "Anthropic's for Python, 2.14; any server's wait is obeyed"),
        ("anthropic-sdk-60s", "the same up to 1.0; a wait above 60 s is replaced by the formula"),
        ("google-genai", "Google's for Python with its retries switched on"),
    ];

    /// The policy of that name.
    pub fn preset(name: &str) -> Option<RetryPolicy> {
        match name {
            "none" => Some(Self::none()),
            "fixed" => Some(Self::fixed()),
            "exponential" => Some(Self::exponential()),
            "openai-sdk" => Some(Self::openai_sdk()),
            "openai-sdk-60s" => Some(Self::sdk_family("openai-sdk-60s")),
            "anthropic-sdk" => Some(Self::anthropic_sdk()),
            "anthropic-sdk-60s" => Some(Self::sdk_family("anthropic-sdk-60s")),
            "google-genai" => Some(Self::google_genai()),
            _ => None,
        }
    }

    /// Nothing is repeated.
    pub fn none() -> RetryPolicy {
        RetryPolicy {
            name: "none".to_owned(),
            kind: RetryKind::None,
            max_retries: 0,
            total_time_ns: None,
            base_delay_ns: 0,
            max_delay_ns: 0,
            multiplier: 1.0,
            jitter: Jitter::None,
            statuses: Vec::new(),
            obey_should_retry: false,
            on_connect_error: false,
            on_reset_before_response: false,
            on_timeout: false,
            server_delays: Vec::new(),
            server_delay_max_ns: 0,
            server_delay_longer: LongerDelay::BackOff,
            count_header: None,
        }
    }

    /// Twice, always after a second: what is written in an afternoon.
    pub fn fixed() -> RetryPolicy {
        RetryPolicy {
            name: "fixed".to_owned(),
            kind: RetryKind::Fixed,
            max_retries: 2,
            base_delay_ns: SECOND,
            max_delay_ns: SECOND,
            jitter: Jitter::None,
            ..Self::exponential()
        }
    }

    /// Four times, half a second doubled up to 30 s, with full jitter; every way in which a server asks for a delay is
    /// obeyed up to a minute. A base for policies of one's own.
    pub fn exponential() -> RetryPolicy {
        RetryPolicy {
            name: "exponential".to_owned(),
            max_retries: 4,
            max_delay_ns: 30 * SECOND,
            jitter: Jitter::Full,
            server_delays: ServerDelay::ALL.map(|(_, way)| way).to_vec(),
            count_header: None,
            ..Self::sdk_family("")
        }
    }

    /// The OpenAI Python SDK since release 2.52: a server's delay above 120 s means no retry at all.
    pub fn openai_sdk() -> RetryPolicy {
        RetryPolicy {
            server_delay_max_ns: 120 * SECOND,
            server_delay_longer: LongerDelay::GiveUp,
            ..Self::sdk_family("openai-sdk")
        }
    }

    /// The Anthropic Python SDK as of release 2.14: whatever delay the server asks for is obeyed.
    pub fn anthropic_sdk() -> RetryPolicy {
        RetryPolicy {
            server_delay_max_ns: ANTHROPIC_LONGEST_NS,
            server_delay_longer: LongerDelay::Shorten,
            ..Self::sdk_family("anthropic-sdk")
        }
    }

    /// The Google Gen AI Python SDK (3.6) with its default retry options, which a caller has to ask for: five attempts, up
    /// to a second added to 1, 2, 4, 8 s. It obeys no delay that the server asks for, and repeats after a time-out or a
    /// refused connection, not after a broken one.
    pub fn google_genai() -> RetryPolicy {
        let statuses = [408, 429, 500, 502, 503, 504];
        RetryPolicy {
            max_retries: 4,
            base_delay_ns: SECOND,
            max_delay_ns: 60 * SECOND,
            jitter: Jitter::Add { up_to_ns: SECOND },
            statuses: statuses.map(|code| StatusRange { from: code, to: code }).to_vec(),
            obey_should_retry: false,
            on_reset_before_response: false,
            server_delays: Vec::new(),
            server_delay_max_ns: 0,
            count_header: None,
            ..Self::sdk_family("google-genai")
        }
    }

    /// What the SDKs of OpenAI and Anthropic have in common, with the older rule for a server's delay.
    fn sdk_family(name: &str) -> RetryPolicy {
        let code = |code| StatusRange { from: code, to: code };
        RetryPolicy {
            name: name.to_owned(),
            kind: RetryKind::Exponential,
            max_retries: 2,
            total_time_ns: None,
            base_delay_ns: 500 * MS,
            max_delay_ns: 8 * SECOND,
            multiplier: 2.0,
            jitter: Jitter::Shorten { part: 0.25 },
            statuses: vec![code(408), code(409), code(429), StatusRange { from: 500, to: 999 }],
            obey_should_retry: true,
            on_connect_error: true,
            on_reset_before_response: true,
            on_timeout: true,
            server_delays: vec![ServerDelay::RetryAfterMs, ServerDelay::RetryAfter],
            server_delay_max_ns: 60 * SECOND,
            server_delay_longer: LongerDelay::BackOff,
            count_header: Some("x-stainless-retry-count".to_owned()),
        }
    }
}
