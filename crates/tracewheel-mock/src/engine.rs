//! The engine: a queue, a continuous batch, a prefix cache and budgets, as a state machine without clock or socket.
//!
//! Time enters through the arguments only: [`Engine::submit`] brings a request in, [`Engine::next_event`] says when
//! something will happen, [`Engine::advance`] lets it happen. Driven by a real clock it paces a server; driven by its
//! own events it runs as fast as it can be computed, with the same results.

mod cache;
pub(crate) mod chance;
mod limits;
mod sequence;
pub(crate) mod step_time;
pub(crate) mod tenants;

use std::collections::{BTreeMap, HashMap, VecDeque};

use tracewheel_clock::RunNs;

pub use self::limits::{Budget, RateLimited, Remaining};

use self::cache::PrefixCache;
use self::chance::{Chance, Draw};
use self::limits::Limits;
use self::sequence::{Sequence, Work};
use self::step_time::StepTime;
use self::tenants::Tenants;
use crate::config::{EngineConfig, LimitConfig, MockConfig};

/// Names a request inside one engine; chosen by the caller, never twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What the engine needs to know of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineRequest {
    /// The request's name.
    pub ticket: Ticket,
    /// Whose budgets are charged; any number, equal for equal API keys.
    pub key: u64,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Chained hashes of the prompt's full blocks.
    pub blocks: Vec<u64>,
    /// Tokens that the answer will have; at least 1.
    pub output_tokens: u32,
    /// Tokens that the answer may have: what the token budget is charged beside the prompt.
    pub output_cap: u32,
}

/// Why a request was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A budget is used up: 429.
    RateLimited(RateLimited),
    /// Too many wait already: 503.
    QueueFull,
}

/// Something that happened to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emission {
    /// When, by the model.
    pub at: RunNs,
    /// To which request.
    pub ticket: Ticket,
    /// What.
    pub kind: EmissionKind,
}

/// What can happen to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmissionKind {
    /// It entered the batch.
    Admitted {
        /// Prompt tokens that the prefix cache had.
        cached_tokens: u32,
    },
    /// It got a token.
    Token {
        /// Which one, from 0.
        index: u32,
        /// Whether it was the last: the request has left the engine.
        last: bool,
    },
}

/// Sums since the engine was made, and what it holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineCounters {
    /// Requests taken in.
    pub accepted: u64,
    /// Requests that a budget or the limit of requests under way refused.
    pub rate_limited: u64,
    /// Requests that the full queue refused.
    pub queue_full: u64,
    /// Requests that got all their tokens.
    pub finished: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Tokens given out.
    pub output_tokens: u64,
    /// Prompt tokens of admitted requests.
    pub prompt_tokens: u64,
    /// Of them, tokens that the prefix cache had.
    pub cached_tokens: u64,
    /// Steps computed.
    pub steps: u64,
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    limit_config: LimitConfig,
    chance: Chance,
    cache: PrefixCache,
    limits: Limits,
    step_time: StepTime,
    tenants: Tenants,
    /// Requests under way by key, where they are limited.
    in_flight: HashMap<u64, u32>,
    /// How far the engine was advanced.
    now: RunNs,
    /// On their way to the queue, by the time at which they reach it, then by arrival.
    intake: BTreeMap<(RunNs, u64), Sequence>,
    waiting: VecDeque<Sequence>,
    /// In order of admission.
    running: Vec<Sequence>,
    /// When the step that is being computed ends.
    step_end: Option<RunNs>,
    arrivals: u64,
    kv_in_use: u64,
    counters: EngineCounters,
}

impl Engine {
    /// An idle engine with an empty cache, whose day begins at the run's start.
    pub fn new(config: &MockConfig) -> Self {
        Self::starting_at(config, RunNs::ZERO)
    }

    /// An idle engine with an empty cache, whose day (the load of other tenants) begins at `origin`.
    pub fn starting_at(config: &MockConfig, origin: RunNs) -> Self {
        let blocks = if config.cache.enabled { config.cache.capacity_blocks } else { 0 };
        Self {
            config: config.engine.clone(),
            limit_config: config.limits.clone(),
            chance: Chance::new(config.seed),
            cache: PrefixCache::new(blocks, config.cache.block_tokens),
            limits: Limits::new(&config.limits),
            step_time: StepTime::new(&config.engine),
            tenants: Tenants::new(config, origin),
            in_flight: HashMap::new(),
            now: RunNs(i64::MIN),
            intake: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            step_end: None,
            arrivals: 0,
            kv_in_use: 0,
            counters: EngineCounters::default(),
        }
    }

    /// Brings a request in that arrived at `at`. A time before the one the engine was advanced to counts as that one.
    ///
    /// Budgets and the length of the queue are judged as they stand, so events before `at` should have been let
    /// happen first ([`Self::advance`]).
    ///
    /// # Errors
    /// Why the request was not taken in; it then leaves no trace but in budgets and counters.
    pub fn submit(&mut self, at: RunNs, request: EngineRequest) -> Result<Remaining, Refusal> {
        let at = at.max(self.now);
        let key = if self.limit_config.per_key { request.key } else { 0 };
        self.check_in_flight(key)?;
        let charge = request.prompt_tokens.saturating_add(request.output_cap);
        let remaining =
            self.limits.check(at, request.key, charge).map_err(|limited| self.rate_limit(limited))?;
        let idle = self.held() == 0 && self.step_end.is_none();
        let others = if idle { self.tenants.surplus_at(at) } else { self.tenants.waiting_at(at) } as usize;
        if self.waiting() + others >= self.config.queue_limit as usize {
            self.counters.queue_full += 1;
            return Err(Refusal::QueueFull);
        }
        self.counters.accepted += 1;
        let intake_ns = self.jittered(Draw::Intake, self.arrivals, micros(self.config.intake_us));
        let sequence = Sequence {
            ticket: request.ticket,
            key,
            prompt_tokens: request.prompt_tokens,
            blocks: request.blocks,
            output_tokens: request.output_tokens.max(1),
            kv_tokens: u64::from(request.prompt_tokens)
                + u64::from(request.output_cap.max(request.output_tokens)),
            prefill_left: 0,
            emitted: 0,
            work: Work::Nothing,
            mark: 0,
        };
        if self.limit_config.max_in_flight.is_some() {
            *self.in_flight.entry(key).or_default() += 1;
        }
        self.intake.insert((at.plus(intake_ns), self.arrivals), sequence);
        self.arrivals += 1;
        Ok(remaining)
    }

    /// When the next thing will happen, unless something is submitted before. `None`: the engine is idle.
    pub fn next_event(&self) -> Option<RunNs> {
        if self.step_end.is_some() {
            return self.step_end;
        }
        if !self.waiting.is_empty() {
            return Some(self.now);
        }
        self.intake.keys().next().map(|(ready, _)| *ready)
    }

    /// Lets everything happen up to and including `now`, appending to `out` in order of time.
    pub fn advance(&mut self, now: RunNs, out: &mut Vec<Emission>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            self.take_in(at);
            let computed = self.step_end == Some(at);
            if computed {
                self.step_end = None;
                self.finish_step(at, out);
            }
            if self.step_end.is_none() {
                self.step_end = self.others_step(at).filter(|_| !computed);
            }
            if self.step_end.is_none() {
                self.start_step(at, out);
            }
        }
        self.now = self.now.max(now);
    }

    /// Takes a request out, wherever it is; its place in the batch is free from the next step on. Unknown or finished
    /// tickets are ignored.
    pub fn cancel(&mut self, ticket: Ticket) {
        let mut gone = None;
        let mut keep = |sequence: &Sequence| {
            let keep = sequence.ticket != ticket;
            if !keep {
                gone = Some((sequence.key, 0));
            }
            keep
        };
        self.intake.retain(|_, sequence| keep(sequence));
        self.waiting.retain(&mut keep);
        self.running.retain(|sequence| {
            let keep = sequence.ticket != ticket;
            if !keep {
                gone = Some((sequence.key, sequence.kv_tokens));
            }
            keep
        });
        if let Some((key, kv_tokens)) = gone {
            self.kv_in_use -= kv_tokens;
            self.counters.cancelled += 1;
            leave(&mut self.in_flight, key);
        }
    }

    /// Empties the prefix cache. Returns whether it did: not while requests are held, as their blocks are in use.
    pub fn reset_prefix_cache(&mut self) -> bool {
        let idle = self.held() == 0;
        if idle {
            self.cache.clear();
        }
        idle
    }

    /// Sequences in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Requests that were taken in and are not in the batch yet.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.intake.len()
    }

    /// Places in the batch that other tenants hold.
    pub fn tenants_running(&self) -> u32 {
        self.tenants.running()
    }

    /// Blocks in the prefix cache, and how many it can hold.
    pub fn cache_blocks(&self) -> (usize, usize) {
        (self.cache.len(), self.cache.capacity())
    }

    /// Sums since the engine was made.
    pub fn counters(&self) -> EngineCounters {
        self.counters
    }

    fn held(&self) -> usize {
        self.waiting() + self.running()
    }

    fn check_in_flight(&mut self, key: u64) -> Result<(), Refusal> {
        let Some(most) = self.limit_config.max_in_flight else { return Ok(()) };
        if self.in_flight.get(&key).copied().unwrap_or(0) < most.get() {
            return Ok(());
        }
        let told = self.limit_config.retry_after_floor_ms > 0 || self.limit_config.retry_after_spread_ms > 0;
        Err(self.rate_limit(RateLimited { budget: Budget::InFlight, retry_after_ns: told.then_some(0) }))
    }

    fn rate_limit(&mut self, mut limited: RateLimited) -> Refusal {
        let most_us = self.limit_config.retry_after_spread_ms.saturating_mul(1000);
        let spread_us = self.chance.evenly(Draw::RetryAfter, self.counters.rate_limited, most_us);
        self.counters.rate_limited += 1;
        let floor_ns = micros(self.limit_config.retry_after_floor_ms) * 1000;
        limited.retry_after_ns =
            limited.retry_after_ns.map(|ns| ns.max(floor_ns).saturating_add(micros(spread_us)));
        Refusal::RateLimited(limited)
    }

    fn jittered(&self, draw: Draw, n: u64, ns: i64) -> i64 {
        self.chance.around(draw, n, ns, self.config.jitter_percent)
    }

    /// Moves what has reached the queue into it, behind the other tenants that wait already.
    fn take_in(&mut self, at: RunNs) {
        while let Some(entry) = self.intake.first_entry().filter(|entry| entry.key().0 <= at) {
            let mut sequence = entry.remove();
            if self.step_end.is_none() && self.running.is_empty() && self.waiting.is_empty() {
                let step_time = &self.step_time;
                self.tenants.settle(at, &mut self.cache, |decoding| step_time.step_ns(decoding, 0));
            }
            sequence.mark = self.tenants.mark(at);
            self.waiting.push_back(sequence);
        }
    }

    /// When the step ends that other tenants compute while nothing else runs. A request that comes meanwhile waits.
    fn others_step(&self, at: RunNs) -> Option<RunNs> {
        let others = self.tenants.running();
        if others == 0 || !self.running.is_empty() || self.waiting.is_empty() {
            return None;
        }
        Some(self.tenants.step_end(at, self.step_time.step_ns(others, 0))).filter(|end| *end > at)
    }

    /// Plans a step and, if there is work, starts it: first what runs already, then what waits, as far as the step's
    /// tokens go.
    fn start_step(&mut self, at: RunNs, out: &mut Vec<Emission>) {
        self.tenants.begin_step(at);
        // One token each for the other tenants' sequences that run.
        let mut budget = self.config.max_batched_tokens.saturating_sub(self.tenants.running());
        for sequence in &mut self.running {
            budget -= sequence.plan(budget);
        }
        let mut others_prefill = self.tenants.plan_prefill(budget);
        budget -= others_prefill;
        while budget > 0 && self.has_place() {
            if self.waiting.front().is_some_and(|first| self.tenants.is_first(first.mark)) {
                let Some(sequence) = self.next_admissible() else { break };
                budget -= self.admit(at, sequence, budget, out);
            } else if self.other_may_enter() {
                self.tenants.enter(&mut self.cache);
                let tokens = self.tenants.plan_prefill(budget);
                others_prefill += tokens;
                budget -= tokens;
            } else {
                break;
            }
        }
        if !self.running.is_empty() || (self.tenants.running() > 0 && !self.waiting.is_empty()) {
            let ns = self.jittered(Draw::Step, self.counters.steps, self.step_ns(others_prefill));
            self.counters.steps += 1;
            self.step_end = Some(at.plus(ns.max(1)));
        }
    }

    /// Brings a request into the batch and returns what it takes of the step's tokens.
    fn admit(&mut self, at: RunNs, mut sequence: Sequence, budget: u32, out: &mut Vec<Emission>) -> u32 {
        let cached_tokens = self.cache.admit(&sequence.blocks, sequence.prompt_tokens);
        self.counters.prompt_tokens += u64::from(sequence.prompt_tokens);
        self.counters.cached_tokens += u64::from(cached_tokens);
        // An empty prompt still costs the token that starts it.
        sequence.prefill_left = (sequence.prompt_tokens - cached_tokens).max(1);
        let taken = sequence.plan(budget);
        self.kv_in_use += sequence.kv_tokens;
        out.push(Emission { at, ticket: sequence.ticket, kind: EmissionKind::Admitted { cached_tokens } });
        self.running.push(sequence);
        taken
    }

    fn has_place(&self) -> bool {
        self.running.len() + (self.tenants.running() as usize) < self.config.max_running as usize
    }

    fn has_room(&self, kv_tokens: u64) -> bool {
        self.config
            .kv_tokens
            .is_none_or(|most| self.kv_in_use + self.tenants.kv_tokens() + kv_tokens <= u64::from(most))
    }

    fn other_may_enter(&self) -> bool {
        self.tenants.may_enter(self.config.max_batched_tokens) && self.has_room(self.tenants.kv_of_one())
    }

    /// The first of the queue, if there is room for its tokens.
    fn next_admissible(&mut self) -> Option<Sequence> {
        let fits = self.has_room(self.waiting.front()?.kv_tokens);
        // One that is too large for the whole engine runs alone rather than block the queue for ever.
        let alone = self.running.is_empty() && self.tenants.running() == 0;
        if fits || alone { self.waiting.pop_front() } else { None }
    }

    /// What the planned step takes, before jitter.
    fn step_ns(&self, others_prefill: u32) -> i64 {
        let (mut decoding, mut prefill) = (self.tenants.running(), others_prefill);
        for sequence in &self.running {
            match sequence.work {
                Work::Nothing => {}
                Work::Prefill(tokens) => prefill += tokens,
                Work::Decode => decoding += 1,
            }
        }
        self.step_time.step_ns(decoding, prefill)
    }

    /// Gives out the step's tokens and lets go of what is finished.
    fn finish_step(&mut self, at: RunNs, out: &mut Vec<Emission>) {
        self.tenants.end_step();
        let in_flight = &mut self.in_flight;
        let counters = &mut self.counters;
        let kv_in_use = &mut self.kv_in_use;
        self.running.retain_mut(|sequence| {
            if !sequence.compute() {
                return true;
            }
            let (index, last) = (sequence.emitted, sequence.emitted + 1 == sequence.output_tokens);
            sequence.emitted += 1;
            counters.output_tokens += 1;
            out.push(Emission { at, ticket: sequence.ticket, kind: EmissionKind::Token { index, last } });
            if last {
                counters.finished += 1;
                *kv_in_use -= sequence.kv_tokens;
                leave(in_flight, sequence.key);
            }
            !last
        });
    }
}

/// One request fewer is under way for a key; keys without any are forgotten.
fn leave(in_flight: &mut HashMap<u64, u32>, key: u64) {
    if let Some(count) = in_flight.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            in_flight.remove(&key);
        }
    }
}

fn micros(us: u32) -> i64 {
    i64::from(us) * 1000
}

#[cfg(test)]
mod tests;
