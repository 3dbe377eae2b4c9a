//! Batches into row groups, row groups into the file.

use std::fs::File;
use std::io::BufWriter;

use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnWriter, ArrowRowGroupWriterFactory, ArrowWriterOptions, compute_leaves,
};
use parquet::basic::ZstdLevel;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnDescPtr;

use crate::columns::{Cells, RowBuilder, Zstd};

/// A row group's size at most: it is held in memory, encoded, until it is whole.
pub(super) const ROW_GROUP_ROWS: usize = 128 * 1024;
const ROW_GROUP_BYTES: usize = 64 << 20;

/// What the system is given at once.
const WRITE_BYTES: usize = 64 << 10;

/// Collects batches into row groups and writes each when it is whole.
pub(super) struct RowGroups {
    file: SerializedFileWriter<BufWriter<File>>,
    factory: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// The file's columns, and each field's first one: a map has two.
    leaves: Vec<ColumnDescPtr>,
    first_leaf: Vec<usize>,
    zstd: Zstd,
    group: Option<Group>,
}

/// The row group that is being collected.
struct Group {
    /// The file's columns. Those that are encoded with their cells stay empty here.
    columns: Vec<ArrowColumnWriter>,
    /// Nulls at the end of each field that its column has not had yet.
    nulls: Vec<usize>,
    rows: usize,
}

impl RowGroups {
    pub(super) fn new(file: File, schema: SchemaRef, properties: WriterProperties) -> Result<Self> {
        let options = ArrowWriterOptions::new().with_properties(properties);
        let file = BufWriter::with_capacity(WRITE_BYTES, file);
        let writer = ArrowWriter::try_new_with_options(file, SchemaRef::clone(&schema), options)?;
        let (file, factory) = writer.into_serialized_writer()?;
        let leaves = file.schema_descr().columns().to_vec();
        let mut first_leaf = vec![0; schema.fields().len() + 1];
        (0..leaves.len())
            .for_each(|leaf| first_leaf[file.schema_descr().get_column_root_idx(leaf) + 1] = leaf + 1);
        let zstd = Zstd::new(ZstdLevel::default().compression_level())?;
        Ok(Self { file, factory, schema, leaves, first_leaf, zstd, group: None })
    }

    /// Rows that the present row group has room for.
    pub(super) fn room(&self) -> usize {
        ROW_GROUP_ROWS - self.group.as_ref().map_or(0, |group| group.rows)
    }

    /// Takes a batch of so many rows, no more than there is [`room`](Self::room) for.
    pub(super) fn take(&mut self, rows: usize, builder: &mut RowBuilder) -> Result<()> {
        if self.group.is_none() {
            let columns = self.factory.create_column_writers(self.file.flushed_row_groups().len())?;
            self.group = Some(Group { columns, nulls: vec![0; self.schema.fields().len()], rows: 0 });
        }
        let Some(group) = &mut self.group else { return Ok(()) };
        group.rows += rows;
        for (field, cells) in builder.finish().into_iter().enumerate() {
            match cells {
                Cells::Null(count) => group.nulls[field] += count,
                Cells::Array(array) => {
                    group.fill_up(&self.schema, &self.first_leaf, field)?;
                    group.write(&self.schema, &self.first_leaf, field, &array)?;
                }
                Cells::Encoded => {}
            }
        }
        let mut bytes: usize = group.columns.iter().map(ArrowColumnWriter::get_estimated_total_bytes).sum();
        for (field, encoded) in builder.encoded().into_iter().enumerate() {
            if let Some(encoded) = encoded {
                let column = &self.leaves[self.first_leaf[field]];
                encoded.end_batch(column, &mut self.zstd)?;
                bytes += encoded.pages().len();
            }
        }
        if group.rows >= ROW_GROUP_ROWS || bytes >= ROW_GROUP_BYTES {
            self.end_group(builder)
        } else {
            Ok(())
        }
    }

    fn end_group(&mut self, builder: &mut RowBuilder) -> Result<()> {
        let Some(mut group) = self.group.take() else { return Ok(()) };
        (0..group.nulls.len()).try_for_each(|field| group.fill_up(&self.schema, &self.first_leaf, field))?;
        let mut to = self.file.next_row_group()?;
        let mut columns = group.columns.into_iter();
        for (field, encoded) in builder.encoded().into_iter().enumerate() {
            let (first, after) = (self.first_leaf[field], self.first_leaf[field + 1]);
            let here = columns.by_ref().take(after - first);
            match encoded {
                Some(encoded) => {
                    here.for_each(drop);
                    let close = encoded.end_group(&self.leaves[first], &mut self.zstd)?;
                    to.append_column(&encoded.pages(), close)?;
                    encoded.clear();
                }
                None => {
                    for column in here {
                        column.close()?.append_to_row_group(&mut to)?;
                    }
                }
            }
        }
        to.close()?;
        Ok(())
    }

    /// Writes what is left and the file's metadata; the file is not durable yet.
    pub(super) fn finish(mut self, builder: &mut RowBuilder, metadata: Vec<KeyValue>) -> Result<File> {
        self.end_group(builder)?;
        metadata.into_iter().for_each(|pair| self.file.append_key_value_metadata(pair));
        let buffer = self.file.into_inner()?;
        buffer.into_inner().map_err(|error| ParquetError::from(error.into_error()))
    }
}

impl Group {
    /// Writes the nulls that wait.
    fn fill_up(&mut self, schema: &SchemaRef, first_leaf: &[usize], field: usize) -> Result<()> {
        match std::mem::take(&mut self.nulls[field]) {
            0 => Ok(()),
            count => {
                let array = new_null_array(schema.field(field).data_type(), count);
                self.write(schema, first_leaf, field, &array)
            }
        }
    }

    fn write(
        &mut self,
        schema: &SchemaRef,
        first_leaf: &[usize],
        field: usize,
        array: &ArrayRef,
    ) -> Result<()> {
        let columns = &mut self.columns[first_leaf[field]..first_leaf[field + 1]];
        for (column, leaf) in columns.iter_mut().zip(compute_leaves(schema.field(field), array)?) {
            column.write(&leaf)?;
        }
        Ok(())
    }
}
