//! The reader: a thread that looks into the answers that a session's next turn waits for.
//!
//! Whether an answer is whole, and holds no error, only its body tells, and decoding it takes too long for a sender. The
//! recorder decodes too, but it naps, and waits for its disk. So where turns wait for each other, a turn that ended well
//! as far as its sender knows goes by way of the reader: it decodes the answer, tells the sender, and hands both on to
//! the recorder, which need not decode it again. Nobody waits for it but the next turn of that session.
//!
//! Where a conversation is to go on with what the target really said, the reader keeps the answers' texts and writes the
//! next turn's request ([`conversations`]).

mod conversations;

use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tracewheel_clock::blocking;
use tracewheel_timeline::vocab::RequestStatus;
use tracewheel_tokens::count;

use crate::config::Secret;
use crate::decode::{self, Decoded};
use crate::message::{EndedAttempt, Heard, ReadAttempt, ToReader, TurnToRead, TurnToWrite, WrittenTurn};
use crate::prefetch::Renderer;
use crate::shared::{Halt, Outbox, Shared};

use conversations::{Conversations, MOST_ANSWER_BYTES, Said, Written};

/// How long the reader sleeps when its queue is empty: what a turn may have to wait beyond its recorded pause. It is never
/// woken, as that would cost the sender a system call.
const NAP_NS: i64 = 1_000_000;
/// Words on their way to a worker. A worker that has not taken as many is behind with everything.
pub(crate) const WORDS: usize = 4_096;

/// The renderer of the measured phase, once there is one.
pub(crate) type RendererSlot = Arc<Mutex<Option<Renderer>>>;

/// What the reader is given.
pub(crate) struct Reader {
    /// Keys and their like: taken out of whatever a target says.
    pub(crate) secrets: Vec<Secret>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) inbox: Receiver<ToReader>,
    /// To the recorder.
    pub(crate) outbox: Outbox,
    /// To each worker, by its number.
    pub(crate) workers: Vec<mpsc::Sender<Heard>>,
    /// Writes the next turns, where live answers go on into them.
    pub(crate) renderer: RendererSlot,
    /// Whether they do.
    pub(crate) threads: bool,
}

impl Reader {
    /// Reads until all senders are gone.
    pub(crate) fn run(self) {
        let mut conversations = Conversations::default();
        loop {
            match self.inbox.try_recv() {
                Ok(ToReader::Ended(turn)) => self.read(turn, &mut conversations),
                Ok(ToReader::Next(turn)) => self.write(turn, &mut conversations),
                Err(TryRecvError::Empty) => blocking::sleep(NAP_NS),
                Err(TryRecvError::Disconnected) => break,
            }
        }
        if self.threads {
            self.shared.note_threading(conversations.seen());
        }
    }

    fn read(&self, turn: TurnToRead, conversations: &mut Conversations) {
        let TurnToRead { ended, session, worker, draft } = turn;
        let (record, decoded) = decode::attempt(&self.secrets, &ended);
        let well = goes_on(record.status);
        if let Some(planned) = draft {
            let said = Some(&*ended).filter(|_| well).and_then(|ended| said(ended, &decoded));
            conversations.ended(session, &planned, ended.provider.chat(), said);
        }
        self.tell(worker, Heard::Ended { session, row: ended.row, well });
        self.outbox.post_read(Box::new(ReadAttempt { ended: *ended, record, decoded }));
    }

    fn write(&self, turn: TurnToWrite, conversations: &mut Conversations) {
        let TurnToWrite { number, session, after_row, worker, provider, draft } = turn;
        let mut renderer = self.renderer.lock().unwrap_or_else(PoisonError::into_inner);
        let written = renderer
            .as_mut()
            .and_then(|renderer| conversations.write((session, after_row), &draft, provider, renderer));
        drop(renderer);
        let (body, asked_input_tokens) = match written {
            Some(Written { body, asked_input_tokens }) => (Some(body), asked_input_tokens),
            None => (None, None),
        };
        let turn = WrittenTurn { number, session, draft, body, asked_input_tokens };
        self.tell(worker, Heard::Written(Box::new(turn)));
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

/// What a whole answer says, in text, and how many tokens that is.
fn said(ended: &EndedAttempt, decoded: &Decoded) -> Option<Said> {
    let outcome = ended.outcome.as_ref()?;
    let text = ended.provider.chat()?.answer_text(&outcome.body, MOST_ANSWER_BYTES)?;
    // Reasoning is output, and no part of what is said next.
    let reported = decoded
        .output_tokens()
        .0
        .map(|tokens| tokens.saturating_sub(decoded.usage.reasoning_tokens.unwrap_or(0)));
    let tokens = reported.filter(|tokens| *tokens > 0).unwrap_or_else(|| count(&text));
    Some(Said { text, tokens })
}

/// Whether a conversation goes on after a turn that ended so.
pub(crate) fn goes_on(status: impl Into<RequestStatus>) -> bool {
    matches!(status.into(), RequestStatus::Ok | RequestStatus::Cancelled)
}
