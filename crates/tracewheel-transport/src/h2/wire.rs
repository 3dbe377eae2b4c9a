//! The stamped stream as the HTTP/2 library wants to see it: frames tied to reads and writes, and a valve.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracewheel_clock::RunNs;
use tracewheel_net::{ReadStamp, StreamStamps, WriteMarks};

use super::scan::{Frame, FrameScanner, flag, kind};
use crate::exchange::BodyMark;
use crate::io::Stream;

/// Bytes that one read may bring: few enough that decoding them delays no due send for long.
const READ_BYTES: usize = 16 * 1024;
/// Reads within one poll.
pub(crate) const READS_A_POLL: u32 = 2;
/// Bytes that may leave within one poll, about: after them everything else gets a look.
const WRITE_SLICE_BYTES: usize = 64 * 1024;
/// First bytes of the peer that are kept, to say what it speaks.
const GREETING_BYTES: usize = 64;
/// Bytes of the client's connection preface that are no frame.
const PREFACE_BYTES: usize = 24;
/// Header blocks of one answer that are remembered; an honest one has a few.
const MAX_HEADS: usize = 64;

/// What left and came for one stream.
#[derive(Debug, Default)]
pub(crate) struct StreamLog {
    pub(crate) writes: WriteMarks,
    /// The request's last frame has left.
    pub(crate) sent: bool,
    /// Reads that brought bytes of the stream's frames; their `bytes` are those of its frames alone.
    pub(crate) reads: Vec<ReadStamp>,
    /// The latest of them, by its number within the connection.
    read_number: u64,
    pub(crate) marks: Vec<BodyMark>,
    body_bytes: u64,
    /// For each header block before the body, the read that completed it.
    pub(crate) heads: Vec<u32>,
    /// The peer reset the stream, with this code.
    pub(crate) reset: Option<u32>,
}

impl StreamLog {
    fn came(&mut self, bytes: usize, read: &ReadStamp, number: u64) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.read_number == number
            && let Some(last) = self.reads.last_mut()
        {
            last.bytes += bytes;
            return;
        }
        self.read_number = number;
        self.reads.push(ReadStamp { bytes, ..*read });
    }

    fn completed(&mut self, frame: &Frame) {
        let read = u32::try_from(self.reads.len().saturating_sub(1)).unwrap_or(u32::MAX);
        match frame.kind {
            kind::DATA if frame.data_bytes() > 0 => {
                self.body_bytes += u64::from(frame.data_bytes());
                let end_offset = self.body_bytes;
                match self.marks.last_mut() {
                    Some(mark) if mark.read == read => mark.end_offset = end_offset,
                    _ => self.marks.push(BodyMark { end_offset, read }),
                }
            }
            kind::HEADERS | kind::CONTINUATION
                if frame.has(flag::END_HEADERS) && self.body_bytes == 0 && self.heads.len() < MAX_HEADS =>
            {
                self.heads.push(read);
            }
            kind::RST_STREAM => self.reset = Some(frame.word(0)),
            _ => {}
        }
    }

    fn left(&mut self, bytes: usize, call_ns: Option<RunNs>, done_ns: Option<RunNs>) {
        let writes = &mut self.writes;
        writes.first_call_ns = writes.first_call_ns.or(call_ns);
        writes.first_ns = writes.first_ns.or(done_ns);
        (writes.last_call_ns, writes.last_ns) = (call_ns, done_ns);
        writes.bytes += bytes as u64;
    }
}

/// The peer's announcement that it ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GoAway {
    /// Streams above it were not and will not be looked at.
    pub(crate) last_stream: u32,
    pub(crate) code: u32,
}

/// Stream ids are counted up by this end: they need no hashing that withstands an enemy.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 << 8) | u64::from(*byte));
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

pub(crate) type Logs = HashMap<u32, StreamLog, BuildHasherDefault<IdHasher>>;

/// What the adapter inside the library's connection and the exchanges outside share. All live in one task; the lock
/// only satisfies `Send`.
#[derive(Debug)]
pub(crate) struct Wire {
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    reads_left: u32,
    /// A poll that runs out of reads is followed by another one.
    reads_on: bool,
    write_left: usize,
    /// The socket took no more in the last poll.
    pub(crate) socket_full: bool,
    incoming: FrameScanner,
    outgoing: FrameScanner,
    pub(crate) streams: Logs,
    read: Option<ReadStamp>,
    read_number: u64,
    /// The peer's SETTINGS are there.
    pub(crate) settings: bool,
    pub(crate) go_away: Option<GoAway>,
    pub(crate) greeting: Vec<u8>,
    /// Frames that came.
    pub(crate) frames: u64,
    /// What TLS holds of frames: encrypted, not yet with the kernel.
    held: Vec<(u32, usize, bool)>,
    /// Since when it holds them.
    held_call_ns: Option<RunNs>,
}

impl Wire {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Wire {
            state: Mutex::new(State {
                reads_left: READS_A_POLL,
                reads_on: true,
                write_left: WRITE_SLICE_BYTES,
                socket_full: false,
                incoming: FrameScanner::default(),
                outgoing: FrameScanner::after(PREFACE_BYTES),
                streams: Logs::default(),
                read: None,
                read_number: 0,
                settings: false,
                go_away: None,
                greeting: Vec::new(),
                frames: 0,
                held: Vec::new(),
                held_call_ns: None,
            }),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a poll in which so many reads may be made, and a slice may leave if `open`. After a poll without reads the
    /// socket is watched as before it.
    pub(crate) fn begin_poll(&self, reads: u32, open: bool) {
        let mut state = self.lock();
        (state.reads_left, state.reads_on) = (reads, reads > 0);
        state.write_left = if open { WRITE_SLICE_BYTES } else { 0 };
        state.socket_full = false;
    }

    /// Begins to keep a log of a stream, before its first byte leaves.
    pub(crate) fn register(&self, stream: u32) {
        self.lock().streams.insert(stream, StreamLog::default());
    }

    /// Ends it.
    pub(crate) fn forget(&self, stream: u32) -> StreamLog {
        self.lock().streams.remove(&stream).unwrap_or_default()
    }
}

impl State {
    /// Whether a slice was used up in this poll: what is left waits for its turn and for nobody else.
    pub(crate) fn slice_used(&self) -> bool {
        self.write_left == 0
    }

    fn received(&mut self, bytes: &[u8], read: Option<ReadStamp>) {
        if let Some(read) = read {
            (self.read, self.read_number) = (Some(read), self.read_number + 1);
        }
        let missing = GREETING_BYTES - self.greeting.len();
        self.greeting.extend_from_slice(&bytes[..bytes.len().min(missing)]);
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.incoming.take(rest);
            rest = &rest[taken.used..];
            if let Some(stream) = taken.stream
                && let Some(log) = self.streams.get_mut(&stream)
            {
                if let Some(read) = &self.read {
                    log.came(taken.used, read, self.read_number);
                }
                if let Some(frame) = &taken.frame {
                    log.completed(frame);
                }
            }
            if let Some(frame) = &taken.frame {
                self.frames += 1;
                match frame.kind {
                    kind::SETTINGS if !frame.has(flag::ACK) => self.settings = true,
                    kind::GOAWAY => {
                        self.go_away =
                            Some(GoAway { last_stream: frame.word(0) & 0x7fff_ffff, code: frame.word(4) });
                    }
                    _ => {}
                }
            }
        }
    }

    /// Ties bytes that were accepted to their streams.
    fn accepted(&mut self, bufs: &[IoSlice<'_>], mut bytes: usize) {
        for buf in bufs {
            let mut rest = &buf[..buf.len().min(bytes)];
            bytes -= rest.len();
            while !rest.is_empty() {
                let taken = self.outgoing.take(rest);
                rest = &rest[taken.used..];
                let Some(stream) = taken.stream.filter(|stream| *stream > 0) else { continue };
                let ends = taken.frame.is_some_and(|frame| {
                    matches!(frame.kind, kind::DATA | kind::HEADERS) && frame.has(flag::END_STREAM)
                });
                self.held.push((stream, taken.used, ends));
            }
        }
    }

    /// All that was accepted is with the kernel.
    fn flushed(&mut self, marks: WriteMarks) {
        let call_ns = self.held_call_ns.take().or(marks.first_call_ns);
        for (stream, bytes, ends) in self.held.drain(..) {
            if let Some(log) = self.streams.get_mut(&stream) {
                log.left(bytes, call_ns, marks.last_ns);
                log.sent |= ends;
            }
        }
    }
}

/// Lets everything else run, and the event loop look for events, before this task is polled again: a bare wake would have it
/// polled before both.
pub(super) fn poll_turn(cx: &mut Context<'_>) -> Poll<()> {
    pin!(tokio::task::yield_now()).poll(cx)
}

/// The library's view of a [`Stream`].
pub(crate) struct H2Io {
    stream: Stream,
    stamps: StreamStamps,
    wire: Arc<Wire>,
    /// What was read; bytes from `at` to `end` wait.
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    drained: Vec<ReadStamp>,
}

impl H2Io {
    pub(crate) fn new(stream: Stream, wire: Arc<Wire>) -> Self {
        let stamps = stream.stamps();
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        H2Io { stream, stamps, wire, buffer, at: 0, end: 0, drained: Vec::new() }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        {
            let mut state = self.wire.lock();
            if state.reads_left == 0 {
                if state.reads_on {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            state.reads_left -= 1;
        }
        let read = ready!(self.stream.poll_read_slice(cx, &mut self.buffer))?;
        (self.at, self.end) = (0, read);
        self.drained.clear();
        self.stamps.drain_reads(&mut self.drained);
        self.wire.lock().received(&self.buffer[..read], self.drained.last().copied());
        Poll::Ready(Ok(()))
    }

    /// After a call that may have written: what it says of the bytes on their way.
    fn note_writes(&mut self) {
        let marks = self.stamps.write_marks();
        let holds = matches!(&self.stream, Stream::Tls(tls) if tls.holds_bytes());
        let mut state = self.wire.lock();
        if !holds {
            state.flushed(marks);
        } else if state.held_call_ns.is_none() {
            state.held_call_ns = marks.first_call_ns;
        }
    }
}

impl AsyncRead for H2Io {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.at == this.end {
            ready!(this.poll_fill(cx))?;
        }
        let given = buf.remaining().min(this.end - this.at);
        buf.put_slice(&this.buffer[this.at..this.at + given]);
        this.at += given;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for H2Io {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.wire.lock().write_left == 0 {
            ready!(poll_turn(cx));
        }
        this.stamps.begin_exchange();
        let written = match &mut this.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Stream::Tls(tls) => tls.poll_write_slice(cx, bufs),
        };
        let mut state = this.wire.lock();
        match &written {
            Poll::Pending => state.socket_full = true,
            Poll::Ready(Err(_)) => {}
            Poll::Ready(Ok(bytes)) => {
                state.write_left = state.write_left.saturating_sub(*bytes);
                state.accepted(bufs, *bytes);
            }
        }
        drop(state);
        if matches!(written, Poll::Ready(Ok(_))) {
            this.note_writes();
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = match &mut this.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => tls.poll_send(cx),
        };
        if flushed.is_pending() {
            this.wire.lock().socket_full = true;
        }
        this.note_writes();
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}
