//! What a timeline says about itself: the key-value metadata of its Parquet file.
//!
//! Every key begins with [`PREFIX`]. A key whose value is unknown is left out.

use std::fmt;
use std::path::Path;

use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::TimelineError;
use crate::vocab::vocabulary;

/// What every metadata key of ours begins with.
pub const PREFIX: &str = "tracewheel.";

/// The version that this code writes.
pub const VERSION: Version = Version { major: 1, minor: 1 };

/// The metadata keys, in the order of the reference.
pub mod keys {
    /// `timeline`, or `baseline` where arrivals may be null.
    pub const KIND: &str = "tracewheel.kind";
    /// Version of the format, `major.minor`.
    pub const VERSION: &str = "tracewheel.version";
    /// Version of the program that wrote the file.
    pub const TOOL_VERSION: &str = "tracewheel.tool_version";
    /// Options of the import, a JSON object.
    pub const INGEST_OPTIONS: &str = "tracewheel.ingest_options";
    /// Fingerprint of the key behind every hash; never the key.
    pub const KEY_FINGERPRINT: &str = "tracewheel.key_fingerprint";
    /// Length of every prefix block, where it is the same for all.
    pub const BLOCK_TOKENS: &str = "tracewheel.block_tokens";
    /// Unit of block lengths: `tokens` or `bytes`.
    pub const BLOCK_BASIS: &str = "tracewheel.block_basis";
    /// Clock resolution found in the arrivals, in nanoseconds.
    pub const CLOCK_RESOLUTION_NS: &str = "tracewheel.clock_resolution_ns";
    /// `true` where arrivals count from 1970 UTC, `false` where they count from the trace's own start.
    pub const HAS_EPOCH: &str = "tracewheel.has_epoch";
    /// How zones were handled.
    pub const ZONE: &str = "tracewheel.zone";
    /// Quality report of the import, JSON.
    pub const QUALITY: &str = "tracewheel.quality";
    /// Digest of the logical content: BLAKE3, 64 hex digits.
    pub const DIGEST: &str = "tracewheel.digest";

    /// Every key.
    pub const ALL: &[&str] = &[
        KIND,
        VERSION,
        TOOL_VERSION,
        INGEST_OPTIONS,
        KEY_FINGERPRINT,
        BLOCK_TOKENS,
        BLOCK_BASIS,
        CLOCK_RESOLUTION_NS,
        HAS_EPOCH,
        ZONE,
        QUALITY,
        DIGEST,
    ];
}

/// A format version: another major is refused, a newer minor only adds nullable columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Changes when an older reader would misread.
    pub major: u16,
    /// Changes when nullable columns are added.
    pub minor: u16,
}

vocabulary! {
    /// The unit of prefix blocks' lengths.
    BlockBasis, "block basis" {
        /// Blocks are cut every so many tokens.
        Tokens = "tokens",
        /// Blocks are cut every so many bytes of the prompt's text.
        Bytes = "bytes",
    }
}

/// A timeline's metadata.
///
/// `version` and `digest` are set by the writer; what stands in them before is not looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineMeta {
    /// Version of the format.
    pub version: Version,
    /// Whether arrivals may be null: results of other tools, to compare with and never to replay.
    pub baseline: bool,
    /// Version of the program that wrote the file.
    pub tool_version: String,
    /// Options of the import: a JSON object without secrets.
    pub ingest_options: Value,
    /// Fingerprint of the key behind every hash; never the key. `None` where hashes are the source's own.
    pub key_fingerprint: Option<String>,
    /// Length of every prefix block but a prompt's last, in [`block_basis`](Self::block_basis); `None` where lengths
    /// stand in the rows or there are no blocks.
    pub block_tokens: Option<u32>,
    /// Unit of block lengths.
    pub block_basis: Option<BlockBasis>,
    /// Clock resolution found in the arrivals, in nanoseconds.
    pub clock_resolution_ns: Option<i64>,
    /// Whether arrivals count from 1970 UTC, rather than from the trace's own start.
    pub has_epoch: bool,
    /// How zones were handled, for people: `utc`, `offset`, or the zone that naive stamps were read in.
    pub zone: Option<String>,
    /// Quality report of the import.
    pub quality: Value,
    /// Digest of the logical content: 64 hex digits. See [`crate::digest`].
    pub digest: String,
}

impl Default for TimelineMeta {
    fn default() -> Self {
        Self {
            version: VERSION,
            baseline: false,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            ingest_options: Value::Null,
            key_fingerprint: None,
            block_tokens: None,
            block_basis: None,
            clock_resolution_ns: None,
            has_epoch: true,
            zone: None,
            quality: Value::Null,
            digest: String::new(),
        }
    }
}

impl TimelineMeta {
    pub(crate) fn to_key_values(&self) -> Vec<KeyValue> {
        let mut pairs = Vec::with_capacity(keys::ALL.len());
        let mut push = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                pairs.push(KeyValue::new(key.to_owned(), value));
            }
        };
        let json = |value: &Value| (!value.is_null()).then(|| value.to_string());
        push(keys::KIND, Some(if self.baseline { "baseline" } else { "timeline" }.to_owned()));
        push(keys::VERSION, Some(self.version.to_string()));
        push(keys::TOOL_VERSION, Some(self.tool_version.clone()));
        push(keys::INGEST_OPTIONS, json(&self.ingest_options));
        push(keys::KEY_FINGERPRINT, self.key_fingerprint.clone());
        push(keys::BLOCK_TOKENS, self.block_tokens.map(|tokens| tokens.to_string()));
        push(keys::BLOCK_BASIS, self.block_basis.map(|basis| basis.to_string()));
        push(keys::CLOCK_RESOLUTION_NS, self.clock_resolution_ns.map(|ns| ns.to_string()));
        push(keys::HAS_EPOCH, Some(self.has_epoch.to_string()));
        push(keys::ZONE, self.zone.clone());
        push(keys::QUALITY, json(&self.quality));
        push(keys::DIGEST, Some(self.digest.clone()));
        pairs
    }

    /// Understands a file's metadata. The version is judged first: nothing else of another major is looked at.
    pub(crate) fn from_key_values(path: &Path, pairs: &[KeyValue]) -> Result<Self, TimelineError> {
        let find =
            |key: &str| pairs.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
        let missing = |key| TimelineError::NotTimeline { path: path.to_owned(), key };
        let kind = find(keys::KIND).ok_or_else(|| missing(keys::KIND))?;
        if !matches!(kind, "timeline" | "baseline") {
            return Err(missing(keys::KIND));
        }
        let version = find(keys::VERSION).ok_or_else(|| missing(keys::VERSION))?;
        let version = Version::parse(version).ok_or_else(|| unreadable(path, keys::VERSION, version))?;
        if version.major != VERSION.major {
            return Err(TimelineError::OtherMajor { path: path.to_owned(), found: version, known: VERSION });
        }
        Ok(Self {
            version,
            baseline: kind == "baseline",
            tool_version: find(keys::TOOL_VERSION).unwrap_or_default().to_owned(),
            ingest_options: json_value(path, keys::INGEST_OPTIONS, find(keys::INGEST_OPTIONS))?,
            key_fingerprint: find(keys::KEY_FINGERPRINT).map(str::to_owned),
            block_tokens: parsed(path, keys::BLOCK_TOKENS, find(keys::BLOCK_TOKENS))?,
            block_basis: parsed(path, keys::BLOCK_BASIS, find(keys::BLOCK_BASIS))?,
            clock_resolution_ns: parsed(path, keys::CLOCK_RESOLUTION_NS, find(keys::CLOCK_RESOLUTION_NS))?,
            has_epoch: parsed(path, keys::HAS_EPOCH, find(keys::HAS_EPOCH))?.unwrap_or(true),
            zone: find(keys::ZONE).map(str::to_owned),
            quality: json_value(path, keys::QUALITY, find(keys::QUALITY))?,
            digest: find(keys::DIGEST).ok_or_else(|| missing(keys::DIGEST))?.to_owned(),
        })
    }
}

fn unreadable(path: &Path, key: &'static str, value: &str) -> TimelineError {
    TimelineError::Metadata { path: path.to_owned(), key, value: value.chars().take(80).collect() }
}

fn parsed<T: std::str::FromStr>(
    path: &Path,
    key: &'static str,
    value: Option<&str>,
) -> Result<Option<T>, TimelineError> {
    value.map(|text| text.parse().map_err(|_| unreadable(path, key, text))).transpose()
}

fn json_value(path: &Path, key: &'static str, value: Option<&str>) -> Result<Value, TimelineError> {
    let Some(text) = value else { return Ok(Value::Null) };
    serde_json::from_str(text).map_err(|_| unreadable(path, key, text))
}

impl Version {
    /// Reads `major.minor`; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl Serialize for Version {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not major.minor")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> TimelineMeta {
        TimelineMeta {
            ingest_options: serde_json::json!({"zone": "utc"}),
            key_fingerprint: Some("k:1a2b".to_owned()),
            block_tokens: Some(512),
            block_basis: Some(BlockBasis::Tokens),
            clock_resolution_ns: Some(1_000),
            has_epoch: false,
            zone: Some("utc".to_owned()),
            quality: serde_json::json!({"rows_read": 3}),
            digest: "ab".repeat(32),
            ..TimelineMeta::default()
        }
    }

    fn replaced(key: &str, value: Option<&str>) -> Result<TimelineMeta, TimelineError> {
        let mut pairs = sample().to_key_values();
        pairs.retain(|pair| pair.key != key);
        pairs.extend(value.map(|value| KeyValue::new(key.to_owned(), value.to_owned())));
        TimelineMeta::from_key_values(Path::new("x.parquet"), &pairs)
    }

    #[test]
    fn metadata_survives_the_way_through_key_values() {
        let meta = sample();
        let pairs = meta.to_key_values();
        assert!(pairs.iter().all(|pair| pair.key.starts_with(PREFIX)));
        assert_eq!(pairs.iter().map(|pair| pair.key.as_str()).collect::<Vec<_>>(), keys::ALL);
        assert_eq!(TimelineMeta::from_key_values(Path::new("x"), &pairs).unwrap(), meta);
        let bare = TimelineMeta { digest: "00".to_owned(), ..TimelineMeta::default() };
        assert_eq!(TimelineMeta::from_key_values(Path::new("x"), &bare.to_key_values()).unwrap(), bare);
    }

    #[test]
    fn another_major_is_refused_with_both_versions_and_a_newer_minor_is_read() {
        let text = replaced(keys::VERSION, Some("2.3")).unwrap_err().to_string();
        assert!(
            text.contains("version 2.3") && text.contains("reads 1.1") && text.contains("newer"),
            "{text}"
        );
        let text = replaced(keys::VERSION, Some("0.9")).unwrap_err().to_string();
        assert!(text.contains("version 0.9") && text.contains("again"), "{text}");
        assert_eq!(replaced(keys::VERSION, Some("1.7")).unwrap().version, Version { major: 1, minor: 7 });
    }

    #[test]
    fn a_file_without_our_metadata_is_no_timeline() {
        let error = TimelineMeta::from_key_values(Path::new("x.parquet"), &[]).unwrap_err();
        assert!(matches!(error, TimelineError::NotTimeline { key: keys::KIND, .. }));
        assert!(matches!(replaced(keys::KIND, Some("run")), Err(TimelineError::NotTimeline { .. })));
        assert!(matches!(replaced(keys::VERSION, None), Err(TimelineError::NotTimeline { .. })));
    }

    #[test]
    fn unreadable_values_are_named_with_their_key() {
        for (key, value) in [(keys::BLOCK_TOKENS, "-1"), (keys::QUALITY, "{"), (keys::VERSION, "one")] {
            let text = replaced(key, Some(value)).unwrap_err().to_string();
            assert!(text.contains(key) && text.contains(value), "{text}");
        }
    }
}
