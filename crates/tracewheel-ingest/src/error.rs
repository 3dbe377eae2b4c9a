//! What stops an import. A bad row never does: it is rejected, counted and reported.

use std::path::PathBuf;

use tracewheel_timeline::TimelineError;

use crate::column_map::MapError;

/// Why an import could not be done at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IngestError {
    /// The list of inputs is empty.
    #[error("no input was given: name at least one log file, or `-` for standard input")]
    NoInput,
    /// An input could not be opened or read.
    #[error("cannot read {file}: {source}")]
    Read {
        /// The input's name.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// An input is packed, or is no text at all.
    #[error("{file} is {what}: {remedy}")]
    NotText {
        /// The input's name.
        file: String,
        /// What its first bytes say.
        what: &'static str,
        /// What to do about it.
        remedy: &'static str,
    },
    /// An archive is damaged before it has given a whole line.
    #[error(
        "{file} is a damaged {packing} archive: at byte {offset}, before its first line has ended, {problem}; get a whole copy"
    )]
    DamagedArchive {
        /// The input's name.
        file: String,
        /// What packs it.
        packing: &'static str,
        /// Bytes of the archive that were read.
        offset: u64,
        /// What is wrong with the next one.
        problem: String,
    },
    /// No format recognises the content of an input.
    #[error("{file}: no format recognises this content ({seen}); {remedy}; formats: {formats}")]
    UnknownFormat {
        /// The input's name.
        file: String,
        /// What was seen: the kind of text and the columns in it.
        seen: String,
        /// What to do about it.
        remedy: String,
        /// The formats that exist.
        formats: String,
    },
    /// The format that was asked for does not exist.
    #[error("no format is called `{name}`; formats: {formats}")]
    NoSuchFormat {
        /// The name that was given.
        name: String,
        /// The formats that exist.
        formats: String,
    },
    /// The format that was asked for cannot read this input.
    #[error("{file} cannot be read as {format}: {problem}")]
    WrongFormat {
        /// The input's name.
        file: String,
        /// The format's name.
        format: &'static str,
        /// What is missing.
        problem: String,
    },
    /// The column map is wrong in itself.
    #[error("the column map is wrong: {0}")]
    Map(#[from] MapError),
    /// The column map names a column that the input does not have.
    #[error("{file} has no column `{column}` (mapped to `{field}`); its columns: {available}")]
    NoSuchColumn {
        /// The input's name.
        file: String,
        /// The column that the map names.
        column: String,
        /// The timeline's field.
        field: String,
        /// The columns that exist.
        available: String,
    },
    /// A column that is needed stands twice in the header.
    #[error(
        "{file} has two columns `{column}`, at positions {first} and {second}, and which of them is meant cannot be told: \
         rename one in the header"
    )]
    DuplicateColumn {
        /// The input's name.
        file: String,
        /// The column.
        column: String,
        /// Its first position, from 1.
        first: usize,
        /// Its second position, from 1.
        second: usize,
    },
    /// The first line, from which the format would be told, is longer than a row may be.
    #[error(
        "{file}: the first line is longer than a row may be ({limit_bytes} bytes), so that the format cannot be told from \
         it; take that line out (tail -n +2), or name the format with --format (and --map): then JSON lines lose that row \
         alone"
    )]
    FirstLineTooLong {
        /// The input's name.
        file: String,
        /// Longest row, in bytes.
        limit_bytes: usize,
    },
    /// A number that is a time has no unit, and none can be told from it.
    #[error(
        "{file}: column `{column}` holds numbers without a unit: write `{field}={column}:ms` \
         (or s, us, ns, unix_s, unix_ms, unix_us, unix_ns)"
    )]
    NeedsUnit {
        /// The input's name.
        file: String,
        /// The column.
        column: String,
        /// The timeline's field.
        field: &'static str,
    },
    /// A time has no zone and no rule was given for it.
    #[error(
        "{file}, line {line}: the time in `{column}` has no zone: say which with --zone (UTC, +02:00, Europe/Berlin)"
    )]
    NeedsZone {
        /// The input's name.
        file: String,
        /// The row's first line.
        line: u64,
        /// The column.
        column: String,
    },
    /// A zone is not known.
    #[error(
        "no time zone is called `{zone}`: write UTC, an offset such as +02:00, or a name such as Europe/Berlin"
    )]
    NoSuchZone {
        /// The text that was given.
        zone: String,
    },
    /// Block hashes were mapped, but not how many tokens a block has.
    #[error("{file}: `prefix_hashes` is mapped but the block size is not known: give --block-tokens")]
    NeedsBlockTokens {
        /// The input's name.
        file: String,
    },
    /// Some inputs carry wall times and others count from their own start.
    #[error(
        "{relative} counts from its own start while {epoch} carries wall times: they cannot share one timeline"
    )]
    MixedEpochs {
        /// An input without an epoch.
        relative: String,
        /// An input with one.
        epoch: String,
    },
    /// The options contradict themselves.
    #[error("{0}")]
    Options(&'static str),
    /// Rows that wait to be sorted could not be kept in a temporary file.
    #[error(
        "cannot keep rows in a temporary file in {} while they are sorted (make room there, name another folder with \
         --temp-dir, or allow more memory with --memory): {source}",
        folder.display()
    )]
    Spill {
        /// The folder of the temporary file.
        folder: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The list of rejected rows could not be written.
    #[error("cannot write the list of rejected rows {}: {source}", path.display())]
    Rejects {
        /// Where it was to be.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The list of rejected rows would replace another file.
    #[error(
        "{} is no list of rejected rows and is not replaced: give the list another name",
        path.display()
    )]
    RejectsOccupied {
        /// Where it was to be.
        path: PathBuf,
    },
    /// Somebody stopped it.
    #[error("interrupted: nothing was written, import again")]
    Interrupted,
    /// The timeline could not be written.
    #[error("cannot write the timeline {}", path.display())]
    Write {
        /// Where it was to be.
        path: PathBuf,
        /// What the timeline's writer said.
        source: Box<TimelineError>,
    },
}
