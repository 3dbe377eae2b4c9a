//! What was called beside the replay, and what it answered.

use serde::{Deserialize, Serialize};

/// One hook of a run: a call or a command at a named point, by which the target was brought into a state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HookSection {
    /// When: `before-prime`, `before-measure` or `after-run`.
    pub at: String,
    /// Its name: the preset, or what the scenario calls it.
    pub name: String,
    /// What was called: method and address without secrets, or the command's program.
    pub called: Vec<String>,
    /// What it came to: `done`, `unproven` (the answer does not say whether anything was done), `failed` or `stopped`.
    pub outcome: String,
    /// Calls or starts, those that met a busy target among them.
    pub tries: u32,
    /// HTTP status of the last answer, or the command's exit code.
    pub status: Option<i32>,
    /// The beginning of the last answer or of the command's output, redacted.
    pub answer: Option<String>,
    /// Why it failed, or what is not proven.
    pub why: Option<String>,
    /// When it began, on the run clock.
    pub started_ns: i64,
    /// How long it took.
    pub took_ns: i64,
}
