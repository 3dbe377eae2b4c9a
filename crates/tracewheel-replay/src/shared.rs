//! What all threads of a run share: the clock, counters, and the word that it is over.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};

use tracewheel_clock::{RunClock, blocking};
use tracewheel_record::RecordError;
use tracewheel_record::manifest::{ConnectionOutcome, ThreadingOutcome};
use tracewheel_transport::TlsFacts;

use crate::config::RecorderQueue;
pub(crate) use crate::halting::{Abort, Halt};
use crate::halting::{Halting, StartMark};
use crate::machine::ThreadTime;
use crate::message::{ReadAttempt, RecorderMessage, ToReader, TurnToRead, TurnToWrite};
use crate::realtime::SchedulingSeen;

/// Counters that progress and health read; nothing is decided by them.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Planned requests released.
    pub(crate) sent: AtomicU64,
    /// Planned requests that will not be sent although the run goes on.
    pub(crate) passed_over: AtomicU64,
    /// Requests released and not ended.
    pub(crate) in_flight: AtomicI64,
    /// Attempts beyond the first.
    pub(crate) retries: AtomicU64,
    /// Entries in the workers' wheels.
    pub(crate) wheel_entries: AtomicI64,
    /// Requests rendered and not yet released.
    pub(crate) rendered: AtomicI64,
    /// Connections open.
    pub(crate) connections_open: AtomicI64,
    /// Connections opened so far.
    pub(crate) connections_opened: AtomicU64,
    /// Armed connections that the server closed before a byte was written.
    pub(crate) stale_connections: AtomicU64,
    /// Messages that wait for the recorder.
    pub(crate) recorder_messages: AtomicI64,
    /// Bytes that they hold.
    pub(crate) recorder_bytes: AtomicI64,
    /// Turns that the reader has not handed on to the recorder yet; they are among the messages.
    pub(crate) reading: AtomicI64,
    /// Requests that were rendered after they were due while none waited ahead of them.
    pub(crate) rendered_late: AtomicU64,
}

/// What all threads of a run share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Arc<RunClock>,
    pub(crate) gauges: Gauges,
    halting: Halting,
    /// Why a release could not be noted, so that the run had to end.
    departure_failure: Mutex<Option<RecordError>>,
    /// The measured phase has begun: the run clock's value of its time zero.
    measure_start: StartMark,
    /// Smallest and all handshake times seen, for the vantage.
    round_trips_ns: Mutex<Vec<i64>>,
    /// What TLS negotiated, for the manifest.
    tls: Mutex<TlsSeen>,
    /// Which HTTP was spoken.
    http: Mutex<HttpSeen>,
    /// What the workers saw of their connections, each when it ends.
    connections: Mutex<ConnectionOutcome>,
    /// The sending threads, and what those that ended had had of the CPUs.
    senders: Mutex<Vec<(i32, Option<ThreadTime>)>>,
    /// What became of the real-time class and the cores.
    scheduling: Mutex<SchedulingSeen>,
    probes: Mutex<Probes>,
    /// What became of live answers, where they go on into the next turn.
    threading: Mutex<Option<ThreadingOutcome>>,
}

/// What became of the requests that tell how the target counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probes {
    /// How many have ended.
    pub(crate) ended: usize,
    /// Words sent and tokens counted, of those that were answered.
    pub(crate) counted: Vec<(u32, u32)>,
}

/// What was seen of TLS.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsSeen {
    /// Of the latest full handshake, else of the first one.
    pub(crate) facts: Option<Arc<TlsFacts>>,
    /// Handshakes with a certificate.
    pub(crate) full: u64,
    /// Handshakes that resumed a session.
    pub(crate) resumed: u64,
}

/// Which HTTP was spoken.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HttpSeen {
    /// HTTP/1.1 was.
    http1: bool,
    /// HTTP/2: the smallest number of requests at once that a connection carries.
    streams: Option<u32>,
}

impl HttpSeen {
    /// The words of the manifest; `None` where no connection was made.
    pub(crate) fn spoken(self, tls: bool) -> Option<&'static str> {
        match (self.http1, self.streams) {
            (true, Some(_)) => Some("h1, h2"),
            (true, None) => Some("h1"),
            (false, Some(_)) => Some(if tls { "h2" } else { "h2c" }),
            (false, None) => None,
        }
    }
}

/// Handshakes kept for the vantage.
const ROUND_TRIPS: usize = 4096;

impl Shared {
    pub(crate) fn new(clock: Arc<RunClock>) -> Arc<Self> {
        Arc::new(Shared {
            clock,
            gauges: Gauges::default(),
            halting: Halting::new(),
            departure_failure: Mutex::new(None),
            measure_start: StartMark::new(),
            round_trips_ns: Mutex::new(Vec::new()),
            tls: Mutex::default(),
            http: Mutex::default(),
            connections: Mutex::default(),
            senders: Mutex::default(),
            scheduling: Mutex::default(),
            probes: Mutex::default(),
            threading: Mutex::default(),
        })
    }

    /// Ends the run for `why`, unless it is being ended for another reason already.
    pub(crate) fn abort(&self, why: Abort) {
        self.halting.abort(why);
    }

    /// Ends the run because a release could not be noted.
    pub(crate) fn departure_failed(&self, error: RecordError) {
        self.departure_failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.abort(Abort::RecorderFailed);
    }

    /// Why a release could not be noted, if that happened.
    pub(crate) fn departure_failure(&self) -> Option<RecordError> {
        self.departure_failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Why the run stopped itself, if it did.
    pub(crate) fn aborted(&self) -> Option<Abort> {
        self.halting.aborted()
    }

    /// Goes to `halt` unless the run has gone further already. Workers see it at their next turn.
    pub(crate) fn raise(&self, halt: Halt) {
        self.halting.raise(halt);
    }

    /// How the run is being ended.
    pub(crate) fn halt(&self) -> Halt {
        self.halting.level()
    }

    /// Says when the measured phase's time zero is.
    pub(crate) fn begin_measuring(&self, at_ns: i64) {
        self.measure_start.set(at_ns);
    }

    /// The measured phase's time zero, once it is known.
    pub(crate) fn measure_start_ns(&self) -> Option<i64> {
        self.measure_start.get()
    }

    /// Notes how long a handshake took.
    pub(crate) fn note_round_trip(&self, ns: i64) {
        let mut all = self.round_trips_ns.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < ROUND_TRIPS {
            all.push(ns);
        }
    }

    /// Notes what a TLS handshake led to.
    pub(crate) fn note_tls(&self, facts: &Arc<TlsFacts>) {
        let mut seen = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        *(if facts.resumed { &mut seen.resumed } else { &mut seen.full }) += 1;
        if !facts.resumed || seen.facts.is_none() {
            seen.facts = Some(Arc::clone(facts));
        }
    }

    /// A connection was made that carries so many requests at once.
    pub(crate) fn note_http(&self, http2: bool, lanes: u32) {
        let mut seen = self.http.lock().unwrap_or_else(PoisonError::into_inner);
        if http2 {
            seen.streams = Some(seen.streams.map_or(lanes, |known| known.min(lanes)));
        } else {
            seen.http1 = true;
        }
    }

    /// Which HTTP was spoken.
    pub(crate) fn http(&self) -> HttpSeen {
        *self.http.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen of TLS.
    pub(crate) fn tls(&self) -> TlsSeen {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes what is known of scheduling. Not for the hot path.
    pub(crate) fn note_scheduling(&self, note: impl FnOnce(&mut SchedulingSeen)) {
        note(&mut self.scheduling.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// What became of the real-time class and the cores.
    pub(crate) fn scheduling(&self) -> SchedulingSeen {
        self.scheduling.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A probe ended; with the words that were sent and the tokens that the target counted, if it answered.
    pub(crate) fn note_probe(&self, counted: Option<(u32, u32)>) {
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        probes.ended += 1;
        probes.counted.extend(counted);
    }

    /// What became of the probes so far.
    pub(crate) fn probes(&self) -> Probes {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What became of live answers.
    pub(crate) fn note_threading(&self, seen: ThreadingOutcome) {
        *self.threading.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }

    /// What became of live answers, where they went on into the next turn.
    pub(crate) fn threading(&self) -> Option<ThreadingOutcome> {
        self.threading.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds what one worker saw of its connections.
    pub(crate) fn note_connections(&self, seen: &ConnectionOutcome) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).add(seen);
    }

    /// What the workers saw of their connections.
    pub(crate) fn connections(&self) -> ConnectionOutcome {
        let seen = self.connections.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ConnectionOutcome {
            opened: self.gauges.connections_opened.load(Ordering::Relaxed),
            moved: self.gauges.stale_connections.load(Ordering::Relaxed),
            streams: self.http().streams,
            ..seen
        }
    }

    /// Notes the calling thread as a sending one.
    pub(crate) fn sender_begins(&self) {
        let thread = nix::unistd::gettid().as_raw();
        self.senders.lock().unwrap_or_else(PoisonError::into_inner).push((thread, None));
    }

    /// Notes what the calling thread has had of the CPUs, before it ends and nobody can ask any more.
    pub(crate) fn sender_ends(&self) {
        let thread = nix::unistd::gettid().as_raw();
        let time = ThreadTime::of(thread);
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = senders.iter_mut().find(|(number, _)| *number == thread) {
            sender.1 = time;
        }
    }

    /// What all sending threads together have had of the CPUs so far; `None` where the kernel does not tell of one.
    pub(crate) fn sender_time(&self) -> Option<ThreadTime> {
        let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner).clone();
        senders.into_iter().try_fold(ThreadTime::default(), |sum, (thread, ended)| {
            let time = ended.or_else(|| ThreadTime::of(thread))?;
            Some(ThreadTime {
                cpu_ns: sum.cpu_ns + time.cpu_ns,
                run_delay_ns: sum.run_delay_ns + time.run_delay_ns,
            })
        })
    }

    /// The handshakes noted, ascending.
    pub(crate) fn round_trips(&self) -> Vec<i64> {
        let mut all = self.round_trips_ns.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_unstable();
        all
    }
}

/// The senders' end of the recorder's queue. Never waits while the run is on.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    sender: SyncSender<RecorderMessage>,
    /// The reader's queue, where a turn waits for what an answer holds.
    reader: Option<SyncSender<ToReader>>,
    shared: Arc<Shared>,
    max_bytes: i64,
    /// Messages that wait before a thread without due times adds another one.
    max_leisurely: i64,
}

/// How long a thread without due times waits before it looks again for room in the recorder's queue.
const ROOM_CHECK_NS: i64 = 500_000;

impl Outbox {
    /// The queue's sending end, its bounds as configured.
    pub(crate) fn new(
        sender: SyncSender<RecorderMessage>,
        shared: Arc<Shared>,
        bounds: RecorderQueue,
    ) -> Self {
        Outbox {
            sender,
            reader: None,
            shared,
            max_bytes: i64::try_from(bounds.bytes).unwrap_or(i64::MAX),
            max_leisurely: i64::from(bounds.messages / 2),
        }
    }

    /// The same, with a way to the reader.
    pub(crate) fn with_reader(self, reader: SyncSender<ToReader>) -> Self {
        Outbox { reader: Some(reader), ..self }
    }

    /// A quarter of the messages that may wait: more of them, and the recorder is behind.
    pub(crate) fn quarter(&self) -> i64 {
        self.max_leisurely / 2
    }

    /// Hands a message over. A full queue ends the run; from then on nothing is due and the caller waits instead.
    pub(crate) fn post(&self, message: RecorderMessage) {
        let bytes = match &message {
            RecorderMessage::Attempt(ended) => ended.held_bytes() as i64,
            RecorderMessage::Read(read) => read.held_bytes() as i64,
            RecorderMessage::Released(_) | RecorderMessage::Request(_) => 0,
        };
        self.shared.gauges.recorder_messages.fetch_add(1, Ordering::Relaxed);
        self.hold(bytes);
        self.send(&self.sender, message);
    }

    /// Hands a turn over whose answer is to be read first. It counts among the recorder's messages from here on. Without
    /// a reader it goes to the recorder itself.
    pub(crate) fn post_to_read(&self, turn: TurnToRead) {
        let Some(reader) = &self.reader else { return self.post(RecorderMessage::Attempt(turn.ended)) };
        let gauges = &self.shared.gauges;
        gauges.recorder_messages.fetch_add(1, Ordering::Relaxed);
        gauges.reading.fetch_add(1, Ordering::Release);
        self.hold(turn.ended.held_bytes() as i64);
        self.send(reader, ToReader::Ended(turn));
    }

    /// Hands a turn over whose body is to be written.
    pub(crate) fn post_to_write(&self, turn: TurnToWrite) {
        if let Some(reader) = &self.reader {
            self.send(reader, ToReader::Next(turn));
        }
    }

    /// Hands a turn on that was read. The reader has no due times: it waits for room.
    pub(crate) fn post_read(&self, read: Box<ReadAttempt>) {
        self.hold(read.decoded_bytes() as i64);
        self.wait_and_send(RecorderMessage::Read(read));
        self.shared.gauges.reading.fetch_sub(1, Ordering::Release);
    }

    /// Counts bytes that wait for the recorder; too many end the run.
    fn hold(&self, bytes: i64) {
        let held = self.shared.gauges.recorder_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if held > self.max_bytes {
            self.shared.abort(Abort::RecorderBehind);
        }
    }

    /// Puts a message into a queue. A full one ends the run.
    fn send<T>(&self, queue: &SyncSender<T>, message: T) {
        match queue.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(message)) => {
                self.shared.abort(Abort::RecorderBehind);
                if queue.send(message).is_err() {
                    self.shared.abort(Abort::RecorderFailed);
                }
            }
            Err(TrySendError::Disconnected(_)) => self.shared.abort(Abort::RecorderFailed),
        }
    }

    /// Hands a message over and waits for room: for threads without due times. They leave half of the queue to the
    /// senders: the rows of a large plan that a stop leaves unsent must not end the run that is just being drained.
    pub(crate) fn post_waiting(&self, message: RecorderMessage) {
        while self.shared.gauges.recorder_messages.load(Ordering::Relaxed) > self.max_leisurely
            && self.shared.halt() < Halt::Abort
        {
            blocking::sleep(ROOM_CHECK_NS);
        }
        self.shared.gauges.recorder_messages.fetch_add(1, Ordering::Relaxed);
        self.wait_and_send(message);
    }

    fn wait_and_send(&self, message: RecorderMessage) {
        if self.sender.send(message).is_err() {
            self.shared.abort(Abort::RecorderFailed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_to_abort_stays_and_halts_only_go_further() {
        let shared = Shared::new(RunClock::start());
        assert_eq!((shared.halt(), shared.aborted()), (Halt::Running, None));
        shared.raise(Halt::Cut);
        shared.raise(Halt::Drain);
        assert_eq!(shared.halt(), Halt::Cut);
        shared.abort(Abort::RecorderBehind);
        shared.abort(Abort::TargetFailing);
        assert_eq!((shared.halt(), shared.aborted()), (Halt::Abort, Some(Abort::RecorderBehind)));
    }

    #[test]
    fn a_full_recorder_queue_ends_the_run() {
        let shared = Shared::new(RunClock::start());
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let outbox = Outbox::new(sender, Arc::clone(&shared), RecorderQueue { messages: 1, bytes: 1 << 20 });
        outbox.post(RecorderMessage::Released(Default::default()));
        assert_eq!(shared.aborted(), None);
        let reader = std::thread::spawn(move || {
            blocking::sleep(5_000_000);
            receiver.iter().count()
        });
        outbox.post(RecorderMessage::Released(Default::default()));
        assert_eq!(shared.aborted(), Some(Abort::RecorderBehind));
        drop(outbox);
        assert_eq!(reader.join().unwrap(), 2, "what did not fit is handed over after all");
    }

    #[test]
    fn rows_of_unsent_requests_leave_room_for_what_is_in_flight() {
        let shared = Shared::new(RunClock::start());
        let (sender, receiver) = std::sync::mpsc::sync_channel(8);
        let bounds = RecorderQueue { messages: 8, bytes: 1 << 20 };
        let outbox = Outbox::new(sender, Arc::clone(&shared), bounds);
        let (patient, gauges) = (outbox.clone(), Arc::clone(&shared));
        let unsent = std::thread::spawn(move || {
            (0..100).for_each(|_| patient.post_waiting(RecorderMessage::Released(Default::default())));
        });
        while shared.gauges.recorder_messages.load(Ordering::Relaxed) <= 4 {
            std::thread::yield_now();
        }
        (0..3).for_each(|_| outbox.post(RecorderMessage::Released(Default::default())));
        assert_eq!(shared.aborted(), None);
        drop(outbox);
        let taken = receiver.iter().inspect(|_| {
            gauges.gauges.recorder_messages.fetch_sub(1, Ordering::Relaxed);
        });
        assert_eq!(taken.count(), 103);
        unsent.join().unwrap();
    }
}
