//! Collects and encodes a dictionary column. A text is looked up by where it lies, not by its letters: rows share their
//! texts. What repeats is a run, so a column of one word costs next to nothing.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::codec::DictValue;
use super::pages::{Encoded, PageCounts, Pages, Zstd};
use super::runs::{self, Run};
use crate::stats::Mixer;

/// In place of a word's number.
const NULL: u32 = u32::MAX;

/// A page's rows, and its bytes where words stand in it themselves.
const PAGE_ROWS: usize = 20_000;
const PAGE_BYTES: usize = 1 << 20;

/// A longer dictionary helps nobody: the words of later pages stand in them.
const DICTIONARY_BYTES: usize = 1 << 20;

/// Longer bounds are not written.
const BOUND_BYTES: usize = 64;

/// The cells of one row group.
pub(crate) struct DictionaryBuilder<V> {
    /// The values of this batch by where they lie. They are kept where they are.
    places: HashMap<usize, u32, BuildHasherDefault<Mixer>>,
    values: Vec<V>,
    /// Place and number of the latest value: in most columns the next one too.
    latest: Option<(usize, u32)>,
    /// The row group's words by their letters.
    numbers: HashMap<Box<str>, u32>,
    /// The words in the order of their numbers, each behind its length.
    dictionary: Vec<u8>,
    /// The cells of the present page: numbers of words, or 0 for each word of a page without dictionary.
    cells: Vec<Run>,
    rows: usize,
    /// The words of the present page where the dictionary is full.
    plain: Option<Vec<u8>>,
    nulls: u64,
    scratch: Scratch,
    pages: Pages,
}

#[derive(Default)]
struct Scratch {
    runs: Vec<Run>,
    body: Vec<u8>,
}

impl<V: DictValue> DictionaryBuilder<V> {
    pub(super) fn new() -> Self {
        Self {
            places: HashMap::default(),
            values: Vec::new(),
            latest: None,
            numbers: HashMap::new(),
            dictionary: Vec::new(),
            cells: Vec::new(),
            rows: 0,
            plain: None,
            nulls: 0,
            scratch: Scratch::default(),
            pages: Pages::default(),
        }
    }

    #[inline]
    pub(super) fn append(&mut self, value: &V) {
        self.rows += 1;
        if let Some(plain) = &mut self.plain {
            put_word(value.text(), plain);
            return runs::push(&mut self.cells, 0, 1);
        }
        let place = value.place();
        let number = match self.latest {
            Some((latest, number)) if latest == place => number,
            _ => self.number_at(place, value),
        };
        runs::push(&mut self.cells, number, 1);
    }

    pub(super) fn append_nulls(&mut self, count: usize) {
        if count > 0 {
            self.rows += count;
            self.nulls += count as u64;
            runs::push(&mut self.cells, NULL, count as u32);
        }
    }

    fn number_at(&mut self, place: usize, value: &V) -> u32 {
        let number = match self.places.get(&place) {
            Some(number) => *number,
            None => {
                let number = self.number_of(value.text());
                self.places.insert(place, number);
                self.values.push(value.clone());
                number
            }
        };
        self.latest = Some((place, number));
        number
    }

    fn number_of(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(text.into(), number);
        put_word(text, &mut self.dictionary);
        number
    }

    fn forget_places(&mut self) {
        self.places.clear();
        self.values.clear();
        self.latest = None;
    }

    fn end_page(&mut self, column: &ColumnDescPtr, zstd: &mut Zstd) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let Scratch { runs, body } = &mut self.scratch;
        body.clear();
        if column.max_def_level() > 0 {
            runs.clear();
            self.cells.iter().for_each(|(cell, count)| runs::push(runs, u32::from(*cell != NULL), *count));
            body.extend_from_slice(&[0; 4]);
            runs::put(runs, 1, body);
            let length = body.len() as u32 - 4;
            body[..4].copy_from_slice(&length.to_le_bytes());
        }
        runs.clear();
        for (cell, count) in self.cells.iter().filter(|(cell, _)| *cell != NULL) {
            runs::push(runs, *cell, *count);
        }
        let encoding = if let Some(plain) = &mut self.plain {
            body.append(plain);
            Encoding::PLAIN
        } else if runs.is_empty() {
            // Without words there may be no dictionary to point to.
            Encoding::PLAIN
        } else {
            let width = runs::width_of(self.numbers.len() as u32 - 1);
            body.push(width as u8);
            runs::put(runs, width, body);
            Encoding::RLE_DICTIONARY
        };
        let counts = PageCounts { values: self.rows, rows: self.rows, uncompressed_bytes: body.len() };
        self.pages.push(&[&zstd.pack(body)?], encoding, counts);
        self.cells.clear();
        self.rows = 0;
        Ok(())
    }

    /// The bounds, where all words are in the dictionary, and how many cells are null.
    fn statistics(&self) -> Statistics {
        let bound = |word: Option<&Box<str>>| {
            let word = word.filter(|word| self.plain.is_none() && word.len() <= BOUND_BYTES)?;
            Some(ByteArray::from(word.as_bytes().to_vec()))
        };
        let (least, most) = (self.numbers.keys().min(), self.numbers.keys().max());
        Statistics::byte_array(bound(least), bound(most), None, Some(self.nulls), false)
    }
}

impl<V: DictValue> Encoded for DictionaryBuilder<V> {
    fn end_batch(&mut self, column: &ColumnDescPtr, zstd: &mut Zstd) -> io::Result<()> {
        self.forget_places();
        let full = self.plain.is_none() && self.dictionary.len() > DICTIONARY_BYTES;
        let long = self.plain.as_ref().is_some_and(|plain| plain.len() > PAGE_BYTES);
        if full || long || self.rows >= PAGE_ROWS {
            self.end_page(column, zstd)?;
        }
        if full {
            self.plain = Some(Vec::new());
        }
        Ok(())
    }

    fn end_group(&mut self, column: &ColumnDescPtr, zstd: &mut Zstd) -> Result<ColumnCloseResult> {
        self.forget_places();
        self.end_page(column, zstd)?;
        if !self.numbers.is_empty() {
            let packed = zstd.pack(&self.dictionary)?;
            self.pages.set_dictionary(&packed, self.numbers.len(), self.dictionary.len());
        }
        let statistics = self.statistics();
        self.numbers.clear();
        self.dictionary.clear();
        self.plain = None;
        self.nulls = 0;
        self.pages.close(column, Compression::ZSTD(ZstdLevel::default()), Some(statistics))
    }

    fn pages(&self) -> &Pages {
        &self.pages
    }

    fn clear(&mut self) {
        self.pages.clear();
    }
}

/// Appends a word as a plain page or a dictionary has it.
fn put_word(word: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(word.len() as u32).to_le_bytes());
    out.extend_from_slice(word.as_bytes());
}
