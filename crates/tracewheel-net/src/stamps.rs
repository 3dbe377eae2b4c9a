//! The stamps of one stream, shared between the stream and whoever measures it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracewheel_clock::RunNs;

/// Reads that are logged at most between two drainings. Beyond it further reads are added to the last.
const MAX_LOGGED_READS: usize = 65_536;

/// When one read's bytes arrived. The crate's page says exactly what the stamps mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadStamp {
    /// The run clock right after the read returned.
    pub user_ns: RunNs,
    /// When the kernel received the last segment of the read, on the run clock; `None` where it gave no stamp or a
    /// step of the wall clock voids it. Never after `user_ns`.
    pub kernel_ns: Option<RunNs>,
    /// Bytes that the read delivered, never 0.
    pub bytes: u32,
}

/// When the current exchange's request left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteMarks {
    /// The run clock right before the call with which the kernel accepted the first byte.
    pub first_call_ns: Option<RunNs>,
    /// The run clock right after that call returned: the kernel has the first byte.
    pub first_ns: Option<RunNs>,
    /// The run clock right before the latest call that accepted bytes.
    pub last_call_ns: Option<RunNs>,
    /// The run clock right after the latest call that accepted bytes: once all is written, the kernel has the last.
    pub last_ns: Option<RunNs>,
    /// Bytes accepted since the exchange began.
    pub bytes: u64,
}

/// A handle to a stream's stamps. Cheap to clone; lives as long as needed, also after the stream is gone.
///
/// Behind it is a lock that stream and measurer take in turn from one thread, so it is never waited for in practice.
#[derive(Clone, Debug, Default)]
pub struct StreamStamps {
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    reads: Vec<ReadStamp>,
    /// Reads of which it is not known yet whether they belong in the log; `None` while all do.
    held: Option<Vec<ReadStamp>>,
    merged_reads: u64,
    eof_ns: Option<RunNs>,
    marks: WriteMarks,
}

impl StreamStamps {
    /// Starts a new exchange: forgets the write marks. Reads that were not drained stay.
    pub fn begin_exchange(&self) {
        self.log().marks = WriteMarks::default();
    }

    /// The current exchange's write marks.
    pub fn write_marks(&self) -> WriteMarks {
        self.log().marks
    }

    /// Moves all logged reads to the end of `out`, oldest first. Allocates only if `out` has no room.
    pub fn drain_reads(&self, out: &mut Vec<ReadStamp>) {
        out.append(&mut self.log().reads);
    }

    /// The run clock right after the read that found the end of the stream.
    pub fn eof_ns(&self) -> Option<RunNs> {
        self.log().eof_ns
    }

    /// Reads whose bytes were added to the stamp before them because 65,536 lay undrained. Such a stamp moves to the
    /// latest of its reads, so it remains an upper bound and no byte goes uncounted.
    pub fn merged_reads(&self) -> u64 {
        self.log().merged_reads
    }

    pub(crate) fn note_read(&self, read: ReadStamp) {
        let log = &mut *self.log();
        log.merged_reads += u64::from(push(log.held.as_mut().unwrap_or(&mut log.reads), read));
    }

    /// From now on reads are logged only when [`Self::commit_held`] says so. Forgets what was logged so far.
    pub(crate) fn hold_reads(&self) {
        let mut log = self.log();
        log.reads.clear();
        log.held = Some(Vec::new());
    }

    /// Logs the reads that are held.
    pub(crate) fn commit_held(&self) {
        let log = &mut *self.log();
        for read in log.held.iter_mut().flat_map(|held| held.drain(..)) {
            log.merged_reads += u64::from(push(&mut log.reads, read));
        }
    }

    /// Forgets the reads that are held; with `but_last` the latest one stays, whose bytes are not all used.
    pub(crate) fn forget_held(&self, but_last: bool) {
        if let Some(held) = &mut self.log().held {
            held.drain(..held.len().saturating_sub(usize::from(but_last)));
        }
    }

    pub(crate) fn note_eof(&self, at: RunNs) {
        self.log().eof_ns.get_or_insert(at);
    }

    pub(crate) fn note_write(&self, call_ns: RunNs, done_ns: RunNs, bytes: usize) {
        let marks = &mut self.log().marks;
        marks.first_call_ns.get_or_insert(call_ns);
        marks.first_ns.get_or_insert(done_ns);
        (marks.last_call_ns, marks.last_ns) = (Some(call_ns), Some(done_ns));
        marks.bytes += bytes as u64;
    }

    /// Every change is complete when the lock is released, so a panic elsewhere leaves the log usable.
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a read, or adds it to the last where there is no room: whether it was.
fn push(reads: &mut Vec<ReadStamp>, read: ReadStamp) -> bool {
    if reads.len() < MAX_LOGGED_READS {
        reads.push(read);
        return false;
    }
    if let Some(last) = reads.last_mut() {
        let bytes = last.bytes.saturating_add(read.bytes);
        *last = ReadStamp { bytes, ..read };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(at: i64, bytes: u32) -> ReadStamp {
        ReadStamp { user_ns: RunNs(at), kernel_ns: Some(RunNs(at - 1)), bytes }
    }

    #[test]
    fn reads_are_drained_once_and_in_order() {
        let stamps = StreamStamps::default();
        stamps.note_read(read(5, 1));
        stamps.note_read(read(6, 2));
        let mut out = vec![read(1, 1)];
        stamps.drain_reads(&mut out);
        assert_eq!(out, [read(1, 1), read(5, 1), read(6, 2)]);
        stamps.drain_reads(&mut out);
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn a_full_log_loses_no_byte_and_says_what_it_merged() {
        let stamps = StreamStamps::default();
        let reads = MAX_LOGGED_READS as i64 + 10;
        (0..reads).for_each(|at| stamps.note_read(read(at, 3)));
        let mut out = Vec::new();
        stamps.drain_reads(&mut out);
        assert_eq!(out.len(), MAX_LOGGED_READS);
        assert_eq!(stamps.merged_reads(), 10);
        assert_eq!(out.iter().map(|read| i64::from(read.bytes)).sum::<i64>(), reads * 3);
        assert_eq!(out.last().map(|read| read.user_ns), Some(RunNs(reads - 1)), "the latest, an upper bound");
        stamps.note_read(read(reads, 3));
        stamps.drain_reads(&mut out);
        assert_eq!(out.len(), MAX_LOGGED_READS + 1, "a drained log has room again");
    }

    #[test]
    fn held_reads_are_logged_only_when_they_brought_something() {
        let stamps = StreamStamps::default();
        stamps.note_read(read(1, 1));
        stamps.hold_reads();
        stamps.note_read(read(2, 100));
        stamps.forget_held(false);
        stamps.note_read(read(3, 50));
        stamps.note_read(read(4, 50));
        stamps.forget_held(true);
        stamps.commit_held();
        stamps.note_read(read(5, 9));
        let mut out = Vec::new();
        stamps.drain_reads(&mut out);
        assert_eq!(out, [read(4, 50)], "not the handshake's, not the ticket's, not the one still open");
        stamps.commit_held();
        stamps.drain_reads(&mut out);
        assert_eq!(out, [read(4, 50), read(5, 9)]);
    }

    #[test]
    fn a_new_exchange_forgets_the_write_marks_and_keeps_the_reads() {
        let stamps = StreamStamps::default();
        stamps.note_write(RunNs(1), RunNs(2), 10);
        stamps.note_write(RunNs(3), RunNs(4), 5);
        let expected = WriteMarks {
            first_call_ns: Some(RunNs(1)),
            first_ns: Some(RunNs(2)),
            last_call_ns: Some(RunNs(3)),
            last_ns: Some(RunNs(4)),
            bytes: 15,
        };
        assert_eq!(stamps.write_marks(), expected);
        stamps.note_read(read(9, 1));
        stamps.begin_exchange();
        assert_eq!(stamps.write_marks(), WriteMarks::default());
        let mut out = Vec::new();
        stamps.drain_reads(&mut out);
        assert_eq!(out, [read(9, 1)]);
    }
}
