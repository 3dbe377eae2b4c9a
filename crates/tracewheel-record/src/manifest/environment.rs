//! Sections that describe the two ends and the way between them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where the traffic was sent, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetSection {
    /// Base address, without user info, query and fragment.
    pub url: String,
    /// Addresses that the name resolved to, with port.
    pub resolved_addresses: Vec<String>,
    /// Time that resolving the name took, once, before the run; no part of any latency.
    pub resolve_ns: Option<i64>,
    /// The `server` header of its answers.
    pub server_header: Option<String>,
    /// Models asked for.
    pub models_asked: Vec<String>,
    /// Models that its answers named.
    pub models_served: Vec<String>,
    /// System fingerprints that its answers named.
    pub system_fingerprints: Vec<String>,
    /// How models, operations and tenants were mapped.
    pub routes: Vec<RouteSection>,
}

/// One route of the scenario.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RouteSection {
    /// Its name.
    pub name: Option<String>,
    /// Which requests take it, as the scenario says it.
    pub matches: String,
    /// Base address, without user info, query and fragment.
    pub url: String,
    /// Provider dialect.
    pub provider: Option<String>,
    /// Model asked of the target.
    pub model: Option<String>,
    /// Names of the environment variables or files that hold its keys; never the keys.
    pub key_from: Option<String>,
    /// Requests of the plan that take it.
    pub requests: Option<u64>,
}

/// Where the generator ran, and how far away the target was.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VantageSection {
    /// Free name of the place, for example a region.
    pub name: Option<String>,
    /// Host name.
    pub hostname: Option<String>,
    /// Smallest observed time of a TCP handshake with the target.
    pub round_trip_min_ns: Option<i64>,
    /// Its median.
    pub round_trip_p50_ns: Option<i64>,
    /// Number of handshakes behind the two.
    pub round_trip_samples: Option<u32>,
}

/// Transport security.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TlsSection {
    /// Protocol version, for example `TLSv1.3`.
    pub version: Option<String>,
    /// Cipher suite.
    pub cipher_suite: Option<String>,
    /// Negotiated application protocol.
    pub alpn: Option<String>,
    /// Whether sessions were resumed.
    pub resumption: Option<bool>,
    /// Whether the certificate was verified.
    pub verified: Option<bool>,
    /// Name that the certificate had to be for; also sent as SNI.
    pub name: Option<String>,
    /// Where the trusted certificates came from.
    pub roots: Option<String>,
    /// Whom the server's certificate is for, as it says itself.
    pub certificate_subject: Option<String>,
    /// Who issued it.
    pub certificate_issuer: Option<String>,
    /// Last moment of its validity, for example `2030-01-31T00:00:00Z`.
    pub certificate_not_after: Option<String>,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub certificate_sha256: Option<String>,
    /// Handshakes with a certificate.
    pub handshakes_full: Option<u64>,
    /// Handshakes that resumed an earlier session.
    pub handshakes_resumed: Option<u64>,
}

/// Retries, budgets and connections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicySection {
    /// Name of the retry preset.
    pub retry: Option<String>,
    /// The retry policy as resolved.
    pub retry_resolved: Option<Value>,
    /// The client's own limits; empty when off.
    pub budgets: Vec<BudgetSection>,
    /// How connections were used.
    pub connections: ConnectionSection,
}

/// One limit that the client kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BudgetSection {
    /// What it limits, for example `requests` or `tokens`.
    pub of: String,
    /// Whom it applies to, for example a route or a tenant; `None` for all.
    pub scope: Option<String>,
    /// Amount allowed a window.
    pub amount: u64,
    /// Length of the window.
    pub window_ns: i64,
}

/// How connections were used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionSection {
    /// `reuse`, or `per-request`: each request had a connection of its own.
    pub mode: Option<String>,
    /// Connections opened ahead of the first send.
    pub opened_ahead: Option<u32>,
    /// Upper limit, if any.
    pub limit: Option<u32>,
    /// Connections kept ready beyond those that the next requests need; `None`: as many as the recent peak suggested.
    pub spares: Option<u32>,
    /// Idle time after which a connection was not used again, as learned from the target.
    pub idle_limit_ns: Option<i64>,
    /// Limit of an attempt's whole duration.
    pub request_timeout_ns: Option<i64>,
    /// Limit of establishing a connection.
    pub connect_timeout_ns: Option<i64>,
}

/// State of the target's prompt cache, as chosen and as measured. Shares are of input tokens, from 0 to 1.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheSection {
    /// `natural`, `cold`, `warm` or `mix:SHARE`.
    pub mode: Option<String>,
    /// Whether prefixes that were live before the window were sent first.
    pub primed: Option<bool>,
    /// Share that the plan expected.
    pub planned_share: Option<f64>,
    /// Share that the target reported.
    pub measured_share: Option<f64>,
    /// Requests whose answer reported cached tokens.
    pub reported_by: Option<u64>,
    /// How the nonce entered: for example `prompt`, `cache_salt` or `off`.
    pub nonce_by: Option<String>,
    /// What was sent ahead to fill it, as planned; `None` where nothing was.
    pub prime: Option<PrimeSection>,
    /// Hooks that acted on the target, each as its point and its name, in order.
    pub hooks: Vec<String>,
}

/// What is sent ahead of a plan to fill the target's cache, as known before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PrimeSection {
    /// `history`: prefixes that rows before the window left behind. `prompts`: the plan's own prompts.
    pub of: Option<String>,
    /// How far back rows were looked at, in recorded time.
    pub look_back_ns: Option<i64>,
    /// Size of the cache that was taken, in tokens; `None` is no bound.
    pub cache_tokens: Option<u64>,
    /// `live`: all prefixes found. `reused`: those that a request of the window finds.
    pub prefixes: Option<String>,
    /// Requests to send; `None` where that is known only when they were.
    pub requests: Option<u64>,
    /// Their input tokens.
    pub input_tokens: Option<u64>,
    /// Tokens of the distinct blocks in them: what an empty cache has to take, at least.
    pub distinct_tokens: Option<u64>,
}

/// The generator's machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineSection {
    /// CPU model.
    pub cpu: Option<String>,
    /// Cores that the generator could use.
    pub cores: Option<u32>,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// Operating system.
    pub os: Option<String>,
    /// Kernel release.
    pub kernel: Option<String>,
    /// The kernel's clock source, for example `tsc`.
    pub clock_source: Option<String>,
    /// Scheduling class that the workers obtained, for example `other` or `fifo`.
    pub scheduling_class: Option<String>,
    /// Scheduling class that the workers were to have, where one was asked for.
    pub scheduling_asked: Option<String>,
    /// Why the system refused it, in its words.
    pub scheduling_refused: Option<String>,
    /// How often a worker gave the class back so as not to starve others.
    pub scheduling_step_downs: Option<u64>,
    /// When workers changed their class after their start; the first 64 changes.
    pub scheduling_changes: Vec<SchedulingChange>,
    /// Cores that the workers were bound to, in turn; empty: to none.
    pub pinned_cores: Vec<u32>,
    /// Timer slack of the workers.
    pub timer_slack_ns: Option<i64>,
    /// Worker threads.
    pub workers: Option<u32>,
    /// Whether receive times came from the kernel.
    pub kernel_stamps: Option<bool>,
}

/// A worker's change of its scheduling class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SchedulingChange {
    /// When, on the run clock.
    pub at_ns: i64,
    /// Number of the worker, from 0.
    pub worker: u32,
    /// The class that it changed to.
    pub class: String,
    /// `cpu` (it took most of a core), `others_behind` (prefetch or recorder fell behind) or `calm` (neither, for long
    /// enough).
    pub why: String,
}

/// The run clock against wall time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockSection {
    /// Wall time of the run clock's zero, ns since 1970 UTC; set by the writer.
    pub start_unix_ns: i64,
    /// Width of the bracket around that pair of readings.
    pub start_bracket_ns: Option<i64>,
    /// Largest bracket of the track in `health`.
    pub bracket_max_ns: Option<i64>,
    /// Steps of wall time seen during the run.
    pub steps: Option<u32>,
    /// Last offset − first offset.
    pub drift_ns: Option<i64>,
}
