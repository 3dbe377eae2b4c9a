//! What a mock is like, as data.

use std::fmt::Write as _;
use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A mock endpoint: its model, its cache, its budgets, its logs.
///
/// The defaults look like a mid-size model on one accelerator, alone on its endpoint: about 70 ms to the first token of
/// a 1,000-token prompt, 12 to 20 ms a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MockConfig {
    /// Behind every draw: answer lengths, answer texts, jitter. The same seed and the same arrivals give the same run.
    pub seed: u64,
    /// Names that `/v1/models` lists and that requests may ask for. Empty: any name is served, and `mock` is listed.
    pub models: Vec<String>,
    /// Costs and sizes of the engine.
    pub engine: EngineConfig,
    /// The prefix cache.
    pub cache: CacheConfig,
    /// Request and token budgets.
    pub limits: LimitConfig,
    /// The HTTP side.
    pub http: HttpConfig,
    /// Where to write one JSON line an attempt with every stamp, for checking a generator from outside.
    pub witness_log: Option<PathBuf>,
    /// Where to write an access log as a gateway would.
    pub gateway_log: Option<PathBuf>,
}

/// Costs and sizes of the engine. A step takes `step_base_us + decode_us_per_sequence × decoding sequences +
/// prefill_us_per_token × uncached prompt tokens computed in it`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineConfig {
    /// Sequences that run at once (vLLM's `max-num-seqs`).
    pub max_running: u32,
    /// Tokens computed in one step (vLLM's `max-num-batched-tokens`): one for each decoding sequence, the rest prefill.
    pub max_batched_tokens: u32,
    /// Requests that may wait; one more is refused with 503.
    pub queue_limit: u32,
    /// Tokens (prompt and longest answer) that all running sequences together may hold. Absent: no limit.
    pub kv_tokens: Option<u32>,
    /// Longest prompt and answer together; longer is refused with 400.
    pub max_context_tokens: u32,
    /// Time from a request's arrival to its place in the queue, microseconds: gateway, tokenising, routing.
    pub intake_us: u32,
    /// Fixed cost of a step, microseconds.
    pub step_base_us: u32,
    /// Cost of one decoding sequence in a step, microseconds.
    pub decode_us_per_sequence: u32,
    /// Cost of one uncached prompt token, microseconds.
    pub prefill_us_per_token: u32,
    /// How much a step's time and the intake's may differ from the formula either way, per cent; seeded.
    pub jitter_percent: u32,
    /// Mean length of an answer that nothing forces to another; seeded, evenly between half of it and one and a half.
    pub natural_output_tokens: u32,
    /// When a chat stream's role-only first delta goes out.
    pub role_delta: RoleDelta,
}

/// When a chat stream's role-only first delta goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleDelta {
    /// Together with the first token, as vLLM does.
    FirstToken,
    /// When the request enters the batch: whoever takes it for a token measures the queue, not the first token.
    Admission,
}

/// The prefix cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CacheConfig {
    /// Whether prompts are cached at all.
    pub enabled: bool,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// Blocks that the cache holds.
    pub capacity_blocks: u32,
}

/// Request and token budgets, by the generic cell rate algorithm.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitConfig {
    /// Requests a minute. Absent: no limit.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Requests that may come at once. Absent: a minute's worth.
    pub request_burst: Option<NonZeroU32>,
    /// Tokens a minute, prompt and longest answer asked for. Absent: no limit.
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Tokens that may come at once. Absent: a minute's worth.
    pub token_burst: Option<NonZeroU32>,
    /// Whether each API key has budgets of its own.
    pub per_key: bool,
    /// Least wait that a refusal asks for, milliseconds.
    pub retry_after_floor_ms: u32,
    /// Up to so much is added to the wait, milliseconds, evenly over refusals that follow each other: a server that
    /// spreads its clients out.
    pub retry_after_spread_ms: u32,
}

/// The HTTP side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// Connections at once; one more is closed at once.
    pub max_connections: u32,
    /// Largest request body, bytes; larger is refused with 413.
    pub max_body_bytes: u32,
    /// Whether a request without an `authorization` header is refused with 401.
    pub require_authorization: bool,
}

impl Default for MockConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            models: Vec::new(),
            engine: EngineConfig::default(),
            cache: CacheConfig::default(),
            limits: LimitConfig::default(),
            http: HttpConfig::default(),
            witness_log: None,
            gateway_log: None,
        }
    }
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            max_running: 64,
            max_batched_tokens: 2048,
            queue_limit: 1000,
            kv_tokens: None,
            max_context_tokens: 131_072,
            intake_us: 0,
            step_base_us: 12_000,
            decode_us_per_sequence: 100,
            prefill_us_per_token: 60,
            jitter_percent: 0,
            natural_output_tokens: 200,
            role_delta: RoleDelta::FirstToken,
        }
    }
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { enabled: true, block_tokens: 16, capacity_blocks: 16_384 }
    }
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self { max_connections: 4096, max_body_bytes: 16 << 20, require_authorization: false }
    }
}

/// A configuration that describes no possible mock.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value must be larger.
    #[error("{field} is {value}, but must be at least {least}")]
    TooSmall {
        /// The field, as written in a file.
        field: &'static str,
        /// What it is.
        value: u32,
        /// What it must be at least.
        least: u32,
    },
    /// A value must be smaller.
    #[error("{field} is {value}, but must be at most {most}")]
    TooLarge {
        /// The field, as written in a file.
        field: &'static str,
        /// What it is.
        value: u32,
        /// What it may be at most.
        most: u32,
    },
    /// A burst without the budget that it belongs to.
    #[error("{burst} is set but {budget} is not: set both or neither")]
    BurstWithoutBudget {
        /// The burst's field.
        burst: &'static str,
        /// The budget's field.
        budget: &'static str,
    },
}

impl MockConfig {
    /// Checks that such a mock can exist.
    ///
    /// # Errors
    /// The first value that can't be, with its bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let engine = &self.engine;
        at_least("engine.max_running", engine.max_running, 1)?;
        // Otherwise sequences that decode could starve.
        at_least("engine.max_batched_tokens", engine.max_batched_tokens, engine.max_running)?;
        at_least("engine.queue_limit", engine.queue_limit, 1)?;
        at_least("engine.max_context_tokens", engine.max_context_tokens, 2)?;
        at_least("engine.natural_output_tokens", engine.natural_output_tokens, 1)?;
        at_most("engine.jitter_percent", engine.jitter_percent, 90)?;
        // A step without duration would let virtual time stand still for ever.
        at_least("engine.step_base_us", engine.step_base_us, 1)?;
        at_least("cache.block_tokens", self.cache.block_tokens, 1)?;
        at_least("http.max_connections", self.http.max_connections, 1)?;
        at_least("http.max_body_bytes", self.http.max_body_bytes, 1)?;
        let limits = &self.limits;
        burst_has_budget(
            "limits.request_burst",
            "limits.requests_per_minute",
            limits.request_burst,
            limits.requests_per_minute,
        )?;
        burst_has_budget(
            "limits.token_burst",
            "limits.tokens_per_minute",
            limits.token_burst,
            limits.tokens_per_minute,
        )
    }

    /// The configured model in words: what the endpoint does and how long it takes, for a person.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        self.describe_engine(&mut text);
        self.describe_cache(&mut text);
        self.describe_limits(&mut text);
        self.describe_examples(&mut text);
        text
    }

    fn describe_engine(&self, text: &mut String) {
        let engine = &self.engine;
        let names = if self.models.is_empty() { "any model name".to_owned() } else { self.models.join(", ") };
        line(text, format_args!("serves {names}; seed {}", self.seed));
        line(
            text,
            format_args!(
                "a step takes {} ms + {} ms a decoding sequence + {} ms a prompt token that is not cached{}",
                ms(engine.step_base_us),
                ms(engine.decode_us_per_sequence),
                ms(engine.prefill_us_per_token),
                if engine.jitter_percent > 0 {
                    format!(", ± {} %", engine.jitter_percent)
                } else {
                    String::new()
                },
            ),
        );
        line(
            text,
            format_args!(
                "at most {} sequences and {} tokens a step; at most {} requests wait, first come first served",
                engine.max_running, engine.max_batched_tokens, engine.queue_limit
            ),
        );
        if engine.intake_us > 0 {
            line(
                text,
                format_args!("a request reaches the queue {} ms after it arrived", ms(engine.intake_us)),
            );
        }
        if let Some(tokens) = engine.kv_tokens {
            line(text, format_args!("running sequences hold at most {tokens} tokens together"));
        }
    }

    fn describe_cache(&self, text: &mut String) {
        let cache = &self.cache;
        if cache.enabled {
            line(
                text,
                format_args!(
                    "prefix cache of {} blocks of {} tokens, the least recently admitted dropped first",
                    cache.capacity_blocks, cache.block_tokens
                ),
            );
        } else {
            line(text, format_args!("no prefix cache"));
        }
    }

    fn describe_limits(&self, text: &mut String) {
        let limits = &self.limits;
        let whose = if limits.per_key { " for each key" } else { "" };
        if let Some(rate) = limits.requests_per_minute {
            let burst = limits.request_burst.unwrap_or(rate);
            line(text, format_args!("{rate} requests a minute{whose}, {burst} at once; beyond that 429"));
        }
        if let Some(rate) = limits.tokens_per_minute {
            let burst = limits.token_burst.unwrap_or(rate);
            line(text, format_args!("{rate} tokens a minute{whose}, {burst} at once; beyond that 429"));
        }
        if limits.requests_per_minute.is_none() && limits.tokens_per_minute.is_none() {
            line(text, format_args!("no request or token budget"));
        } else if limits.retry_after_floor_ms > 0 || limits.retry_after_spread_ms > 0 {
            line(
                text,
                format_args!(
                    "a 429 asks to wait at least {} ms and up to {} ms more",
                    limits.retry_after_floor_ms, limits.retry_after_spread_ms
                ),
            );
        }
    }

    fn describe_examples(&self, text: &mut String) {
        let idle_us = |prompt: u32| self.idle_first_token_us(prompt);
        line(
            text,
            format_args!(
                "idle and cold: first token after {} ms for 100 prompt tokens, {} ms for 1,000, {} ms for 4,000",
                idle_us(100) / 1000,
                idle_us(1000) / 1000,
                idle_us(4000) / 1000
            ),
        );
        let token_us = |running: u32| {
            (u64::from(self.engine.step_base_us)
                + u64::from(self.engine.decode_us_per_sequence) * u64::from(running)) as f64
                / 1000.0
        };
        let full = self.engine.max_running;
        line(
            text,
            format_args!(
                "then a token each {:.1} ms alone, each {:.1} ms among {full} when none of them is in prefill",
                token_us(1),
                token_us(full)
            ),
        );
    }

    /// Time to the first token of a prompt on an idle endpoint with an empty cache, microseconds.
    fn idle_first_token_us(&self, prompt_tokens: u32) -> u64 {
        let engine = &self.engine;
        let steps = u64::from(prompt_tokens.div_ceil(engine.max_batched_tokens.max(1)));
        u64::from(engine.intake_us)
            + steps * u64::from(engine.step_base_us)
            + u64::from(prompt_tokens) * u64::from(engine.prefill_us_per_token)
    }
}

fn at_least(field: &'static str, value: u32, least: u32) -> Result<(), ConfigError> {
    if value < least { Err(ConfigError::TooSmall { field, value, least }) } else { Ok(()) }
}

fn at_most(field: &'static str, value: u32, most: u32) -> Result<(), ConfigError> {
    if value > most { Err(ConfigError::TooLarge { field, value, most }) } else { Ok(()) }
}

fn burst_has_budget(
    burst: &'static str,
    budget: &'static str,
    burst_value: Option<NonZeroU32>,
    budget_value: Option<NonZeroU32>,
) -> Result<(), ConfigError> {
    if burst_value.is_some() && budget_value.is_none() {
        return Err(ConfigError::BurstWithoutBudget { burst, budget });
    }
    Ok(())
}

fn ms(us: u32) -> f64 {
    f64::from(us) / 1000.0
}

fn line(text: &mut String, what: std::fmt::Arguments<'_>) {
    writeln!(text, "{what}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_survive_a_toml_round_trip() {
        let config = MockConfig::default();
        assert_eq!(config.validate(), Ok(()));
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<MockConfig>(&text).unwrap(), config);
        assert_eq!(toml::from_str::<MockConfig>("").unwrap(), config);
    }

    #[test]
    fn the_defaults_look_like_a_mid_size_model() {
        let config = MockConfig::default();
        assert!((60_000..=200_000).contains(&config.idle_first_token_us(1000)));
        assert!((60_000..=200_000).contains(&config.idle_first_token_us(2000)));
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(toml::from_str::<MockConfig>("sead = 1").is_err());
        assert!(toml::from_str::<MockConfig>("[engine]\nmax_runing = 1").is_err());
    }

    #[test]
    fn impossible_mocks_are_refused_with_the_field_named() {
        let mut config = MockConfig::default();
        config.engine.max_batched_tokens = config.engine.max_running - 1;
        let text = config.validate().unwrap_err().to_string();
        assert_eq!(text, "engine.max_batched_tokens is 63, but must be at least 64");
        let mut config = MockConfig::default();
        config.limits.token_burst = NonZeroU32::new(5);
        let text = config.validate().unwrap_err().to_string();
        assert!(text.contains("limits.token_burst is set but limits.tokens_per_minute is not"), "{text}");
    }

    #[test]
    fn the_description_names_what_is_configured() {
        let mut config = MockConfig::default();
        let text = config.describe();
        assert!(text.contains("12 ms + 0.1 ms a decoding sequence + 0.06 ms a prompt token"), "{text}");
        assert!(text.contains("72 ms for 1,000"), "{text}");
        assert!(text.contains("no request or token budget"), "{text}");
        config.limits.requests_per_minute = NonZeroU32::new(300);
        config.limits.request_burst = NonZeroU32::new(7);
        config.cache.enabled = false;
        let text = config.describe();
        assert!(
            text.contains("300 requests a minute, 7 at once") && text.contains("no prefix cache"),
            "{text}"
        );
    }
}
