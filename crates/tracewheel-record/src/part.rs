//! Parts: finished Parquet files of one table.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use crate::columns::Table;
use crate::disk::{self, Disk, DiskFile};
use crate::error::{RecordError, Result};
use crate::layout::Slot;
use crate::metadata;

/// Rows after which a row group is closed.
const ROW_GROUP_ROWS: usize = 1 << 17;
/// Encoded bytes after which a row group is closed: what a part being written holds in memory at most, roughly.
const ROW_GROUP_BYTES: usize = 32 << 20;
/// Rows after which a page is closed. Levels and dictionary positions of a page's events wait in memory at 12 bytes each and
/// column: pages by bytes alone would hold those of 20,000 attempts.
const PAGE_ROWS: usize = 1 << 10;
/// Decoded bytes that a reader takes at once, roughly.
const BATCH_BYTES: usize = 8 << 20;

/// Lets the Parquet writer write to a file of the run's disk.
struct Sink(Box<dyn DiskFile>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A part being written, under a name of no meaning until it is whole.
pub(crate) struct PartWriter {
    writer: ArrowWriter<Sink>,
    unfinished: PathBuf,
    finished: PathBuf,
}

impl PartWriter {
    /// Begins the part of a slot; `schema` carries the metadata.
    pub(crate) fn create(
        disk: &dyn Disk,
        run: &Path,
        table: &str,
        slot: Slot,
        schema: &SchemaRef,
    ) -> Result<Self> {
        let unfinished = slot.unfinished_part(run, table);
        let file =
            disk.create(&unfinished).map_err(|source| RecordError::io("create", &unfinished, source))?;
        match ArrowWriter::try_new(Sink(file), SchemaRef::clone(schema), Some(properties(schema))) {
            Ok(writer) => Ok(Self { writer, unfinished, finished: slot.part(run, table) }),
            Err(source) => {
                let _ = disk.remove(&unfinished);
                Err(RecordError::parquet(&unfinished, source))
            }
        }
    }

    /// Appends a batch.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = self.writer.write(batch);
        written.map_err(|source| RecordError::parquet(&self.unfinished, source))
    }

    /// Size of the part so far, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.writer.bytes_written() + self.writer.in_progress_size()
    }

    /// Completes the part, makes it durable and gives it its name; gives it up where that fails.
    pub(crate) fn finish(self, disk: &dyn Disk) -> Result<()> {
        let Self { writer, unfinished, finished } = self;
        let done = complete(writer, &unfinished).and_then(|()| disk::publish(disk, &unfinished, &finished));
        if done.is_err() {
            // Frees the space; the rows stand in the journal, and the error at hand says more than a second one.
            let _ = disk.remove(&unfinished);
        }
        done
    }

    /// Gives the part up and frees its space; its rows stand in the journal.
    pub(crate) fn abandon(self, disk: &dyn Disk) {
        let Self { writer, unfinished, .. } = self;
        drop(writer);
        // The part has no meaning to any reader, so failing to remove it harms nobody.
        let _ = disk.remove(&unfinished);
    }
}

fn complete(mut writer: ArrowWriter<Sink>, path: &Path) -> Result<()> {
    writer.finish().map_err(|source| RecordError::parquet(path, source))?;
    // Not `into_inner`, which turns the system's error into a text.
    writer.sync().map_err(|source| RecordError::io("write", path, source))?;
    writer.inner_mut().0.sync().map_err(|source| RecordError::io("sync", path, source))
}

fn properties(schema: &Schema) -> WriterProperties {
    let pairs = schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("1 is a level")))
        .set_created_by(format!("tracewheel {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(pairs.collect()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for field in schema.fields() {
        builder = column_properties(builder, vec![field.name().clone()], field.data_type());
    }
    builder.build()
}

/// Times, positions and sizes as packed differences; what repeats through Parquet's dictionaries, by default.
fn column_properties(
    builder: WriterPropertiesBuilder,
    path: Vec<String>,
    data_type: &DataType,
) -> WriterPropertiesBuilder {
    match data_type {
        DataType::List(element) => {
            let DataType::Struct(fields) = element.data_type() else { return builder };
            fields.iter().fold(builder, |builder, field| {
                let mut path = path.clone();
                path.extend(["list".to_owned(), element.name().clone(), field.name().clone()]);
                // Statistics of single events select nothing and cost time.
                let column = ColumnPath::new(path.clone());
                let builder = builder.set_column_statistics_enabled(column, EnabledStatistics::None);
                column_properties(builder, path, field.data_type())
            })
        }
        DataType::Int64 | DataType::UInt64 | DataType::UInt32 if is_ascending(&path) => {
            let column = ColumnPath::new(path);
            builder
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED)
        }
        _ => builder,
    }
}

fn is_ascending(path: &[String]) -> bool {
    path.last().is_some_and(|name| {
        name.ends_with("_ns") || name.ends_with("bytes") || matches!(name.as_str(), "row" | "read" | "second")
    })
}

/// What the end of a part says.
pub(crate) struct Stamp {
    /// Id of its run, where it says one.
    pub(crate) run_id: Option<String>,
    /// Its rows.
    pub(crate) rows: u64,
}

/// Reads what the end of a part says.
pub(crate) fn stamp(path: &Path) -> Result<Stamp> {
    let file = File::open(path).map_err(|source| RecordError::io("open", path, source))?;
    let read = ParquetMetaDataReader::new().parse_and_finish(&file);
    let read = read.map_err(|source| RecordError::parquet(path, source))?;
    let footer = read.file_metadata();
    let mut pairs = footer.key_value_metadata().into_iter().flatten();
    let run_id = pairs.find(|pair| pair.key == metadata::RUN_ID).and_then(|pair| pair.value.clone());
    Ok(Stamp { run_id, rows: u64::try_from(footer.num_rows()).unwrap_or(0) })
}

/// Opens a part for reading, its columns cut to those that `wanted` names.
pub(crate) fn open<T: Table>(
    path: &Path,
    wanted: fn(&str) -> bool,
) -> io::Result<Result<ParquetRecordBatchReader>> {
    let file = File::open(path)?;
    Ok(open_file::<T>(path, file, wanted))
}

fn open_file<T: Table>(
    path: &Path,
    file: File,
    wanted: fn(&str) -> bool,
) -> Result<ParquetRecordBatchReader> {
    let failed = |source| RecordError::parquet(path, source);
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(failed)?;
    metadata::check::<T>(path, |key| {
        let pairs = builder.metadata().file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    })?;
    let columns = builder.schema().fields().iter().enumerate();
    let columns = columns.filter(|(_, field)| wanted(field.name())).map(|(position, _)| position);
    let mask = ProjectionMask::roots(builder.parquet_schema(), columns.collect::<Vec<_>>());
    let rows = batch_rows(builder.metadata());
    builder.with_projection(mask).with_batch_size(rows).build().map_err(failed)
}

/// As many rows as come to [`BATCH_BYTES`], going by the widest row group.
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    let widths = metadata.row_groups().iter().map(|group| {
        let bytes = usize::try_from(group.total_byte_size()).unwrap_or(usize::MAX);
        bytes / usize::try_from(group.num_rows()).unwrap_or(0).max(1)
    });
    // Encoded sizes are several times smaller than decoded ones.
    let width = widths.max().unwrap_or(0).saturating_mul(8).max(1);
    (BATCH_BYTES / width).clamp(16, 8192)
}

/// An error of reading that came out of the Parquet reader as an Arrow error.
pub(crate) fn read_error(path: &Path, source: ArrowError) -> RecordError {
    match source {
        ArrowError::IoError(_, source) => RecordError::io("read", path, source),
        source => RecordError::Parquet { path: path.to_owned(), source: source.into() },
    }
}
