//! Journal segments: Arrow IPC streams that are readable up to their last whole batch, wherever they are cut.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};

use crate::columns::Table;
use crate::disk::{Disk, DiskFile};
use crate::error::{RecordError, Result};
use crate::metadata;

/// Bytes gathered before they are handed to the operating system.
const BUFFER_BYTES: usize = 256 << 10;

/// A segment being written.
pub(crate) struct SegmentWriter {
    stream: StreamWriter<BufWriter<Box<dyn DiskFile>>>,
    path: PathBuf,
}

impl SegmentWriter {
    /// Begins a segment; `schema` carries the metadata.
    pub(crate) fn create(disk: &dyn Disk, path: PathBuf, schema: &SchemaRef) -> Result<Self> {
        let file = disk.create(&path).map_err(|source| RecordError::io("create", &path, source))?;
        let buffer = BufWriter::with_capacity(BUFFER_BYTES, file);
        let stream =
            StreamWriter::try_new(buffer, schema).map_err(|source| RecordError::arrow(&path, source))?;
        Ok(Self { stream, path })
    }

    /// Appends a batch and hands it to the operating system: from here on it survives this process.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = self.stream.write(batch).and_then(|()| self.stream.flush());
        written.map_err(|source| RecordError::arrow(&self.path, source))
    }

    /// Waits for the disk: from here on everything written survives the machine.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let synced = self.stream.get_mut().get_mut().sync();
        synced.map_err(|source| RecordError::io("sync", &self.path, source))
    }

    /// Removes the segment, once its rows are elsewhere.
    pub(crate) fn remove(self, disk: &dyn Disk) -> Result<()> {
        let Self { stream, path } = self;
        drop(stream);
        disk.remove(&path).map_err(|source| RecordError::io("remove", &path, source))
    }
}

/// Notices the end of its input, to tell a cut end from a broken middle.
struct Watched<R> {
    inner: R,
    at_end: Arc<AtomicBool>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.at_end.store(read == 0 && !bytes.is_empty(), Ordering::Relaxed);
        Ok(read)
    }
}

/// A segment being read, batch by batch, up to its last whole batch.
pub(crate) struct SegmentReader {
    /// `None` where the segment was cut inside its schema, or has come to its end.
    stream: Option<StreamReader<Watched<BufReader<File>>>>,
    /// Whether the last read met the end of the file.
    at_end: Arc<AtomicBool>,
    path: PathBuf,
}

impl SegmentReader {
    /// Opens a segment of table `T`.
    pub(crate) fn open<T: Table>(path: &Path) -> io::Result<Result<Self>> {
        let file = File::open(path)?;
        Ok(Self::read_schema::<T>(path, file))
    }

    fn read_schema<T: Table>(path: &Path, file: File) -> Result<Self> {
        let at_end = Arc::new(AtomicBool::new(false));
        let inner = BufReader::with_capacity(BUFFER_BYTES, file);
        let stream = match StreamReader::try_new(Watched { inner, at_end: Arc::clone(&at_end) }, None) {
            Ok(stream) => stream,
            Err(_) if at_end.load(Ordering::Relaxed) => {
                return Ok(Self { stream: None, at_end, path: path.to_owned() });
            }
            Err(source) => return Err(read_error(path, source)),
        };
        let schema = stream.schema();
        metadata::check::<T>(path, |key| schema.metadata().get(key).map(String::as_str))?;
        Ok(Self { stream: Some(stream), at_end, path: path.to_owned() })
    }

    /// The schema, where the segment holds one.
    pub(crate) fn schema(&self) -> Option<SchemaRef> {
        self.stream.as_ref().map(StreamReader::schema)
    }
}

impl Iterator for SegmentReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let stream = self.stream.as_mut()?;
        // The decoder trusts the offsets that it is given. In a file with broken bytes they may point anywhere, and it
        // panics; nothing of it is used after that.
        let next = catch_unwind(AssertUnwindSafe(|| stream.next()));
        match next.unwrap_or_else(|_| Some(Err(ArrowError::IpcError("offsets point nowhere".to_owned())))) {
            Some(Ok(batch)) => Some(Ok(batch)),
            Some(Err(source)) => {
                self.stream = None;
                let cut = self.at_end.load(Ordering::Relaxed);
                (!cut).then(|| Err(read_error(&self.path, source)))
            }
            None => {
                self.stream = None;
                None
            }
        }
    }
}

fn read_error(path: &Path, source: ArrowError) -> RecordError {
    match source {
        ArrowError::IoError(_, source) => RecordError::io("read", path, source),
        source => RecordError::Arrow { path: path.to_owned(), source },
    }
}
