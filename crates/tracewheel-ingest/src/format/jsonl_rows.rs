//! Rows of a file with a JSON object a line and a column map.

use std::io::{BufReader, Read};

use crate::aliases::Sample;
use crate::binding::Column;
use crate::cells::Cell;
use crate::column_map::ColumnMap;
use crate::draft::{Draft, Place};
use crate::error::IngestError;
use crate::fields::Field;
use crate::format::json_paths::{Paths, listed};
use crate::format::{MissingColumns, RowReader, some_of};
use crate::lines::{Line, LineReader};
use crate::reading::{CellProblem, Reading, Rejection, Step};
use crate::report::RejectReason;
use crate::source::Source;

/// The lines of a text input.
pub(crate) type Lines = LineReader<BufReader<Box<dyn Read + Send>>>;

/// Reads one file.
pub(crate) struct JsonlRows {
    lines: Lines,
    map: ColumnMap,
    columns: Vec<Column>,
    paths: Paths,
    /// Columns that some row had, in the order of `columns`.
    seen: Vec<bool>,
    any_row: bool,
    /// What the first rows have, for the error about a column that none has.
    available: String,
}

impl JsonlRows {
    /// Finds the map's start column in the first rows; other columns may turn up later.
    pub(crate) fn open(source: Source, map: ColumnMap, reading: &Reading<'_>) -> Result<Self, IngestError> {
        let columns = Column::of(&map);
        let paths = Paths::new(columns.iter().map(|column| column.binding.column.as_str()));
        let head = objects(&source.head_lines()).map(str::to_owned).collect::<Vec<_>>();
        let mut rows = Self {
            lines: open_lines(source, reading),
            seen: vec![false; columns.len()],
            any_row: false,
            available: some_of(&listed(head.iter().map(String::as_str))),
            map,
            columns,
            paths,
        };
        rows.look_for_start(&head, reading)?;
        Ok(rows)
    }

    fn look_for_start(&mut self, head: &[String], reading: &Reading<'_>) -> Result<(), IngestError> {
        let found: Vec<_> = head.iter().filter_map(|line| self.paths.find(line)).collect();
        let starts = self.columns.iter().enumerate().filter(|(_, column)| {
            matches!(column.binding.field, Field::Arrival | Field::End | Field::LogWrite)
        });
        let missing: Vec<usize> = starts
            .clone()
            .map(|(at, _)| at)
            .filter(|at| !found.iter().any(|row| row[*at].is_some()))
            .collect();
        match missing.first() {
            Some(at) if !found.is_empty() && missing.len() == starts.count() => {
                Err(self.no_such_column(*at, reading))
            }
            _ => Ok(()),
        }
    }

    fn no_such_column(&self, at: usize, reading: &Reading<'_>) -> IngestError {
        let binding = &self.columns[at].binding;
        IngestError::NoSuchColumn {
            file: reading.file.to_owned(),
            column: binding.column.clone(),
            field: binding.name.clone(),
            available: self.available.clone(),
        }
    }
}

impl RowReader for JsonlRows {
    fn next(&mut self, reading: &mut Reading<'_>) -> Result<Step, IngestError> {
        let Self { lines, columns, paths, seen, .. } = self;
        let (place, text) = match next_text(lines, reading)? {
            NextText::Text(place, text) => (place, text),
            NextText::Rejected(rejection) => return Ok(Step::Rejected(rejection)),
            NextText::End => return Ok(Step::End),
        };
        let Some(values) = paths.find(text) else {
            return Ok(Step::Rejected(Rejection::new(place, RejectReason::NotJson)));
        };
        self.any_row = true;
        let mut draft = Box::new(Draft::at(place));
        for ((column, seen), raw) in columns.iter_mut().zip(seen).zip(values) {
            let Some(raw) = raw else { continue };
            *seen = true;
            let taken = Cell::from_json(raw)
                .map_err(CellProblem::Reject)
                .and_then(|cell| column.take(&cell, &mut draft, reading));
            match taken {
                Ok(()) => {}
                Err(CellProblem::Import(error)) => return Err(*error),
                Err(CellProblem::Reject(reason)) => {
                    return Ok(Step::Rejected(Rejection::in_column(place, reason, &column.binding.column)));
                }
            }
        }
        Ok(Step::Row(draft))
    }

    fn consumed(&self) -> (u64, u64) {
        (self.lines.lines(), self.lines.offset())
    }

    fn map(&self) -> Option<&ColumnMap> {
        Some(&self.map)
    }

    fn missing(&self) -> Option<MissingColumns> {
        let unseen = self.columns.iter().zip(&self.seen).filter(|(_, seen)| !**seen);
        let columns = unseen.map(|(column, _)| (column.binding.name.clone(), column.binding.column.clone()));
        self.any_row.then(|| MissingColumns { columns: columns.collect(), available: self.available.clone() })
    }
}

/// The next line that is not blank.
pub(crate) enum NextText<'a> {
    Text(Place, &'a str),
    Rejected(Rejection),
    End,
}

/// The lines of an input, bounded as the options say.
pub(crate) fn open_lines(source: Source, reading: &Reading<'_>) -> Lines {
    let offset = source.offset;
    let from: Box<dyn Read + Send> = Box::new(source.into_reader());
    LineReader::new(BufReader::with_capacity(64 << 10, from), offset, reading.options.max_row_bytes)
}

/// Reads up to the next line that is not blank.
pub(crate) fn next_text<'a>(
    lines: &'a mut Lines,
    reading: &mut Reading<'_>,
) -> Result<NextText<'a>, IngestError> {
    loop {
        let read = lines.advance();
        if !read.map_err(|source| IngestError::Read { file: reading.file.to_owned(), source })? {
            return Ok(NextText::End);
        }
        if !lines.is_blank() {
            break;
        }
        reading.tally.blank_lines += 1;
    }
    Ok(match lines.current() {
        Line::TooLong(place) => NextText::Rejected(Rejection::new(place, RejectReason::RowTooLong)),
        Line::Whole(place, bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => NextText::Text(place, text),
            Err(_) => NextText::Rejected(Rejection::new(place, RejectReason::InvalidUtf8)),
        },
    })
}

/// The first rows, by dotted path.
pub(crate) fn sample(lines: &[&[u8]]) -> Sample {
    let mut sample = Sample::new(listed(objects(lines)));
    let paths = Paths::new(sample.columns.iter().map(String::as_str).collect::<Vec<_>>());
    for values in objects(lines).filter_map(|line| paths.find(line)) {
        for (at, raw) in values.into_iter().enumerate() {
            if let Some(Ok(cell)) = raw.map(Cell::from_json) {
                sample.add(at, &cell);
            }
        }
    }
    sample
}

/// Those lines that are JSON objects.
pub(crate) fn objects<'a>(lines: &'a [&'a [u8]]) -> impl Iterator<Item = &'a str> {
    let nothing = Paths::default();
    lines
        .iter()
        .filter_map(|line| std::str::from_utf8(line).ok())
        .filter(move |line| nothing.find(line).is_some())
}
