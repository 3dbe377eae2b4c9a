//! The recorder: a thread that decodes what the senders read and writes it down.
//!
//! It is never waited for. It looks at its queue every few milliseconds instead of sleeping on it, so that a sender never
//! pays the system call that would wake it.

mod health;
mod totals;

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};

use tracewheel_clock::{Clock, blocking};
use tracewheel_record::{HealthRecord, Manifest, RecordError, RequestRecord, RunSummary, RunWriter};
use tracewheel_timeline::vocab::{AttemptStatus, Phase, Reason, RequestStatus, Source};

use crate::config::{SECOND_NS, Secret};
use crate::decode::{self, Decoded};
use crate::message::{EndedAttempt, ReadAttempt, RecorderMessage};
use crate::shared::{Abort, Shared};

use health::HealthSampler;
pub(crate) use totals::{Live, Primed, Totals, one_line};

/// How long the recorder sleeps when its queue is empty.
const NAP_NS: i64 = 20_000_000;
/// Messages between two looks at the clock.
const BATCH: u32 = 256;
/// A flush that takes longer is told.
const SLOW_FLUSH_NS: i64 = SECOND_NS / 2;
/// How long a flush waits between two looks at what the reader has in hand, and how often it looks.
const READER_LOOK_NS: i64 = 200_000;
const READER_LOOKS: u32 = 500;
/// Time between two publications of the running totals.
const PUBLISH_NS: i64 = 200_000_000;

/// What the recorder is given.
pub(crate) struct Recorder {
    pub(crate) writer: RunWriter,
    pub(crate) shared: Arc<Shared>,
    pub(crate) messages: Receiver<RecorderMessage>,
    pub(crate) live: Arc<Mutex<Live>>,
    /// Failed requests in a row that end the run.
    pub(crate) give_up_after: Option<u32>,
    /// Keys and their like: taken out of whatever a target says.
    pub(crate) secrets: Vec<Secret>,
    /// Where the connections lead.
    pub(crate) targets: Vec<SocketAddr>,
}

/// What the recorder hands back when all senders are gone.
pub(crate) struct Recorded {
    writer: RunWriter,
    pub(crate) totals: Totals,
}

impl Recorded {
    /// Counts what of the plan was not heard of, completes the manifest and closes the run.
    pub(crate) fn finish(
        mut self,
        manifest: &Manifest,
        clock: &dyn Clock,
    ) -> Result<RunSummary, RecordError> {
        let missing = manifest.plan.requests.saturating_sub(self.writer.counts().total());
        if missing > 0 {
            self.writer.unsent_without_row(missing);
        }
        self.writer.finish(manifest, clock)
    }
}

impl Recorder {
    /// Records until all senders are gone. After a failure it goes on emptying the queue, so that nobody waits for it.
    pub(crate) fn run(self) -> Result<Recorded, RecordError> {
        let Recorder { writer, shared, messages, live, give_up_after, secrets, targets } = self;
        let mut desk = Desk {
            health: HealthSampler::new(&shared, targets),
            writer,
            shared,
            totals: Totals::default(),
            give_up_after,
            secrets,
        };
        let outcome = desk.record(&messages, &live);
        match outcome {
            Ok(()) => Ok(Recorded { writer: desk.writer, totals: desk.totals }),
            Err(error) => {
                desk.shared.abort(Abort::RecorderFailed);
                messages.iter().for_each(drop);
                Err(error)
            }
        }
    }
}

struct Desk {
    writer: RunWriter,
    shared: Arc<Shared>,
    totals: Totals,
    health: HealthSampler,
    give_up_after: Option<u32>,
    secrets: Vec<Secret>,
}

impl Desk {
    fn record(
        &mut self,
        messages: &Receiver<RecorderMessage>,
        live: &Mutex<Live>,
    ) -> Result<(), RecordError> {
        let mut next_second = SECOND_NS;
        let mut next_publication = 0;
        loop {
            let (taken, ended) = self.take_batch(messages)?;
            let now = self.shared.clock.now().0;
            if now >= next_publication || ended {
                next_publication = now + PUBLISH_NS;
                *live.lock().unwrap_or_else(PoisonError::into_inner) = self.totals.live();
            }
            if now >= next_second || ended {
                self.flush(messages)?;
                next_second = (now / SECOND_NS + 1) * SECOND_NS;
            }
            if ended {
                return Ok(());
            }
            if taken < BATCH {
                blocking::sleep(NAP_NS);
            }
        }
    }

    /// Journals the past second. Its health row is the stamp of the flush: whatever had been handed over by then is on
    /// record when the row is, because the queue is emptied that far first.
    fn flush(&mut self, messages: &Receiver<RecorderMessage>) -> Result<(), RecordError> {
        let at_ns = self.shared.clock.now().0;
        let waiting = self.shared.gauges.recorder_messages.load(Ordering::Acquire).max(0);
        for _ in 0..waiting {
            let Some(message) = self.handed_over(messages) else { break };
            self.take(message)?;
        }
        let row = self.health.row(&self.shared, at_ns);
        self.totals.clock.note(&row);
        tell(&row);
        self.writer.health(&row)?;
        let begun_ns = self.shared.clock.now().0;
        self.writer.flush()?;
        let flush_ns = self.shared.clock.now().0 - begun_ns;
        if flush_ns > SLOW_FLUSH_NS {
            tracing::warn!(flush_ns, "the disk is slow: the recorder's flush took long");
        }
        Ok(())
    }

    /// The next message that was handed over, also of those that the reader still has in hand, for a while.
    fn handed_over(&self, messages: &Receiver<RecorderMessage>) -> Option<RecorderMessage> {
        for _ in 0..READER_LOOKS {
            let reading = self.shared.gauges.reading.load(Ordering::Acquire) > 0;
            match messages.try_recv() {
                Ok(message) => return Some(message),
                Err(TryRecvError::Empty) if reading => blocking::sleep(READER_LOOK_NS),
                Err(_) => return None,
            }
        }
        None
    }

    /// Takes what lies in the queue, up to a batch, and whether all senders are gone.
    fn take_batch(&mut self, messages: &Receiver<RecorderMessage>) -> Result<(u32, bool), RecordError> {
        for taken in 0..BATCH {
            match messages.try_recv() {
                Ok(message) => self.take(message)?,
                Err(TryRecvError::Empty) => return Ok((taken, false)),
                Err(TryRecvError::Disconnected) => return Ok((taken, true)),
            }
        }
        Ok((BATCH, false))
    }

    fn take(&mut self, message: RecorderMessage) -> Result<(), RecordError> {
        self.shared.gauges.recorder_messages.fetch_sub(1, Ordering::Relaxed);
        match message {
            RecorderMessage::Released(record) => {
                self.health.released();
                self.writer.released(&record)
            }
            RecorderMessage::Attempt(ended) => {
                let held = ended.held_bytes();
                let (record, decoded) = decode::attempt(&self.secrets, &ended);
                self.attempt(ReadAttempt { ended: *ended, record, decoded }, held)
            }
            RecorderMessage::Read(read) => {
                let held = read.held_bytes();
                self.attempt(*read, held)
            }
            RecorderMessage::Request(record) => self.request(&record, None),
        }
    }

    fn attempt(&mut self, read: ReadAttempt, held_bytes: u64) -> Result<(), RecordError> {
        self.shared.gauges.recorder_bytes.fetch_sub(held_bytes as i64, Ordering::Relaxed);
        let ReadAttempt { mut ended, record, decoded } = read;
        self.health.attempt(&ended);
        if let Some(reason) = record.reason {
            tracing::debug!(
                row = record.row,
                attempt = record.attempt,
                connection = record.connection,
                status = record.http_status,
                reason = reason.as_str(),
                "attempt ended badly"
            );
        }
        self.totals.attempt(&ended, &record, &decoded);
        self.writer.attempt(&record)?;
        if let Some(mut request) = ended.closes.take() {
            complete(&mut request, &ended, record.status, record.reason, &decoded);
            self.totals.note_failure(&request, &record);
            self.request(&request, Some(&decoded))?;
        }
        Ok(())
    }

    fn request(&mut self, record: &RequestRecord, decoded: Option<&Decoded>) -> Result<(), RecordError> {
        self.writer.request(record)?;
        if record.status != RequestStatus::Unsent {
            self.health.completed();
        }
        if record.phase == Phase::Calibrate {
            let counted = decoded.and_then(|decoded| decoded.usage.input_tokens);
            self.shared.note_probe(record.asked_input_tokens.zip(counted));
        }
        let failures = self.totals.request(record, decoded);
        if record.phase == Phase::Measure
            && self.give_up_after.is_some_and(|most| failures >= u64::from(most))
        {
            self.shared.abort(Abort::TargetFailing);
        }
        Ok(())
    }
}

/// Logs a second of the generator's life. The sending threads themselves never log: a log line costs more than a send.
fn tell(row: &HealthRecord) {
    tracing::debug!(
        second = row.second,
        released = row.released,
        completed = row.completed,
        in_flight = row.in_flight,
        connections_open = row.connections_open,
        connections_opened = row.connections_opened,
        recorder_queue = row.recorder_queue,
        lateness_max_ns = row.lateness_max_ns,
        "second"
    );
    if row.clock_stepped == Some(true) {
        tracing::warn!(second = row.second, offset_ns = row.clock_offset_ns, "the wall clock was stepped");
    }
}

/// Fills in what the attempt that counted says about its request.
fn complete(
    request: &mut RequestRecord,
    ended: &EndedAttempt,
    status: AttemptStatus,
    reason: Option<Reason>,
    decoded: &Decoded,
) {
    (request.status, request.reason) = (status.into(), reason);
    request.end_ns = Some(ended.end_ns);
    request.first_output_ns = decoded.first_output_ns;
    request.first_visible_ns = decoded.first_visible_ns;
    request.last_output_ns = decoded.last_output_ns;
    let usage = &decoded.usage;
    if let Some(input) = usage.input_tokens {
        (request.input_tokens, request.input_tokens_source) = (Some(input), Some(Source::Reported));
    }
    if let Some(cached) = usage.cached_tokens {
        (request.cached_tokens, request.cached_tokens_source) = (Some(cached), Some(Source::Reported));
    }
    (request.output_tokens, request.output_tokens_source) = decoded.output_tokens();
    request.strata.model_served.clone_from(&decoded.model_served);
}
