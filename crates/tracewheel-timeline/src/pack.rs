//! A row as compact bytes, for rows that wait in memory or in a temporary file of one process.
//!
//! A row is several hundred bytes as a struct, nearly all of them unknown columns. Packed, it is a mask of its known
//! columns (u64), then their values in the order of the schema: numbers little endian at their column's width, lists
//! and bodies with their length (u32) before them, words by their place in the vocabulary. Texts that recur stand in
//! a table of the packer's and are named by number, so the bytes mean nothing to another packer and are no file format.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use crate::columns;
use crate::row::RequestRow;
use crate::stats::Mixer;

/// Texts in the table at most; further ones stand in their rows.
const MOST_TEXTS: usize = 1 << 16;
/// In place of a text's number: the text itself follows.
const INLINE: u32 = u32::MAX;

/// Packs rows and unpacks what it packed itself.
#[derive(Debug, Default)]
pub struct RowPacker {
    texts: Texts,
}

/// Packed bytes that are no row of this packer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("packed bytes do not hold a row")]
pub struct NotPacked;

/// Texts that recur, by number.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    all: Vec<Arc<str>>,
    /// Number by address: texts that recur are shared, and the table keeps them where they are.
    numbers: HashMap<usize, u32, BuildHasherDefault<Mixer>>,
}

/// What is left of a packed row.
pub(crate) struct Unpacking<'a> {
    bytes: &'a [u8],
    texts: &'a Texts,
}

impl RowPacker {
    /// A packer that has seen no row.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a row to `out`.
    pub fn pack(&mut self, row: &RequestRow, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 8]);
        let known = columns::pack(row, &mut self.texts, out);
        out[start..start + 8].copy_from_slice(&known.to_le_bytes());
    }

    /// The row that [`pack`](Self::pack) of this packer made into exactly these bytes.
    ///
    /// # Errors
    /// [`NotPacked`] where the bytes are cut short, too long, or of another packer's making.
    pub fn unpack(&self, bytes: &[u8]) -> Result<RequestRow, NotPacked> {
        let mut row = RequestRow::default();
        self.unpack_into(bytes, &mut row)?;
        Ok(row)
    }

    /// The same into a row that was used before, whose lists keep their memory.
    ///
    /// # Errors
    /// As for [`unpack`](Self::unpack); the row means nothing then.
    pub fn unpack_into(&self, bytes: &[u8], row: &mut RequestRow) -> Result<(), NotPacked> {
        let mut rest = Unpacking { bytes, texts: &self.texts };
        let known = rest.array().map(u64::from_le_bytes).ok_or(NotPacked)?;
        columns::unpack(known, &mut rest, row).ok_or(NotPacked)?;
        if rest.bytes.is_empty() { Ok(()) } else { Err(NotPacked) }
    }
}

impl Texts {
    pub(crate) fn pack(&mut self, text: &Arc<str>, out: &mut Vec<u8>) {
        let number = self.numbers.get(&address(text)).copied().or_else(|| self.admit(text));
        match number {
            Some(number) => out.extend_from_slice(&number.to_le_bytes()),
            None => {
                out.extend_from_slice(&INLINE.to_le_bytes());
                pack_bytes(text.as_bytes(), out);
            }
        }
    }

    /// Takes a shared text into the table; one that only its row holds will not be seen again.
    fn admit(&mut self, text: &Arc<str>) -> Option<u32> {
        if Arc::strong_count(text) == 1 || self.all.len() >= MOST_TEXTS {
            return None;
        }
        let number = self.all.len() as u32;
        self.all.push(Arc::clone(text));
        self.numbers.insert(address(text), number);
        Some(number)
    }
}

fn address(text: &Arc<str>) -> usize {
    Arc::as_ptr(text).cast::<u8>() as usize
}

/// Appends bytes with their length before them.
pub(crate) fn pack_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

impl<'a> Unpacking<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*taken)
    }

    pub(crate) fn length(&mut self) -> Option<usize> {
        self.array().map(|length| u32::from_le_bytes(length) as usize)
    }

    pub(crate) fn text(&mut self) -> Option<Arc<str>> {
        let number = u32::from_le_bytes(self.array()?);
        if number != INLINE {
            return self.texts.all.get(number as usize).cloned();
        }
        let length = self.length()?;
        std::str::from_utf8(self.take(length)?).ok().map(Arc::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::{ArrivalSource, Source};

    fn row() -> RequestRow {
        let shared: Arc<str> = "large".into();
        RequestRow {
            arrival_unix_ns: Some(-7),
            arrival_source: ArrivalSource::DerivedFromEnd,
            source_id_hash: Some(u64::MAX),
            model: Some(Arc::clone(&shared)),
            model_served: Some(shared),
            route: Some("alone".into()),
            stream: Some(false),
            input_tokens: Some(3),
            input_tokens_source: Some(Source::Absent),
            prefix_hashes: Some(vec![1, 2, u64::MAX]),
            prefix_block_tokens: Some(Vec::new()),
            body: Some(vec![0, 255].into()),
            prod_event_ns: Some(vec![-1, 5]),
            sample_rate: Some(0.25),
            tags: Some([("a".into(), "b".into())].into()),
            source_offset: 9,
            ..RequestRow::default()
        }
    }

    #[test]
    fn a_row_comes_back_as_it_was_and_shared_texts_stay_shared() {
        let mut packer = RowPacker::new();
        let mut bytes = Vec::new();
        packer.pack(&row(), &mut bytes);
        let back = packer.unpack(&bytes).unwrap();
        assert_eq!(back, row());
        assert!(Arc::ptr_eq(back.model.as_ref().unwrap(), back.model_served.as_ref().unwrap()));
        assert!(bytes.len() < 200, "{} bytes", bytes.len());
    }

    #[test]
    fn a_row_that_is_used_again_holds_nothing_of_before() {
        let mut packer = RowPacker::new();
        let mut used = row();
        let short = RequestRow { prefix_hashes: Some(vec![9]), ..RequestRow::default() };
        for next in [RequestRow::default(), row(), short, RequestRow::default()] {
            let mut bytes = Vec::new();
            packer.pack(&next, &mut bytes);
            packer.unpack_into(&bytes, &mut used).unwrap();
            assert_eq!(used, next);
        }
    }

    #[test]
    fn bytes_that_are_cut_or_too_long_are_refused() {
        let mut packer = RowPacker::new();
        let mut bytes = Vec::new();
        packer.pack(&row(), &mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(packer.unpack(&bytes[..length]), Err(NotPacked), "{length}");
        }
        bytes.push(0);
        assert_eq!(packer.unpack(&bytes), Err(NotPacked));
        assert_eq!(packer.unpack(&u64::MAX.to_le_bytes()), Err(NotPacked));
    }

    #[test]
    fn a_full_table_leaves_texts_in_their_rows() {
        let mut packer = RowPacker::new();
        let shared: Vec<Arc<str>> = (0..=MOST_TEXTS).map(|number| number.to_string().into()).collect();
        for text in &shared {
            let row = RequestRow { model: Some(Arc::clone(text)), ..RequestRow::default() };
            let mut bytes = Vec::new();
            packer.pack(&row, &mut bytes);
            assert_eq!(packer.unpack(&bytes), Ok(row));
        }
        assert_eq!(packer.texts.all.len(), MOST_TEXTS);
    }
}
