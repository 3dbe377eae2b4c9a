//! Sorted runs in a temporary file, and their merge.
//!
//! The file has no name (`O_TMPFILE`, or unlinked at once where the file system knows none): however the process ends,
//! nothing of it stays. A run is a row of blocks, a block is its length (u32), eight bytes of the BLAKE3 hash of what
//! follows, and records: length (u32), key, packed row. Each run is read block by block, so merging takes one block a
//! run; more runs than memory has blocks for are merged into longer runs first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::IngestError;
use crate::sort::Key;

/// A block's length: the more memory, the longer.
const LEAST_BLOCK_BYTES: usize = 4 << 10;
const MOST_BLOCK_BYTES: usize = 256 << 10;
/// Runs that are merged at once.
const LEAST_FAN_IN: usize = 8;
const MOST_FAN_IN: usize = 256;

const HEADER_BYTES: usize = 4 + 8;
const KEY_BYTES: usize = 8 + 4 + 8;

/// Runs that were written so far.
#[derive(Debug)]
pub(super) struct Spill {
    folder: PathBuf,
    block_bytes: usize,
    fan_in: usize,
    file: RunFile,
    runs: u64,
    bytes: u64,
}

/// A temporary file and the runs in it.
#[derive(Debug)]
struct RunFile {
    file: File,
    end: u64,
    runs: Vec<Range<u64>>,
}

/// Collects records into blocks.
struct BlockWriter<'a> {
    to: &'a mut RunFile,
    folder: &'a Path,
    block_bytes: usize,
    block: Vec<u8>,
}

/// Reads one run, block by block.
#[derive(Debug)]
struct RunReader {
    rest: Range<u64>,
    block: Vec<u8>,
    /// The record that is next, and where the one after it begins.
    record: Range<usize>,
    key: Key,
}

/// The records of all runs in order.
pub(super) struct Merge {
    folder: PathBuf,
    file: File,
    readers: Vec<RunReader>,
    heads: BinaryHeap<Reverse<(Key, usize)>>,
    /// The run whose head was given out.
    given: bool,
    bytes: u64,
}

/// The error of a temporary file in `folder`.
fn failed(folder: &Path) -> impl Fn(io::Error) -> IngestError {
    move |source| IngestError::Spill { folder: folder.to_owned(), source }
}

/// A temporary file that does not hold what was written.
pub(super) fn damaged(folder: &Path, what: impl fmt::Display) -> IngestError {
    failed(folder)(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("what was written there came back changed: {what}"),
    ))
}

fn checksum(block: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&blake3::hash(block).as_bytes()[..8]);
    first
}

impl Spill {
    pub(super) fn new(folder: &Path, memory_bytes: usize) -> Result<Self, IngestError> {
        let block_bytes = (memory_bytes / 64).clamp(LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES);
        Ok(Self {
            folder: folder.to_owned(),
            block_bytes,
            fan_in: (memory_bytes / block_bytes).clamp(LEAST_FAN_IN, MOST_FAN_IN),
            file: RunFile::create(folder)?,
            runs: 0,
            bytes: 0,
        })
    }

    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    /// Writes rows that are sorted.
    pub(super) fn write_run<'a>(
        &mut self,
        rows: impl Iterator<Item = (Key, &'a [u8])>,
    ) -> Result<(), IngestError> {
        let before = self.file.end;
        let mut writer = BlockWriter::new(&mut self.file, &self.folder, self.block_bytes);
        for (key, bytes) in rows {
            writer.push(key, bytes)?;
        }
        writer.finish(before)?;
        self.runs += 1;
        self.bytes += self.file.end - before;
        Ok(())
    }

    /// All rows in order.
    pub(super) fn merged(mut self) -> Result<Merge, IngestError> {
        while self.file.runs.len() > self.fan_in {
            let mut longer = RunFile::create(&self.folder)?;
            let RunFile { file, runs, .. } = self.file;
            for some in runs.chunks(self.fan_in) {
                let start = longer.end;
                let file = file.try_clone().map_err(failed(&self.folder))?;
                let mut merge = Merge::new(&self.folder, file, some, 0)?;
                let mut writer = BlockWriter::new(&mut longer, &self.folder, self.block_bytes);
                while let Some((key, bytes)) = merge.next()? {
                    writer.push(key, bytes)?;
                }
                writer.finish(start)?;
            }
            self.bytes += longer.end;
            self.file = longer;
        }
        Merge::new(&self.folder, self.file.file, &self.file.runs, self.bytes)
    }
}

impl RunFile {
    fn create(folder: &Path) -> Result<Self, IngestError> {
        let file = tempfile::tempfile_in(folder).map_err(failed(folder))?;
        Ok(Self { file, end: 0, runs: Vec::new() })
    }
}

impl<'a> BlockWriter<'a> {
    fn new(to: &'a mut RunFile, folder: &'a Path, block_bytes: usize) -> Self {
        let mut block = Vec::with_capacity(block_bytes + block_bytes / 8);
        block.resize(HEADER_BYTES, 0);
        Self { to, folder, block_bytes, block }
    }

    fn push(&mut self, key: Key, bytes: &[u8]) -> Result<(), IngestError> {
        let length = u32::try_from(KEY_BYTES + bytes.len());
        let length = length.map_err(|_| damaged(self.folder, "a row of more than 4 GiB"))?;
        self.block.extend_from_slice(&length.to_le_bytes());
        self.block.extend_from_slice(&key.arrival_ns.to_le_bytes());
        self.block.extend_from_slice(&key.file.to_le_bytes());
        self.block.extend_from_slice(&key.number.to_le_bytes());
        self.block.extend_from_slice(bytes);
        if self.block.len() >= self.block_bytes { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), IngestError> {
        let content = &self.block[HEADER_BYTES..];
        if content.is_empty() {
            return Ok(());
        }
        let (length, sum) = (content.len() as u32, checksum(content));
        self.block[..4].copy_from_slice(&length.to_le_bytes());
        self.block[4..HEADER_BYTES].copy_from_slice(&sum);
        self.to.file.write_all(&self.block).map_err(failed(self.folder))?;
        self.to.end += self.block.len() as u64;
        self.block.truncate(HEADER_BYTES);
        Ok(())
    }

    /// Ends the run that began at `start`.
    fn finish(mut self, start: u64) -> Result<(), IngestError> {
        self.flush()?;
        self.to.runs.push(start..self.to.end);
        Ok(())
    }
}

impl RunReader {
    /// Stands before the first record.
    fn new(run: Range<u64>) -> Self {
        let key = Key { arrival_ns: 0, file: 0, number: 0 };
        Self { rest: run, block: Vec::new(), record: 0..0, key }
    }

    /// Goes to the next record; false at the end of the run.
    fn advance(&mut self, file: &File, folder: &Path) -> Result<bool, IngestError> {
        if self.record.end == self.block.len() && !self.next_block(file, folder)? {
            return Ok(false);
        }
        let rest = &self.block[self.record.end..];
        let record = split_record(rest).ok_or_else(|| damaged(folder, "a record is cut short"))?;
        let (key, bytes) = record;
        self.key = key;
        let start = self.record.end + 4 + KEY_BYTES;
        self.record = start..start + bytes.len();
        Ok(true)
    }

    fn next_block(&mut self, file: &File, folder: &Path) -> Result<bool, IngestError> {
        if self.rest.is_empty() {
            return Ok(false);
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, self.rest.start).map_err(failed(folder))?;
        let (length, sum) = header.split_at(4);
        let length = length.iter().rev().fold(0, |length, byte| length << 8 | u64::from(*byte));
        let start = self.rest.start + HEADER_BYTES as u64;
        if start + length > self.rest.end {
            return Err(damaged(folder, "a block is longer than its run"));
        }
        self.block.resize(length as usize, 0);
        file.read_exact_at(&mut self.block, start).map_err(failed(folder))?;
        if checksum(&self.block) != sum {
            return Err(damaged(folder, "a checksum does not fit"));
        }
        self.rest.start = start + length;
        self.record = 0..0;
        Ok(true)
    }

    fn bytes(&self) -> &[u8] {
        &self.block[self.record.clone()]
    }
}

/// The record that `bytes` start with.
fn split_record(bytes: &[u8]) -> Option<(Key, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (record, _) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (arrival_ns, rest) = record.split_first_chunk()?;
    let (file, rest) = rest.split_first_chunk()?;
    let (number, bytes) = rest.split_first_chunk()?;
    let key = Key {
        arrival_ns: i64::from_le_bytes(*arrival_ns),
        file: u32::from_le_bytes(*file),
        number: u64::from_le_bytes(*number),
    };
    Some((key, bytes))
}

impl Merge {
    fn new(folder: &Path, file: File, runs: &[Range<u64>], bytes: u64) -> Result<Self, IngestError> {
        let mut readers: Vec<RunReader> = runs.iter().cloned().map(RunReader::new).collect();
        let mut heads = BinaryHeap::with_capacity(readers.len());
        for (number, reader) in readers.iter_mut().enumerate() {
            if reader.advance(&file, folder)? {
                heads.push(Reverse((reader.key, number)));
            }
        }
        Ok(Self { folder: folder.to_owned(), file, readers, heads, given: false, bytes })
    }

    /// Bytes that were written to temporary files.
    pub(super) fn spilled_bytes(&self) -> u64 {
        self.bytes
    }

    /// The next row: its key and its packed bytes.
    pub(super) fn next(&mut self) -> Result<Option<(Key, &[u8])>, IngestError> {
        if self.given {
            // The head that was given out is still the least: its run goes on now.
            let Some(mut head) = self.heads.peek_mut() else { return Ok(None) };
            let reader = &mut self.readers[head.0.1];
            if reader.advance(&self.file, &self.folder)? {
                head.0.0 = reader.key;
            } else {
                PeekMut::pop(head);
            }
        }
        self.given = true;
        let Some(Reverse((key, number))) = self.heads.peek() else { return Ok(None) };
        Ok(Some((*key, self.readers[*number].bytes())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spill(folder: &Path, rows: i64) -> Spill {
        let mut spill = Spill::new(folder, 0).unwrap();
        let bytes: Vec<[u8; 40]> = (0..rows).map(|at| [at as u8; 40]).collect();
        let key = |at: i64| Key { arrival_ns: at, file: 0, number: at as u64 };
        let run = || (0..).map(key).zip(bytes.iter().map(<[u8; 40]>::as_slice));
        spill.write_run(run()).unwrap();
        spill.write_run(run()).unwrap();
        spill
    }

    fn read(spill: Spill) -> Result<usize, IngestError> {
        let mut merge = spill.merged()?;
        let mut rows = 0;
        while let Some((key, bytes)) = merge.next()? {
            assert_eq!(bytes, [key.arrival_ns as u8; 40]);
            rows += 1;
        }
        Ok(rows)
    }

    #[test]
    fn a_byte_that_changed_anywhere_in_a_temporary_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(spill(folder.path(), 300)).unwrap(), 600);
        let end = spill(folder.path(), 300).file.end;
        for at in (0..end).step_by(97) {
            let spill = spill(folder.path(), 300);
            let mut byte = [0];
            spill.file.file.read_exact_at(&mut byte, at).unwrap();
            spill.file.file.write_all_at(&[!byte[0]], at).unwrap();
            let error = read(spill).unwrap_err().to_string();
            assert!(error.contains("came back changed"), "byte {at}: {error}");
        }
    }

    #[test]
    fn a_temporary_file_that_was_cut_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let spill = spill(folder.path(), 300);
        spill.file.file.set_len(spill.file.end - 1).unwrap();
        assert!(read(spill).is_err());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named_with_the_remedy() {
        let error = Spill::new(Path::new("/no/such/folder"), 0).unwrap_err().to_string();
        assert!(error.contains("/no/such/folder") && error.contains("--temp-dir"), "{error}");
    }
}
