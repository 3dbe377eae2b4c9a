//! The encoded pages of one column in one row group, for the columns that are encoded here: a general writer looks at
//! every cell of a column of one word, and copies a list of hashes five times.
//!
//! Data pages have the first of Parquet's two forms: lengths and levels, then values, packed as one.

use std::io::{self, Read};

use bytes::Bytes;
use parquet::basic::{Compression, Encoding};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::runs::put_varint;

/// A column that is encoded here.
pub(crate) trait Encoded {
    /// Ends a batch: pages that are full are closed.
    fn end_batch(&mut self, column: &ColumnDescPtr, zstd: &mut Zstd) -> io::Result<()>;
    /// Ends the row group: everything is in the pages then.
    fn end_group(&mut self, column: &ColumnDescPtr, zstd: &mut Zstd) -> Result<ColumnCloseResult>;
    /// The pages of the row group.
    fn pages(&self) -> &Pages;
    /// Begins the next row group.
    fn clear(&mut self);
}

/// Packs pages, one memory for all.
pub(crate) struct Zstd(zstd::bulk::Compressor<'static>);

/// Pages end to end.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// The dictionary's page, with its header.
    dictionary: Vec<u8>,
    data: Vec<u8>,
    places: Vec<PagePlace>,
    uncompressed_bytes: usize,
    values: usize,
    rows: usize,
    encodings: Vec<Encoding>,
}

#[derive(Debug, Clone, Copy)]
struct PagePlace {
    start: usize,
    bytes: usize,
    rows: usize,
}

/// What a page's header tells.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageCounts {
    /// Cells, null ones and the places of empty lists among them.
    pub(super) values: usize,
    pub(super) rows: usize,
    /// Bytes before they were packed.
    pub(super) uncompressed_bytes: usize,
}

impl Zstd {
    pub(crate) fn new(level: i32) -> io::Result<Self> {
        zstd::bulk::Compressor::new(level).map(Self)
    }

    pub(super) fn pack(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        self.0.compress(bytes)
    }
}

impl Pages {
    /// Appends a data page, given in parts.
    pub(super) fn push(&mut self, parts: &[&[u8]], encoding: Encoding, counts: PageCounts) {
        let start = self.data.len();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let mut header = Header::new(&mut self.data);
        header.sizes(PageKind::Data, counts.uncompressed_bytes, bytes);
        header.begin(5);
        header.numbers([counts.values as i64, encoding as i64, Encoding::RLE as i64, Encoding::RLE as i64]);
        header.end();
        header.end();
        let header_bytes = self.data.len() - start;
        parts.iter().for_each(|part| self.data.extend_from_slice(part));
        self.places.push(PagePlace { start, bytes: header_bytes + bytes, rows: counts.rows });
        self.uncompressed_bytes += header_bytes + counts.uncompressed_bytes;
        self.values += counts.values;
        self.rows += counts.rows;
        self.note(encoding);
    }

    /// Sets the dictionary's page: so many words, plainly encoded and packed.
    pub(super) fn set_dictionary(&mut self, packed: &[u8], words: usize, uncompressed_bytes: usize) {
        self.dictionary.clear();
        let mut header = Header::new(&mut self.dictionary);
        header.sizes(PageKind::Dictionary, uncompressed_bytes, packed.len());
        header.begin(7);
        header.numbers([words as i64, Encoding::PLAIN as i64]);
        header.end();
        header.end();
        self.uncompressed_bytes += self.dictionary.len() + uncompressed_bytes;
        self.dictionary.extend_from_slice(packed);
        self.note(Encoding::PLAIN);
    }

    fn note(&mut self, encoding: Encoding) {
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.dictionary.len() + self.data.len()
    }

    /// What the file's metadata says of these pages.
    pub(super) fn close(
        &mut self,
        column: &ColumnDescPtr,
        compression: Compression,
        statistics: Option<Statistics>,
    ) -> Result<ColumnCloseResult> {
        self.note(Encoding::RLE);
        let before = self.dictionary.len();
        let mut metadata = ColumnChunkMetaData::builder(column.clone())
            .set_compression(compression)
            .set_encodings(self.encodings.clone())
            .set_total_compressed_size(self.len() as i64)
            .set_total_uncompressed_size(self.uncompressed_bytes as i64)
            .set_num_values(self.values as i64)
            .set_data_page_offset(before as i64)
            .set_dictionary_page_offset((before > 0).then_some(0));
        if let Some(statistics) = statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let mut offsets = OffsetIndexBuilder::new();
        for place in &self.places {
            offsets.append_row_count(place.rows as i64);
            offsets.append_offset_and_size((before + place.start) as i64, place.bytes as i32);
        }
        Ok(ColumnCloseResult {
            bytes_written: self.len() as u64,
            rows_written: self.rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: Some(offsets.build()),
        })
    }

    /// Forgets everything but the memory that it took.
    pub(super) fn clear(&mut self) {
        self.dictionary.clear();
        self.data.clear();
        self.places.clear();
        self.encodings.clear();
        (self.uncompressed_bytes, self.values, self.rows) = (0, 0, 0);
    }
}

impl Length for &Pages {
    fn len(&self) -> u64 {
        Pages::len(self) as u64
    }
}

impl<'a> ChunkReader for &'a Pages {
    type T = io::Chain<&'a [u8], &'a [u8]>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        if start != 0 {
            return Err(ParquetError::General("pages are read from their start only".to_owned()));
        }
        Ok(self.dictionary.as_slice().chain(self.data.as_slice()))
    }

    fn get_bytes(&self, _: u64, _: usize) -> Result<Bytes> {
        Err(ParquetError::General("pages are read as a whole only".to_owned()))
    }
}

/// The kinds of pages by their numbers in the format.
#[derive(Debug, Clone, Copy)]
enum PageKind {
    Data = 0,
    Dictionary = 2,
}

/// Writes a page's header in Thrift's compact form: each field is its number's distance from the one before it and its
/// type, then its value; numbers have their sign in the lowest bit.
struct Header<'a> {
    out: &'a mut Vec<u8>,
    field: u8,
}

const THRIFT_I32: u8 = 5;
const THRIFT_STRUCT: u8 = 12;

impl<'a> Header<'a> {
    fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, field: 0 }
    }

    fn sizes(&mut self, kind: PageKind, uncompressed_bytes: usize, bytes: usize) {
        self.numbers([kind as i64, uncompressed_bytes as i64, bytes as i64]);
    }

    /// The next fields, all of them numbers.
    fn numbers<const N: usize>(&mut self, numbers: [i64; N]) {
        for number in numbers {
            self.out.push(1 << 4 | THRIFT_I32);
            put_varint(((number << 1) ^ (number >> 63)).cast_unsigned(), self.out);
            self.field += 1;
        }
    }

    /// Begins a structure; its fields count anew.
    fn begin(&mut self, field: u8) {
        self.out.push((field - self.field) << 4 | THRIFT_STRUCT);
        self.field = 0;
    }

    fn end(&mut self) {
        self.out.push(0);
    }
}
