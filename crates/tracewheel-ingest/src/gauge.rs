//! How far an import is, for whoever shows it.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a running import. They are only ever looked at: nothing is decided by them.
#[derive(Debug, Default)]
pub struct ImportGauge {
    bytes: AtomicU64,
    rows: AtomicU64,
    written: AtomicU64,
}

impl ImportGauge {
    /// Bytes read from the inputs as they lie on disk (compressed, where they are).
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Rows read, kept or rejected.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Rows written into the timeline.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(crate) fn add_row(&self) {
        self.rows.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_written(&self, rows: u64) {
        self.written.store(rows, Ordering::Relaxed);
    }

    /// The import starts over.
    pub(crate) fn reset(&self) {
        for counter in [&self.bytes, &self.rows, &self.written] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Counts what is read.
pub(crate) struct Counted<R> {
    pub(crate) from: R,
    pub(crate) gauge: Arc<ImportGauge>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.gauge.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
