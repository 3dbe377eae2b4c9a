//! What a mock is like, as data.

mod fault;
mod file;
mod tenants;

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use self::fault::Point;
pub use self::fault::{Attempts, FaultKind, FaultRule, HeaderMatch};
pub use self::tenants::{LoadPoint, TenantConfig, TimeOfDay, Variation};

/// A mock endpoint: its model, its cache, its budgets, its logs.
///
/// The defaults look like a mid-size model on one accelerator, alone on its endpoint: about 70 ms to the first token of
/// a 1,000-token prompt, 12 to 20 ms a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// The calls that empty the prefix cache.
    pub flush: FlushConfig,
    /// Request and token budgets.
    pub limits: LimitConfig,
    /// Who else uses the engine.
    pub tenants: TenantConfig,
    /// The HTTP side.
    pub http: HttpConfig,
    /// What goes wrong, tried in order.
    pub fault: Vec<FaultRule>,
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
    /// Prompt tokens a second; takes the place of `prefill_us_per_token`.
    pub prefill_tokens_per_s: Option<NonZeroU32>,
    /// Measured speeds by batch size, smallest first; they take the place of `step_base_us` and
    /// `decode_us_per_sequence`. Between two levels a step's time is a straight line, below the first it stays, above
    /// the last it goes on as before it.
    pub decode_levels: Vec<DecodeLevel>,
    /// How much a step's time and the intake's may differ from the formula either way, per cent; seeded.
    pub jitter_percent: u32,
    /// Mean length of an answer that nothing forces to another; seeded, evenly between half of it and one and a half.
    pub natural_output_tokens: u32,
    /// When a chat stream's role-only first delta goes out.
    pub role_delta: RoleDelta,
}

/// How fast a batch of a size decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeLevel {
    /// Sequences that decode at once.
    pub sequences: NonZeroU32,
    /// Output tokens a second of all of them together.
    pub tokens_per_s: NonZeroU32,
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

/// The calls that empty the prefix cache, and how their answers mislead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlushConfig {
    /// The first so many calls do nothing and are answered as by a busy engine, each in its engine's way.
    pub busy_answers: u32,
    /// Whether answers say what was done.
    pub tells: FlushTells,
    /// Slots that `/slots` lists, as llama.cpp does.
    pub slots: u32,
}

/// Whether answers to calls that empty the cache say what was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlushTells {
    /// As newer vLLM and SGLang do.
    Result,
    /// As older ones: the same 200 in any case.
    Nothing,
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
    /// Requests that may be under way at once: taken in and not complete. Absent: no limit.
    pub max_in_flight: Option<NonZeroU32>,
    /// Whether each API key has limits of its own.
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
    /// Connections at once.
    pub max_connections: u32,
    /// What happens to one more.
    pub over_limit: OverLimit,
    /// Largest request body, bytes; larger is refused with 413.
    pub max_body_bytes: u32,
    /// Whether a request without a key, where its API has it, is refused with 401.
    pub require_authorization: bool,
    /// A connection ends with so many answers; the last one says `connection: close` (HTTP/2: GOAWAY). Absent: never.
    pub close_after_answers: Option<NonZeroU32>,
    /// A connection without a request under way is closed without a word after so long, milliseconds. Absent: never.
    pub idle_close_ms: Option<NonZeroU32>,
    /// HTTP/2: streams at once on one connection, as its SETTINGS say.
    pub max_concurrent_streams: NonZeroU32,
    /// PEM file of a certificate: HTTPS is served, HTTP/2 or HTTP/1.1 by ALPN. With `tls_key`.
    pub tls_cert: Option<PathBuf>,
    /// PEM file of its key.
    pub tls_key: Option<PathBuf>,
}

/// What happens to a connection beyond the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverLimit {
    /// It is closed at once.
    Close,
    /// It is reset at once.
    Reset,
    /// It waits in the kernel's queue until another one ends.
    Wait,
}

impl Default for MockConfig {
    fn default() -> Self {
        Self {
            seed: 1,
            models: Vec::new(),
            engine: EngineConfig::default(),
            cache: CacheConfig::default(),
            flush: FlushConfig::default(),
            limits: LimitConfig::default(),
            tenants: TenantConfig::default(),
            http: HttpConfig::default(),
            fault: Vec::new(),
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
            prefill_tokens_per_s: None,
            decode_levels: Vec::new(),
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

impl Default for FlushConfig {
    fn default() -> Self {
        Self { busy_answers: 0, tells: FlushTells::Result, slots: 4 }
    }
}

/// The usual of proxies.
const MAX_CONCURRENT_STREAMS: NonZeroU32 = NonZeroU32::new(128).expect("128 is not zero");

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            max_connections: 4096,
            over_limit: OverLimit::Close,
            max_body_bytes: 16 << 20,
            require_authorization: false,
            close_after_answers: None,
            idle_close_ms: None,
            max_concurrent_streams: MAX_CONCURRENT_STREAMS,
            tls_cert: None,
            tls_key: None,
        }
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
    /// A value that can't be, for another reason.
    #[error("{field} {why}")]
    Impossible {
        /// The field, as written in a file.
        field: &'static str,
        /// Why it can't be.
        why: String,
    },
    /// A fault rule that can't be.
    #[error("fault rule `{rule}`: {why}")]
    Fault {
        /// The rule's name.
        rule: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file that can't be read as a configuration.
    #[error("{}{what}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    File {
        /// Where, from 1, if the parser says.
        line: Option<usize>,
        /// What is wrong, and the nearest that would be right.
        what: String,
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
        at_least("flush.slots", self.flush.slots, 1)?;
        at_most("flush.slots", self.flush.slots, 4096)?;
        at_least("http.max_connections", self.http.max_connections, 1)?;
        at_least("http.max_body_bytes", self.http.max_body_bytes, 1)?;
        if self.http.tls_cert.is_some() != self.http.tls_key.is_some() {
            let why = "needs both a certificate and its key".to_owned();
            return Err(ConfigError::Impossible { field: "http.tls_cert", why });
        }
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
        )?;
        self.validate_levels()?;
        self.validate_tenants()?;
        self.validate_faults()
    }

    fn validate_levels(&self) -> Result<(), ConfigError> {
        let field = "engine.decode_levels";
        for pair in self.engine.decode_levels.windows(2) {
            if pair[0].sequences >= pair[1].sequences {
                let why = format!(
                    "goes from {} to {} sequences: give the smallest first, each once",
                    pair[0].sequences, pair[1].sequences
                );
                return Err(ConfigError::Impossible { field, why });
            }
            let step_s =
                |level: DecodeLevel| f64::from(level.sequences.get()) / f64::from(level.tokens_per_s.get());
            if step_s(pair[1]) < step_s(pair[0]) {
                let why = format!(
                    "says that a step of {} sequences takes less time than one of {}: tokens_per_s counts all sequences together and can't grow faster than their number",
                    pair[1].sequences, pair[0].sequences
                );
                return Err(ConfigError::Impossible { field, why });
            }
        }
        Ok(())
    }

    fn validate_tenants(&self) -> Result<(), ConfigError> {
        let tenants = &self.tenants;
        at_least("tenants.time_scale", tenants.time_scale, 1)?;
        at_most("tenants.time_scale", tenants.time_scale, 1_000_000)?;
        at_least("tenants.prompt_tokens", tenants.prompt_tokens, 1)?;
        at_most("tenants.prompt_tokens", tenants.prompt_tokens, self.engine.max_context_tokens)?;
        at_least("tenants.output_tokens", tenants.output_tokens, 1)?;
        at_least("tenants.variation_ms", tenants.variation_ms, 1)?;
        tenants.points().map(drop).map_err(|why| ConfigError::Impossible { field: "tenants.load", why })
    }

    fn validate_faults(&self) -> Result<(), ConfigError> {
        let mut names = std::collections::BTreeSet::new();
        for rule in &self.fault {
            rule.validate()?;
            if !names.insert(&rule.name) {
                let why = "has the name of an earlier rule, so that nobody could count it".to_owned();
                return Err(ConfigError::Fault { rule: rule.name.clone(), why });
            }
        }
        Ok(())
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
    fn levels_must_grow() {
        let error = |text: &str| MockConfig::from_toml(&format!("[engine]\n{text}")).unwrap_err().to_string();
        let text = error(
            "decode_levels = [{ sequences = 8, tokens_per_s = 9 }, { sequences = 4, tokens_per_s = 9 }]",
        );
        assert!(text.contains("engine.decode_levels goes from 8 to 4 sequences"), "{text}");
        let text = error(
            "decode_levels = [{ sequences = 1, tokens_per_s = 10 }, { sequences = 2, tokens_per_s = 30 }]",
        );
        assert!(text.contains("takes less time"), "{text}");
    }

    #[test]
    fn two_rules_of_one_name_are_refused() {
        let rule = FaultRule::new("twice", FaultKind::Reset);
        let config = MockConfig { fault: vec![rule.clone(), rule], ..MockConfig::default() };
        assert!(
            config.validate().unwrap_err().to_string().contains("`twice`: has the name of an earlier rule")
        );
    }
}
