//! What can be refused before anything is sent.

mod headers;
mod route;
mod target;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use tracewheel_clock::RunClock;
use tracewheel_protocol::PROVIDERS;
use tracewheel_tokens::Vocabulary;
use tracewheel_transport::{BodyBudget, ExchangeLimits};
use tracewheel_workload::{CacheMode, Plan};

use crate::config::SessionMode;
use crate::hook::{self, HookAction, HookPoint, HookTarget, Stage};
use crate::machine;
use crate::manifest::{self, Known};
use crate::realtime::Cores;
use crate::routing::Routing;
use crate::worker::{Rules, Target};
use crate::{ReplayConfig, ReplayError};

use super::survey::Taken;
pub(crate) use target::Destination;

/// Everything that a run needs and that could have been wrong.
pub(super) struct Checked {
    /// By which way each request goes.
    pub(super) routing: Arc<Routing>,
    /// What each route takes.
    pub(super) taken: Vec<Taken>,
    /// Where requests go.
    pub(super) targets: Arc<[Arc<Target>]>,
    /// What is known of each target besides.
    pub(super) destinations: Vec<Destination>,
    pub(super) rules: Arc<Rules>,
    pub(super) nonce: u64,
    pub(super) vocabulary: Option<Vocabulary>,
    pub(super) workers: u32,
    /// Which cores the run's threads are bound to.
    pub(super) cores: Option<Cores>,
    /// What hooks act upon.
    hook_targets: Vec<HookTarget>,
}

impl Checked {
    /// What hooks act upon.
    pub(super) fn hook_stage<'a>(
        &'a self,
        clock: &Arc<RunClock>,
        stopped: &'a (dyn Fn() -> bool + Sync),
    ) -> Stage<'a> {
        Stage { clock: Arc::clone(clock), targets: self.hook_targets.clone(), stopped }
    }

    /// The targets' base URLs in one line.
    pub(super) fn told_targets(&self) -> String {
        let urls: Vec<String> = self.destinations.iter().map(|one| one.endpoint.url()).collect();
        urls.join(", ")
    }

    pub(super) fn known<'a>(&'a self, plan: &'a Plan, config: &'a ReplayConfig) -> Known<'a> {
        Known {
            plan,
            config,
            routing: &self.routing,
            taken: &self.taken,
            destinations: &self.destinations,
            nonce: self.nonce,
            vocabulary: self.vocabulary.as_ref(),
            workers: self.workers,
        }
    }
}

/// Descriptors kept for what is no connection: the run's files, timers, event loops, the terminal.
const OWN_DESCRIPTORS: u64 = 48;
/// Connections that a run must be able to open, unless it is told to make do with fewer.
const MIN_CONNECTIONS: u64 = 16;
/// Most sending threads: each is a runtime with its own wheel and queue.
const MAX_WORKERS: u16 = 1024;

/// Checks a configuration and resolves what it names.
pub(super) fn check(plan: &Plan, config: &ReplayConfig) -> Result<Checked, ReplayError> {
    numbers(config)?;
    let routes = route::routes(config)?;
    threading(config, &routes)?;
    let cores = Cores::of(&config.pin).map_err(|problem| refuse("pin", problem))?;
    if plan.header().options.history.is_some() && config.cache != CacheMode::Natural {
        let problem = format!(
            "what lived before the window is sent ahead only in the cache mode natural, not {}: leave one of the two out",
            config.cache
        );
        return Err(refuse("prime", problem));
    }
    let vocabulary = config.prompts.tokenizer.as_deref().map(Vocabulary::open).transpose();
    let vocabulary = vocabulary.map_err(|source| ReplayError::Tokenizer { source })?;
    let taken = route::taken(plan, config, &routes)?;
    let hook_targets = target::hook_targets(&routes, &taken);
    hooks(plan, config, &hook_targets)?;
    let descriptors = machine::raise_descriptor_limit();
    enough_descriptors(descriptors, config)?;
    let destinations = target::destinations(config, &routes, &taken)?;
    let targets: Arc<[Arc<Target>]> = destinations.iter().map(|one| Arc::clone(&one.target)).collect();
    let workers = workers(config);
    Ok(Checked {
        rules: Arc::new(rules(config, plan.header().options.seed, workers, descriptors)),
        nonce: config.nonce.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
        routing: route::bound(routes, &destinations),
        taken,
        targets,
        destinations,
        vocabulary,
        workers,
        cores,
        hook_targets,
    })
}

/// Refuses live answers in the next turn's body where they cannot be there, or would mean something else.
fn threading(config: &ReplayConfig, routes: &[route::SoundRoute]) -> Result<(), ReplayError> {
    if !config.sessions.thread {
        return Ok(());
    }
    let problem = if config.sessions.mode != SessionMode::AfterPrevious {
        "a turn that does not wait for the one before it cannot hold its answer: take the sessions after-previous, or leave \
         threading out"
            .to_owned()
    } else if routes.iter().all(|route| route.provider().chat().is_none()) {
        let spoken: Vec<&str> = routes.iter().map(|route| route.provider().name()).collect();
        let chats = PROVIDERS.iter().filter(|provider| provider.chat().is_some());
        let chats: Vec<&str> = chats.map(|provider| provider.name()).collect();
        format!(
            "{} has no conversations, so that no answer can go into the next turn: leave threading out, or speak one of {}",
            spoken.join(", "),
            chats.join(", ")
        )
    } else if config.cache != CacheMode::Natural {
        format!(
            "a conversation shares its history, which the cache mode {} is to prevent or to send ahead: take natural, or \
             leave threading out",
            config.cache
        )
    } else {
        return Ok(());
    };
    Err(refuse("sessions.thread", problem))
}

/// Refuses hooks that cannot act, and those that would undo what the run prepares.
fn hooks(plan: &Plan, config: &ReplayConfig, targets: &[HookTarget]) -> Result<(), ReplayError> {
    for hook in &config.hooks {
        let refuse = |problem: String| refuse("hooks", format!("{} {}: {problem}", hook.at, hook.name));
        hook::check(hook, targets).map_err(refuse)?;
        let flushes = matches!(hook.action, HookAction::Flush(_));
        if flushes && hook.at == HookPoint::BeforeMeasure && manifest::primes(plan, config.cache) {
            let problem =
                "it would empty the cache that the prime phase has just filled: let it act before-prime";
            return Err(refuse(problem.to_owned()));
        }
    }
    Ok(())
}

pub(super) fn refuse(option: &'static str, problem: String) -> ReplayError {
    ReplayError::Config { option, problem }
}

fn numbers(config: &ReplayConfig) -> Result<(), ReplayError> {
    let positive = |option, value: i64| match value {
        1.. => Ok(()),
        _ => Err(refuse(option, format!("{value} must be positive"))),
    };
    let lasting = |option, ns: i64| match ns {
        1.. => Ok(()),
        _ => Err(refuse(option, "it must be longer than 0".to_owned())),
    };
    lasting("timeout", config.request_timeout_ns)?;
    lasting("connect_timeout", config.connect_timeout_ns)?;
    positive("look_ahead.requests", i64::from(config.look_ahead.requests))?;
    positive("recorder_queue.messages", i64::from(config.recorder_queue.messages))?;
    positive("closed_loop", config.closed_loop.map_or(1, i64::from))?;
    positive("workers", config.workers.map_or(1, i64::from))?;
    positive("http2_streams", i64::from(config.http2_streams))?;
    if let Some(workers) = config.workers.filter(|workers| *workers > MAX_WORKERS) {
        let problem = format!("{workers} is above {MAX_WORKERS}: one or two a core are enough");
        return Err(refuse("workers", problem));
    }
    positive("connections", config.max_connections.map_or(1, i64::from))?;
    positive("prime_concurrency", i64::from(config.prime_concurrency))?;
    if !config.temperature.is_finite() {
        return Err(refuse("temperature", "it must be a finite number".to_owned()));
    }
    if let Some((field, problem)) = config.budget.problem() {
        return Err(refuse(field, problem.to_owned()));
    }
    let gates =
        [("budget", config.budget.is_on()), ("sessions", config.sessions.mode == SessionMode::AfterPrevious)];
    if let Some((option, _)) = gates.iter().find(|(_, on)| *on && config.closed_loop.is_some()) {
        let problem = "a closed loop decides by itself when requests leave: leave one of the two out";
        return Err(refuse(option, problem.to_owned()));
    }
    config.retry.check().map_err(|error| refuse("retry", error.to_string()))?;
    Ok(())
}

/// The sending threads: one where there are two cores (the target and the recorder want the other), else two.
fn workers(config: &ReplayConfig) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = config.workers.map_or(if cores <= 2 { 1 } else { 2 }, u32::from);
    let bound = config.closed_loop.unwrap_or(u32::MAX).min(config.max_connections.unwrap_or(u32::MAX));
    // A budget is one account, kept by one thread.
    let bound = if config.budget.is_on() { 1 } else { bound };
    wanted.min(bound).max(1)
}

fn rules(config: &ReplayConfig, seed: u64, workers: u32, descriptors: Option<u64>) -> Rules {
    // What waits for the recorder is held too: half of its queue, so that a flooding target never looks like a slow disk.
    let held = config.max_held_bytes.min(config.recorder_queue.bytes / 2);
    Rules {
        test_stall_ns: config.test_stall_ns,
        test_whole_bodies: config.test_whole_bodies,
        retry: config.retry.clone(),
        seed,
        request_timeout_ns: config.request_timeout_ns,
        connect_timeout_ns: config.connect_timeout_ns,
        cancel_as_recorded: config.cancel_as_recorded,
        budget: config.budget,
        sessions: config.sessions,
        limits: ExchangeLimits {
            max_body_bytes: config.max_response_bytes,
            budget: Some(BodyBudget::new(held)),
            ..ExchangeLimits::default()
        },
        descriptor_room: descriptor_room(descriptors, workers),
        connection_use: config.connection_use,
        spares: config.spare_connections.map(|spares| spares.div_ceil(workers) as usize),
        max_connections: config.max_connections.map_or(usize::MAX, |most| (most / workers).max(1) as usize),
    }
}

/// Refuses a run that could hardly open a connection (after the soft limit was raised to the hard one).
fn enough_descriptors(limit: Option<u64>, config: &ReplayConfig) -> Result<(), ReplayError> {
    let wanted = config.max_connections.map_or(MIN_CONNECTIONS, u64::from).min(MIN_CONNECTIONS);
    match limit {
        Some(limit) if limit.saturating_sub(OWN_DESCRIPTORS) < wanted => Err(refuse(
            "connections",
            format!(
                "this process may open {limit} files, {OWN_DESCRIPTORS} of which the run itself needs: raise the hard limit (ulimit -n) to {} at least",
                OWN_DESCRIPTORS + wanted
            ),
        )),
        _ => Ok(()),
    }
}

/// Connections that one worker can have before descriptors run out. Some are left for the run's own files: a run whose
/// target hangs must not fail to be recorded.
fn descriptor_room(limit: Option<u64>, workers: u32) -> usize {
    let room = limit.unwrap_or(u64::MAX).saturating_sub(OWN_DESCRIPTORS) / u64::from(workers);
    usize::try_from(room).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_own_files_keep_their_descriptors_and_every_worker_gets_its_part() {
        assert_eq!(descriptor_room(Some(1_048), 2), 500);
        assert_eq!(descriptor_room(Some(10), 2), 1, "one connection is always tried");
        assert!(descriptor_room(None, 1) > 1 << 30);
    }

    #[test]
    fn a_hard_limit_that_leaves_hardly_a_connection_is_refused_by_its_name() {
        let told = enough_descriptors(Some(63), &ReplayConfig::default()).unwrap_err().to_string();
        assert!(told.contains("may open 63 files") && told.contains("(ulimit -n) to 64"), "{told}");
        assert!(enough_descriptors(Some(64), &ReplayConfig::default()).is_ok());
        assert!(enough_descriptors(None, &ReplayConfig::default()).is_ok());
        let few = ReplayConfig { max_connections: Some(2), ..ReplayConfig::default() };
        assert!(enough_descriptors(Some(50), &few).is_ok());
        assert!(enough_descriptors(Some(49), &few).is_err());
    }
}
