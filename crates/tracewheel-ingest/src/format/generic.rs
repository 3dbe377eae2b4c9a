//! Generic logs: CSV with a header, or a JSON object a line, with a column map. Without a map, columns that carry the
//! timeline's own names are taken as such, and those that carry a name which other tools give them where their values
//! bear it out.

use crate::aliases::{Guess, Sample};
use crate::column_map::ColumnMap;
use crate::error::IngestError;
use crate::fields::Field;
use crate::format::csv_rows::{self, CsvRows};
use crate::format::jsonl_rows::{self, JsonlRows, objects};
use crate::format::{Format, RowReader, some_of};
use crate::reading::{NamedColumns, Reading};
use crate::source::Source;

const CSV: &str = "csv";
const JSONL: &str = "jsonl";
const MAP_IT: &str = "say which column is which with a map such as --map 'arrival=ts,input_tokens=prompt_len,output_tokens=answer_len'";

pub(crate) struct GenericCsv;
pub(crate) struct GenericJsonl;

impl Format for GenericCsv {
    fn name(&self) -> &'static str {
        CSV
    }

    fn about(&self) -> &'static str {
        "CSV with a header, by a column map or by the columns' names"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        looks_like(CSV, lines) && Named::of(&csv_rows::sample(lines)).map().is_some()
    }

    fn takes_map(&self) -> bool {
        true
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        let map = map_for(CSV, &csv_rows::sample(&source.head_lines()), reading)?;
        Ok(Box::new(CsvRows::open(source, map, reading)?))
    }
}

impl Format for GenericJsonl {
    fn name(&self) -> &'static str {
        JSONL
    }

    fn about(&self) -> &'static str {
        "a JSON object a line, by a column map (dotted paths) or by the names in it"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        looks_like(JSONL, lines) && Named::of(&jsonl_rows::sample(lines)).map().is_some()
    }

    fn takes_map(&self) -> bool {
        true
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        let map = map_for(JSONL, &jsonl_rows::sample(&source.head_lines()), reading)?;
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
pub(crate) fn describe(lines: &[&[u8]]) -> (String, String) {
    let Some(first) = lines.first() else {
        return ("no text".to_owned(), "name another file".to_owned());
    };
    if looks_like(JSONL, lines) {
        let sample = jsonl_rows::sample(lines);
        return (format!("JSON lines with {}", some_of(&sample.columns)), Named::of(&sample).remedy());
    }
    if matches!(first.first(), Some(b'[' | b'{')) {
        let remedy = "put each request on a line of its own: jq -c '.[]' FILE".to_owned();
        return ("one JSON document".to_owned(), remedy);
    }
    let sample = csv_rows::sample(lines);
    if sample.columns.len() > 1 && looks_like(CSV, lines) {
        return (format!("CSV with the columns {}", some_of(&sample.columns)), Named::of(&sample).remedy());
    }
    ("plain text or binary data".to_owned(), "turn it into CSV with a header or into JSON lines".to_owned())
}

/// What the names of the columns tell.
struct Named {
    /// The timeline's own names.
    own: Vec<String>,
    guess: Guess,
}

impl Named {
    fn of(sample: &Sample) -> Self {
        let own = ColumnMap::own_columns(sample.columns.iter().map(String::as_str));
        Self { guess: Guess::of(sample, Some(&own)), own: own.entries() }
    }

    fn map(&self) -> Option<ColumnMap> {
        self.guess.map(&self.own)
    }

    /// How to say what the names do not.
    fn remedy(&self) -> String {
        match self.guess.offer(&self.own) {
            Some(map) if map.parse::<ColumnMap>().is_ok() => {
                format!(
                    "say which column is which: --map '{map}' (guessed from the names: check it, its units too)"
                )
            }
            Some(map) => format!(
                "say when requests started: --map 'arrival=COLUMN,{map}' (the rest is guessed from the names: check it)"
            ),
            None => MAP_IT.to_owned(),
        }
    }
}

fn map_for(
    format: &'static str,
    sample: &Sample,
    reading: &mut Reading<'_>,
) -> Result<ColumnMap, IngestError> {
    let file = reading.file.to_owned();
    let map = match &reading.options.map {
        Some(map) => map.clone(),
        None => {
            let named = Named::of(sample);
            let map = named.map().ok_or_else(|| IngestError::WrongFormat {
                file: file.clone(),
                format,
                problem: format!(
                    "no column says when requests started; {}; its columns: {}",
                    named.remedy(),
                    sample.columns.join(", ")
                ),
            })?;
            let Guess { sure: taken, doubtful: left } = named.guess;
            reading.tally.named = Some(NamedColumns { taken, left });
            map
        }
    };
    let needs_blocks = map.has(Field::PrefixHashes) && !map.has(Field::PrefixBlockTokens);
    if needs_blocks && reading.block_tokens.is_none() {
        return Err(IngestError::NeedsBlockTokens { file });
    }
    Ok(map)
}
