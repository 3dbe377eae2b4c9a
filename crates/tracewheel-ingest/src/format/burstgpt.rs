//! BurstGPT: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type`; the third release inserts
//! `Session ID` and `Elapsed time` second and third and writes `Timestamp` with `.0`.
//!
//! `Timestamp` counts seconds from midnight of the publisher's day one in an unnamed local zone: there is no epoch.
//!
//! A row with 0 response tokens is a failed request, as the publisher says. It was offered load, so it is kept, with
//! `prod_error` set. Its output is unknown, not 0: what it would have been is recorded nowhere. Its input is unknown
//! where that is 0 too, since no request has an empty prompt. Which error it was is not recorded: there is no status.

use crate::column_map::ColumnMap;
use crate::draft::Draft;
use crate::error::IngestError;
use crate::format::csv_rows::CsvRows;
use crate::format::published::Header;
use crate::format::{Format, MissingColumns, RowReader};
use crate::reading::{Reading, Step};
use crate::source::Source;

const HEADER: Header = Header {
    needed: &[
        ("Timestamp", "arrival:s"),
        ("Model", "model"),
        ("Request tokens", "input_tokens"),
        ("Response tokens", "output_tokens"),
        ("Log Type", "tags.log_type"),
    ],
    optional: &[("Session ID", "session"), ("Elapsed time", "e2e:s")],
    passed_over: &["Total tokens"],
};

/// The error class of a failure of which nothing else is known.
const FAILED: &str = "failed";

pub(crate) struct BurstGpt;

/// Rows whose failures are told from their counts.
struct BurstRows(CsvRows);

impl Format for BurstGpt {
    fn name(&self) -> &'static str {
        "burstgpt"
    }

    fn about(&self) -> &'static str {
        "BurstGPT traces (CSV of 6 columns, or of 8 with Session ID and Elapsed time; Timestamp in s)"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        HEADER.begins(lines)
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        Ok(Box::new(BurstRows(HEADER.open(self.name(), source, reading)?)))
    }
}

impl RowReader for BurstRows {
    fn next(&mut self, reading: &mut Reading<'_>) -> Result<Step, IngestError> {
        let mut step = self.0.next(reading)?;
        if let Step::Row(draft) = &mut step {
            mark_failure(draft, reading);
        }
        Ok(step)
    }

    fn consumed(&self) -> (u64, u64) {
        self.0.consumed()
    }

    fn map(&self) -> Option<&ColumnMap> {
        self.0.map()
    }

    fn missing(&self) -> Option<MissingColumns> {
        self.0.missing()
    }
}

fn mark_failure(draft: &mut Draft, reading: &mut Reading<'_>) {
    let row = &mut draft.row;
    if row.output_tokens == Some(0) {
        row.output_tokens = None;
        row.input_tokens = row.input_tokens.filter(|tokens| *tokens > 0);
        row.prod_error = Some(reading.tally.words.share(FAILED));
    }
}
