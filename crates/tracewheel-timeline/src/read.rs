//! Reading a timeline: one open file, any number of streaming passes in bounded memory.

use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatchReader as _;
use arrow_schema::{ArrowError, DataType};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use crate::columns::{self, BadCell, RowReader};
use crate::digest::RowDigest;
use crate::error::TimelineError;
use crate::meta::TimelineMeta;
use crate::row::RequestRow;
use crate::schema;

mod shared_file;

use shared_file::SharedFile;

/// Bytes of decoded cells that one batch aims at, and its rows at most.
const BATCH_BYTES: u64 = 4 << 20;
const BATCH_ROWS: u64 = 4096;

/// An open timeline. Cheap to clone; several passes may run at once, also in several threads.
///
/// The file stays the one that was opened, even when another is renamed into its place.
#[derive(Debug, Clone)]
pub struct Timeline {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: SharedFile,
    parquet: ArrowReaderMetadata,
    meta: TimelineMeta,
    rows: u64,
}

impl Timeline {
    /// Opens a timeline or a baseline and checks version, columns and types; reads no rows.
    ///
    /// # Errors
    /// A file that is no Parquet, no timeline, or of another major version is refused and told so.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TimelineError> {
        let path = path.as_ref().to_owned();
        if path.is_dir() {
            let is_run = path.join("manifest.json").exists();
            return Err(TimelineError::Directory { path, is_run });
        }
        let file = File::open(&path).and_then(SharedFile::new).map_err(TimelineError::io("open", &path))?;
        let parquet = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
        let parquet = parquet.map_err(|source| TimelineError::NotParquet { path: path.clone(), source })?;
        let file_meta = parquet.metadata().file_metadata();
        let pairs = file_meta.key_value_metadata().map(Vec::as_slice).unwrap_or_default();
        let meta = TimelineMeta::from_key_values(&path, pairs)?;
        let rows = u64::try_from(file_meta.num_rows()).unwrap_or(0);
        let inner = Inner { path, file, parquet, meta, rows };
        inner.check_columns()?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// What the file says about itself.
    pub fn meta(&self) -> &TimelineMeta {
        &self.inner.meta
    }

    /// How many rows it has.
    pub fn num_rows(&self) -> u64 {
        self.inner.rows
    }

    /// Every row with its position, in order. After an error the iterator is over.
    pub fn rows(&self) -> Rows {
        self.rows_in(0..self.num_rows())
    }

    /// The rows of a range of positions; a range beyond the end is cut. Row groups outside it are not read.
    pub fn rows_in(&self, range: Range<u64>) -> Rows {
        Rows::new(self.clone(), range, None)
    }

    /// As [`rows_in`](Self::rows_in), but only the named columns are read; every other field has its default. Names
    /// that are no columns are passed over.
    pub fn columns_in(&self, range: Range<u64>, columns: &[&str]) -> Rows {
        Rows::new(self.clone(), range, Some(columns))
    }

    /// Every row's arrival, in order: only that column is read.
    ///
    /// In a baseline, a row without arrival gives [`TimelineError::ArrivalUnknown`].
    pub fn arrivals(&self) -> impl Iterator<Item = Result<i64, TimelineError>> + Send + use<> {
        self.columns_in(0..self.num_rows(), &[schema::ARRIVAL]).map(|row| {
            let (row, cells) = row?;
            cells.arrival_unix_ns.ok_or(TimelineError::ArrivalUnknown { row })
        })
    }

    /// Whether any row can have a value in a column that is no list and no map: false only where the file's own
    /// statistics say that every cell is null, or where there is no such column. Reads no rows.
    pub fn may_have_values(&self, column: &str) -> bool {
        let descriptor = self.inner.parquet.parquet_schema();
        let leaf = descriptor.columns().iter().position(|leaf| leaf.path().string() == column);
        let Some(leaf) = leaf else { return false };
        self.inner.parquet.metadata().row_groups().iter().any(|group| {
            let chunk = group.column(leaf);
            let nulls = chunk.statistics().and_then(|statistics| statistics.null_count_opt());
            nulls.is_none_or(|nulls| nulls < chunk.num_values().unsigned_abs())
        })
    }

    /// Reads every row and computes the digest anew. Equal to `meta().digest` unless the file was changed.
    pub fn compute_digest(&self) -> Result<String, TimelineError> {
        let mut digest = RowDigest::new();
        for row in self.rows() {
            digest.push(&row?.1);
        }
        Ok(digest.to_hex())
    }
}

impl Inner {
    fn check_columns(&self) -> Result<(), TimelineError> {
        let found = self.parquet.schema();
        for field in schema::arrow_schema(self.meta.baseline).fields() {
            let column = columns::NAMES.iter().copied().find(|name| name == field.name());
            let column = column.expect("the schema is made of these names");
            match found.field_with_name(column) {
                Err(_) if field.is_nullable() => {}
                Err(_) => return Err(TimelineError::MissingColumn { path: self.path.clone(), column }),
                Ok(other) if is_readable(other.data_type(), field.data_type()) => {}
                Ok(other) => return Err(self.wrong_type(column, other.data_type(), field.data_type())),
            }
        }
        Ok(())
    }

    fn wrong_type(&self, column: &'static str, found: &DataType, expected: &DataType) -> TimelineError {
        TimelineError::ColumnType {
            path: self.path.clone(),
            column,
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }

    /// Rows a batch, so that a batch of wide rows stays as small as one of narrow rows.
    fn batch_rows(&self, mask: &ProjectionMask) -> usize {
        let widest = self.parquet.metadata().row_groups().iter().map(|group| {
            let leaves = group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
            let bytes: i64 = leaves.map(|(_, chunk)| chunk.uncompressed_size()).sum();
            bytes.unsigned_abs() / group.num_rows().unsigned_abs().max(1)
        });
        let row_bytes = widest.max().unwrap_or(0).max(1);
        (BATCH_BYTES / row_bytes).clamp(1, BATCH_ROWS) as usize
    }

    fn reader(
        &self,
        range: &Range<u64>,
        columns: Option<&[&str]>,
    ) -> parquet::errors::Result<ParquetRecordBatchReader> {
        let descriptor = self.parquet.parquet_schema();
        let wanted = columns.unwrap_or(columns::NAMES);
        let roots = self.parquet.schema().fields().iter().enumerate();
        let roots = roots.filter(|(_, field)| wanted.contains(&field.name().as_str())).map(|(root, _)| root);
        let mask = ProjectionMask::roots(descriptor, roots);
        let (groups, offset) = self.groups_of(range);
        ParquetRecordBatchReaderBuilder::new_with_metadata(self.file.clone(), self.parquet.clone())
            .with_batch_size(self.batch_rows(&mask))
            .with_projection(mask)
            .with_row_groups(groups)
            .with_offset(offset as usize)
            .with_limit((range.end - range.start) as usize)
            .build()
    }

    /// The row groups that a range touches, and the rows before the range in the first of them.
    fn groups_of(&self, range: &Range<u64>) -> (Vec<usize>, u64) {
        let mut groups = Vec::new();
        let (mut start, mut offset) = (0, 0);
        for (number, group) in self.parquet.metadata().row_groups().iter().enumerate() {
            let end = start + group.num_rows().unsigned_abs();
            if start < range.end && end > range.start {
                if groups.is_empty() {
                    offset = range.start.saturating_sub(start);
                }
                groups.push(number);
            }
            start = end;
        }
        (groups, offset)
    }
}

/// Dictionary columns are also read as the plain text that other tools may leave; the elements' names and nullability
/// of lists and maps do not matter.
fn is_readable(found: &DataType, expected: &DataType) -> bool {
    match (found, expected) {
        (DataType::Utf8, DataType::Dictionary(_, _)) => true,
        (DataType::List(found), DataType::List(expected)) => found.data_type() == expected.data_type(),
        (DataType::Map(found, _), DataType::Map(expected, _)) => {
            let types = |field: &DataType| match field {
                DataType::Struct(fields) => fields.iter().map(|field| field.data_type().clone()).collect(),
                _ => Vec::new(),
            };
            types(found.data_type()) == types(expected.data_type())
        }
        _ => found == expected,
    }
}

/// Rows with their positions, read batch by batch. Made by [`Timeline::rows`] and its siblings.
pub struct Rows {
    timeline: Timeline,
    /// The error of the beginning waits here for the first call.
    reader: Option<Result<ParquetRecordBatchReader, TimelineError>>,
    batch: Option<(RowReader, usize)>,
    index: usize,
    /// Position of the next row; its end is where the range ends.
    range: Range<u64>,
    reads_arrival: bool,
}

impl Rows {
    fn new(timeline: Timeline, range: Range<u64>, columns: Option<&[&str]>) -> Self {
        let end = range.end.min(timeline.num_rows());
        let range = range.start.min(end)..end;
        let reads_arrival = columns.is_none_or(|names| names.contains(&schema::ARRIVAL));
        let reader = (!range.is_empty()).then(|| {
            let reader = timeline.inner.reader(&range, columns);
            reader.map_err(TimelineError::parquet(timeline.path(), range.start))
        });
        Self { timeline, reader, batch: None, index: 0, range, reads_arrival }
    }

    /// Makes the next batch ready; false at the end.
    fn next_batch(&mut self) -> Result<bool, TimelineError> {
        let inner = &self.timeline.inner;
        let reader = match &mut self.reader {
            None => return Ok(false),
            Some(Ok(reader)) => reader,
            Some(Err(_)) => match self.reader.take() {
                Some(Err(error)) => return Err(error),
                _ => return Ok(false),
            },
        };
        // A pass over no column at all still has to count rows. The library's decoders panic over some damaged pages;
        // the reader is not used again after that.
        let batch = catch_unwind(AssertUnwindSafe(|| reader.next()));
        let gave_up = |_| Some(Err(ArrowError::ParquetError("a damaged page cannot be decoded".to_owned())));
        let Some(batch) = batch.unwrap_or_else(gave_up) else { return Ok(false) };
        let batch = batch.map_err(|error| TimelineError::Parquet {
            path: inner.path.clone(),
            row: self.range.start,
            source: error.into(),
        })?;
        let rows = RowReader::new(&batch);
        let rows = rows.map_err(|wrong| inner.wrong_type(wrong.column, &wrong.found, &wrong.expected))?;
        self.batch = Some((rows, batch.num_rows()));
        self.index = 0;
        Ok(true)
    }

    fn next_row(&mut self) -> Result<Option<(u64, RequestRow)>, TimelineError> {
        loop {
            if let Some((rows, len)) = &self.batch
                && self.index < *len
            {
                let position = self.range.start;
                let cell = |column, problem| TimelineError::Cell {
                    path: self.timeline.path().to_owned(),
                    row: position,
                    column,
                    problem,
                };
                let null = "null, but this column is never null".to_owned();
                let row = rows.read(self.index).map_err(|(column, bad)| match bad {
                    BadCell::Null => cell(column, null.clone()),
                    BadCell::Word(unknown) => cell(column, unknown.to_string()),
                })?;
                if self.reads_arrival && row.arrival_unix_ns.is_none() && !self.timeline.meta().baseline {
                    return Err(cell(schema::ARRIVAL, null));
                }
                self.index += 1;
                self.range.start += 1;
                return Ok(Some((position, row)));
            }
            if !self.next_batch()? {
                return Ok(None);
            }
        }
    }
}

impl Iterator for Rows {
    type Item = Result<(u64, RequestRow), TimelineError>;

    fn next(&mut self) -> Option<Self::Item> {
        let row = self.next_row().transpose();
        if !matches!(row, Some(Ok(_))) {
            self.reader = None;
            self.batch = None;
        }
        row
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, usize::try_from(self.range.end - self.range.start).ok())
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = match &self.reader {
            Some(Ok(reader)) => reader.schema().fields().len(),
            _ => 0,
        };
        f.debug_struct("Rows").field("range", &self.range).field("columns", &columns).finish_non_exhaustive()
    }
}
