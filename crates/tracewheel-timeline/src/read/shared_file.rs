//! One open file read at many positions at once.
//!
//! The Parquet library's own reader of a `File` seeks, and clones of a file share one position: two passes over one
//! timeline would disturb each other. Positional reads do not.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::file::reader::{ChunkReader, Length};

#[derive(Debug, Clone)]
pub(super) struct SharedFile {
    file: Arc<File>,
    bytes: u64,
}

/// A position of its own in a shared file.
#[derive(Debug)]
pub(super) struct Cursor {
    file: Arc<File>,
    position: u64,
}

impl SharedFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), bytes })
    }
}

impl Length for SharedFile {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for SharedFile {
    type T = BufReader<Cursor>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<Self::T> {
        Ok(BufReader::new(Cursor { file: Arc::clone(&self.file), position: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.bytes) {
            // Before anything is allocated: a damaged footer may name any length.
            let message = format!("{length} bytes from {start} lie beyond the file's end at {}", self.bytes);
            return Err(parquet::errors::ParquetError::EOF(message));
        }
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, start)?;
        Ok(buffer.into())
    }
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}
