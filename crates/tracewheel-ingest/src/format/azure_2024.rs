//! The Azure LLM inference traces of 2024 (DynamoLLM): the columns of 2023, but times with an offset.
//!
//! One file writes `2024-05-12 00:00:00.001163+00:00` and, where a request came on a whole second,
//! `2024-05-12 00:00:00+00:00`: each row has the precision of its own text.

use crate::error::IngestError;
use crate::format::azure_2023::{HEADER, NO_ZONE};
use crate::format::{Format, RowReader, csv_rows};
use crate::reading::Reading;
use crate::source::Source;
use crate::stamps;

pub(crate) struct Azure2024;

impl Format for Azure2024 {
    fn name(&self) -> &'static str {
        "azure-llm-2024"
    }

    fn about(&self) -> &'static str {
        "Azure LLM inference traces of 2024 (CSV: TIMESTAMP with an offset, ContextTokens, GeneratedTokens)"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        let zoned = |line: &&[u8]| csv_rows::columns(line).iter().any(|cell| stamps::carries_zone(cell));
        HEADER.begins(lines) && lines[1..].iter().any(zoned)
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        reading.clock.assume_utc(NO_ZONE);
        Ok(Box::new(HEADER.open(self.name(), source, reading)?))
    }
}
