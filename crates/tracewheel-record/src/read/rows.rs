//! The rows of one table, streamed.

use std::collections::btree_map;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use crate::columns::Table;
use crate::error::{RecordError, Result};
use crate::journal::SegmentReader;
use crate::layout::{self, Place, Slot};
use crate::part;

/// A streaming iterator over one table of a run. It ends after its first error.
pub struct Rows<T> {
    inner: Box<dyn Iterator<Item = Result<T>> + Send>,
}

impl<T> Iterator for Rows<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.inner.next()
    }
}

impl<T> fmt::Debug for Rows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").finish_non_exhaustive()
    }
}

/// Every column of a table.
pub(crate) fn all<T: Table>(run: &Path) -> Result<Rows<T>> {
    of_columns(run, |_| true)
}

/// The columns of a table that `wanted` names; the others are as if the files had none.
pub(crate) fn of_columns<T: Table>(run: &Path, wanted: fn(&str) -> bool) -> Result<Rows<T>> {
    // A table without its folder has no rows; a run without its own is gone, which must not read as an empty one.
    std::fs::metadata(run).map_err(|source| RecordError::io("read", run, source))?;
    let streamed: Streamed<T> = Streamed {
        run: run.to_owned(),
        wanted,
        slots: layout::slots(run, T::NAME)?.into_iter(),
        batches: None,
        batch: None,
        ended: false,
        table: PhantomData,
    };
    Ok(Rows { inner: Box::new(streamed) })
}

/// The rows of `first`, then those of `second`.
pub(crate) fn chained<T: Send + 'static>(first: Rows<T>, second: Vec<T>) -> Rows<T> {
    Rows { inner: Box::new(first.inner.chain(second.into_iter().map(Ok))) }
}

struct Streamed<T: Table> {
    run: PathBuf,
    wanted: fn(&str) -> bool,
    slots: btree_map::IntoIter<Slot, Place>,
    /// The slot being read.
    batches: Option<Batches>,
    /// The batch being read.
    batch: Option<Batch<T>>,
    ended: bool,
    table: PhantomData<fn() -> T>,
}

struct Batch<T: Table> {
    view: T::View,
    next: usize,
    rows: usize,
}

/// The batches of one slot.
struct Batches {
    path: PathBuf,
    source: Source,
}

enum Source {
    Part(ParquetRecordBatchReader),
    Journal(SegmentReader),
}

impl<T: Table> Iterator for Streamed<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let row = self.next_row().transpose();
        self.ended = !matches!(row, Some(Ok(_)));
        row
    }
}

impl<T: Table> Streamed<T> {
    fn next_row(&mut self) -> Result<Option<T>> {
        loop {
            if let (Some(batch), Some(batches)) = (&mut self.batch, &self.batches)
                && batch.next < batch.rows
            {
                batch.next += 1;
                let row = T::row(&batch.view, batch.next - 1);
                return row.map(Some).map_err(|bad| RecordError::batch(&batches.path, bad));
            }
            self.batch = None;
            if let Some(batches) = &mut self.batches
                && let Some(batch) = batches.next()?
            {
                let view = T::bind(&batch).map_err(|bad| RecordError::batch(&batches.path, bad))?;
                self.batch = Some(Batch { view, next: 0, rows: batch.num_rows() });
                continue;
            }
            let Some((slot, place)) = self.slots.next() else { return Ok(None) };
            self.batches = Some(Batches::open::<T>(&self.run, slot, place, self.wanted)?);
        }
    }
}

impl Batches {
    fn open<T: Table>(run: &Path, slot: Slot, place: Place, wanted: fn(&str) -> bool) -> Result<Self> {
        if place == Place::Journal {
            let path = slot.segment(run, T::NAME);
            match SegmentReader::open::<T>(&path) {
                Ok(reader) => return Ok(Self { path, source: Source::Journal(reader) }),
                // Rolled into a part since the run was looked at.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(RecordError::io("open", &path, source)),
            }
        }
        let path = slot.part(run, T::NAME);
        let reader =
            part::open::<T>(&path, wanted).map_err(|source| RecordError::io("open", &path, source))??;
        Ok(Self { path, source: Source::Part(reader) })
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.source {
            Source::Part(reader) => {
                reader.next().transpose().map_err(|source| part::read_error(&self.path, source))
            }
            Source::Journal(reader) => reader.next().transpose(),
        }
    }
}
