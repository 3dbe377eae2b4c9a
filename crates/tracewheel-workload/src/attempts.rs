//! Token counts that only a later logged attempt of a request knows.
//!
//! A request that was refused at first has no output in the log; the attempt that was served has. Both rows stand in
//! the timeline, the later one pointing at the first (`retry_of_row`), and the request is planned from the first row
//! with the counts of its latest attempt that knows them.

use tracewheel_timeline::Timeline;

use crate::WorkloadError;

/// What the logged retries of a timeline know and their requests do not, by the row of the request: 16 bytes for each
/// such request.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoggedAttempts {
    /// Sorted by row, one entry a row.
    learned: Vec<Learned>,
}

/// Zero is unknown.
#[derive(Clone, Copy, Debug)]
struct Learned {
    row: u64,
    input: u32,
    output: u32,
}

impl LoggedAttempts {
    /// Reads three columns of the whole timeline, because a retry may lie behind the end of a window; nothing where the
    /// file says that it holds no retry.
    pub(crate) fn read(timeline: &Timeline) -> Result<Self, WorkloadError> {
        const COLUMNS: &[&str] = &["retry_of_row", "input_tokens", "output_tokens"];
        if !timeline.may_have_values("retry_of_row") {
            return Ok(Self::default());
        }
        let mut lacking = Rows::new(timeline.num_rows());
        let mut learned = Vec::new();
        for row in timeline.columns_in(0..timeline.num_rows(), COLUMNS) {
            let (position, row) = row?;
            let (input, output) = (row.input_tokens.unwrap_or(0), row.output_tokens.unwrap_or(0));
            match row.retry_of_row {
                None if input == 0 || output == 0 => lacking.add(position),
                None => {}
                Some(first) if lacking.has(first) && (input > 0 || output > 0) => {
                    learned.push(Learned { row: first, input, output });
                }
                Some(_) => {}
            }
        }
        Ok(Self::of(learned))
    }

    /// Of what was learned, in the order of the attempts.
    fn of(mut learned: Vec<Learned>) -> Self {
        learned.sort_by_key(|learned| learned.row);
        learned.dedup_by(|later, earlier| {
            let same = later.row == earlier.row;
            if same {
                earlier.input = if later.input > 0 { later.input } else { earlier.input };
                earlier.output = if later.output > 0 { later.output } else { earlier.output };
            }
            same
        });
        learned.shrink_to_fit();
        Self { learned }
    }

    /// Input tokens of the request at `row`, from its retries.
    pub(crate) fn input_tokens(&self, row: u64) -> Option<u32> {
        self.of_row(row).map(|learned| learned.input).filter(|tokens| *tokens > 0)
    }

    /// Output tokens of the request at `row`, from its retries.
    pub(crate) fn output_tokens(&self, row: u64) -> Option<u32> {
        self.of_row(row).map(|learned| learned.output).filter(|tokens| *tokens > 0)
    }

    fn of_row(&self, row: u64) -> Option<&Learned> {
        let at = self.learned.binary_search_by_key(&row, |learned| learned.row).ok()?;
        Some(&self.learned[at])
    }
}

/// A bit a row.
struct Rows(Vec<u64>);

impl Rows {
    fn new(rows: u64) -> Self {
        Rows(vec![0; rows.div_ceil(64) as usize])
    }

    fn add(&mut self, row: u64) {
        self.0[(row / 64) as usize] |= 1 << (row % 64);
    }

    fn has(&self, row: u64) -> bool {
        self.0.get((row / 64) as usize).is_some_and(|word| word & (1 << (row % 64)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_attempt_that_knows_a_count_is_believed() {
        let learned = [(7, 0, 5), (3, 10, 0), (7, 4, 0), (3, 11, 2), (7, 0, 6)]
            .map(|(row, input, output)| Learned { row, input, output });
        let attempts = LoggedAttempts::of(learned.to_vec());
        assert_eq!((attempts.input_tokens(3), attempts.output_tokens(3)), (Some(11), Some(2)));
        assert_eq!((attempts.input_tokens(7), attempts.output_tokens(7)), (Some(4), Some(6)));
        assert_eq!((attempts.input_tokens(5), attempts.output_tokens(8)), (None, None));
        assert_eq!(attempts.learned.len(), 2);
    }
}
