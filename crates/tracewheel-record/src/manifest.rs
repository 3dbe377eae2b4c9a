//! The manifest: the published environment of a run (`manifest.json`).
//!
//! Every field may be missing when an older or newer minor version is read, and fields that this version does not
//! know are kept and written back. Nothing in here may hold a secret: addresses go through
//! [`redact_url`](crate::redact::redact_url), free maps through [`redact_json`](crate::redact::redact_json), and
//! the writer applies both once more to whatever it is given.

mod environment;
mod fidelity;
pub(crate) mod file;
mod hook;
mod outcome;
mod plan;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use environment::{
    BudgetSection, CacheSection, ClockSection, ConnectionSection, MachineSection, PolicySection,
    PrimeSection, RouteSection, SchedulingChange, TargetSection, TlsSection, VantageSection,
};
pub use fidelity::FidelityBounds;
pub use hook::HookSection;
pub use outcome::{
    AnswersLimitFrom, ConnectionOutcome, Counts, DistributionSection, EndedBy, OutcomeSection, PercentilesNs,
    PrimeOutcome, ThreadingOutcome,
};
pub use plan::{
    CalibrationSection, PlanSection, PromptsSection, ScenarioSection, TokenizerSection, WindowSection,
};

/// The environment of a run and, once it is closed, its outcome.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// Version of the run format, `major.minor`; set by the writer.
    pub version: String,
    /// The run's id (a UUIDv7 and the timeline's name); set by the writer.
    pub id: String,
    /// Whether the run is still open; set by the writer.
    pub state: RunState,
    /// Version of the tool that wrote the run.
    pub tool_version: String,
    /// When the run was created, ns since 1970 UTC; set by the writer.
    pub created_unix_ns: i64,
    /// When the run was closed, ns since 1970 UTC; set by the writer.
    pub closed_unix_ns: Option<i64>,
    /// Who answers for the run.
    pub owner: Option<String>,
    /// What was sent, and when.
    pub plan: PlanSection,
    /// Where it was sent.
    pub target: TargetSection,
    /// From where.
    pub vantage: VantageSection,
    /// The wire protocol and provider dialect, for example `h1` and `openai-chat`.
    pub protocol: ProtocolSection,
    /// Transport security; `None` for plain text.
    pub tls: Option<TlsSection>,
    /// Retries, budgets and connections.
    pub policy: PolicySection,
    /// State of the target's prompt cache, as chosen and as measured.
    pub cache: CacheSection,
    /// What was called beside the replay, and what it answered; in order.
    pub hooks: Vec<HookSection>,
    /// The prompts' sizes and their digest.
    pub prompts: PromptsSection,
    /// The generator's machine.
    pub machine: MachineSection,
    /// The run clock against wall time.
    pub clock: ClockSection,
    /// The scenario as resolved.
    pub scenario: ScenarioSection,
    /// What the run is to be judged by; `None` where the usual bounds hold.
    pub fidelity: Option<FidelityBounds>,
    /// What a reader should know before trusting a number.
    pub warnings: Vec<String>,
    /// How the run ended; `None` while it is open.
    pub outcome: Option<OutcomeSection>,
    /// Fields of a newer minor version, kept as they were.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}

/// Whether a run is open, closed by its own process, or closed later by someone else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Being written, or its writer died.
    #[default]
    Open,
    /// Closed by its writer.
    Closed,
    /// Its writer died; closed afterwards from the journal.
    Recovered,
    /// A word that this version does not know: closed in a way of a newer minor version.
    #[serde(other)]
    Unknown,
}

/// The wire protocol and the provider dialect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ProtocolSection {
    /// HTTP version spoken: `h1`, `h2`, `h2c` (HTTP/2 without TLS), or `h1, h2`.
    pub http: Option<String>,
    /// Provider dialect, for example `openai-chat`.
    pub provider: Option<String>,
    /// Operations sent.
    pub operations: Vec<String>,
}

impl Manifest {
    /// Whether the run was closed, by its writer or afterwards.
    pub fn is_closed(&self) -> bool {
        self.state != RunState::Open
    }
}
