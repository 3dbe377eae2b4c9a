//! The Azure LLM inference traces of 2023 (Splitwise): `TIMESTAMP,ContextTokens,GeneratedTokens`.
//!
//! Times have seven fraction digits and no zone. They are taken as UTC: the publisher says no zone, and only
//! differences matter to a replay. A file of two rows or a cut without rows is told by its header alone.

use crate::error::IngestError;
use crate::format::published::Header;
use crate::format::{Format, RowReader};
use crate::reading::Reading;
use crate::source::Source;

/// The header that the releases of 2023 and 2024 share.
pub(crate) const HEADER: Header = Header {
    needed: &[
        ("TIMESTAMP", "arrival"),
        ("ContextTokens", "input_tokens"),
        ("GeneratedTokens", "output_tokens"),
    ],
    optional: &[],
    passed_over: &[],
};

/// Why naive times of these data sets are read as UTC.
pub(crate) const NO_ZONE: &str = "published data set whose times carry no zone";

pub(crate) struct Azure2023;

impl Format for Azure2023 {
    fn name(&self) -> &'static str {
        "azure-llm-2023"
    }

    fn about(&self) -> &'static str {
        "Azure LLM inference traces of 2023 (CSV: TIMESTAMP without a zone, ContextTokens, GeneratedTokens)"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        HEADER.begins(lines)
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        reading.clock.assume_utc(NO_ZONE);
        Ok(Box::new(HEADER.open(self.name(), source, reading)?))
    }
}
