//! The Azure multimodal inference trace of 2025 (ModServe): `TIMESTAMP,NumImages,ContextTokens,GeneratedTokens`, times
//! in ISO 8601 with `T`, milliseconds and `Z`.

use crate::error::IngestError;
use crate::format::azure_2023::NO_ZONE;
use crate::format::published::Header;
use crate::format::{Format, RowReader};
use crate::reading::Reading;
use crate::source::Source;

const HEADER: Header = Header {
    needed: &[
        ("TIMESTAMP", "arrival"),
        ("NumImages", "images"),
        ("ContextTokens", "input_tokens"),
        ("GeneratedTokens", "output_tokens"),
    ],
    optional: &[],
    passed_over: &[],
};

pub(crate) struct AzureMultimodal;

impl Format for AzureMultimodal {
    fn name(&self) -> &'static str {
        "azure-multimodal-2025"
    }

    fn about(&self) -> &'static str {
        "Azure multimodal inference trace of 2025 (CSV: TIMESTAMP, NumImages, ContextTokens, GeneratedTokens)"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        HEADER.begins(lines)
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        reading.clock.assume_utc(NO_ZONE);
        Ok(Box::new(HEADER.open(self.name(), source, reading)?))
    }
}
