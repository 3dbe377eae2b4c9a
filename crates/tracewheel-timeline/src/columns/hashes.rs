//! The column of block hashes: lists of numbers that look random. They go into their pages as they are, without
//! dictionary, statistics and packing, and are most of many timelines' bytes.

use std::io;

use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, ListArray};
use arrow_schema::DataType;
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::schema::types::ColumnDescPtr;

use super::codec::{BadCell, Codec, ListOf, Number};
use super::pages::{Encoded, PageCounts, Pages, Zstd};
use super::runs::{self, RowStarts, Run};
use crate::pack::{Texts, Unpacking};

/// A page's bytes: few enough to stay in the processor's cache until it is whole. A row is never cut.
const PAGE_BYTES: usize = 128 << 10;
/// A page's rows, where lists are short or null.
const PAGE_ROWS: usize = 20_000;

/// How a cell is defined: not at all, without elements, with elements.
const NULL: u32 = 0;
const EMPTY: u32 = 1;
const FULL: u32 = 2;

/// A list of block hashes, or null.
pub(crate) struct Hashes;

/// The cells of one row group.
#[derive(Default)]
pub(crate) struct HashesBuilder {
    starts: RowStarts,
    levels: Vec<Run>,
    values: Vec<u8>,
    rows: usize,
    scratch: Vec<u8>,
    pages: Pages,
}

type Lists = ListOf<UInt64Type>;

impl HashesBuilder {
    #[inline]
    fn append(&mut self, hashes: &[u64]) {
        self.starts.push(hashes.len());
        let level = if hashes.is_empty() { EMPTY } else { FULL };
        runs::push(&mut self.levels, level, hashes.len().max(1) as u32);
        UInt64Type::all_bytes(hashes, &mut self.values);
        self.rows += 1;
        if self.values.len() >= PAGE_BYTES || self.rows >= PAGE_ROWS {
            self.end_page();
        }
    }

    fn append_nulls(&mut self, count: usize) {
        for _ in 0..count {
            self.starts.push(0);
            runs::push(&mut self.levels, NULL, 1);
            self.rows += 1;
            if self.rows >= PAGE_ROWS {
                self.end_page();
            }
        }
    }

    fn end_page(&mut self) {
        if self.rows == 0 {
            return;
        }
        let values = self.starts.len();
        let levels = &mut self.scratch;
        levels.clear();
        with_length(levels, |levels| self.starts.take(levels));
        with_length(levels, |levels| runs::put(&self.levels, 2, levels));
        let counts =
            PageCounts { values, rows: self.rows, uncompressed_bytes: levels.len() + self.values.len() };
        self.pages.push(&[levels, &self.values], Encoding::PLAIN, counts);
        self.levels.clear();
        self.values.clear();
        self.rows = 0;
    }
}

impl Encoded for HashesBuilder {
    fn end_batch(&mut self, _: &ColumnDescPtr, _: &mut Zstd) -> io::Result<()> {
        Ok(())
    }

    fn end_group(&mut self, column: &ColumnDescPtr, _: &mut Zstd) -> Result<ColumnCloseResult> {
        self.end_page();
        self.pages.close(column, Compression::UNCOMPRESSED, None)
    }

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn clear(&mut self) {
        self.pages.clear();
    }
}

impl Codec for Hashes {
    type Value = Option<Vec<u64>>;
    type Builder = HashesBuilder;
    type Reader = ListArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        Lists::data_type()
    }
    fn is_known(value: &Self::Value) -> bool {
        value.is_some()
    }
    fn builder() -> Self::Builder {
        HashesBuilder::default()
    }
    fn append_nulls(count: usize, builder: &mut Self::Builder) {
        builder.append_nulls(count);
    }
    fn append(value: &Self::Value, builder: &mut Self::Builder) -> usize {
        let Some(hashes) = value else {
            builder.append_nulls(1);
            return 0;
        };
        builder.append(hashes);
        4 + size_of_val(hashes.as_slice())
    }
    fn finish(_: &mut Self::Builder) -> Option<ArrayRef> {
        None
    }
    fn encoded(builder: &mut Self::Builder) -> Option<&mut dyn Encoded> {
        Some(builder)
    }
    fn reader(array: &ArrayRef) -> Option<Self::Reader> {
        Lists::reader(array)
    }
    fn read(reader: &Self::Reader, index: usize) -> std::result::Result<Self::Value, BadCell> {
        Lists::read(reader, index)
    }
    fn canonical(value: &Self::Value, out: &mut Vec<u8>) -> bool {
        Lists::canonical(value, out)
    }
    fn pack(value: &Self::Value, texts: &mut Texts, out: &mut Vec<u8>) -> bool {
        Lists::pack(value, texts, out)
    }
    fn unpack(bytes: &mut Unpacking<'_>) -> Option<Self::Value> {
        Lists::unpack(bytes)
    }
    fn unpack_into(bytes: &mut Unpacking<'_>, value: &mut Self::Value) -> Option<()> {
        Lists::unpack_into(bytes, value)
    }
}

/// Appends what `put` appends, with its length before it.
fn with_length(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}
