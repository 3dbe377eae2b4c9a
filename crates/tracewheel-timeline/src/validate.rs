//! Checks of a timeline's rows: what is odd, how often, and where first.
//!
//! An oddity is no error: the rows stay as they were recorded. Each kind is counted and shown with its first example, so
//! that a person can judge it.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use crate::error::TimelineError;
use crate::meta::TimelineMeta;
use crate::read::Timeline;
use crate::row::RequestRow;
use crate::vocab::{ArrivalSource, BodyState, Source, vocabulary};

/// A precision or resolution above this makes burst figures meaningless: 100 ms.
const COARSE_NS: i64 = 100_000_000;

vocabulary! {
    /// What can be odd about a timeline's rows.
    OddityKind, "oddity" {
        /// Neighbours with the same arrival: their order and their gap are unknown.
        EqualArrivals = "equal_arrivals",
        /// Arrivals written more coarsely than 100 ms: bursts below that cannot be seen.
        CoarsePrecision = "coarse_precision",
        /// Arrivals that are not known to be the start of the request.
        ArrivalNotStart = "arrival_not_start",
        /// Rows without arrival; only a baseline has them.
        ArrivalUnknown = "arrival_unknown",
        /// Rows of a log that kept only a share of the traffic: gaps are too long.
        Sampled = "sampled",
        /// A share that is not above 0 and at most 1.
        SampleRateOutOfRange = "sample_rate_out_of_range",
        /// Input tokens are unknown.
        InputTokensUnknown = "input_tokens_unknown",
        /// Output tokens are unknown.
        OutputTokensUnknown = "output_tokens_unknown",
        /// No input tokens: often a failed request.
        ZeroInputTokens = "zero_input_tokens",
        /// No output tokens: often a failed request.
        ZeroOutputTokens = "zero_output_tokens",
        /// More cached and cache-written tokens than input: the source's counts are not inclusive, or wrong.
        CachedOverInput = "cached_over_input",
        /// More reasoning than output tokens.
        ReasoningOverOutput = "reasoning_over_output",
        /// A count without a source, or a source without a count (other than `absent`).
        SourceContradiction = "source_contradiction",
        /// A negative duration or offset.
        NegativeDuration = "negative_duration",
        /// The first output after the last byte.
        TtftOverE2e = "ttft_over_e2e",
        /// A TTFT without its kind, or a kind without a TTFT.
        TtftKindContradiction = "ttft_kind_contradiction",
        /// Output events that go back in time.
        EventsUnsorted = "events_unsorted",
        /// A retry of itself or of a later row.
        RetryOfLaterRow = "retry_of_later_row",
        /// Rows with a source id that another row has too, logged retries aside.
        DuplicateSourceId = "duplicate_source_id",
        /// Rows equal to a row of the same arrival in everything but where they were found.
        IdenticalRows = "identical_rows",
        /// A turn number without a session.
        TurnWithoutSession = "turn_without_session",
        /// Prefix blocks whose number or lengths do not fit the prompt.
        PrefixContradiction = "prefix_contradiction",
    }
}

/// One kind of oddity, how often it occurs and where first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Oddity {
    /// What is odd.
    pub kind: OddityKind,
    /// Rows (or neighbours) that show it.
    pub count: u64,
    /// The first example, for people.
    pub detail: String,
}

/// Reads a timeline once and reports what is odd about it, in the order of [`OddityKind::ALL`].
pub fn validate(timeline: &Timeline) -> Result<Vec<Oddity>, TimelineError> {
    let mut validator = Validator::new(timeline.meta());
    for row in timeline.rows() {
        let (position, row) = row?;
        validator.push(position, &row);
    }
    Ok(validator.finish())
}

/// Checks rows as they pass, in the order of the timeline. Memory grows by 8 bytes a row that has a source id.
#[derive(Debug)]
pub struct Validator {
    block_tokens: Option<u32>,
    found: BTreeMap<OddityKind, (u64, String)>,
    /// Digests of the rows that share the latest arrival.
    latest: Option<(i64, HashSet<blake3::Hash>)>,
    source_ids: Vec<u64>,
    scratch: Vec<u8>,
}

impl Validator {
    /// Nothing checked yet; the metadata gives the blocks' length.
    pub fn new(meta: &TimelineMeta) -> Self {
        Self {
            block_tokens: meta.block_tokens,
            found: BTreeMap::new(),
            latest: None,
            source_ids: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Checks the row at a position.
    pub fn push(&mut self, position: u64, row: &RequestRow) {
        self.arrival(position, row);
        self.tokens(position, row);
        self.durations(position, row);
        self.identity(position, row);
        self.prefix(position, row);
    }

    /// What was found, in the order of [`OddityKind::ALL`].
    pub fn finish(mut self) -> Vec<Oddity> {
        self.source_ids.sort_unstable();
        let repeated = self.source_ids.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        if repeated > 0 {
            let detail = format!("{repeated} of {} rows repeat a source id", self.source_ids.len());
            self.found.insert(OddityKind::DuplicateSourceId, (repeated, detail));
        }
        let oddity = |(kind, (count, detail))| Oddity { kind, count, detail };
        self.found.into_iter().map(oddity).collect()
    }

    /// Counts one example; its text is made for the first one only.
    fn note(&mut self, kind: OddityKind, position: u64, row: &RequestRow, what: impl FnOnce() -> String) {
        let (count, _) = self.found.entry(kind).or_insert_with(|| {
            let place = match &*row.source_file {
                "" => String::new(),
                file => format!(" ({file}, byte {})", row.source_offset),
            };
            (0, format!("first in row {position}{place}: {}", what()))
        });
        *count += 1;
    }

    fn arrival(&mut self, position: u64, row: &RequestRow) {
        if row.arrival_source != ArrivalSource::Start {
            let source = row.arrival_source;
            self.note(OddityKind::ArrivalNotStart, position, row, || format!("arrival source `{source}`"));
        }
        if let Some(rate) = row.sample_rate.filter(|rate| *rate != 1.0) {
            let kind =
                if rate > 0.0 && rate < 1.0 { OddityKind::Sampled } else { OddityKind::SampleRateOutOfRange };
            self.note(kind, position, row, || format!("sample rate {rate}"));
        }
        let Some(arrival_unix_ns) = row.arrival_unix_ns else {
            return self.note(OddityKind::ArrivalUnknown, position, row, || "no arrival".to_owned());
        };
        if row.arrival_precision_ns > COARSE_NS {
            let precision_ns = row.arrival_precision_ns;
            self.note(OddityKind::CoarsePrecision, position, row, || format!("precision {precision_ns} ns"));
        }
        self.same_arrival(position, row, arrival_unix_ns);
    }

    fn same_arrival(&mut self, position: u64, row: &RequestRow, arrival_unix_ns: i64) {
        self.scratch.clear();
        // Without the two columns that say where the row was found.
        crate::columns::canonical(row, crate::digest::PROVENANCE, &mut self.scratch);
        let digest = blake3::hash(&self.scratch);
        match &mut self.latest {
            Some((arrival, digests)) if *arrival == arrival_unix_ns => {
                // A body that was not read cannot be compared.
                let unread = row.body.is_none() && row.body_state != BodyState::Absent;
                let identical = !digests.insert(digest) && !unread;
                self.note(OddityKind::EqualArrivals, position, row, || {
                    format!("arrival {arrival_unix_ns} ns again")
                });
                if identical {
                    self.note(OddityKind::IdenticalRows, position, row, || {
                        format!("equal to another row at {arrival_unix_ns} ns")
                    });
                }
            }
            Some((arrival, digests)) => {
                *arrival = arrival_unix_ns;
                digests.clear();
                digests.insert(digest);
            }
            None => self.latest = Some((arrival_unix_ns, HashSet::from([digest]))),
        }
    }

    fn tokens(&mut self, position: u64, row: &RequestRow) {
        use OddityKind::{
            CachedOverInput, InputTokensUnknown, OutputTokensUnknown, ReasoningOverOutput,
            SourceContradiction, ZeroInputTokens, ZeroOutputTokens,
        };
        let counts = [
            ("input", row.input_tokens, row.input_tokens_source, Some((InputTokensUnknown, ZeroInputTokens))),
            (
                "output",
                row.output_tokens,
                row.output_tokens_source,
                Some((OutputTokensUnknown, ZeroOutputTokens)),
            ),
            ("cached", row.cached_tokens, row.cached_tokens_source, None),
            ("cache-write", row.cache_write_tokens, row.cache_write_tokens_source, None),
            ("reasoning", row.reasoning_tokens, row.reasoning_tokens_source, None),
        ];
        for (name, count, source, kinds) in counts {
            let known = source.is_some_and(|source| source != Source::Absent);
            if count.is_some() != known {
                self.note(SourceContradiction, position, row, || {
                    let count = count.map_or("null".to_owned(), |count| count.to_string());
                    format!("{name} tokens {count} with source {}", source.map_or("null", Source::as_str))
                });
            }
            match (count, kinds) {
                (None, Some((unknown, _))) if source != Some(Source::Absent) => {
                    self.note(unknown, position, row, || format!("{name} tokens unknown"));
                }
                (Some(0), Some((_, zero))) => self.note(zero, position, row, || format!("{name} tokens 0")),
                _ => {}
            }
        }
        let cached =
            u64::from(row.cached_tokens.unwrap_or(0)) + u64::from(row.cache_write_tokens.unwrap_or(0));
        if let Some(input) = row.input_tokens.filter(|input| cached > u64::from(*input)) {
            self.note(CachedOverInput, position, row, || {
                format!("{cached} cached and cache-written of {input} input tokens")
            });
        }
        if let (Some(reasoning), Some(output)) = (row.reasoning_tokens, row.output_tokens)
            && reasoning > output
        {
            self.note(ReasoningOverOutput, position, row, || {
                format!("{reasoning} reasoning of {output} output tokens")
            });
        }
    }

    fn durations(&mut self, position: u64, row: &RequestRow) {
        // A negative think time is an overlap of turns, which agents do: not odd.
        let durations = [
            ("cancel_after_ns", row.cancel_after_ns),
            ("prod_ttft_ns", row.prod_ttft_ns),
            ("prod_e2e_ns", row.prod_e2e_ns),
            ("prod_event_ns", row.prod_event_ns.as_ref().and_then(|events| events.iter().copied().min())),
        ];
        for (name, duration) in durations {
            if let Some(duration) = duration.filter(|duration| *duration < 0) {
                self.note(OddityKind::NegativeDuration, position, row, || format!("{name} is {duration}"));
            }
        }
        if let (Some(ttft_ns), Some(e2e_ns)) = (row.prod_ttft_ns, row.prod_e2e_ns)
            && ttft_ns > e2e_ns
        {
            self.note(OddityKind::TtftOverE2e, position, row, || format!("{ttft_ns} ns > {e2e_ns} ns"));
        }
        if row.prod_ttft_ns.is_some() != row.prod_ttft_kind.is_some() {
            self.note(OddityKind::TtftKindContradiction, position, row, || {
                let kind = row.prod_ttft_kind.map_or("null", |kind| kind.as_str());
                let ttft = row.prod_ttft_ns.map_or("null".to_owned(), |ns| format!("{ns} ns"));
                format!("TTFT {ttft} with kind {kind}")
            });
        }
        if row.prod_event_ns.as_ref().is_some_and(|events| !events.is_sorted()) {
            self.note(OddityKind::EventsUnsorted, position, row, || {
                "output events go back in time".to_owned()
            });
        }
    }

    fn identity(&mut self, position: u64, row: &RequestRow) {
        if let Some(first) = row.retry_of_row {
            if first >= position {
                self.note(OddityKind::RetryOfLaterRow, position, row, || format!("retry of row {first}"));
            }
        } else {
            self.source_ids.extend(row.source_id_hash);
        }
        if let (Some(turn), None) = (row.turn, row.session_hash) {
            self.note(OddityKind::TurnWithoutSession, position, row, || format!("turn {turn}"));
        }
    }

    fn prefix(&mut self, position: u64, row: &RequestRow) {
        let Some(hashes) = row.prefix_hashes.as_deref() else { return };
        let blocks = hashes.len();
        let problem = match (row.prefix_block_tokens.as_deref(), self.block_tokens, row.input_tokens) {
            (Some(lengths), _, _) if lengths.len() != blocks => {
                Some(format!("{blocks} blocks with {} lengths", lengths.len()))
            }
            (Some(lengths), _, Some(input)) => {
                let sum: u64 = lengths.iter().copied().map(u64::from).sum();
                (sum > u64::from(input)).then(|| format!("blocks of {sum} tokens in a prompt of {input}"))
            }
            (None, Some(block), Some(input)) => {
                let most = u64::from(input).div_ceil(u64::from(block.max(1)));
                (blocks as u64 > most)
                    .then(|| format!("{blocks} blocks of {block} tokens in a prompt of {input}"))
            }
            (None, None, _) => Some(format!("{blocks} blocks of unknown length")),
            _ => None,
        };
        if let Some(problem) = problem {
            self.note(OddityKind::PrefixContradiction, position, row, || problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound(arrival_unix_ns: i64) -> RequestRow {
        RequestRow {
            arrival_unix_ns: Some(arrival_unix_ns),
            arrival_precision_ns: 1,
            arrival_source: ArrivalSource::Start,
            input_tokens: Some(20),
            input_tokens_source: Some(Source::Reported),
            output_tokens: Some(5),
            output_tokens_source: Some(Source::Reported),
            source_file: "log.csv".into(),
            ..RequestRow::default()
        }
    }

    fn oddities(rows: &[RequestRow]) -> Vec<(&'static str, u64)> {
        let mut validator =
            Validator::new(&TimelineMeta { block_tokens: Some(10), ..TimelineMeta::default() });
        (0..).zip(rows).for_each(|(position, row)| validator.push(position, row));
        validator.finish().iter().map(|oddity| (oddity.kind.as_str(), oddity.count)).collect()
    }

    fn one(change: impl FnOnce(&mut RequestRow)) -> Vec<(&'static str, u64)> {
        let mut row = sound(1);
        change(&mut row);
        oddities(&[row])
    }

    #[test]
    fn sound_rows_are_not_odd() {
        assert_eq!(oddities(&[sound(1), sound(2)]), []);
    }

    #[test]
    fn ties_and_identical_rows_are_counted() {
        let other = RequestRow { output_tokens: Some(6), source_offset: 3, ..sound(1) };
        let moved = RequestRow { source_offset: 9, ..sound(1) };
        let unread = RequestRow { body_state: BodyState::Full, ..sound(2) };
        let found = oddities(&[sound(1), other, moved, unread.clone(), unread]);
        assert_eq!(found, [("equal_arrivals", 3), ("identical_rows", 1)]);
    }

    #[test]
    fn each_contradiction_has_its_kind() {
        assert_eq!(one(|row| row.arrival_precision_ns = 1_000_000_000), [("coarse_precision", 1)]);
        assert_eq!(one(|row| row.arrival_source = ArrivalSource::LogWrite), [("arrival_not_start", 1)]);
        assert_eq!(one(|row| row.arrival_unix_ns = None), [("arrival_unknown", 1)]);
        assert_eq!(one(|row| row.sample_rate = Some(0.5)), [("sampled", 1)]);
        assert_eq!(one(|row| row.sample_rate = Some(f64::NAN)), [("sample_rate_out_of_range", 1)]);
        assert_eq!(one(|row| row.input_tokens = Some(0)), [("zero_input_tokens", 1)]);
        assert_eq!(
            one(|row| row.output_tokens = None),
            [("output_tokens_unknown", 1), ("source_contradiction", 1)]
        );
        assert_eq!(
            one(|row| {
                row.cached_tokens = Some(15);
                row.cached_tokens_source = Some(Source::Reported);
                row.cache_write_tokens = Some(6);
                row.cache_write_tokens_source = Some(Source::Reported);
            }),
            [("cached_over_input", 1)]
        );
        assert_eq!(
            one(|row| {
                row.reasoning_tokens = Some(6);
                row.reasoning_tokens_source = Some(Source::Derived);
            }),
            [("reasoning_over_output", 1)]
        );
        assert_eq!(one(|row| row.cached_tokens = Some(1)), [("source_contradiction", 1)]);
        assert_eq!(one(|row| row.cached_tokens_source = Some(Source::Absent)), []);
        assert_eq!(one(|row| row.prod_e2e_ns = Some(-1)), [("negative_duration", 1)]);
        assert_eq!(one(|row| row.prod_ttft_ns = Some(1)), [("ttft_kind_contradiction", 1)]);
        assert_eq!(
            one(|row| {
                row.prod_ttft_ns = Some(2);
                row.prod_ttft_kind = Some(crate::TtftKind::Token);
                row.prod_e2e_ns = Some(1);
            }),
            [("ttft_over_e2e", 1)]
        );
        assert_eq!(one(|row| row.prod_event_ns = Some(vec![2, 1])), [("events_unsorted", 1)]);
        assert_eq!(one(|row| row.retry_of_row = Some(0)), [("retry_of_later_row", 1)]);
        assert_eq!(one(|row| row.turn = Some(2)), [("turn_without_session", 1)]);
        assert_eq!(one(|row| row.prefix_hashes = Some(vec![1, 2, 3])), [("prefix_contradiction", 1)]);
        assert_eq!(one(|row| row.prefix_hashes = Some(vec![1, 2])), []);
    }

    #[test]
    fn repeated_source_ids_are_counted_but_logged_retries_are_not() {
        let with_id =
            |arrival, retry_of_row| RequestRow { source_id_hash: Some(7), retry_of_row, ..sound(arrival) };
        assert_eq!(oddities(&[with_id(1, None), with_id(2, Some(0))]), []);
        let found = oddities(&[with_id(1, None), with_id(2, None), with_id(3, None)]);
        assert_eq!(found, [("duplicate_source_id", 2)]);
    }

    #[test]
    fn the_first_example_is_told_with_its_place() {
        let mut validator = Validator::new(&TimelineMeta::default());
        validator.push(0, &sound(1));
        validator.push(1, &RequestRow { input_tokens: Some(0), source_offset: 77, ..sound(2) });
        validator.push(2, &RequestRow { input_tokens: Some(0), source_offset: 99, ..sound(3) });
        let found = validator.finish();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].detail, "first in row 1 (log.csv, byte 77): input tokens 0");
    }
}
