//! Rows of a CSV file with a header and a column map.

use std::io::Read;

use crate::aliases::Sample;
use crate::binding::Column;
use crate::cells::Cell;
use crate::column_map::ColumnMap;
use crate::draft::{Draft, Place};
use crate::error::IngestError;
use crate::format::{RowReader, some_of};
use crate::reading::{CellProblem, Reading, Rejection, Step};
use crate::records::{Cells, Record, RecordReader, delimiter_of};
use crate::report::RejectReason;
use crate::source::Source;

/// Reads one CSV file.
pub(crate) struct CsvRows {
    records: RecordReader<Box<dyn Read + Send>>,
    map: ColumnMap,
    /// Mapped columns with their position.
    columns: Vec<(usize, Column)>,
    header: Vec<String>,
}

impl CsvRows {
    /// Reads the header and finds the map's columns in it.
    pub(crate) fn open(
        source: Source,
        map: ColumnMap,
        reading: &mut Reading<'_>,
    ) -> Result<Self, IngestError> {
        let delimiter = source.head_lines().first().map_or(b',', |header| delimiter_of(header));
        let (file, offset) = (source.name.clone(), source.offset);
        let from: Box<dyn Read + Send> = Box::new(source.into_reader());
        let mut records = RecordReader::new(from, delimiter, offset, reading.options.max_row_bytes);
        let header = read_header(&mut records, reading)?;
        let mut columns = Vec::new();
        for column in Column::of(&map) {
            let name = &column.binding.column;
            let at =
                header.iter().position(|cell| cell == name).ok_or_else(|| IngestError::NoSuchColumn {
                    file: file.clone(),
                    column: name.clone(),
                    field: column.binding.name.clone(),
                    available: some_of(&header),
                })?;
            if let Some(behind) = header[at + 1..].iter().position(|cell| cell == name) {
                let (first, second) = (at + 1, at + 2 + behind);
                return Err(IngestError::DuplicateColumn { file, column: name.clone(), first, second });
            }
            columns.push((at, column));
        }
        Ok(Self { records, map, columns, header })
    }
}

impl RowReader for CsvRows {
    fn next(&mut self, reading: &mut Reading<'_>) -> Result<Step, IngestError> {
        let Self { records, columns, header, .. } = self;
        loop {
            let record = records.next_record(Some(header.len()));
            let reject = |place, reason| Ok(Step::Rejected(Rejection::new(place, reason)));
            match record.map_err(|source| read_error(reading, source))? {
                None => return Ok(Step::End),
                Some(Record::Blank) => reading.tally.blank_lines += 1,
                Some(Record::Unclosed(place)) => return reject(place, RejectReason::UnclosedQuote),
                Some(Record::WrongCount(place)) => return reject(place, RejectReason::WrongCellCount),
                Some(Record::TooLong(place)) => return reject(place, RejectReason::RowTooLong),
                Some(Record::Whole(place, cells)) => {
                    let step = row(place, cells, columns, reading)?;
                    if matches!(step, Step::Rejected(_)) && is_header(cells, header) {
                        // Several files, one behind the other.
                        reading.tally.repeated_headers += 1;
                        continue;
                    }
                    return Ok(step);
                }
            }
        }
    }

    fn consumed(&self) -> (u64, u64) {
        (self.records.lines(), self.records.offset())
    }

    fn map(&self) -> Option<&ColumnMap> {
        Some(&self.map)
    }
}

/// The names in a header line.
pub(crate) fn columns(header: &[u8]) -> Vec<String> {
    let mut records = RecordReader::new(header, delimiter_of(header), 0, header.len());
    match records.next_record(None) {
        Ok(Some(Record::Whole(_, cells))) => names(cells),
        _ => Vec::new(),
    }
}

/// The first rows, by column.
pub(crate) fn sample(lines: &[&[u8]]) -> Sample {
    let Some((header, rows)) = lines.split_first() else { return Sample::default() };
    let mut sample = Sample::new(columns(header));
    for row in rows {
        let mut records = RecordReader::new(*row, delimiter_of(header), 0, row.len());
        if let Ok(Some(Record::Whole(_, cells))) = records.next_record(Some(sample.columns.len())) {
            for (at, cell) in cells.iter().enumerate() {
                if let Ok(cell) = Cell::from_csv(cell) {
                    sample.add(at, &cell);
                }
            }
        }
    }
    sample
}

fn names(cells: Cells<'_>) -> Vec<String> {
    cells.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect()
}

fn is_header(cells: Cells<'_>, header: &[String]) -> bool {
    cells.iter().zip(header).all(|(cell, name)| cell.trim_ascii() == name.as_bytes())
}

fn read_header<R: Read>(
    records: &mut RecordReader<R>,
    reading: &mut Reading<'_>,
) -> Result<Vec<String>, IngestError> {
    loop {
        match records.next_record(None).map_err(|source| read_error(reading, source))? {
            None => return Ok(Vec::new()),
            Some(Record::Blank) => reading.tally.blank_lines += 1,
            Some(Record::Whole(_, cells)) => return Ok(names(cells)),
            Some(Record::WrongCount(_) | Record::Unclosed(_) | Record::TooLong(_)) => {
                let problem =
                    "its first line is no header: too long, or with a quote that nothing closes".to_owned();
                return Err(IngestError::WrongFormat {
                    file: reading.file.to_owned(),
                    format: "csv",
                    problem,
                });
            }
        }
    }
}

fn row(
    place: Place,
    cells: Cells<'_>,
    columns: &mut [(usize, Column)],
    reading: &mut Reading<'_>,
) -> Result<Step, IngestError> {
    let mut draft = Box::new(Draft::at(place));
    for (at, column) in columns {
        let taken = Cell::from_csv(cells.get(*at))
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

fn read_error(reading: &Reading<'_>, source: std::io::Error) -> IngestError {
    IngestError::Read { file: reading.file.to_owned(), source }
}
