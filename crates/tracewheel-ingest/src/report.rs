//! What an import found: shown to the user, and stored as the timeline's quality report.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use tracewheel_timeline::TtftKind;
use tracewheel_timeline::stats::ClockRule;

/// Declares the reasons with their words and meanings, each written once.
macro_rules! reject_reasons {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $word:literal, )+) => {
        /// Why a row was rejected. The words are the keys of the report.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[non_exhaustive]
        pub enum RejectReason {
            $( $(#[doc = $doc])+ #[serde(rename = $word)] $variant, )+
        }

        impl RejectReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word as it stands in reports.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }

            /// What it means, in a sentence: the same as in `docs/formats.md`.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($doc),+).trim_ascii()),+ }
            }
        }
    };
}

reject_reasons! {
    /// Longer than the limit.
    RowTooLong = "row_too_long",
    /// Not UTF-8 text.
    InvalidUtf8 = "invalid_utf8",
    /// Not a JSON object.
    NotJson = "not_json",
    /// Another number of cells than the header has.
    WrongCellCount = "wrong_cell_count",
    /// A quote that nothing closes up to the end of the file.
    UnclosedQuote = "unclosed_quote",
    /// A value that must be there is not.
    MissingValue = "missing_value",
    /// Nothing says when the request started.
    NoArrival = "no_arrival",
    /// A time that cannot be read.
    BadTime = "bad_time",
    /// A local time that the clock of its zone skipped.
    SkippedLocalTime = "skipped_local_time",
    /// A time outside of the years 1678 to 2262, or of what the column's first time says it holds.
    TimeOutOfRange = "time_out_of_range",
    /// A count that is not a whole number in range.
    BadNumber = "bad_number",
    /// A value of another kind than the field takes.
    BadValue = "bad_value",
    /// The same request id, arrival and outcome as an earlier row.
    Duplicate = "duplicate",
    /// The last row of a damaged archive: its end is missing.
    CutOff = "cut_off",
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One rejected row, and where to find it. Its content is never quoted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectedRow {
    /// The input's name.
    pub file: String,
    /// Its first line, from 1.
    pub line: u64,
    /// Its first byte, from 0.
    pub offset: u64,
    /// What is wrong.
    pub reason: RejectReason,
    /// The column that is wrong, where one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

/// Where the times of a file start again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restart {
    /// First line of the first row behind it, from 1.
    pub line: u64,
    /// Its first byte, from 0.
    pub offset: u64,
    /// Latest arrival before it, as written, in nanoseconds.
    pub from_ns: i64,
    /// Arrival of the first row behind it, as written, in nanoseconds.
    pub to_ns: i64,
    /// The rows behind it were moved to follow those before it.
    pub joined: bool,
}

/// The archive that an input was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackedReport {
    /// `gzip` or `zstd`.
    pub packing: &'static str,
    /// Bytes of the archive that were read.
    pub bytes: u64,
    /// Members (gzip) or frames (zstd) that were read to their ends.
    pub members: u64,
    /// What ended the reading at `bytes`, before the end of the archive. What follows is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// What one input held.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileReport {
    /// The input's name.
    pub file: String,
    /// Format that read it.
    pub format: &'static str,
    /// Whether the format was given or found.
    pub format_found: bool,
    /// Column map that was used, for the generic formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// Entries of that map that were taken by the names that other tools give the columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub map_guessed: Vec<String>,
    /// Entries that were not taken, since their units are guessed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub map_left: Vec<String>,
    /// The archive that it was, where it was one. Every other figure is one of its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packed: Option<PackedReport>,
    /// Bytes of text read.
    pub bytes: u64,
    /// Lines read, header and blank lines included.
    pub lines: u64,
    /// Lines without content.
    pub blank_lines: u64,
    /// Headers of a CSV that stand among its rows again, as in files that were put one behind the other: no rows.
    pub repeated_headers: u64,
    /// Rows read: kept and rejected ones.
    pub rows_read: u64,
    /// Rows in the timeline.
    pub rows_kept: u64,
    /// Rows rejected.
    pub rows_rejected: u64,
    /// Rows that start earlier than the row before them in the file.
    pub out_of_order: u64,
    /// Places where its times start again.
    pub restarts: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restarts_at: Vec<Restart>,
    /// Steps back or forth of about an hour between neighbours, in a file with naive local times.
    pub hour_jumps: u64,
    /// How its times were placed: `offset in the text`, `naive, taken as ...`, `from 1970 UTC`, `from the log's start`.
    pub zone_rule: Vec<String>,
    /// Naive times that the zone's clock showed twice.
    pub ambiguous_times: u64,
    /// Times read, by the form in which they are written.
    pub time_forms: BTreeMap<String, u64>,
    /// Its times are written in several forms that differ in more than their precision.
    pub mixed_times: bool,
    /// Units of numeric times that were told from their size, where no one gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit_found: Option<String>,
    /// Whether its times are wall times.
    pub has_epoch: bool,
    /// Whether totals contained their parts, and how that is known.
    pub input_rule: CountRule,
    /// The same of output and reasoning.
    pub output_rule: CountRule,
}

/// How a file's totals were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CountRule {
    /// Parts were added to the total.
    pub exclusive: bool,
    /// The caller said so.
    pub told: bool,
    /// Rows that carry a part.
    pub rows_with_parts: u64,
    /// Rows whose parts exceed the total as recorded.
    pub rows_over: u64,
}

/// How fine the recorded times are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Precision {
    /// Finest text, in nanoseconds.
    pub finest_ns: i64,
    /// Coarsest text, in nanoseconds.
    pub coarsest_ns: i64,
    /// The precision that most rows have, in nanoseconds.
    pub commonest_ns: i64,
    /// Resolution that the arrivals themselves show, in nanoseconds: what the clock really resolved.
    pub found_ns: Option<i64>,
    /// How that was found.
    pub found_by: Option<ClockRule>,
    /// Neighbours with the same arrival.
    pub ties: u64,
}

/// The busiest stretch, in a window that the precision allows.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PeakRate {
    /// Length of the window, in nanoseconds.
    pub window_ns: i64,
    /// Most requests in one window, counted from the first arrival.
    pub requests: u64,
    /// The same per second.
    pub per_second: f64,
}

/// Rows that know a value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Known {
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Cached tokens.
    pub cached_tokens: u64,
    /// Reasoning tokens.
    pub reasoning_tokens: u64,
    /// A session.
    pub session: u64,
    /// Block hashes.
    pub prefix_hashes: u64,
    /// Blocks in all rows.
    pub blocks: u64,
    /// Model.
    pub model: u64,
    /// Time to the first output.
    pub ttft: u64,
    /// Time to the end.
    pub e2e: u64,
    /// HTTP status or error class.
    pub outcome: u64,
    /// A body.
    pub body: u64,
}

/// Logged retries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Retries {
    /// Rows that the log marks as a retry of an earlier row with their request id.
    pub marked: u64,
    /// Rows whose request id failed at most 60 s before them, in a log that marks nothing.
    pub after_failure: u64,
    /// Whether they were tied to their first attempt.
    pub folded: bool,
    /// Rows that the log marks as a retry, of which no earlier attempt is known: it is not in the log, or forgotten.
    pub unmatched: u64,
    /// Request ids that were forgotten, because many others came after them: a later row with one of them counts as a
    /// first attempt. The last 458,752 are always known.
    pub forgotten: u64,
}

/// How rows were brought into the order of their arrival. It does not show in the timeline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sorting {
    /// The way that was taken in the end.
    pub way: SortingWay,
    /// The logs were read a second time: a row came later than memory could hold the others back, or a file's totals
    /// turned out to exclude their parts late.
    pub started_over: bool,
    /// Sorted runs in temporary files.
    pub runs: u64,
    /// Bytes written to temporary files.
    pub spilled_bytes: u64,
}

/// Where rows waited for those that arrived before them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SortingWay {
    /// All of them in memory.
    #[default]
    Memory,
    /// Some of them at a time in memory: the log was nearly in order.
    Streamed,
    /// In temporary files.
    Spilled,
}

/// The whole report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct IngestReport {
    /// Each input.
    pub files: Vec<FileReport>,
    /// Rows read: kept and rejected ones.
    pub rows_read: u64,
    /// Rows in the timeline.
    pub rows_kept: u64,
    /// Rows rejected.
    pub rows_rejected: u64,
    /// Rejected rows by reason.
    pub rejected_by_reason: BTreeMap<RejectReason, u64>,
    /// The first rejected rows, in the order of reading.
    pub rejects: Vec<RejectedRow>,
    /// More rows were rejected than the options allow, or rows were lost in a damaged archive.
    pub over_reject_limit: bool,
    /// Rows that equal an earlier row of the same arrival in everything. Without a request id no one can tell whether
    /// they are copies: they are kept.
    pub identical_rows: u64,
    /// Rows with 0 input tokens.
    pub zero_input_tokens: u64,
    /// Rows with 0 output tokens.
    pub zero_output_tokens: u64,
    /// Values that were left out of rows that were kept, by field and reason.
    pub dropped_values: BTreeMap<String, u64>,
    /// Whether arrivals are wall times.
    pub has_epoch: bool,
    /// First arrival: nanoseconds since 1970 UTC, or since the log's start without an epoch.
    pub first_arrival_ns: Option<i64>,
    /// Last arrival.
    pub last_arrival_ns: Option<i64>,
    /// First to last arrival, in nanoseconds.
    pub span_ns: i64,
    /// How fine the times are.
    pub precision: Precision,
    /// Rows by what their stamp meant.
    pub arrival_meaning: BTreeMap<&'static str, u64>,
    /// Rows that know a value.
    pub known: Known,
    /// Which moment the time to the first output ends at, where the caller said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_kind: Option<TtftKind>,
    /// Turns that start before the previous turn of their session ended.
    pub overlapping_turns: u64,
    /// Turn numbers and think times that were computed.
    pub sessions_computed: bool,
    /// Sessions.
    pub sessions: u64,
    /// Sessions that were forgotten, because many others were active after them: one that comes back counts as new.
    /// The last 458,752 are always known.
    pub sessions_forgotten: u64,
    /// Logged retries.
    pub retries: Retries,
    /// Rows that a gateway answered from its own cache.
    pub gateway_cache_hits: u64,
    /// Lowest sampling rate in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample_rate: Option<f64>,
    /// Commonest models, with their rows.
    pub models: Vec<(String, u64)>,
    /// Commonest endpoints or paths.
    pub endpoints: Vec<(String, u64)>,
    /// HTTP statuses and error classes.
    pub outcomes: Vec<(String, u64)>,
    /// Busiest stretch.
    pub peak: PeakRate,
    /// Tokens a block, where the timeline has block hashes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_tokens: Option<u32>,
    /// What a reader of any later result must know.
    pub warnings: Vec<String>,
    /// How the rows were sorted, once that is known; not part of the timeline's metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sorting: Option<Sorting>,
    /// Digest of the timeline's logical content, once it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline_digest: Option<String>,
}

impl IngestReport {
    /// Inputs that are damaged archives: an unknown number of rows is lost.
    pub fn damaged(&self) -> impl Iterator<Item = &FileReport> {
        self.files.iter().filter(|file| file.packed.as_ref().is_some_and(|packed| packed.damage.is_some()))
    }
}
