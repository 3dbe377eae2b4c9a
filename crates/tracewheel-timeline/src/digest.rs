//! The digest of a timeline's logical content.
//!
//! BLAKE3 over a domain text and, row by row, each known cell as its column's number (u16), then its bytes: numbers
//! little endian at their column's width, booleans one byte, texts and bodies with their length (u64) before them,
//! lists and maps with their count (u64) before them, maps in the order of their keys; 0xFFFF ends the row.
//!
//! So the digest does not depend on row groups, batches, compression or the Parquet library; a later minor version,
//! whose new columns are null, leaves it as it is. `source_file` and `source_offset` say where a row was found, not
//! what production did, and stay out: the same log read from another folder gives the same digest. Metadata stays out
//! too.

use std::ops::Range;

use crate::columns;
use crate::row::RequestRow;

const DOMAIN: &[u8] = b"tracewheel timeline rows v1\n";

const END_OF_ROW: [u8; 2] = u16::MAX.to_le_bytes();

/// Bytes that are hashed at once: long stretches are hashed several times faster than single rows.
const STRETCH_BYTES: usize = 64 << 10;

/// The numbers of `source_file` and `source_offset`.
pub(crate) const PROVENANCE: Range<u16> = 48..50;

/// Digests rows as they pass.
#[derive(Debug, Clone)]
pub struct RowDigest {
    hasher: blake3::Hasher,
    /// Rows that wait to be hashed together.
    waiting: Vec<u8>,
}

impl RowDigest {
    /// The digest of no rows.
    pub fn new() -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN);
        Self { hasher, waiting: Vec::new() }
    }

    /// Takes the next row.
    pub fn push(&mut self, row: &RequestRow) {
        columns::canonical(row, PROVENANCE, &mut self.waiting);
        self.waiting.extend_from_slice(&END_OF_ROW);
        if self.waiting.len() >= STRETCH_BYTES {
            self.hasher.update(&self.waiting);
            self.waiting.clear();
        }
    }

    /// The digest of the rows so far: 64 hex digits.
    pub fn to_hex(&self) -> String {
        let mut hasher = self.hasher.clone();
        hasher.update(&self.waiting).finalize().to_hex().to_string()
    }
}

impl Default for RowDigest {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(rows: &[RequestRow]) -> String {
        let mut digest = RowDigest::new();
        rows.iter().for_each(|row| digest.push(row));
        digest.to_hex()
    }

    #[test]
    fn where_a_row_was_found_is_not_part_of_the_content() {
        assert_eq!(
            &columns::NAMES[usize::from(PROVENANCE.start)..usize::from(PROVENANCE.end)],
            ["source_file", "source_offset"]
        );
        let row = RequestRow { input_tokens: Some(3), ..RequestRow::default() };
        let moved = RequestRow { source_file: "b.csv".into(), source_offset: 9, ..row.clone() };
        assert_eq!(digest(&[row]), digest(&[moved]));
    }

    #[test]
    fn unknown_zero_and_empty_differ() {
        let base = RequestRow::default();
        let variants = [
            base.clone(),
            RequestRow { input_tokens: Some(0), ..base.clone() },
            RequestRow { output_tokens: Some(0), ..base.clone() },
            RequestRow { prefix_hashes: Some(Vec::new()), ..base.clone() },
            RequestRow { tags: Some(Default::default()), ..base.clone() },
            RequestRow { model: Some("".into()), ..base.clone() },
            RequestRow { body: Some(Default::default()), ..base.clone() },
        ];
        let digests: std::collections::BTreeSet<String> =
            variants.iter().map(|row| digest(std::slice::from_ref(row))).collect();
        assert_eq!(digests.len(), variants.len());
    }

    #[test]
    fn the_order_and_the_borders_of_rows_count() {
        let one = RequestRow { input_tokens: Some(1), ..RequestRow::default() };
        let two = RequestRow { input_tokens: Some(2), ..RequestRow::default() };
        assert_ne!(digest(&[one.clone(), two.clone()]), digest(&[two, one.clone()]));
        assert_ne!(digest(std::slice::from_ref(&one)), digest(&[one.clone(), one.clone()]));
        assert_ne!(digest(&[]), digest(&[RequestRow::default()]));
    }

    #[test]
    fn the_digest_of_a_known_row_never_changes() {
        let row = RequestRow { arrival_unix_ns: Some(7), model: Some("m".into()), ..RequestRow::default() };
        let mut bytes = DOMAIN.to_vec();
        let mut cell = |number: u16, value: &[u8]| {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(value);
        };
        let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
        cell(0, &7_i64.to_le_bytes());
        cell(1, &0_i64.to_le_bytes());
        cell(2, &text("unknown"));
        cell(10, &text("chat"));
        cell(14, &text("m"));
        cell(35, &text("absent"));
        cell(u16::MAX, &[]);
        assert_eq!(digest(&[row]), blake3::hash(&bytes).to_hex().to_string());
    }
}
