//! Writing one table: batches go to the journal and to the part being made of it, both at once.
//!
//! Writing the part along with the journal instead of making it from the journal later keeps the recorder's work
//! even: rolling a part costs no more than closing a file. While it is written, a part has no meaning to a reader.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::columns::{Table, finish_batch};
use crate::disk::Disk;
use crate::error::Result;
use crate::journal::SegmentWriter;
use crate::layout::Slot;
use crate::metadata;
use crate::part::PartWriter;

/// Rows that wait in builders at most.
pub(super) const BATCH_ROWS: usize = 8192;
/// Bytes that wait in builders at most, roughly.
const BATCH_BYTES: usize = 4 << 20;

/// What all tables of a writer share.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) run: PathBuf,
    pub(crate) part_rows: usize,
    pub(crate) part_bytes: usize,
}

/// Collects rows into batches.
pub(crate) struct Batcher<T: Table> {
    schema: SchemaRef,
    builders: T::Builders,
    rows: usize,
    bytes: usize,
}

/// Writes one table of one shard.
pub(crate) struct TableWriter<T: Table> {
    room: Room,
    batcher: Batcher<T>,
    /// The slot being written, or the next one.
    slot: Slot,
    open: Option<Open>,
    rows: u64,
    parts: u32,
}

struct Open {
    segment: SegmentWriter,
    part: PartWriter,
    rows: usize,
}

impl<T: Table> Batcher<T> {
    pub(crate) fn new(run_id: &str, tool_version: &str) -> Self {
        Self {
            schema: metadata::schema::<T>(run_id, tool_version),
            builders: T::builders(),
            rows: 0,
            bytes: 0,
        }
    }

    /// Takes a row; true when the batch should be written before the next one.
    pub(crate) fn push(&mut self, row: &T) -> bool {
        self.bytes += row.push(&mut self.builders);
        self.rows += 1;
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The rows collected so far; `None` when there are none.
    pub(crate) fn take(&mut self) -> Option<RecordBatch> {
        if self.rows == 0 {
            return None;
        }
        (self.rows, self.bytes) = (0, 0);
        Some(finish_batch::<T>(&mut self.builders, &self.schema))
    }

    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl<T: Table> TableWriter<T> {
    pub(crate) fn new(room: Room, slot: Slot, run_id: &str, tool_version: &str) -> Self {
        Self { room, batcher: Batcher::new(run_id, tool_version), slot, open: None, rows: 0, parts: 0 }
    }

    /// Takes a row.
    pub(crate) fn push(&mut self, row: &T) -> Result<()> {
        if self.push_only(row) { self.write_batch() } else { Ok(()) }
    }

    /// Takes a row without writing; true when the rows so far should be written before the next one.
    pub(crate) fn push_only(&mut self, row: &T) -> bool {
        self.rows += 1;
        self.batcher.push(row)
    }

    /// Hands the rows so far to the operating system.
    pub(crate) fn flush(&mut self, sync: bool) -> Result<()> {
        self.write_batch()?;
        match &mut self.open {
            Some(open) if sync => open.segment.sync(),
            _ => Ok(()),
        }
    }

    /// Makes a part of all rows.
    pub(crate) fn finish(&mut self) -> Result<()> {
        self.write_batch()?;
        self.roll()
    }

    /// Gives up what is no use to a reader.
    pub(crate) fn abandon(&mut self) {
        if let Some(open) = self.open.take() {
            open.part.abandon(self.room.disk.as_ref());
        }
    }

    /// Rows taken.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Parts finished.
    pub(crate) fn parts(&self) -> u32 {
        self.parts
    }

    fn write_batch(&mut self) -> Result<()> {
        let Some(batch) = self.batcher.take() else { return Ok(()) };
        let open = match &mut self.open {
            Some(open) => open,
            closed => closed.insert(Open::create::<T>(&self.room, self.slot, self.batcher.schema())?),
        };
        open.segment.write(&batch)?;
        open.part.write(&batch)?;
        open.rows += batch.num_rows();
        if open.rows >= self.room.part_rows || open.part.bytes() >= self.room.part_bytes {
            self.roll()?;
        }
        Ok(())
    }

    /// Makes the part durable, then removes the segment that held the same rows.
    fn roll(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        open.part.finish(self.room.disk.as_ref())?;
        open.segment.remove(self.room.disk.as_ref())?;
        tracing::debug!(table = T::NAME, part = self.slot.number, rows = open.rows, "part closed");
        self.slot = self.slot.next();
        self.parts += 1;
        Ok(())
    }
}

impl Open {
    fn create<T: Table>(room: &Room, slot: Slot, schema: &SchemaRef) -> Result<Self> {
        let disk = room.disk.as_ref();
        let segment = SegmentWriter::create(disk, slot.segment(&room.run, T::NAME), schema)?;
        let part = PartWriter::create(disk, &room.run, T::NAME, slot, schema)?;
        Ok(Self { segment, part, rows: 0 })
    }
}
