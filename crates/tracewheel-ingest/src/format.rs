//! The formats, one file each. A new one is a file here and a line in [`FORMATS`].

mod azure_2023;
mod azure_2024;
mod azure_multimodal;
mod burstgpt;
mod csv_rows;
mod generic;
mod json_paths;
mod jsonl_rows;
mod mooncake;
mod published;
mod vidur;

use crate::column_map::ColumnMap;
use crate::error::IngestError;
use crate::options::IngestOptions;
use crate::reading::{Reading, Step};
use crate::source::Source;

/// A log format.
pub(crate) trait Format: Sync {
    /// Its name, as `--format` takes it.
    fn name(&self) -> &'static str;

    /// What it is, in a line.
    fn about(&self) -> &'static str;

    /// Whether these first lines are of this format. The file's name is never looked at.
    fn sniff(&self, lines: &[&[u8]]) -> bool;

    /// Whether a column map says what its columns mean.
    fn takes_map(&self) -> bool {
        false
    }

    /// Tokens a block of its `prefix_hashes`, where the format says.
    fn block_tokens(&self) -> Option<u32> {
        None
    }

    /// Begins to read.
    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError>;
}

/// The rows of one input, in its order.
pub(crate) trait RowReader {
    /// The next row, kept or rejected. An error is one of the import, not of a row.
    fn next(&mut self, reading: &mut Reading<'_>) -> Result<Step, IngestError>;

    /// Lines and bytes read so far.
    fn consumed(&self) -> (u64, u64);

    /// The column map in use, where there is one.
    fn map(&self) -> Option<&ColumnMap> {
        None
    }

    /// Mapped columns that no row had, where rows need not have all; `None` where that cannot be.
    fn missing(&self) -> Option<MissingColumns> {
        None
    }
}

/// Mapped columns that a file's rows do not have.
#[derive(Debug, Clone)]
pub(crate) struct MissingColumns {
    /// Field and column.
    pub(crate) columns: Vec<(String, String)>,
    /// What the rows have.
    pub(crate) available: String,
}

/// Names of columns that an error lists.
const SHOWN_COLUMNS: usize = 30;

/// Every format. The first whose `sniff` says yes is taken, so the narrow ones come first.
static FORMATS: &[&dyn Format] = &[
    &azure_2024::Azure2024,
    &azure_2023::Azure2023,
    &azure_multimodal::AzureMultimodal,
    &burstgpt::BurstGpt,
    &vidur::Vidur,
    &mooncake::Mooncake,
    &generic::GenericJsonl,
    &generic::GenericCsv,
];

/// The formats that [`ingest`](crate::ingest) reads: name and description.
pub fn formats() -> impl Iterator<Item = (&'static str, &'static str)> {
    FORMATS.iter().map(|format| (format.name(), format.about()))
}

/// The format of an input: the one that was asked for, else the one that its content shows.
pub(crate) fn choose(source: &Source, options: &IngestOptions) -> Result<&'static dyn Format, IngestError> {
    if let Some(name) = &options.format {
        let found = FORMATS.iter().find(|format| format.name() == name);
        let format =
            found.ok_or_else(|| IngestError::NoSuchFormat { name: name.clone(), formats: names() })?;
        if options.map.is_some() && !format.takes_map() {
            return Err(IngestError::Options(
                "a column map was given together with a format that has none: leave one of them out",
            ));
        }
        return Ok(*format);
    }
    let lines = source.head_lines();
    if lines.is_empty() && source.begins_with_a_line_longer_than(options.max_row_bytes) {
        let limit_bytes = options.max_row_bytes;
        return Err(IngestError::FirstLineTooLong { file: source.name.clone(), limit_bytes });
    }
    let mapped = options.map.is_some();
    let sniffed = FORMATS.iter().find(|format| {
        if mapped {
            format.takes_map() && generic::looks_like(format.name(), &lines)
        } else {
            format.sniff(&lines)
        }
    });
    sniffed.copied().ok_or_else(|| {
        let (seen, remedy) = generic::describe(&lines);
        IngestError::UnknownFormat { file: source.name.clone(), seen, remedy, formats: names() }
    })
}

/// The names of columns for an error: the first thirty, and how many there are besides.
pub(crate) fn some_of(columns: &[impl AsRef<str>]) -> String {
    let shown: Vec<&str> = columns.iter().take(SHOWN_COLUMNS).map(AsRef::as_ref).collect();
    match columns.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn names() -> String {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name()).collect();
    names.join(", ")
}
