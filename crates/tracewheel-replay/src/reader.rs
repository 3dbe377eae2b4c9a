//! The reader: a thread that looks into the answers that a session's next turn waits for.
//!
//! Whether an answer is whole, and holds no error, only its body tells, and decoding it takes too long for a sender. The
//! recorder decodes too, but it naps, and waits for its disk. So where turns wait for each other, a turn that ended well
//! as far as its sender knows goes by way of the reader: it decodes the answer, tells the sender, and hands both on to
//! the recorder, which need not decode it again. Nobody waits for it but the next turn of that session.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tracewheel_clock::blocking;
use tracewheel_timeline::vocab::RequestStatus;

use crate::config::Secret;
use crate::decode;
use crate::message::{Heard, ReadAttempt, TurnToRead};
use crate::shared::{Halt, Outbox, Shared};

/// How long the reader sleeps when its queue is empty: what a turn may have to wait beyond its recorded pause. It is never
/// woken, as that would cost the sender a system call.
const NAP_NS: i64 = 1_000_000;
/// Words on their way to a worker. A worker that has not taken as many is behind with everything.
pub(crate) const WORDS: usize = 4_096;

/// What the reader is given.
pub(crate) struct Reader {
    /// Keys and their like: taken out of whatever a target says.
    pub(crate) secrets: Vec<Secret>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) turns: Receiver<TurnToRead>,
    /// To the recorder.
    pub(crate) outbox: Outbox,
    /// To each worker, by its number.
    pub(crate) workers: Vec<mpsc::Sender<Heard>>,
}

impl Reader {
    /// Reads until all senders are gone.
    pub(crate) fn run(self) {
        loop {
            match self.turns.try_recv() {
                Ok(turn) => self.read(turn),
                Err(TryRecvError::Empty) => blocking::sleep(NAP_NS),
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }

    fn read(&self, turn: TurnToRead) {
        let TurnToRead { ended, session, worker } = turn;
        let (record, decoded) = decode::attempt(&self.secrets, &ended);
        let well = goes_on(record.status);
        self.tell(worker, Heard { session, row: ended.row, well });
        self.outbox.post_read(Box::new(ReadAttempt { ended: *ended, record, decoded }));
    }

    fn tell(&self, worker: u32, mut heard: Heard) {
        let Some(words) = self.workers.get(worker as usize) else { return };
        // After a stop no turn follows, and a worker that waits for room in a queue of ours does not listen.
        while let Err(TrySendError::Full(back)) = words.try_send(heard)
            && self.shared.halt() == Halt::Running
        {
            heard = back;
            blocking::sleep(NAP_NS);
        }
    }
}

/// Whether a conversation goes on after a turn that ended so.
pub(crate) fn goes_on(status: impl Into<RequestStatus>) -> bool {
    matches!(status.into(), RequestStatus::Ok | RequestStatus::Cancelled)
}
