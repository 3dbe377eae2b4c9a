//! Journal segments: batches in checksummed frames, readable up to wherever they are cut and past what is damaged.

mod frame;

use std::fs::File;
use std::io::{self, Cursor};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, SchemaRef};

use self::frame::{FrameReader, Piece};
use crate::columns::Table;
use crate::disk::{Disk, DiskFile};
use crate::error::{RecordError, Result};
use crate::metadata;

/// A segment being written: its schema in a frame, then a frame a batch.
///
/// The frame of a batch holds the dictionaries that it needs, so that it can be read whatever became of those before
/// it.
pub(crate) struct SegmentWriter {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    schema: SchemaRef,
    /// Length of the encoded schema, which begins every Arrow stream.
    schema_bytes: usize,
    /// Room for what is being encoded.
    stream: Vec<u8>,
    frame: Vec<u8>,
}

impl SegmentWriter {
    /// Begins a segment; `schema` carries the metadata.
    pub(crate) fn create(disk: &dyn Disk, path: PathBuf, schema: &SchemaRef) -> Result<Self> {
        let file = disk.create(&path).map_err(|source| RecordError::io("create", &path, source))?;
        let stream = encoded_schema(schema).map_err(|source| RecordError::arrow(&path, source))?;
        let schema_bytes = stream.len();
        let schema = Arc::clone(schema);
        let mut segment = Self { file, path, schema, schema_bytes, stream, frame: Vec::new() };
        segment.append(frame::Kind::Schema, 0)?;
        Ok(segment)
    }

    /// Appends a batch and hands it to the operating system: from here on it survives this process.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.stream.clear();
        StreamWriter::try_new(&mut self.stream, &self.schema)
            .and_then(|mut stream| stream.write(batch))
            .map_err(|source| RecordError::arrow(&self.path, source))?;
        self.append(frame::Kind::Batch, self.schema_bytes)
    }

    /// Appends a frame of what was encoded, from a byte on.
    fn append(&mut self, kind: frame::Kind, from: usize) -> Result<()> {
        frame::begin(&mut self.frame, kind);
        self.frame.extend_from_slice(&self.stream[from..]);
        frame::seal(&mut self.frame)
            .and_then(|()| self.file.write_all(&self.frame))
            .and_then(|()| self.file.flush())
            .map_err(|source| RecordError::io("write", &self.path, source))
    }

    /// Waits for the disk: from here on everything written survives the machine.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.file.sync().map_err(|source| RecordError::io("sync", &self.path, source))
    }

    /// Removes the segment, once its rows are elsewhere.
    pub(crate) fn remove(self, disk: &dyn Disk) -> Result<()> {
        let Self { file, path, .. } = self;
        drop(file);
        disk.remove(&path).map_err(|source| RecordError::io("remove", &path, source))
    }
}

/// A segment being read, batch by batch. A frame that was cut in the middle ends it: that is how a killed writer leaves
/// it. Damage is an error ([`RecordError::Damaged`]) after which what follows can still be read.
pub(crate) struct SegmentReader {
    frames: FrameReader,
    /// The encoded schema: the segment's own, or this version's where that is damaged.
    schema: Vec<u8>,
    batches: Option<StreamReader<Cursor<Vec<u8>>>>,
    check: fn(&Path, &SchemaRef) -> Result<()>,
    path: PathBuf,
}

impl SegmentReader {
    /// Opens a segment of table `T`.
    pub(crate) fn open<T: Table>(path: &Path) -> io::Result<Self> {
        let frames = FrameReader::new(File::open(path)?)?;
        let schema = encoded_schema(&metadata::schema::<T>("", "")).map_err(io::Error::other)?;
        Ok(Self { frames, schema, batches: None, check: check::<T>, path: path.to_owned() })
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batches) = &mut self.batches {
                match batches.next() {
                    Some(batch) => return batch.map(Some).map_err(|source| read_error(&self.path, source)),
                    None => self.batches = None,
                }
            }
            let piece =
                self.frames.next_piece().map_err(|source| RecordError::io("read", &self.path, source))?;
            match piece {
                None => return Ok(None),
                Some(Piece::Frame(frame::Kind::Schema, schema)) => {
                    self.schema = schema;
                    let schema = self.stream_of(&[])?.schema();
                    (self.check)(&self.path, &schema)?;
                }
                Some(Piece::Frame(frame::Kind::Batch, batch)) => self.batches = Some(self.stream_of(&batch)?),
                Some(Piece::Damage(Range { start: from, end: to })) => {
                    return Err(RecordError::Damaged { path: self.path.clone(), from, to });
                }
            }
        }
    }
}

impl SegmentReader {
    fn stream_of(&self, batch: &[u8]) -> Result<StreamReader<Cursor<Vec<u8>>>> {
        let stream = Cursor::new([&self.schema, batch].concat());
        StreamReader::try_new(stream, None).map_err(|source| read_error(&self.path, source))
    }
}

impl Iterator for SegmentReader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

fn encoded_schema(schema: &SchemaRef) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    StreamWriter::try_new(&mut bytes, schema)?;
    Ok(bytes)
}

fn check<T: Table>(path: &Path, schema: &SchemaRef) -> Result<()> {
    metadata::check::<T>(path, |key| schema.metadata().get(key).map(String::as_str))
}

fn read_error(path: &Path, source: ArrowError) -> RecordError {
    match source {
        ArrowError::IoError(_, source) => RecordError::io("read", path, source),
        source => RecordError::Arrow { path: path.to_owned(), source },
    }
}
