//! What differs between the two environments: a latency is a property of both ends and of the way between them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Differences between the two sides' environments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EnvironmentReport {
    /// What is known on both sides and differs, the most telling first.
    pub differences: Vec<Difference>,
    /// How many further entries are known on both sides and equal.
    pub equal: u64,
    /// What the replay states and the baseline does not tell.
    pub unknown: Vec<String>,
}

/// One entry that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Its path in the manifest, for example `target.models_served`.
    pub key: String,
    /// What the replay states.
    pub replay: Value,
    /// What the baseline states.
    pub baseline: Value,
}
