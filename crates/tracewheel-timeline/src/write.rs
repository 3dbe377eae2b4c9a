//! Writing a timeline: rows in, one Parquet file out, in bounded memory.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use arrow_schema::DataType;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::SortingColumn;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use crate::columns::RowBuilder;
use crate::digest::RowDigest;
use crate::error::TimelineError;
use crate::meta::{TimelineMeta, VERSION};
use crate::row::RequestRow;
use crate::schema;

mod partial;
mod row_groups;

use partial::Partial;
use row_groups::RowGroups;

/// Rows that wait in the builders at most, and their bytes.
const BATCH_ROWS: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;

/// The first bytes of every Parquet file.
const PARQUET_MAGIC: &[u8] = b"PAR1";

/// Writes a timeline into a file without a name, which gets one when it is whole.
///
/// Dropped without [`finish`](Self::finish), it leaves nothing behind; killed neither, where the file system knows files
/// without a name.
pub struct TimelineWriter {
    path: PathBuf,
    partial: Partial,
    groups: RowGroups,
    meta: TimelineMeta,
    builder: RowBuilder,
    pending_rows: usize,
    pending_bytes: usize,
    rows: u64,
    latest_arrival_unix_ns: Option<i64>,
    digest: RowDigest,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineSummary {
    /// Rows written.
    pub rows: u64,
    /// Digest of the logical content, 64 hex digits. See [`crate::digest`].
    pub digest: String,
    /// Size of the file.
    pub file_bytes: u64,
}

impl TimelineWriter {
    /// Begins a timeline (a baseline where the metadata says so) that will stand at `path`; a file that stands there
    /// already is replaced by [`finish`](Self::finish), not before. A symbolic link stays one; what it points to is
    /// replaced.
    ///
    /// # Errors
    /// [`TimelineError::Occupied`] where replacing would destroy something else than a timeline: a log (the import's
    /// own input, perhaps), a directory, a device. [`TimelineError::Io`] where the place cannot be written.
    pub fn create(path: impl AsRef<Path>, meta: TimelineMeta) -> Result<Self, TimelineError> {
        let path = destination(path.as_ref())?;
        let (partial, file) = Partial::create(&path).map_err(TimelineError::io("create", &path))?;
        let schema = schema::arrow_schema(meta.baseline);
        let groups =
            RowGroups::new(file, schema, properties(&meta)).map_err(TimelineError::written(&path))?;
        Ok(Self {
            path,
            partial,
            groups,
            meta,
            builder: RowBuilder::new(),
            pending_rows: 0,
            pending_bytes: 0,
            rows: 0,
            latest_arrival_unix_ns: None,
            digest: RowDigest::new(),
        })
    }

    /// The metadata, for what is known only at the end (quality, clock resolution, zone). `baseline` must stay.
    pub fn meta_mut(&mut self) -> &mut TimelineMeta {
        &mut self.meta
    }

    /// Appends a row and returns its position. Rows must come sorted by arrival, equal arrivals in the log's order.
    ///
    /// # Errors
    /// [`TimelineError::Unsorted`] and [`TimelineError::ArrivalUnknown`] leave the writer as it was.
    pub fn push(&mut self, row: &RequestRow) -> Result<u64, TimelineError> {
        self.check_arrival(row)?;
        self.digest.push(row);
        self.pending_bytes += self.builder.append(row);
        self.pending_rows += 1;
        self.rows += 1;
        if self.pending_rows >= BATCH_ROWS.min(self.groups.room()) || self.pending_bytes >= BATCH_BYTES {
            self.write_batch()?;
        }
        Ok(self.rows - 1)
    }

    /// Writes what is left, makes the file durable and renames it into place.
    pub fn finish(mut self) -> Result<TimelineSummary, TimelineError> {
        self.write_batch()?;
        self.meta.version = VERSION;
        self.meta.digest = self.digest.to_hex();
        let Self { groups, mut builder, path, meta, .. } = self;
        let file =
            groups.finish(&mut builder, meta.to_key_values()).map_err(TimelineError::written(&path))?;
        file.sync_all().map_err(TimelineError::io("write", &path))?;
        let file_bytes = file.metadata().map_err(TimelineError::io("write", &path))?.len();
        self.partial.publish(&file, &path).map_err(TimelineError::io("rename", &path))?;
        Ok(TimelineSummary { rows: self.rows, digest: meta.digest, file_bytes })
    }

    fn check_arrival(&mut self, row: &RequestRow) -> Result<(), TimelineError> {
        let Some(arrival_unix_ns) = row.arrival_unix_ns else {
            let unknown = TimelineError::ArrivalUnknown { row: self.rows };
            return if self.meta.baseline { Ok(()) } else { Err(unknown) };
        };
        if let Some(previous_unix_ns) = self.latest_arrival_unix_ns.filter(|latest| *latest > arrival_unix_ns)
        {
            return Err(TimelineError::Unsorted { row: self.rows, arrival_unix_ns, previous_unix_ns });
        }
        self.latest_arrival_unix_ns = Some(arrival_unix_ns);
        Ok(())
    }

    fn write_batch(&mut self) -> Result<(), TimelineError> {
        if self.pending_rows == 0 {
            return Ok(());
        }
        let taken = self.groups.take(self.pending_rows, &mut self.builder);
        taken.map_err(TimelineError::written(&self.path))?;
        self.pending_rows = 0;
        self.pending_bytes = 0;
        Ok(())
    }
}

impl std::fmt::Debug for TimelineWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimelineWriter")
            .field("path", &self.path)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}

/// Where the file will stand: the end of the links at `path`, if what is there may be replaced by renaming over it.
fn destination(path: &Path) -> Result<PathBuf, TimelineError> {
    let Ok(found) = fs::metadata(path) else { return Ok(path.to_owned()) };
    let occupied = |found| Err(TimelineError::Occupied { path: path.to_owned(), found });
    if found.is_dir() {
        return occupied("a directory");
    }
    if !found.is_file() {
        return occupied("a device, a pipe or a socket");
    }
    if found.len() > 0 && !begins_as_parquet(path).map_err(TimelineError::io("create", path))? {
        return occupied("no Parquet file");
    }
    fs::canonicalize(path).map_err(TimelineError::io("create", path))
}

fn begins_as_parquet(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::with_capacity(PARQUET_MAGIC.len());
    File::open(path)?.take(PARQUET_MAGIC.len() as u64).read_to_end(&mut start)?;
    Ok(start == PARQUET_MAGIC)
}

fn properties(meta: &TimelineMeta) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_created_by(format!("tracewheel {}", env!("CARGO_PKG_VERSION")));
    for (number, field) in schema::arrow_schema(meta.baseline).fields().iter().enumerate() {
        let name = field.name().as_str();
        if name == schema::ARRIVAL {
            let sorting = SortingColumn { column_idx: number as i32, descending: false, nulls_first: false };
            properties = properties.set_sorting_columns((!meta.baseline).then(|| vec![sorting]));
        }
        if schema::is_time(name) || name == "source_offset" {
            let leaf = leaf_of(name, field.data_type());
            properties = properties
                .set_column_dictionary_enabled(leaf.clone(), false)
                .set_column_encoding(leaf, Encoding::DELTA_BINARY_PACKED);
        }
        if matches!(field.data_type(), DataType::Binary) {
            // Bodies rarely repeat, and a bound of a body is prompt text where nobody looks for it.
            properties = properties
                .set_column_dictionary_enabled(name.into(), false)
                .set_column_statistics_enabled(name.into(), EnabledStatistics::None);
        }
    }
    properties.build()
}

fn leaf_of(name: &str, data_type: &DataType) -> ColumnPath {
    match data_type {
        DataType::List(element) => {
            ColumnPath::new(vec![name.to_owned(), "list".to_owned(), element.name().clone()])
        }
        _ => name.into(),
    }
}
