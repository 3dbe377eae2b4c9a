//! Hooks: what is called beside a replay, at named points, to bring the target into a state: above all to empty its cache.
//!
//! A hook has done its work when the content of its answer says so. Servers answer 200 and have done nothing, refuse
//! while they are busy, or only schedule the work; each engine's ways are known to its [`FlushEngine`].

mod answer;
mod call;
mod command;
mod perform;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::config::{SECOND_NS, Secret};

pub(crate) use perform::{HookTarget, Stage, perform, root};

/// One thing to do beside a replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hook {
    /// When.
    pub at: HookPoint,
    /// What it is called in messages and in the manifest.
    pub name: String,
    /// What is done.
    pub action: HookAction,
    /// Limit of one call, or of the command, in nanoseconds.
    pub timeout_ns: i64,
    /// Limit of the whole hook, tries at a busy target among them, in nanoseconds.
    pub wait_ns: i64,
}

/// Limit of one call where nothing else is said.
pub const HOOK_TIMEOUT_NS: i64 = 30 * SECOND_NS;
/// Limit of a hook where nothing else is said.
pub const HOOK_WAIT_NS: i64 = 60 * SECOND_NS;

/// The points at which hooks act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookPoint {
    /// Before anything is sent: before the prime phase, and where there is none before the plan's first request.
    #[default]
    BeforePrime,
    /// Between the prime phase and the plan's first request.
    BeforeMeasure,
    /// When the last answer is there.
    AfterRun,
}

impl HookPoint {
    /// The points in their order.
    pub const ALL: [HookPoint; 3] = [HookPoint::BeforePrime, HookPoint::BeforeMeasure, HookPoint::AfterRun];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            HookPoint::BeforePrime => "before-prime",
            HookPoint::BeforeMeasure => "before-measure",
            HookPoint::AfterRun => "after-run",
        }
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a hook does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookAction {
    /// Empties the prefix cache of an engine that is known.
    Flush(Flush),
    /// Makes an HTTP call.
    Http(HttpCall),
    /// Starts a program with these arguments, without a shell; it must end with 0.
    Command(CommandCall),
}

/// Which engine's cache is emptied, and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flush {
    /// The engine.
    pub engine: FlushEngine,
    /// Its base URL; `None` is the replay's target, with the replay's key. Of several targets each is emptied; where their
    /// routes name engines, those that name this one.
    pub url: Option<String>,
    /// LMCache: the instance that the controller is to clear.
    pub instance: Option<String>,
    /// LMCache: the tiers to clear; empty is `LocalCPUBackend` alone.
    pub locations: Vec<String>,
    /// Headers of each call.
    pub headers: CallHeaders,
}

/// Headers of a call: those that may be seen, and those that may not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CallHeaders {
    /// Recorded as they stand.
    pub plain: Vec<(String, String)>,
    /// Neither recorded nor printed.
    #[serde(skip)]
    pub secret: Vec<(String, Secret)>,
}

/// Engines whose ways of emptying their cache are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlushEngine {
    /// `POST /reset_prefix_cache`; 200 with `"success": false` while requests hold blocks.
    Vllm,
    /// `POST /flush_cache`; 400 while requests run or wait.
    Sglang,
    /// `POST /clear` of its controller; only scheduled, so it is asked until nothing is left to clear.
    Lmcache,
    /// `POST /slots/ID?action=erase` for each slot.
    Llamacpp,
}

impl FlushEngine {
    /// Every engine.
    pub const ALL: [FlushEngine; 4] =
        [FlushEngine::Vllm, FlushEngine::Sglang, FlushEngine::Lmcache, FlushEngine::Llamacpp];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            FlushEngine::Vllm => "vllm",
            FlushEngine::Sglang => "sglang",
            FlushEngine::Lmcache => "lmcache",
            FlushEngine::Llamacpp => "llamacpp",
        }
    }
}

/// An HTTP call and what its answer must be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HttpCall {
    /// Method.
    pub method: String,
    /// Whole URL.
    pub url: String,
    /// Headers.
    pub headers: CallHeaders,
    /// Body; `None` sends none.
    pub body: Option<String>,
    /// What the answer must be.
    pub expect: Expect,
}

/// A program and what it must say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandCall {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// What it must print; its statuses are not looked at.
    pub expect: Expect,
}

/// What an answer must be for a hook to have done its work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Expect {
    /// Statuses that are taken; empty is 200 to 299.
    pub status: Vec<u16>,
    /// Statuses that mean "not now": the call is made again until the hook's limit.
    pub busy: Vec<u16>,
    /// A text that the answer must hold.
    pub contains: Option<String>,
    /// Values that the answer's JSON must hold, by the path of their keys: `result.cleared`.
    pub json: BTreeMap<String, serde_json::Value>,
}

/// Whether a hook can act at all.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn check(hook: &Hook, targets: &[HookTarget]) -> Result<(), String> {
    if hook.timeout_ns <= 0 || hook.wait_ns <= 0 {
        return Err("timeout and wait must be longer than 0".to_owned());
    }
    match &hook.action {
        HookAction::Http(http) => call::check(http),
        HookAction::Command(command) if command.argv.is_empty() => Err("its command is empty".to_owned()),
        HookAction::Command(_) => Ok(()),
        HookAction::Flush(flush) => {
            let of_lmcache = flush.engine == FlushEngine::Lmcache;
            if of_lmcache && (flush.url.is_none() || flush.instance.is_none()) {
                return Err(
                    "LMCache is emptied by its controller: give its url and the instance to clear, as `url` and `instance` of a \
                     [[hooks]] table in a scenario"
                        .to_owned()
                );
            }
            if !of_lmcache && (flush.instance.is_some() || !flush.locations.is_empty()) {
                return Err("instance and locations are LMCache's: leave them out".to_owned());
            }
            match &flush.url {
                Some(url) => call::check(&perform::probe(url, &flush.headers)),
                None if perform::targets_of(flush.engine, targets).next().is_none() => Err(format!(
                    "no route names the engine {}: give the hook its url, or the route its engine",
                    flush.engine.as_str()
                )),
                None => Ok(()),
            }
        }
    }
}
