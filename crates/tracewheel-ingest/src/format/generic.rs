//! Generic logs: CSV with a header, or a JSON object a line, with a column map. Without a map, columns that carry the
//! timeline's own names are taken as such.

use crate::column_map::ColumnMap;
use crate::error::IngestError;
use crate::fields::Field;
use crate::format::csv_rows::{self, CsvRows};
use crate::format::json_paths::listed;
use crate::format::jsonl_rows::{JsonlRows, objects};
use crate::format::{Format, RowReader};
use crate::reading::Reading;
use crate::source::Source;

const CSV: &str = "csv";
const JSONL: &str = "jsonl";
const MAP_IT: &str = "say which column is which with a map such as `arrival=ts,input_tokens=prompt_len,output_tokens=answer_len`";

pub(crate) struct GenericCsv;
pub(crate) struct GenericJsonl;

impl Format for GenericCsv {
    fn name(&self) -> &'static str {
        CSV
    }

    fn about(&self) -> &'static str {
        "CSV with a header, by a column map or by the timeline's own column names"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        looks_like(CSV, lines) && own_map(&csv_columns(lines)).is_some()
    }

    fn takes_map(&self) -> bool {
        true
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        let map = map_for(CSV, csv_columns(&source.head_lines()), reading)?;
        Ok(Box::new(CsvRows::open(source, map, reading)?))
    }
}

impl Format for GenericJsonl {
    fn name(&self) -> &'static str {
        JSONL
    }

    fn about(&self) -> &'static str {
        "a JSON object a line, by a column map (dotted paths) or by the timeline's own names"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        looks_like(JSONL, lines) && own_map(&json_columns(lines)).is_some()
    }

    fn takes_map(&self) -> bool {
        true
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        let map = map_for(JSONL, json_columns(&source.head_lines()), reading)?;
        Ok(Box::new(JsonlRows::open(source, map, reading)?))
    }
}

/// Whether the text is of the kind that a generic format reads.
pub(crate) fn looks_like(format: &str, lines: &[&[u8]]) -> bool {
    let is_document = lines.first().is_some_and(|line| line.starts_with(b"["));
    let is_json = !is_document && objects(lines).next().is_some();
    if format == JSONL {
        return is_json;
    }
    let is_text = |line: &[u8]| std::str::from_utf8(line).is_ok() && !line.contains(&0);
    !is_json
        && lines
            .first()
            .is_some_and(|header| is_text(header) && !header.starts_with(b"{") && !header.starts_with(b"["))
}

/// What a text that no format knows looks like, and what to do about it.
pub(crate) fn describe(lines: &[&[u8]]) -> (String, &'static str) {
    let Some(first) = lines.first() else {
        return ("no text".to_owned(), "name another file");
    };
    if looks_like(JSONL, lines) {
        return (format!("JSON lines with {}", json_columns(lines).join(", ")), MAP_IT);
    }
    if matches!(first.first(), Some(b'[' | b'{')) {
        return ("one JSON document".to_owned(), "put each request on a line of its own: jq -c '.[]' FILE");
    }
    let columns = csv_columns(lines);
    if columns.len() > 1 && looks_like(CSV, lines) {
        return (format!("CSV with the columns {}", columns.join(", ")), MAP_IT);
    }
    ("plain text or binary data".to_owned(), "turn it into CSV with a header or into JSON lines")
}

fn csv_columns(lines: &[&[u8]]) -> Vec<String> {
    lines.first().map(|header| csv_rows::columns(header)).unwrap_or_default()
}

fn json_columns(lines: &[&[u8]]) -> Vec<String> {
    listed(objects(lines))
}

fn own_map(columns: &[String]) -> Option<ColumnMap> {
    ColumnMap::from_columns(columns.iter().map(String::as_str))
}

fn map_for(
    format: &'static str,
    columns: Vec<String>,
    reading: &mut Reading<'_>,
) -> Result<ColumnMap, IngestError> {
    let file = reading.file.to_owned();
    let map = match &reading.options.map {
        Some(map) => map.clone(),
        None => own_map(&columns).ok_or_else(|| IngestError::WrongFormat {
            file: file.clone(),
            format,
            problem: format!(
                "no column says when requests started; {MAP_IT}; its columns: {}",
                columns.join(", ")
            ),
        })?,
    };
    let needs_blocks = map.has(Field::PrefixHashes) && !map.has(Field::PrefixBlockTokens);
    if needs_blocks && reading.block_tokens.is_none() {
        return Err(IngestError::NeedsBlockTokens { file });
    }
    Ok(map)
}
