//! Token counts that only a later logged attempt of a request knows.
//!
//! A request that was refused at first has no output in the log; the attempt that was served has. Both rows stand in
//! the timeline, the later one pointing at the first (`retry_of_row`), and the request is planned from the first row
//! with the counts of its latest attempt that knows them.

use std::collections::HashMap;

use tracewheel_timeline::Timeline;

use crate::WorkloadError;

/// What the logged retries of a timeline know, by the row of their request. Holds an entry a retried request.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedAttempts {
    by_row: HashMap<u64, Counts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    input: Option<u32>,
    output: Option<u32>,
}

impl LoggedAttempts {
    /// Reads three columns of the whole timeline: a retry may lie behind the end of a window.
    pub(crate) fn read(timeline: &Timeline) -> Result<Self, WorkloadError> {
        const COLUMNS: &[&str] = &["retry_of_row", "input_tokens", "output_tokens"];
        let mut by_row: HashMap<u64, Counts> = HashMap::new();
        for row in timeline.columns_in(0..timeline.num_rows(), COLUMNS) {
            let (_, row) = row?;
            let Some(first) = row.retry_of_row else { continue };
            let counts = by_row.entry(first).or_default();
            counts.input = row.input_tokens.filter(|tokens| *tokens > 0).or(counts.input);
            counts.output = row.output_tokens.filter(|tokens| *tokens > 0).or(counts.output);
        }
        Ok(Self { by_row })
    }

    /// Input tokens of the request at `row`, from its retries.
    pub(crate) fn input_tokens(&self, row: u64) -> Option<u32> {
        self.by_row.get(&row).and_then(|counts| counts.input)
    }

    /// Output tokens of the request at `row`, from its retries.
    pub(crate) fn output_tokens(&self, row: u64) -> Option<u32> {
        self.by_row.get(&row).and_then(|counts| counts.output)
    }
}
