//! Writing releases. They live in the journal only, and only as long as their requests have not ended: that is all a
//! killed run needs to know which requests had left.

use std::collections::{HashMap, VecDeque};

use super::table::{Batcher, Room};
use crate::columns::Table;
use crate::error::Result;
use crate::journal::SegmentWriter;
use crate::layout::Slot;
use crate::rows::ReleaseRecord;

/// Releases after which the next segment is begun.
const SEGMENT_ROWS: usize = 1 << 16;

/// Writes the releases of one shard.
pub(crate) struct ReleaseWriter {
    room: Room,
    batcher: Batcher<ReleaseRecord>,
    slot: Slot,
    /// The segments from the oldest that is still needed to the one being written.
    segments: VecDeque<Segment>,
    /// Number of the oldest of them.
    oldest: u32,
    /// Released requests that have not ended, with the number of the segment of their first release.
    out: HashMap<(u64, u32), u32>,
}

struct Segment {
    writer: SegmentWriter,
    rows: usize,
    /// Requests first released in it that have not ended.
    out: usize,
}

impl ReleaseWriter {
    pub(crate) fn new(room: Room, slot: Slot, run_id: &str, tool_version: &str) -> Self {
        let batcher = Batcher::new(run_id, tool_version);
        Self { room, batcher, slot, segments: VecDeque::new(), oldest: slot.number, out: HashMap::new() }
    }

    /// Takes a release.
    pub(crate) fn push(&mut self, row: &ReleaseRecord) -> Result<()> {
        let segment = self.current()?;
        segment.rows += 1;
        let number = self.slot.number;
        self.out.entry((row.row, row.copy)).or_insert_with(|| {
            let last = self.segments.back_mut().expect("the current segment is the last");
            last.out += 1;
            number
        });
        if self.batcher.push(row) { self.write_batch() } else { Ok(()) }
    }

    /// A request ended.
    pub(crate) fn ended(&mut self, row: u64, copy: u32) {
        let Some(number) = self.out.remove(&(row, copy)) else { return };
        let position = (number - self.oldest) as usize;
        self.segments[position].out -= 1;
    }

    /// Hands the releases so far to the operating system.
    pub(crate) fn flush(&mut self, sync: bool) -> Result<()> {
        self.write_batch()?;
        match self.segments.back_mut() {
            Some(segment) if sync => segment.writer.sync(),
            _ => Ok(()),
        }
    }

    /// Removes the segments whose requests have all ended; to be called once those are on disk. Oldest first and
    /// without gaps, because a later segment may hold a retry of a request that was first released in an earlier one.
    pub(crate) fn tidy(&mut self) -> Result<()> {
        while self.segments.len() > 1 && self.segments[0].out == 0 {
            let segment = self.segments.pop_front().expect("there are two at least");
            self.oldest += 1;
            segment.writer.remove(self.room.disk.as_ref())?;
        }
        Ok(())
    }

    /// Number of the writer.
    pub(crate) fn shard(&self) -> u32 {
        self.slot.shard
    }

    /// Released requests that have not ended.
    pub(crate) fn out(&self) -> usize {
        self.out.len()
    }

    /// The segment to write to, a new one where the last is full.
    fn current(&mut self) -> Result<&mut Segment> {
        if self.segments.back().is_some_and(|segment| segment.rows >= SEGMENT_ROWS) {
            self.write_batch()?;
            self.slot = self.slot.next();
        }
        let begun = self.oldest + self.segments.len() as u32;
        if self.slot.number >= begun {
            let path = self.slot.segment(&self.room.run, ReleaseRecord::NAME);
            let writer = SegmentWriter::create(self.room.disk.as_ref(), path, self.batcher.schema())?;
            self.segments.push_back(Segment { writer, rows: 0, out: 0 });
        }
        Ok(self.segments.back_mut().expect("one was begun where there was none"))
    }

    fn write_batch(&mut self) -> Result<()> {
        let Some(batch) = self.batcher.take() else { return Ok(()) };
        let segment = self.segments.back_mut().expect("rows are taken into a segment only");
        segment.writer.write(&batch)
    }
}
