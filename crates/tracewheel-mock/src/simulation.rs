//! A scenario in virtual time: when would these requests be answered?

use std::collections::HashMap;

use tracewheel_clock::RunNs;

use crate::config::{ConfigError, FaultKind, MockConfig, Point};
use crate::engine::{Emission, EmissionKind, Engine, EngineRequest, Refusal, Ticket};
use crate::fault::{AskFacts, Facts, FaultPlan};

/// A mock without socket and clock: requests with their arrivals go in, what their clients would see comes out.
///
/// It is the engine that serves on a socket, advanced from arrival to arrival; a day takes as long as its requests take
/// to compute. Other tenants, budgets and rules of faults are as configured. What only a connection has is not: its
/// limits, closed idle connections, rules of connections, and what writes and bytes look like.
///
/// # Example
///
/// Half of an engine's places are wanted by others at noon, none at midnight:
///
/// ```
/// use tracewheel_mock::{MockConfig, SimulatedRequest, Simulation};
///
/// let config = MockConfig::from_toml(
///     r#"
///     [tenants]
///     load = [{ at = "00:00", load = 0 }, { at = "12:00", load = 0.5 }]
///     variation = "none"
///     "#,
/// )?;
/// let hour_ns = 3_600_000_000_000;
/// let ask = |at_ns| SimulatedRequest::new(at_ns, 1000, 2);
/// let day = Simulation::new(&config)?.run(&[ask(0), ask(12 * hour_ns)]);
/// // Midnight: 12 ms + 1000 × 60 µs, then 12 ms + 100 µs to the next token.
/// assert_eq!(day[0].ttft_ns, Some(72_000_000));
/// assert_eq!(day[0].e2e_ns, Some(84_100_000));
/// // Noon: the same among 32 others, each of whom costs 100 µs a step, and the step under way comes first.
/// assert!(day[1].ttft_ns >= Some(75_200_000) && day[1].ttft_ns < Some(75_200_000 + 15_200_000));
/// assert_eq!(day[1].e2e_ns.zip(day[1].ttft_ns).map(|(all, first)| all - first), Some(15_300_000));
/// # Ok::<(), tracewheel_mock::ConfigError>(())
/// ```
#[derive(Debug)]
pub struct Simulation {
    config: MockConfig,
}

/// One request of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimulatedRequest {
    /// When it arrives, nanoseconds after the start.
    pub at_ns: i64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens of its answer; at least 1. Budgets are charged them as the longest answer too.
    pub output_tokens: u32,
    /// Hashes of the prompt's full blocks, each over itself and all before it; empty: the prompt is like no other.
    pub blocks: Vec<u64>,
    /// Whose budgets it uses.
    pub key: u64,
    /// Whether its answer is streamed.
    pub stream: bool,
    /// Whether it is not the first attempt.
    pub retry: bool,
    /// Model that it asks for.
    pub model: String,
}

/// What a client would see of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Status; `None` when the connection ends before there is one.
    pub status: Option<u16>,
    /// Arrival to the first token, nanoseconds; `None` without any.
    pub ttft_ns: Option<i64>,
    /// Arrival to the last token, nanoseconds; `None` unless the answer is whole.
    pub e2e_ns: Option<i64>,
    /// Tokens that came.
    pub output_tokens: u32,
    /// Prompt tokens that the cache had.
    pub cached_tokens: u32,
    /// Wait that a refusal asks for, nanoseconds.
    pub retry_after_ns: Option<i64>,
    /// The rule that hit it.
    pub fault: Option<String>,
}

impl SimulatedRequest {
    /// A streamed first attempt with a prompt like no other.
    pub fn new(at_ns: i64, prompt_tokens: u32, output_tokens: u32) -> Self {
        Self {
            at_ns,
            prompt_tokens,
            output_tokens,
            blocks: Vec::new(),
            key: 0,
            stream: true,
            retry: false,
            model: "mock".to_owned(),
        }
    }
}

impl Simulation {
    /// # Errors
    /// The configuration describes no possible mock.
    pub fn new(config: &MockConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config: config.clone() })
    }

    /// Runs the requests, in order of their arrival, on an idle engine with an empty cache. Outcomes come in the order
    /// in which the requests are given.
    pub fn run(&self, requests: &[SimulatedRequest]) -> Vec<Outcome> {
        let mut run = Run {
            engine: Engine::new(&self.config),
            faults: FaultPlan::new(&self.config),
            outcomes: vec![Outcome::default(); requests.len()],
            cuts: HashMap::new(),
            emissions: Vec::new(),
        };
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|index| requests[*index].at_ns);
        for index in order {
            run.arrive(index, requests);
        }
        while let Some(at) = run.engine.next_event() {
            run.advance(at, requests);
        }
        run.outcomes
    }
}

/// A simulation under way.
struct Run {
    engine: Engine,
    faults: FaultPlan,
    outcomes: Vec<Outcome>,
    /// Requests whose answer ends after so many tokens.
    cuts: HashMap<usize, u32>,
    emissions: Vec<Emission>,
}

impl Run {
    fn arrive(&mut self, index: usize, requests: &[SimulatedRequest]) {
        let request = &requests[index];
        // What happens at the same instant happens after it has arrived, so that arrivals of one instant share a step.
        self.advance(RunNs(request.at_ns - 1), requests);
        self.outcomes[index].status = Some(200);
        if self.hit_by_fault(index, request) {
            return;
        }
        let engine_request = EngineRequest {
            ticket: Ticket(index as u64),
            key: request.key,
            prompt_tokens: request.prompt_tokens,
            blocks: request.blocks.clone(),
            output_tokens: request.output_tokens,
            output_cap: request.output_tokens,
        };
        if let Err(refusal) = self.engine.submit(RunNs(request.at_ns), engine_request) {
            let outcome = &mut self.outcomes[index];
            (outcome.status, outcome.retry_after_ns) = match refusal {
                Refusal::QueueFull => (Some(503), None),
                Refusal::RateLimited(limited) => (Some(429), limited.retry_after_ns),
            };
        }
    }

    /// Whether a rule keeps the request from the engine. One that hits its answer is noted.
    fn hit_by_fault(&mut self, index: usize, request: &SimulatedRequest) -> bool {
        let facts = Facts {
            since_start_ms: u64::try_from(request.at_ns / 1_000_000).unwrap_or(0),
            path: "/v1/chat/completions",
            ask: Some(AskFacts {
                model: &request.model,
                input_tokens: request.prompt_tokens,
                stream: request.stream,
            }),
            retry: request.retry,
            header: &|_| None,
        };
        let Some(rule) = self.faults.pick(&facts) else { return false };
        let outcome = &mut self.outcomes[index];
        outcome.fault = Some(rule.name.clone());
        let ends = match rule.kind {
            FaultKind::Status => {
                outcome.status = rule.status;
                outcome.retry_after_ns = rule.retry_after_ms.map(|ms| i64::from(ms) * 1_000_000);
                return true;
            }
            FaultKind::Reset | FaultKind::Close => true,
            FaultKind::Stall => rule.for_ms.is_none(),
            FaultKind::StreamError | FaultKind::Truncated => true,
            _ => false,
        };
        match rule.point() {
            Point::Head
                if ends && matches!(rule.kind, FaultKind::Reset | FaultKind::Close | FaultKind::Stall) =>
            {
                outcome.status = None;
                return true;
            }
            Point::Chunks(chunks) if ends => {
                self.cuts.insert(index, chunks);
            }
            // Bytes are the server's; for a simulation such an answer has begun and does not end.
            Point::Head | Point::Bytes(_) if ends => {
                self.cuts.insert(index, 0);
            }
            _ => {}
        }
        false
    }

    fn advance(&mut self, to: RunNs, requests: &[SimulatedRequest]) {
        let mut emissions = std::mem::take(&mut self.emissions);
        // Event by event, so that a client that is cut off leaves before the next step.
        while let Some(at) = self.engine.next_event().filter(|at| *at <= to) {
            self.engine.advance(at, &mut emissions);
            for emission in emissions.drain(..) {
                self.note(&emission, requests);
            }
        }
        self.engine.advance(to, &mut emissions);
        self.emissions = emissions;
    }

    fn note(&mut self, emission: &Emission, requests: &[SimulatedRequest]) {
        let index = emission.ticket.0 as usize;
        let since_ns = emission.at.0 - requests[index].at_ns;
        let outcome = &mut self.outcomes[index];
        let cut = self.cuts.get(&index).copied();
        match emission.kind {
            EmissionKind::Admitted { cached_tokens } => outcome.cached_tokens = cached_tokens,
            EmissionKind::Token { index: token, .. } if cut.is_some_and(|cut| token >= cut) => {
                self.engine.cancel(emission.ticket);
            }
            EmissionKind::Token { index: token, last } => {
                outcome.output_tokens = token + 1;
                outcome.ttft_ns = outcome.ttft_ns.or(Some(since_ns));
                // A cut after more chunks than there are never comes.
                let whole = cut.is_none_or(|cut| cut > requests[index].output_tokens);
                outcome.e2e_ns = last.then_some(since_ns).filter(|_| whole);
            }
        }
    }
}
