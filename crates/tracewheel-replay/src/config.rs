//! What a replay is asked to do: every option, serialisable, without secrets.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tracewheel_protocol::ProtocolOptions;
use tracewheel_record::manifest::FidelityBounds;
use tracewheel_transport::HttpChoice;
use tracewheel_workload::CacheMode;

use crate::client_budget::ClientBudget;
use crate::hook::Hook;
use crate::retry::RetryPolicy;
use crate::route::Route;

/// A second in nanoseconds.
pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// Every option of one replay. Serialises without the secret, so that it can stand in a manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplayConfig {
    /// Base URL of the target, for example `http://127.0.0.1:8000` or `https://api.example`.
    pub target: String,
    /// PEM file of the certificates that are trusted instead of the system's, for an `https` target. A server's own
    /// certificate may stand there too.
    pub ca_file: Option<PathBuf>,
    /// Name that the target's certificate must be for, where it is not the host of the target; also sent as SNI.
    pub tls_name: Option<String>,
    /// Which HTTP is spoken.
    pub http: HttpVersion,
    /// Name of the provider that renders requests and reads answers (`openai-chat`, `openai-completions`).
    pub provider: String,
    /// Model asked for in every request; without it each request's recorded model is asked for.
    pub model: Option<String>,
    /// Readable part of the run's id, normally the timeline's file stem.
    pub run_name: String,
    /// State of the target's prompt cache that the run asks for.
    pub cache: CacheMode,
    /// Nonce that re-keys the prompts. Without it one is drawn and recorded.
    pub nonce: Option<u64>,
    /// How prompts are made up.
    pub prompts: PromptOptions,
    /// What the protocol is told besides: the engine, lengths, fields, versions, free-form requests.
    pub protocol: ProtocolOptions,
    /// Sampling temperature where the recorded parameters name none.
    pub temperature: f64,
    /// When and how often an attempt is repeated.
    pub retry: RetryPolicy,
    /// Time from an attempt's release after which it is given up.
    pub request_timeout_ns: i64,
    /// Time that opening a connection may take.
    pub connect_timeout_ns: i64,
    /// Limits that the client keeps by itself.
    pub budget: ClientBudget,
    /// Whether a turn waits for the one before it.
    pub sessions: SessionRule,
    /// Leave a request when the recorded client left it (`cancel_after_ns`, counted from when the request is due).
    pub cancel_as_recorded: bool,
    /// `Some(n)`: at most `n` requests at once, the next one starts when one ends. `None`: open loop.
    pub closed_loop: Option<u32>,
    /// Ask for a real-time scheduling class for the sending threads. Where it is refused, the run goes on without.
    pub realtime: bool,
    /// Cores that the sending threads are bound to, in turn; the run's other threads use the rest. Empty: no binding.
    pub pin: Vec<u32>,
    /// Number of sending threads; without it one on machines of up to two cores, else two.
    pub workers: Option<u16>,
    /// Time to wait after the last release for requests in flight; those left are interrupted. `None`: their
    /// own time-out bounds the wait.
    pub drain_timeout_ns: Option<i64>,
    /// The same after a person's first stop, where it is shorter.
    pub stop_drain_ns: i64,
    /// How far ahead of the due time requests are rendered.
    pub look_ahead: LookAhead,
    /// Bounds of the queue between the senders and the recorder.
    pub recorder_queue: RecorderQueue,
    /// How the run directory is written.
    pub record: RecordOptions,
    /// Largest response body that is kept; a longer one fails its attempt.
    pub max_response_bytes: u64,
    /// Bytes that all answers under way and not yet recorded may hold; above it, those that exceed a fair share fail.
    pub max_held_bytes: u64,
    /// Connections opened before the first request is due. Without it: from the plan's rate.
    pub warm_connections: Option<u32>,
    /// Connections open at once, at most. A request that finds none waits, which counts as lateness. `None`: no limit.
    pub max_connections: Option<u32>,
    /// Whether a connection carries one request or many.
    pub connection_use: ConnectionUse,
    /// HTTP/2: requests at once on one connection, at most; the target may allow fewer.
    pub http2_streams: u32,
    /// Connections kept ready beyond those that the next requests need. `None`: an eighth of the most that were in use
    /// at once lately, 2 to 32 for each sending thread.
    pub spare_connections: Option<u32>,
    /// Requests at once while the cache is filled before the measured phase.
    pub prime_concurrency: u32,
    /// What is called beside the replay, in this order at each point.
    pub hooks: Vec<Hook>,
    /// Go on where a hook failed, and say so in the warnings. Without it nothing of the plan is sent then.
    pub ignore_hook_failure: bool,
    /// End the run after so many failed requests in a row. `None`: never.
    pub give_up_after_failures: Option<u32>,
    /// What the run is to be judged by; recorded, and judged by whoever reads the run.
    pub fidelity: FidelityBounds,
    /// Holds the sending thread up for so long before each release. Only for tests of the verdict on the sending.
    #[serde(skip)]
    pub test_stall_ns: Option<i64>,
    /// Writes each request in one go instead of in slices (HTTP/1.1). Only for measuring what the slices are worth.
    #[serde(skip)]
    pub test_whole_bodies: bool,
    /// Further request headers, recorded as they stand: no secrets here.
    pub headers: Vec<(String, String)>,
    /// API key, sent as the provider's authorization header. Never serialised, never printed.
    #[serde(skip)]
    pub secret: Option<Secret>,
    /// Where requests go, by what was recorded of them: the first that takes a request has it, and one that none takes
    /// is refused before anything is sent. Where there are any, they stand in the place of `target`, `ca_file`,
    /// `tls_name`, `http`, `provider`, `model`, `protocol`, `headers` and `secret`.
    pub routes: Vec<Route>,
    /// Who runs this, for the manifest.
    pub owner: Option<String>,
    /// The resolved scenario as the manifest shall show it: a scenario file with every default filled in.
    pub scenario: Option<String>,
}

impl Default for ReplayConfig {
    fn default() -> Self {
        ReplayConfig {
            target: String::new(),
            ca_file: None,
            tls_name: None,
            http: HttpVersion::Auto,
            provider: "openai-chat".to_owned(),
            model: None,
            run_name: "run".to_owned(),
            cache: CacheMode::Natural,
            nonce: None,
            prompts: PromptOptions::default(),
            protocol: ProtocolOptions::default(),
            temperature: 0.0,
            retry: RetryPolicy::none(),
            request_timeout_ns: 600 * SECOND_NS,
            connect_timeout_ns: 5 * SECOND_NS,
            budget: ClientBudget::default(),
            sessions: SessionRule::default(),
            cancel_as_recorded: false,
            closed_loop: None,
            realtime: false,
            pin: Vec::new(),
            workers: None,
            drain_timeout_ns: None,
            stop_drain_ns: 20 * SECOND_NS,
            look_ahead: LookAhead::default(),
            recorder_queue: RecorderQueue::default(),
            record: RecordOptions::default(),
            max_response_bytes: 64 << 20,
            max_held_bytes: 256 << 20,
            warm_connections: None,
            max_connections: None,
            connection_use: ConnectionUse::Reuse,
            http2_streams: 100,
            spare_connections: None,
            prime_concurrency: 4,
            hooks: Vec::new(),
            ignore_hook_failure: false,
            give_up_after_failures: Some(1_000),
            fidelity: FidelityBounds::default(),
            test_stall_ns: None,
            test_whole_bodies: false,
            headers: Vec::new(),
            secret: None,
            routes: Vec::new(),
            owner: None,
            scenario: None,
        }
    }
}

/// Which HTTP is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum HttpVersion {
    /// With `https` what the target chooses by ALPN, HTTP/2 if it can; with `http` HTTP/1.1.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// HTTP/1.1.
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2: with `https` by ALPN, with `http` by prior knowledge.
    #[serde(rename = "2")]
    Http2,
}

impl HttpVersion {
    /// Every choice, with its word.
    pub const ALL: [(&'static str, HttpVersion); 3] =
        [("auto", HttpVersion::Auto), ("1.1", HttpVersion::Http1), ("2", HttpVersion::Http2)];

    /// As the transport takes it.
    pub(crate) fn choice(self) -> HttpChoice {
        match self {
            HttpVersion::Auto => HttpChoice::Auto,
            HttpVersion::Http1 => HttpChoice::Http1,
            HttpVersion::Http2 => HttpChoice::Http2,
        }
    }
}

/// How prompts are made up where none was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PromptOptions {
    /// Tokenizer of the target's model (a `tokenizer.json` or a `.tiktoken` file): prompts are made of those words that
    /// are one token each in it.
    pub tokenizer: Option<PathBuf>,
    /// Whether two prompts are sent ahead, to fit the others to what the target counts.
    pub calibrate: bool,
}

/// Whether a turn of a session waits for the one before it, and what follows a turn that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SessionRule {
    /// What decides when a turn leaves.
    pub mode: SessionMode,
    /// What follows a turn that failed. Only for [`SessionMode::AfterPrevious`].
    pub after_failure: AfterFailure,
    /// Whether live answers go on into the next turn's body. Only for [`SessionMode::AfterPrevious`].
    pub thread: bool,
}

/// What decides when a turn of a session leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionMode {
    /// Its recorded arrival, whatever became of the turn before it.
    #[default]
    Independent,
    /// The end of the turn before it plus the recorded pause.
    AfterPrevious,
}

impl SessionMode {
    /// Every mode, with its word.
    pub const ALL: [(&'static str, SessionMode); 2] =
        [("independent", SessionMode::Independent), ("after-previous", SessionMode::AfterPrevious)];
}

/// What follows a turn that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterFailure {
    /// The session's later turns are not sent (`previous_turn_failed`).
    #[default]
    Stop,
    /// They are, after the recorded pause.
    GoOn,
}

impl AfterFailure {
    /// Every rule, with its word.
    pub const ALL: [(&'static str, AfterFailure); 2] =
        [("stop", AfterFailure::Stop), ("go-on", AfterFailure::GoOn)];
}

/// How connections are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionUse {
    /// A connection carries one request after another, as SDKs and browsers keep them.
    #[default]
    Reuse,
    /// Each request has a connection of its own, opened ahead of its due time, and says `connection: close`.
    PerRequest,
}

impl ConnectionUse {
    /// Every way, with its word.
    pub const ALL: [(&'static str, ConnectionUse); 2] =
        [("reuse", ConnectionUse::Reuse), ("per-request", ConnectionUse::PerRequest)];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            ConnectionUse::Reuse => "reuse",
            ConnectionUse::PerRequest => "per-request",
        }
    }
}

/// How far ahead of the due time requests are rendered; whichever bound is met first stops the renderer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LookAhead {
    /// Requests rendered and not yet released.
    pub requests: u32,
    /// Bytes that their bodies hold for themselves together; text that long prompts share is kept beside it.
    pub bytes: u64,
}

impl Default for LookAhead {
    fn default() -> Self {
        LookAhead { requests: 4_096, bytes: 64 << 20 }
    }
}

/// How the run directory is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordOptions {
    /// Whether the recorder waits for the disk each second, so that a power cut loses no more than a killed process.
    pub power_safe: bool,
    /// Rows after which a part of a table is closed and the next begun.
    pub part_rows: u32,
    /// Encoded bytes after which a part is closed and the next begun.
    pub part_bytes: u64,
}

impl Default for RecordOptions {
    fn default() -> Self {
        RecordOptions { power_safe: false, part_rows: 1 << 20, part_bytes: 128 << 20 }
    }
}

/// Bounds of the queue between the senders and the recorder. A full queue ends the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecorderQueue {
    /// Messages waiting.
    pub messages: u32,
    /// Bytes of the bodies that wait in them.
    pub bytes: u64,
}

impl Default for RecorderQueue {
    fn default() -> Self {
        RecorderQueue { messages: 65_536, bytes: 512 << 20 }
    }
}

/// A value that must not be seen: neither printed nor serialised.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value read from the environment or a file.
    pub fn new(value: impl Into<String>) -> Self {
        Secret(value.into())
    }

    /// The value, to be put into a request.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_neither_printed_nor_serialised() {
        let config = ReplayConfig { secret: Some(Secret::new("sk-hidden")), ..ReplayConfig::default() };
        assert!(!format!("{config:?}").contains("hidden"));
        let text = serde_json::to_string(&config).expect("a config serialises");
        assert!(!text.contains("hidden") && !text.contains("secret"));
        let back: ReplayConfig = serde_json::from_str(&text).expect("what was written is read");
        assert_eq!(back.request_timeout_ns, config.request_timeout_ns);
    }
}
