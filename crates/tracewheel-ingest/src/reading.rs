//! What every format's reader shares while one file is read: rules, key, clock and tally.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tracewheel_timeline::RequestRow;

use crate::draft::{Draft, Place};
use crate::error::IngestError;
use crate::identity::IdKey;
use crate::options::IngestOptions;
use crate::report::{CountRule, RejectReason};
use crate::stamps::{FileClock, StampProblem};

/// Texts beyond this number are not shared: a column of unlike texts must not grow a table.
const MOST_WORDS: usize = 4096;

/// The state of one file's reading.
pub(crate) struct Reading<'a> {
    pub(crate) file: &'a str,
    pub(crate) options: &'a IngestOptions,
    pub(crate) key: &'a IdKey,
    /// Tokens a block of `prefix_hashes`, where the format or the caller says.
    pub(crate) block_tokens: Option<u32>,
    pub(crate) clock: FileClock,
    pub(crate) tally: Tally,
    pub(crate) spare: Spare,
}

/// What a row leaves behind when it is packed, for the next one. A row is too large for an allocator's quick ways.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    draft: Option<Box<Draft>>,
    hashes: Vec<u64>,
}

/// Counts of one file.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) blank_lines: u64,
    /// Headers of a CSV that stand among its rows again.
    pub(crate) repeated_headers: u64,
    pub(crate) dropped_values: BTreeMap<(&'static str, &'static str), u64>,
    pub(crate) input_parts: CountRule,
    pub(crate) output_parts: CountRule,
    /// The map was made of the columns' names.
    pub(crate) named: Option<NamedColumns>,
    /// Some row has block hashes whose lengths stand nowhere but in the format or the options.
    pub(crate) fixed_blocks: bool,
    pub(crate) words: Words,
}

/// Columns that were taken, or not, by names that other tools give them.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamedColumns {
    /// Map entries that were taken.
    pub(crate) taken: Vec<String>,
    /// Map entries that were not, since their units are guessed.
    pub(crate) left: Vec<String>,
}

/// Texts that recur: one copy each.
#[derive(Debug, Default)]
pub(crate) struct Words(HashMap<Box<str>, Arc<str>>);

/// What one step of a reader brings.
pub(crate) enum Step {
    Row(Box<Draft>),
    Rejected(Rejection),
    End,
}

/// A row that cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) place: Place,
    pub(crate) reason: RejectReason,
    pub(crate) column: Option<String>,
}

/// Why a cell could not be taken in.
pub(crate) enum CellProblem {
    /// The row is bad.
    Reject(RejectReason),
    /// The import as a whole lacks a rule.
    Import(Box<IngestError>),
}

impl Spare {
    /// An empty draft.
    pub(crate) fn draft(&mut self, place: Place) -> Box<Draft> {
        let Some(mut draft) = self.draft.take() else { return Box::new(Draft::at(place)) };
        *draft = Draft::at(place);
        draft
    }

    /// An empty list of hashes.
    pub(crate) fn hashes(&mut self) -> Vec<u64> {
        let mut hashes = std::mem::take(&mut self.hashes);
        hashes.clear();
        hashes
    }

    /// Takes a row that is not needed any more.
    pub(crate) fn put(&mut self, mut draft: Box<Draft>) {
        if let Some(hashes) = draft.row.prefix_hashes.take() {
            self.hashes = hashes;
        }
        self.draft = Some(draft);
    }
}

impl Reading<'_> {
    /// What a problem with a time means for the import.
    pub(crate) fn problem(
        &self,
        problem: StampProblem,
        field: &'static str,
        column: &str,
        place: Place,
    ) -> CellProblem {
        let (file, column) = (self.file.to_owned(), column.to_owned());
        CellProblem::Import(Box::new(match problem {
            StampProblem::Reject(reason) => return CellProblem::Reject(reason),
            StampProblem::NeedsUnit => IngestError::NeedsUnit { file, column, field },
            StampProblem::NeedsZone => IngestError::NeedsZone { file, line: place.line, column },
        }))
    }
}

impl Tally {
    /// Counts a value that is left out of a row which is kept.
    pub(crate) fn drop_value(&mut self, field: &'static str, why: &'static str) {
        *self.dropped_values.entry((field, why)).or_default() += 1;
    }

    /// Notes whether a row's parts fit into its totals.
    pub(crate) fn count_parts(&mut self, row: &RequestRow) {
        note_parts(&mut self.input_parts, row.input_tokens, &[row.cached_tokens, row.cache_write_tokens]);
        note_parts(&mut self.output_parts, row.output_tokens, &[row.reasoning_tokens]);
    }
}

impl Words {
    /// The shared copy of a text.
    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.0.get(text) {
            return Arc::clone(shared);
        }
        let shared: Arc<str> = Arc::from(text);
        if self.0.len() < MOST_WORDS {
            self.0.insert(text.into(), Arc::clone(&shared));
        }
        shared
    }
}

impl Rejection {
    pub(crate) fn new(place: Place, reason: RejectReason) -> Self {
        Self { place, reason, column: None }
    }

    pub(crate) fn in_column(place: Place, reason: RejectReason, column: &str) -> Self {
        Self { place, reason, column: Some(column.to_owned()) }
    }
}

impl From<RejectReason> for CellProblem {
    fn from(reason: RejectReason) -> Self {
        Self::Reject(reason)
    }
}

/// The sum of those parts that are known; `None` where none is.
pub(crate) fn sum_of_parts(parts: &[Option<u32>]) -> Option<u64> {
    let known = parts.iter().flatten().map(|part| u64::from(*part));
    parts.iter().any(Option::is_some).then(|| known.sum())
}

fn note_parts(rule: &mut CountRule, total: Option<u32>, parts: &[Option<u32>]) {
    if let (Some(total), Some(sum)) = (total, sum_of_parts(parts)) {
        rule.rows_with_parts += u64::from(sum > 0);
        rule.rows_over += u64::from(sum > total.into());
    }
}
