//! Progress of a replay, from its event stream.

use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use tracewheel_replay::{ReplayEvent, Started};

use crate::reporter::Reporter;
use crate::words::replay_parts;

/// Shows a replay's progress as long as its event stream lives.
#[derive(Debug)]
pub struct ReplayProgress {
    thread: JoinHandle<()>,
}

impl ReplayProgress {
    /// Starts a thread that takes `events` until the sending side is gone or the replay is finished.
    pub fn start(events: Receiver<ReplayEvent>, reporter: Reporter) -> Self {
        Self { thread: std::thread::spawn(move || follow(events, reporter)) }
    }

    /// Waits for the end of the event stream; the line is gone then.
    pub fn finish(self) {
        // A panic while drawing must not cost the run its summary.
        let _ = self.thread.join();
    }
}

fn follow(events: Receiver<ReplayEvent>, mut reporter: Reporter) {
    let mut started: Option<Started> = None;
    for event in events {
        match event {
            ReplayEvent::Started(event) => started = Some(event),
            ReplayEvent::Tick(tick) => reporter.tell(tick.at_ns, &replay_parts(started.as_ref(), &tick)),
            ReplayEvent::Finished(_) => reporter.end(),
        }
    }
    reporter.end();
}
