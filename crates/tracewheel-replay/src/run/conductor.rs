//! The calling thread of a run: gives the commands, follows the stop signal, shows progress.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use tokio::sync::mpsc;
use tracewheel_clock::{Clock, blocking};
use tracewheel_record::manifest::{CalibrationSection, HookSection};
use tracewheel_tokens::TextMaker;
use tracewheel_workload::{Plan, PromptRenderer, WorkloadError};

use crate::hook::HookPoint;
use crate::manifest::{per_second, primes};
use crate::message::ReadyRequest;
use crate::prefetch::{Budget, Predicted, Prefetch, Renderer};
use crate::reader::RendererSlot;
use crate::recorder::Live;
use crate::shared::{Abort, Halt, Outbox, Shared};
use crate::worker::{Answer, Command, ConnectFailure, Pace, connect_reason};
use crate::{ReplayConfig, ReplayError, ReplayEvent, StopLevel, StopSignal, Tick};

use super::calibrate::Calibrated;
use super::check::Checked;
use super::note_unbound;

/// Time between two looks at the stop signal while the workers work; their answers are heard at once.
const PATIENCE: Duration = Duration::from_millis(40);
/// Time between two looks at whatever else is waited for.
pub(super) const NAP_NS: i64 = 10_000_000;
/// Time between two ticks of progress.
const TICK_NS: i64 = 200_000_000;
/// From the word that the look-ahead is full to the plan's time zero, at least.
const HEAD_START_NS: i64 = 50_000_000;
/// Connections opened ahead where nothing else is said, at most.
const MAX_WARM: u32 = 64;

/// The calling thread's view of a run.
pub(super) struct Conductor<'a, 'scope, 'env> {
    pub(super) scope: &'scope Scope<'scope, 'env>,
    pub(super) plan: &'env Plan,
    pub(super) config: &'env ReplayConfig,
    pub(super) checked: &'env Checked,
    pub(super) shared: Arc<Shared>,
    pub(super) stop: &'a StopSignal,
    pub(super) events: &'a SyncSender<ReplayEvent>,
    pub(super) live: Arc<Mutex<Live>>,
    pub(super) budget: Arc<Budget>,
    pub(super) outbox: Outbox,
    pub(super) answers: Receiver<Answer>,
    /// What the reader writes turns with, once the measured phase begins.
    pub(super) turn_renderer: RendererSlot,
    pub(super) hands: Vec<mpsc::Sender<Command>>,
    pub(super) progress: Progress,
}

/// What the conductor remembers between two looks.
#[derive(Default)]
pub(super) struct Progress {
    phase: &'static str,
    next_tick_ns: i64,
    told: Option<Halt>,
    drain_since_ns: Option<i64>,
    /// When a person's stop was first seen.
    stopped_ns: Option<i64>,
    recorder_peak: u64,
    predicted: Predicted,
    /// How long the prime phase took; `None` where there was none.
    primed_in_ns: Option<i64>,
    pub(super) hooks: Vec<HookSection>,
    /// What a hook that ends the run could not do.
    pub(super) hook_failure: Option<String>,
    pub(super) calibrated: Calibrated,
    pub(super) error: Option<ReplayError>,
}

/// How the sending went, for the closing word.
pub(crate) struct Conducted {
    pub(crate) error: Option<ReplayError>,
    pub(crate) stopped: StopLevel,
    /// When the stop was seen, on the run clock.
    pub(crate) stopped_ns: Option<i64>,
    pub(crate) gave_up: Option<String>,
    pub(crate) opened_ahead: u32,
    pub(crate) recorder_peak: u64,
    pub(crate) predicted: Predicted,
    pub(crate) primed_in_ns: Option<i64>,
    pub(crate) hooks: Vec<HookSection>,
    /// How the target counts, and why that is not known.
    pub(crate) calibration: Option<CalibrationSection>,
    pub(crate) uncalibrated: Option<String>,
}

type Prefetching<'scope, T> = ScopedJoinHandle<'scope, Result<T, WorkloadError>>;

impl<'scope> Conductor<'_, 'scope, '_> {
    /// Sends the whole plan. `worker_died` says whether a sending thread ended by itself.
    pub(super) fn conduct(mut self, worker_died: &dyn Fn() -> bool) -> Conducted {
        self.progress.phase = "prime";
        self.hooks(HookPoint::BeforePrime, worker_died);
        let (opened_ahead, unreachable) = match self.progress.hook_failure {
            Some(_) => (0, None),
            None => self.warm(worker_died),
        };
        tracing::info!(connections = opened_ahead, "connections stand");
        if unreachable.is_some() {
            self.shared.abort(Abort::TargetFailing);
        }
        self.calibrate(worker_died);
        if primes(self.plan, self.config.cache) && self.shared.halt() == Halt::Running {
            self.prime(worker_died);
        }
        self.hooks(HookPoint::BeforeMeasure, worker_died);
        self.measure(worker_died);
        let gave_up = self.progress.hook_failure.take().or_else(|| self.gave_up(unreachable));
        self.hooks(HookPoint::AfterRun, worker_died);
        Conducted {
            error: self.progress.error,
            stopped: self.stop.level(),
            stopped_ns: self.progress.stopped_ns,
            gave_up,
            opened_ahead,
            recorder_peak: self.progress.recorder_peak,
            predicted: self.progress.predicted,
            primed_in_ns: self.progress.primed_in_ns,
            hooks: self.progress.hooks,
            calibration: self.progress.calibrated.section,
            uncalibrated: self.progress.calibrated.problem,
        }
    }

    /// Why the run gave up on the target, if it did.
    fn gave_up(&self, unreachable: Option<String>) -> Option<String> {
        unreachable.or_else(|| {
            let failing = self.shared.aborted() == Some(Abort::TargetFailing);
            let most = self.config.give_up_after_failures.unwrap_or(0);
            failing.then(|| format!("{most} requests in a row failed"))
        })
    }

    /// Opens connections before the first request; how many stand, and why none does to one of the targets.
    fn warm(&mut self, worker_died: &dyn Fn() -> bool) -> (u32, Option<String>) {
        let targets = self.checked.targets.len();
        let share = self.warm_connections().div_ceil(self.checked.workers * targets as u32).max(1);
        let as_room = self.config.warm_connections.is_none();
        let mut opened_ahead = 0;
        for target in 0..targets {
            self.command(|_| Command::Warm { target, connections: share, as_room });
            let (mut opened, mut failed) = (0, None);
            self.await_workers(worker_died, |answer| match answer {
                Answer::Warmed { open, failure } => {
                    opened += open;
                    failed = failed.take().or_else(|| failure.clone());
                    true
                }
                _ => false,
            });
            opened_ahead += opened;
            if let Some(failure) = failed.filter(|_| opened == 0) {
                return (opened_ahead, Some(self.unreachable_text(target, &failure)));
            }
        }
        (opened_ahead, None)
    }

    /// Why nothing was sent at all, with the remedy.
    fn unreachable_text(&self, target: usize, failure: &ConnectFailure) -> String {
        let target = &self.checked.targets[target];
        let ConnectFailure { kind, detail } = failure;
        let remedy = connect_reason(*kind).remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
        format!("cannot connect to {} ({}): {kind}: {detail}{remedy}", target.url, target.addr)
    }

    /// About a second's arrivals, or as many as may be under way at once.
    fn warm_connections(&self) -> u32 {
        let header = self.plan.header();
        let rate = per_second(header.requests, header.span_ns).unwrap_or(1.0).ceil().min(1e6) as u32;
        let wanted = self.config.warm_connections.unwrap_or_else(|| {
            self.config
                .closed_loop
                .unwrap_or(rate)
                .min(MAX_WARM)
                .min(u32::try_from(header.requests).unwrap_or(MAX_WARM))
        });
        wanted.clamp(1, self.config.max_connections.unwrap_or(u32::MAX))
    }

    fn prime(&mut self, worker_died: &dyn Fn() -> bool) {
        tracing::info!("prime phase: prompts are sent ahead");
        let (inboxes, outlets) = self.inboxes();
        let prefetch = self.prefetch(inboxes);
        let plan = self.plan;
        let elsewhere = self.elsewhere();
        let thread = self.scope.spawn(move || {
            elsewhere();
            prefetch.prime(plan)
        });
        let start_ns = self.shared.clock.now().0;
        self.start(outlets, Some(self.config.prime_concurrency), start_ns);
        self.await_workers(worker_died, |answer| matches!(answer, Answer::PhaseDone));
        self.progress.primed_in_ns = Some(self.shared.clock.now().0 - start_ns);
        let outcome = thread.join();
        self.note_prefetch(outcome.map(|outcome| outcome.map(drop)));
    }

    fn measure(&mut self, worker_died: &dyn Fn() -> bool) {
        self.budget = Budget::like(&self.budget);
        let (inboxes, outlets) = self.inboxes();
        let prefetch = self.prefetch(inboxes);
        if self.config.sessions.thread {
            *self.turn_renderer.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.renderer());
        }
        let plan = self.plan;
        let elsewhere = self.elsewhere();
        let thread: Prefetching<'scope, Predicted> = self.scope.spawn(move || {
            elsewhere();
            prefetch.measured(plan)
        });
        while !self.budget.was_filled() && self.shared.halt() == Halt::Running {
            self.look(worker_died);
            blocking::sleep(NAP_NS);
        }
        let start_ns = self.shared.clock.now().0 + HEAD_START_NS;
        self.shared.begin_measuring(start_ns);
        tracing::info!(start_ns, warmup = self.plan.header().requests_warmup, "measured phase");
        self.progress.phase = if self.plan.header().requests_warmup > 0 { "warmup" } else { "measure" };
        self.start(outlets, self.config.closed_loop, start_ns);
        self.await_workers(worker_died, |answer| matches!(answer, Answer::PhaseDone));
        let outcome = thread.join();
        if let Ok(Ok(predicted)) = &outcome {
            self.progress.predicted = *predicted;
        }
        self.note_prefetch(outcome.map(|outcome| outcome.map(drop)));
    }

    /// Binds the thread that calls it to the cores that are not the senders'.
    pub(super) fn elsewhere(&self) -> impl FnOnce() + Send + 'scope {
        let (shared, cores) = (Arc::clone(&self.shared), self.checked.cores.clone());
        move || note_unbound(&shared, cores.map_or(Ok(()), |cores| cores.bind_other()))
    }

    pub(super) fn note_prefetch(&mut self, outcome: std::thread::Result<Result<(), WorkloadError>>) {
        let error = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(source)) => ReplayError::Plan { source },
            Err(_) => ReplayError::Internal { thread: "prefetch", problem: "it panicked".to_owned() },
        };
        self.shared.abort(Abort::PlanUnreadable);
        self.progress.error.get_or_insert(error);
    }

    pub(super) fn inboxes(&self) -> (Vec<mpsc::Sender<ReadyRequest>>, Vec<mpsc::Receiver<ReadyRequest>>) {
        let room = (self.config.look_ahead.requests as usize).max(1);
        self.hands.iter().map(|_| mpsc::channel(room)).unzip()
    }

    pub(super) fn prefetch(&self, inboxes: Vec<mpsc::Sender<ReadyRequest>>) -> Prefetch {
        Prefetch {
            renderer: self.renderer(),
            inboxes,
            budget: Arc::clone(&self.budget),
            shared: Arc::clone(&self.shared),
            outbox: self.outbox.clone(),
        }
    }

    fn renderer(&self) -> Renderer {
        Renderer::new(Arc::clone(&self.checked.routing), self.config, self.checked.nonce, self.prompts())
    }

    /// Makes prompts of the target's own words, as long as it counts them.
    fn prompts(&self) -> PromptRenderer {
        let vocabulary = self.checked.vocabulary.as_ref();
        let maker = vocabulary.map_or_else(TextMaker::new, |vocabulary| vocabulary.maker().clone());
        PromptRenderer::over(maker, self.progress.calibrated.calibration)
    }

    /// Gives each worker its inbox and, in a closed loop, its part of what may be under way at once.
    pub(super) fn start(
        &self,
        outlets: Vec<mpsc::Receiver<ReadyRequest>>,
        closed_loop: Option<u32>,
        start_ns: i64,
    ) {
        let mut outlets = outlets.into_iter();
        let (budget, workers) = (&self.budget, self.checked.workers);
        self.command(|number| Command::Phase {
            inbox: outlets.next().expect("one inbox was made for each worker"),
            budget: Arc::clone(budget),
            pace: match closed_loop {
                Some(total) => {
                    let at_once = total / workers + u32::from((number as u32) < total % workers);
                    Pace::Closed { at_once: at_once.max(1) as usize }
                }
                None => Pace::Open,
            },
            start_ns,
        });
    }

    fn command(&self, mut command: impl FnMut(usize) -> Command) {
        for (number, hand) in self.hands.iter().enumerate() {
            if hand.blocking_send(command(number)).is_err() {
                self.shared.abort(Abort::ThreadDied);
            }
        }
    }

    /// Waits until every worker has given the expected answer, and looks after the run meanwhile.
    pub(super) fn await_workers(
        &mut self,
        worker_died: &dyn Fn() -> bool,
        mut expected: impl FnMut(&Answer) -> bool,
    ) {
        let mut missing = self.hands.len();
        while missing > 0 {
            match self.answers.recv_timeout(PATIENCE) {
                Ok(Answer::Failed { source }) => {
                    let what = "a worker's event loop";
                    self.progress.error.get_or_insert(ReplayError::Start { what, source });
                    self.shared.abort(Abort::ThreadDied);
                    missing -= 1;
                }
                Ok(answer) => missing -= usize::from(expected(&answer)),
                Err(_) if worker_died() => {
                    // Whoever died won't answer; the others get a moment to end what they have.
                    self.shared.abort(Abort::ThreadDied);
                    self.look(worker_died);
                    blocking::sleep(10 * NAP_NS);
                    return;
                }
                Err(RecvTimeoutError::Timeout) => self.look(worker_died),
                Err(RecvTimeoutError::Disconnected) => {
                    self.look(worker_died);
                    blocking::sleep(NAP_NS);
                }
            }
        }
    }

    /// One look at the stop signal, the drain limit and the clock.
    pub(super) fn look(&mut self, worker_died: &dyn Fn() -> bool) {
        match self.stop.level() {
            StopLevel::Running => {}
            StopLevel::Drain => self.shared.raise(Halt::Drain),
            StopLevel::Cut => self.shared.raise(Halt::Cut),
        }
        let now = self.shared.clock.now().0;
        if self.stop.level() > StopLevel::Running {
            self.progress.stopped_ns.get_or_insert(now);
        }
        if self.progress.phase == "warmup" && now >= self.measured_from().unwrap_or(i64::MAX) {
            self.progress.phase = "measure";
        }
        self.limit_drain(now);
        let halt = self.shared.halt();
        if halt > Halt::Running && self.progress.told != Some(halt) && !worker_died() {
            self.progress.told = Some(halt);
            tracing::info!(how = ?halt, why = ?self.shared.aborted(), "the run is being ended");
            for hand in &self.hands {
                // A full queue means that it will look soon anyway.
                let _busy = hand.try_send(Command::Look);
            }
        }
        let waiting = self.shared.gauges.recorder_messages.load(Ordering::Relaxed).max(0).unsigned_abs();
        self.progress.recorder_peak = self.progress.recorder_peak.max(waiting);
        self.shared.gauges.rendered.store(self.budget.requests(), Ordering::Relaxed);
        if now >= self.progress.next_tick_ns {
            self.progress.next_tick_ns = now + TICK_NS;
            let _missed = self.events.try_send(ReplayEvent::Tick(self.tick(now)));
        }
    }

    /// Ends the waiting for requests in flight when all that is to be released was, for long enough.
    fn limit_drain(&mut self, now: i64) {
        let gauges = &self.shared.gauges;
        let gone = gauges.sent.load(Ordering::Relaxed) + gauges.passed_over.load(Ordering::Relaxed);
        let all_sent = gone == self.plan.header().requests;
        if !all_sent && self.shared.halt() == Halt::Running {
            return;
        }
        let since = *self.progress.drain_since_ns.get_or_insert(now);
        if matches!(self.progress.phase, "measure" | "warmup") {
            self.progress.phase = "drain";
            tracing::info!(in_flight = self.shared.gauges.in_flight.load(Ordering::Relaxed), "drain");
        }
        let over = |limit: Option<i64>, since: i64| limit.is_some_and(|limit| now - since >= limit);
        let stopped = self.progress.stopped_ns.is_some_and(|at| over(Some(self.config.stop_drain_ns), at));
        if over(self.config.drain_timeout_ns, since) || stopped {
            self.shared.raise(Halt::DrainLimit);
        }
    }

    /// When the warm-up ends and the measured phase begins, once that is known.
    fn measured_from(&self) -> Option<i64> {
        Some(self.shared.measure_start_ns()?.saturating_add(self.plan.header().warmup_ns))
    }

    fn tick(&self, now: i64) -> Tick {
        let gauges = &self.shared.gauges;
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let positive = |value: i64| value.max(0).unsigned_abs();
        Tick {
            phase: self.progress.phase,
            at_ns: now,
            elapsed_ns: self.shared.measure_start_ns().map_or(-1, |start| now - start),
            planned: self.plan.header().requests,
            sent: gauges.sent.load(Ordering::Relaxed),
            in_flight: positive(gauges.in_flight.load(Ordering::Relaxed)),
            ok: live.counts.ok,
            failed: live.counts.failed,
            cancelled: live.counts.cancelled,
            interrupted: live.counts.interrupted,
            unsent: live.counts.unsent,
            retries: gauges.retries.load(Ordering::Relaxed),
            late_p50_ns: live.late.p50_ns,
            late_p99_ns: live.late.p99_ns,
            late: live.late_over_bound,
            late_max_ns: live.late.max_ns,
            ttft_p50_ns: live.ttft.p50_ns,
            ttft_p95_ns: live.ttft.p95_ns,
            e2e_p95_ns: live.e2e.p95_ns,
            output_tokens: live.output_tokens,
            recorder_queue: positive(gauges.recorder_messages.load(Ordering::Relaxed)),
        }
    }
}
