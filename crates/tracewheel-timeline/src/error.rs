//! What can go wrong with a timeline file.

use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

use crate::meta::Version;

/// An error of reading or writing a timeline. Texts name the file and, where there is one, the row (from 0) or column.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// The file could not be opened, written or renamed.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was tried: `open`, `create`, `write`, `rename`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Where the timeline is to stand, something else stands that a timeline must not replace.
    #[error("`{}` is {found}, which a timeline does not replace: write it elsewhere, or remove that first", path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
        /// What stands there, with its article.
        found: &'static str,
    },
    /// A directory where a file is expected.
    #[error("`{}` is a directory{}", path.display(), if *is_run { ": it holds a run, which `compare` and `inspect` read" } else { ": name a timeline in it" })]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Whether it looks like a run.
        is_run: bool,
    },
    /// Not a Parquet file at all, or a cut one.
    #[error("`{}` is not a readable Parquet file; a timeline is made from logs by `tracewheel ingest`", path.display())]
    NotParquet {
        /// The file.
        path: PathBuf,
        /// The Parquet reader's error.
        source: ParquetError,
    },
    /// A Parquet file without a timeline's metadata.
    #[error("`{}` is a Parquet file but no tracewheel timeline: its metadata has no `{key}`; a timeline is made from logs by `tracewheel ingest`", path.display())]
    NotTimeline {
        /// The file.
        path: PathBuf,
        /// The metadata key that is missing or says something else.
        key: &'static str,
    },
    /// Written by another major version of the format.
    #[error("`{}` has timeline version {found}, this program reads {known}: {remedy}", path.display(), remedy = version_remedy(*found, *known))]
    OtherMajor {
        /// The file.
        path: PathBuf,
        /// The file's version.
        found: Version,
        /// The newest version that this code reads.
        known: Version,
    },
    /// A metadata value that cannot be understood.
    #[error("`{}`: metadata `{key}` has the unreadable value `{value}`", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// The value, cut to 80 characters.
        value: String,
    },
    /// A column of the version's schema is missing.
    #[error("`{}` has no column `{column}`", path.display())]
    MissingColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A column has another type than the schema says.
    #[error("`{}`: column `{column}` is {found}, not {expected}", path.display())]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The type found.
        found: String,
        /// The type of the schema.
        expected: String,
    },
    /// A cell that its column does not allow: null where nothing may be unknown, or a word outside the vocabulary.
    #[error("`{}`: row {row}, column `{column}`: {problem}", path.display())]
    Cell {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: u64,
        /// The column.
        column: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The file breaks off or is damaged behind its header.
    #[error("`{}` is damaged near row {row}", path.display())]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: u64,
        /// The Parquet library's error.
        source: ParquetError,
    },
    /// A row was pushed that lies before its predecessor.
    #[error("row {row} arrives at {arrival_unix_ns} ns, before row {} at {previous_unix_ns} ns: rows must be sorted by arrival", row.saturating_sub(1))]
    Unsorted {
        /// The row, from 0.
        row: u64,
        /// Its arrival.
        arrival_unix_ns: i64,
        /// The arrival of the latest row before it that has one.
        previous_unix_ns: i64,
    },
    /// A row without arrival where one is needed: pushed into a timeline, or asked for in a baseline.
    #[error(
        "row {row} has no arrival: only a baseline may hold such rows, and a baseline can be compared but not replayed"
    )]
    ArrivalUnknown {
        /// The row, from 0.
        row: u64,
    },
}

impl TimelineError {
    /// Whether the output could not be written: no such folder, no permission, disk full.
    pub fn is_output(&self) -> bool {
        matches!(self, Self::Io { action: "create" | "write" | "rename", .. })
    }

    /// A failure of the Parquet writer; the system's error behind it where there is one.
    pub(crate) fn written<'a>(path: &'a Path) -> impl FnOnce(ParquetError) -> Self + use<'a> {
        move |error| {
            let source = match error {
                ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
                    Ok(error) => *error,
                    Err(other) => std::io::Error::other(other),
                },
                other => std::io::Error::other(other),
            };
            Self::Io { action: "write", path: path.to_owned(), source }
        }
    }

    pub(crate) fn io<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(std::io::Error) -> Self + use<'a> {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    pub(crate) fn parquet<'a>(path: &'a Path, row: u64) -> impl FnOnce(ParquetError) -> Self + use<'a> {
        move |source| Self::Parquet { path: path.to_owned(), row, source }
    }
}

fn version_remedy(found: Version, known: Version) -> &'static str {
    if found.major > known.major { "use a newer tracewheel" } else { "ingest the logs again" }
}
