//! What can go wrong between a run and its disk.

use std::io;
use std::path::{Path, PathBuf};

use arrow_schema::ArrowError;
use parquet::errors::ParquetError;

use crate::columns::{BadBatch, BadCell};
use crate::manifest::Counts;

/// Result of this crate.
pub type Result<T, E = RecordError> = std::result::Result<T, E>;

/// An error of writing or reading a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The disk, the quota or the file size limit is used up. What was written before stays.
    #[error("no space left to write {}; what was recorded before stays there", path.display())]
    Full {
        /// File being written.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The system refused an operation on a file.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The directory is not a run.
    #[error("{} is no run directory: it holds no manifest.json", path.display())]
    NotARun {
        /// The directory.
        path: PathBuf,
    },
    /// The directory holds what a run records, and no manifest that would tell of what.
    #[error(
        "{} has recorded parts or a journal but no manifest: bring its manifest.json back (another copy of the run has it), \
         without it nobody knows what was planned; do not delete the folder",
        path.display()
    )]
    ManifestLost {
        /// The directory.
        path: PathBuf,
    },
    /// The manifest is not JSON of the expected form.
    #[error("cannot understand {}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// Line and column of the fault.
        #[source]
        source: serde_json::Error,
    },
    /// The file was written by another major version of the format.
    #[error("{} has run format {found}, this tool reads {supported}: use a tool of that version", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version found.
        found: String,
        /// Version that this crate reads and writes.
        supported: &'static str,
    },
    /// The file is Parquet or Arrow, but not what it should be.
    #[error("{} is not the table {table} of a run", path.display())]
    NotATable {
        /// The file.
        path: PathBuf,
        /// The table.
        table: &'static str,
    },
    /// A part cannot be read or encoded.
    #[error("broken part {}", path.display())]
    Parquet {
        /// The part.
        path: PathBuf,
        /// What the format says.
        #[source]
        source: ParquetError,
    },
    /// A journal segment cannot be read or encoded.
    #[error("broken journal {}", path.display())]
    Arrow {
        /// The segment.
        path: PathBuf,
        /// What the format says.
        #[source]
        source: ArrowError,
    },
    /// Bytes of a journal segment are not what was written: a power cut or the disk damaged them.
    #[error("bytes {from} to {to} of {} are damaged", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// The first damaged byte.
        from: u64,
        /// The first byte after them.
        to: u64,
    },
    /// Parts of a closed run are not there.
    #[error(
        "{} holds {found} parts, the run was closed with {expected}, and {missing} is not there: \
         bring them back, the run is not whole without them",
        path.display()
    )]
    PartsMissing {
        /// The table's directory.
        path: PathBuf,
        /// The first part that is not there, by the numbers.
        missing: String,
        /// Parts found.
        found: u64,
        /// Parts that the run was closed with, at least.
        expected: u64,
    },
    /// A closed run has parts that it was not closed with.
    #[error(
        "{} is none of the parts that the run was closed with: there were {expected}, now there are {found}; take it out",
        path.display()
    )]
    PartUnknown {
        /// The last part of the table.
        path: PathBuf,
        /// Parts found.
        found: u64,
        /// Parts that the run was closed with.
        expected: u64,
    },
    /// A part is of another run.
    #[error("{} is a part of the run {found}, the manifest is that of the run {expected}: take it out", path.display())]
    OtherRun {
        /// The part.
        path: PathBuf,
        /// Id of the run that the part is of.
        found: String,
        /// Id of the run, as its manifest says.
        expected: String,
    },
    /// The parts of a closed run hold other rows than it was closed with.
    #[error(
        "{} holds {rows} rows, its manifest says {told}: bring back the parts and the manifest that belong together",
        path.display()
    )]
    RowsDiffer {
        /// The table's directory.
        path: PathBuf,
        /// Rows of its parts.
        rows: u64,
        /// Rows by the manifest's outcome.
        told: u64,
    },
    /// A column is missing or of another type than the schema says.
    #[error("{}: column {column} is {found}, expected {expected}", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// What was found.
        found: String,
        /// What the schema says.
        expected: String,
    },
    /// A closed vocabulary's column holds a word or code that is not in it.
    #[error("{}: column {column} holds {word:?}, which is not one of its words", path.display())]
    Word {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The word.
        word: String,
    },
    /// The requests recorded do not add up to the plan.
    #[error(
        "{}: planned {planned} requests but recorded {} (ok {}, failed {}, cancelled {}, interrupted {}, unsent {})",
        path.display(), counts.total(), counts.ok, counts.failed, counts.cancelled, counts.interrupted, counts.unsent
    )]
    NotConserved {
        /// The run.
        path: PathBuf,
        /// Requests planned.
        planned: u64,
        /// Requests recorded.
        counts: Counts,
    },
    /// Requests were released and have no row: they can be counted neither as unsent nor as anything else.
    #[error("{}: {released} released requests have no row", path.display())]
    Unended {
        /// The run.
        path: PathBuf,
        /// Requests without a row.
        released: usize,
    },
    /// The writer had failed before and takes nothing more.
    #[error("the recorder of {} had failed before", path.display())]
    Failed {
        /// The run.
        path: PathBuf,
    },
    /// The run's writer is alive.
    #[error("{} is still being written{}: wait for its end, or stop it", path.display(), by(*process))]
    InUse {
        /// The run.
        path: PathBuf,
        /// The process that writes it, as it noted itself.
        process: Option<u32>,
    },
    /// A cell is null in a column that is never null.
    #[error("{}: column {column} is null", path.display())]
    Null {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// The run is closed already.
    #[error("{} is closed already", path.display())]
    AlreadyClosed {
        /// The run.
        path: PathBuf,
    },
}

impl RecordError {
    /// Whether the output could not be written (exit code 40).
    pub fn is_output_failure(&self) -> bool {
        match self {
            Self::Full { .. } | Self::Failed { .. } => true,
            Self::Io { action, .. } => !matches!(*action, "read" | "open" | "list" | "lock"),
            _ => false,
        }
    }

    /// The file or folder that could not be written or read on, of an error of the system.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Full { path, .. } | Self::Io { path, .. } | Self::Failed { path } => Some(path),
            _ => None,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        if is_full(&source) {
            return Self::Full { path: path.to_owned(), source };
        }
        Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn batch(path: &Path, bad: BadBatch) -> Self {
        let path = path.to_owned();
        match bad {
            BadBatch::Column { name: column, found, expected } => {
                Self::Column { path, column, found, expected }
            }
            BadBatch::Cell { name: column, bad: BadCell::Null } => Self::Null { path, column },
            BadBatch::Cell { name: column, bad: BadCell::Word(word) } => Self::Word { path, column, word },
        }
    }

    pub(crate) fn parquet(path: &Path, source: ParquetError) -> Self {
        match source {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(source) => Self::io("write", path, *source),
                Err(inner) => Self::Parquet { path: path.to_owned(), source: ParquetError::External(inner) },
            },
            source => Self::Parquet { path: path.to_owned(), source },
        }
    }

    pub(crate) fn arrow(path: &Path, source: ArrowError) -> Self {
        match source {
            ArrowError::IoError(_, source) => Self::io("write", path, source),
            source => Self::Arrow { path: path.to_owned(), source },
        }
    }
}

fn by(process: Option<u32>) -> String {
    process.map(|process| format!(" by process {process}")).unwrap_or_default()
}

/// Out of space, out of quota, or over the process's file size limit.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
