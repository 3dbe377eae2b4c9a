//! Sections that describe what was to be sent.

use serde::{Deserialize, Serialize};

use super::outcome::DistributionSection;

/// What was to be sent, and when.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanSection {
    /// Requests planned: what `ok + failed + cancelled + interrupted + unsent` must add up to.
    pub requests: u64,
    /// Name of the timeline.
    pub timeline: Option<String>,
    /// Digest of the timeline's content, lower-case hex.
    pub timeline_digest: String,
    /// Seed of every choice in the plan.
    pub seed: u64,
    /// Nonce that re-keys the prompts, 16 hex digits in JSON.
    #[serde(with = "hex_u64")]
    pub nonce: Option<u64>,
    /// Factor on the recorded arrival offsets.
    pub speed: Option<f64>,
    /// `open`, `open:after-previous`, `open:after-previous:threaded` or `closed:N`.
    pub mode: Option<String>,
    /// Which part of the timeline.
    pub window: WindowSection,
    /// Span from the first to the last planned request.
    pub span_ns: Option<i64>,
    /// Planned requests per second over the span.
    pub offered_per_second: Option<f64>,
    /// Length of a prompt block.
    pub block_tokens: Option<u32>,
    /// Share of the recorded traffic that was kept (thinned: below 1, amplified: above).
    pub amplification: Option<f64>,
}

/// Which part of the timeline.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowSection {
    /// First recorded arrival, ns since 1970 UTC.
    pub from_unix_ns: Option<i64>,
    /// Last recorded arrival, ns since 1970 UTC.
    pub to_unix_ns: Option<i64>,
    /// Offsets from the timeline's first arrival, as asked for.
    pub from_offset_ns: Option<i64>,
    /// See `from_offset_ns`.
    pub to_offset_ns: Option<i64>,
    /// Time zone in which the window was named, for example `Europe/Berlin`.
    pub zone: Option<String>,
}

/// The prompts' sizes and their digest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PromptsSection {
    /// Digest of the distribution of planned sizes, lower-case hex: equal for equal prompts.
    pub digest: Option<String>,
    /// `synthesised`, `recorded` or `mixed`.
    pub origin: Option<String>,
    /// Planned input tokens.
    pub input_tokens: Option<DistributionSection>,
    /// Planned output tokens.
    pub output_tokens: Option<DistributionSection>,
    /// The tokenizer that made-up prompts are sized by; without one, a word counts as a token.
    pub tokenizer: Option<TokenizerSection>,
    /// What the target makes of the words, as measured before the run.
    pub calibration: Option<CalibrationSection>,
}

/// A tokenizer of which only those words are taken that are one token each.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenizerSection {
    /// The file's name, without its folder.
    pub file: Option<String>,
    /// `tiktoken` or `tokenizer.json`.
    pub kind: Option<String>,
    /// Digest of the file, `blake3:` and hex digits.
    pub digest: Option<String>,
    /// Words that prompts are made of.
    pub words: Option<u32>,
}

/// The line through two prompts that were sent ahead: tokens = overhead + tokens per word × words.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CalibrationSection {
    /// Tokens of a prompt before its first word.
    pub overhead_tokens: Option<u32>,
    /// Tokens of a word.
    pub tokens_per_word: Option<f64>,
    /// The prompts: words sent, tokens counted.
    pub probes: Vec<(u32, u32)>,
}

/// The scenario as resolved.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ScenarioSection {
    /// Its version, `major.minor`.
    pub version: Option<String>,
    /// The scenario file (TOML) that flags and file came to, with every default filled in.
    pub text: Option<String>,
}

mod hex_u64 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(value: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(&format_args!("{value:016x}")),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| u64::from_str_radix(&text, 16).map_err(D::Error::custom)).transpose()
    }
}
