//! One replay from its first check to its closed run directory.

mod calibrate;
mod check;
mod closing;
mod conductor;
mod hooks;
mod survey;

use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};

use tokio::sync::mpsc;
use tracewheel_clock::RunClock;
use tracewheel_record::{DepartureLog, Manifest, RecordError, RunWriter, WriterOptions};
use tracewheel_workload::Plan;

use crate::message::{Heard, RecorderMessage};
use crate::prefetch::Budget;
use crate::reader::{self, Reader, RendererSlot};
use crate::recorder::{Live, Recorded, Recorder};
use crate::shared::{Abort, Outbox, Shared};
use crate::worker::{self, Answer, Command, Setup};
use crate::{
    AfterFailure, RecordOptions, ReplayConfig, ReplayError, ReplayEvent, RunReport, SessionMode, Started,
    StopLevel, StopSignal,
};

use check::Checked;
pub(crate) use check::Destination;
pub(crate) use conductor::Conducted;
use conductor::Conductor;
pub(crate) use survey::Taken;

/// Commands that may wait for a worker.
const COMMANDS: usize = 8;

/// Replays `plan` against `config.target` and records it under `runs_dir`. Blocks until the run directory is closed.
///
/// Every planned request gets a status, however the run ends. `events` is offered progress and never waited for.
///
/// # Errors
/// Nothing was sent ([`ReplayError::Config`], [`ReplayError::Target`]), or the run had to end early: the plan could not be
/// read on, or the recorder failed or fell behind. What was recorded until then stays readable. A target that can't be
/// reached is no error but a run whose requests are unsent ([`RunReport::gave_up`]).
pub fn run(
    plan: &Plan,
    config: &ReplayConfig,
    runs_dir: &Path,
    stop: &StopSignal,
    events: SyncSender<ReplayEvent>,
) -> Result<RunReport, ReplayError> {
    let checked = check::check(plan, config)?;
    if stop.level() > StopLevel::Running {
        return Err(ReplayError::Stopped);
    }
    let shared = Shared::new(RunClock::start());
    let manifest = checked.known(plan, config).opening();
    let options = writer_options(&config.record);
    let writer =
        RunWriter::create_with(runs_dir, &config.run_name, &manifest, shared.clock.as_ref(), options)
            .map_err(|source| ReplayError::Record { source })?;
    let manifest = writer.manifest().clone();
    let started = Started {
        run_id: writer.id().to_owned(),
        run_dir: writer.dir().to_owned(),
        planned: plan.header().requests,
        span_ns: plan.header().span_ns,
        target: checked.told_targets(),
        closed_loop: config.closed_loop.is_some(),
    };
    tracing::info!(
        run = %started.run_id,
        target = %started.target,
        planned = started.planned,
        workers = checked.workers,
        closed_loop = started.closed_loop,
        "replay starts"
    );
    for (route, taken) in checked.routing.routes().iter().zip(&checked.taken) {
        tracing::info!(
            route = route.name.as_deref(),
            target = %route.endpoint.url(),
            protocol = route.provider.name(),
            model = route.model,
            requests = taken.requests,
            ahead = taken.ahead,
            "route"
        );
    }
    let _missed = events.try_send(ReplayEvent::Started(started.clone()));
    let report = std::thread::scope(|scope| {
        Stage { scope, plan, config, checked: &checked, shared: &shared, stop, events: &events, started }
            .perform(writer, manifest)
    })?;
    let counts = &report.counts;
    tracing::info!(
        ok = counts.ok,
        failed = counts.failed,
        unsent = counts.unsent,
        retries = report.retries,
        "replay closed"
    );
    let _missed = events.try_send(ReplayEvent::Finished(Box::new(report.clone())));
    Ok(report)
}

fn writer_options(record: &RecordOptions) -> WriterOptions {
    WriterOptions {
        part_rows: (record.part_rows as usize).max(1),
        part_bytes: usize::try_from(record.part_bytes).unwrap_or(usize::MAX),
        sync_each_flush: record.power_safe,
        ..WriterOptions::default()
    }
}

/// Notes that a thread runs where it was not to.
fn note_unbound(shared: &Shared, bound: Result<(), String>) {
    if let Err(why) = bound {
        shared.note_scheduling(|seen| seen.unpinned = Some(why));
    }
}

/// The threads of a run and what they are made of.
struct Stage<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    plan: &'env Plan,
    config: &'env ReplayConfig,
    checked: &'env Checked,
    shared: &'env Arc<Shared>,
    stop: &'env StopSignal,
    events: &'env SyncSender<ReplayEvent>,
    started: Started,
}

/// One sending thread, from outside.
struct Hand<'scope> {
    commands: mpsc::Sender<Command>,
    thread: ScopedJoinHandle<'scope, ()>,
}

/// The reader, from outside.
struct Ear<'scope> {
    /// The way of the workers to it and to the recorder.
    outbox: Outbox,
    /// What each worker hears from it.
    heard: Vec<Option<mpsc::Receiver<Heard>>>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
    /// Where it looks for what it writes turns with.
    renderer: RendererSlot,
}

/// Whether a turn waits for what the answer before it holds.
fn reads_turns(config: &ReplayConfig) -> bool {
    config.sessions.mode == SessionMode::AfterPrevious
        && config.closed_loop.is_none()
        && (config.sessions.after_failure == AfterFailure::Stop || config.sessions.thread)
}

impl<'scope, 'env> Stage<'scope, 'env> {
    fn perform(self, writer: RunWriter, manifest: Manifest) -> Result<RunReport, ReplayError> {
        let (sender, messages) = sync_channel(self.config.recorder_queue.messages.max(1) as usize);
        let outbox = Outbox::new(sender, Arc::clone(self.shared), self.config.recorder_queue);
        let live = Arc::new(Mutex::new(Live::default()));
        let departures = self.departures(&writer)?;
        let recorder = self.spawn_recorder(writer, messages, Arc::clone(&live))?;
        let budget = Budget::new(self.config.look_ahead);
        let ear = self.spawn_reader(&outbox)?;
        let (hands, answers) = self.spawn_workers(ear.outbox, ear.heard, &budget, departures)?;
        let conductor = Conductor {
            scope: self.scope,
            plan: self.plan,
            config: self.config,
            checked: self.checked,
            shared: Arc::clone(self.shared),
            stop: self.stop,
            events: self.events,
            live,
            budget,
            outbox,
            answers,
            turn_renderer: RendererSlot::clone(&ear.renderer),
            hands: hands.iter().map(|hand| hand.commands.clone()).collect(),
            progress: Default::default(),
        };
        let conducted = conductor.conduct(&|| {
            hands.iter().any(|hand| hand.thread.is_finished())
                || ear.thread.as_ref().is_some_and(ScopedJoinHandle::is_finished)
        });
        let mut dead = None;
        for Hand { commands, thread } in hands {
            drop(commands);
            if thread.join().is_err() {
                dead = Some(ReplayError::Internal { thread: "worker", problem: "it panicked".to_owned() });
            }
        }
        if ear.thread.is_some_and(|thread| thread.join().is_err()) {
            dead = Some(ReplayError::Internal { thread: "reader", problem: "it panicked".to_owned() });
        }
        let recorded = match recorder.join() {
            Ok(recorded) => recorded.map_err(|source| ReplayError::Record { source })?,
            Err(_) => {
                return Err(ReplayError::Internal { thread: "recorder", problem: "it panicked".to_owned() });
            }
        };
        let report = self.close(recorded, manifest, &conducted)?;
        if let Some(source) = self.shared.departure_failure() {
            return Err(ReplayError::Record { source });
        }
        match (dead, conducted.error, self.shared.aborted()) {
            (Some(error), ..) | (None, Some(error), _) => Err(error),
            (None, None, Some(Abort::RecorderBehind)) => {
                Err(ReplayError::RecorderBehind { queued: conducted.recorder_peak, run_dir: report.run_dir })
            }
            _ => Ok(report),
        }
    }

    /// A departure log for each worker.
    fn departures(&self, writer: &RunWriter) -> Result<Vec<DepartureLog>, ReplayError> {
        let unflushed = self.config.recorder_queue.messages;
        let logs = (0..self.checked.workers).map(|number| writer.departures(number, unflushed));
        logs.collect::<Result<_, _>>().map_err(|source| ReplayError::Record { source })
    }

    fn spawn_recorder(
        &self,
        writer: RunWriter,
        messages: Receiver<RecorderMessage>,
        live: Arc<Mutex<Live>>,
    ) -> Result<ScopedJoinHandle<'scope, Result<Recorded, RecordError>>, ReplayError> {
        let recorder = Recorder {
            writer,
            shared: Arc::clone(self.shared),
            messages,
            live,
            give_up_after: self.config.give_up_after_failures,
            secrets: self.config.secrets(),
            targets: self.checked.targets.iter().map(|target| target.addr).collect(),
        };
        let (shared, cores) = (Arc::clone(self.shared), self.checked.cores.as_ref());
        std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn_scoped(self.scope, move || {
                note_unbound(&shared, cores.map_or(Ok(()), |cores| cores.bind_other()));
                recorder.run()
            })
            .map_err(|source| ReplayError::Start { what: "the recorder thread", source })
    }

    /// Where a turn waits for what the answer before it holds: the thread that reads it, and the ways to it and back.
    fn spawn_reader(&self, outbox: &Outbox) -> Result<Ear<'scope>, ReplayError> {
        let workers = self.checked.workers;
        if !reads_turns(self.config) {
            let heard = (0..workers).map(|_| None).collect();
            return Ok(Ear {
                outbox: outbox.clone(),
                heard,
                thread: None,
                renderer: RendererSlot::default(),
            });
        }
        let (sender, inbox) = sync_channel(self.config.recorder_queue.messages.max(1) as usize);
        let (words, heard) = (0..workers).map(|_| mpsc::channel(reader::WORDS)).unzip();
        let renderer = RendererSlot::default();
        let reader = Reader {
            secrets: self.config.secrets(),
            shared: Arc::clone(self.shared),
            inbox,
            outbox: outbox.clone(),
            workers: words,
            renderer: RendererSlot::clone(&renderer),
            threads: self.config.sessions.thread,
        };
        let (shared, cores) = (Arc::clone(self.shared), self.checked.cores.as_ref());
        let thread = std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn_scoped(self.scope, move || {
                note_unbound(&shared, cores.map_or(Ok(()), |cores| cores.bind_other()));
                reader.run();
            })
            .map_err(|source| ReplayError::Start { what: "the reader thread", source })?;
        let heard: Vec<_> = heard;
        let heard = heard.into_iter().map(Some).collect();
        Ok(Ear { outbox: outbox.clone().with_reader(sender), heard, thread: Some(thread), renderer })
    }

    fn spawn_workers(
        &self,
        outbox: Outbox,
        heard: Vec<Option<mpsc::Receiver<Heard>>>,
        budget: &Arc<Budget>,
        departures: Vec<DepartureLog>,
    ) -> Result<(Vec<Hand<'scope>>, Receiver<Answer>), ReplayError> {
        let (sender, answers) = sync_channel(departures.len() * 2);
        let connection_numbers = Arc::new(AtomicU32::new(0));
        let mut hands = Vec::new();
        for (number, (departures, heard)) in departures.into_iter().zip(heard).enumerate() {
            let (commands, inbox) = mpsc::channel(COMMANDS);
            let setup = Setup {
                shared: Arc::clone(self.shared),
                outbox: outbox.clone(),
                heard,
                departures,
                budget: Arc::clone(budget),
                targets: Arc::clone(&self.checked.targets),
                rules: Arc::clone(&self.checked.rules),
                connection_numbers: Arc::clone(&connection_numbers),
                commands: inbox,
                answers: sender.clone(),
                number: number as u32,
                realtime: self.config.realtime,
                cores: self.checked.cores.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn_scoped(self.scope, move || worker::run(setup))
                .map_err(|source| ReplayError::Start { what: "a worker thread", source })?;
            hands.push(Hand { commands, thread });
        }
        Ok((hands, answers))
    }

    fn close(
        &self,
        recorded: Recorded,
        manifest: Manifest,
        conducted: &Conducted,
    ) -> Result<RunReport, ReplayError> {
        closing::report(recorded, manifest, conducted, self.shared, self.plan, &self.started)
            .map_err(|source| ReplayError::Record { source })
    }
}
