//! The Azure public LLM inference traces: `TIMESTAMP,ContextTokens,GeneratedTokens`.
//!
//! The release of 2023 writes seven fraction digits and no zone; those of 2024 and 2025 write an offset or `Z`, and
//! the multimodal one a count of images besides. All are read here. The naive times are taken as UTC: the publisher
//! says no zone, and only differences matter to a replay.

use crate::column_map::ColumnMap;
use crate::error::IngestError;
use crate::format::csv_rows::{self, CsvRows};
use crate::format::{Format, RowReader};
use crate::reading::Reading;
use crate::source::Source;

/// Columns by field, and whether each must be there.
const COLUMNS: [(&str, &str, bool); 4] = [
    ("arrival", "TIMESTAMP", true),
    ("input_tokens", "ContextTokens", true),
    ("output_tokens", "GeneratedTokens", true),
    ("images", "NumImages", false),
];

pub(crate) struct AzureLlm2023;

impl Format for AzureLlm2023 {
    fn name(&self) -> &'static str {
        "azure-llm-2023"
    }

    fn about(&self) -> &'static str {
        "Azure public LLM inference traces (CSV: TIMESTAMP, ContextTokens, GeneratedTokens)"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        lines.first().is_some_and(|header| map_of(&csv_rows::columns(header)).is_some())
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        reading.clock.assume_utc("published data set whose times carry no zone");
        let columns = source.head_lines().first().map(|header| csv_rows::columns(header)).unwrap_or_default();
        let map = map_of(&columns).ok_or_else(|| IngestError::WrongFormat {
            file: source.name.clone(),
            format: self.name(),
            problem: format!(
                "its first line is not TIMESTAMP,ContextTokens,GeneratedTokens but {}",
                columns.join(",")
            ),
        })?;
        Ok(Box::new(CsvRows::open(source, map, reading)?))
    }
}

fn map_of(columns: &[String]) -> Option<ColumnMap> {
    let has = |name: &str| columns.iter().any(|column| column == name);
    let known = |column: &String| COLUMNS.iter().any(|(_, name, _)| name == column);
    if !columns.iter().all(known) || COLUMNS.iter().any(|(_, name, needed)| *needed && !has(name)) {
        return None;
    }
    let present = COLUMNS.iter().filter(|(_, name, _)| has(name));
    let entries: Vec<String> = present.map(|(field, name, _)| format!("{field}={name}")).collect();
    entries.join(",").parse().ok()
}
