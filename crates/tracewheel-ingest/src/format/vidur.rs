//! Vidur's processed traces: `arrived_at,num_prefill_tokens,num_decode_tokens`, seconds from the first request.

use crate::error::IngestError;
use crate::format::published::Header;
use crate::format::{Format, RowReader};
use crate::reading::Reading;
use crate::source::Source;

const HEADER: Header = Header {
    needed: &[
        ("arrived_at", "arrival:s"),
        ("num_prefill_tokens", "input_tokens"),
        ("num_decode_tokens", "output_tokens"),
    ],
    optional: &[],
    passed_over: &["num_total_tokens", "pd_ratio"],
};

pub(crate) struct Vidur;

impl Format for Vidur {
    fn name(&self) -> &'static str {
        "vidur"
    }

    fn about(&self) -> &'static str {
        "Vidur traces (CSV: arrived_at in s, num_prefill_tokens, num_decode_tokens)"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        HEADER.begins(lines)
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        Ok(Box::new(HEADER.open(self.name(), source, reading)?))
    }
}
