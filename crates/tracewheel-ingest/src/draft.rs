//! A row between its text and the timeline.

use tracewheel_timeline::{ArrivalSource, Operation, RequestRow, Source};

use crate::reading::Tally;
use crate::report::RejectReason;
use crate::stamps::Stamp;

/// A week: no request takes longer, so a longer figure has another unit or meaning.
pub(crate) const LONGEST_NS: i64 = 7 * 86_400 * 1_000_000_000;

/// Where a row stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// First line, from 1.
    pub(crate) line: u64,
    /// First byte, from 0.
    pub(crate) offset: u64,
}

/// A row as its cells gave it.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) place: Place,
    pub(crate) row: RequestRow,
    pub(crate) arrival: Option<Stamp>,
    pub(crate) end: Option<Stamp>,
    pub(crate) log_write: Option<Stamp>,
    pub(crate) e2e: Option<Stamp>,
    /// Retry count: 0 for a first attempt.
    pub(crate) attempt: Option<u32>,
    pub(crate) params: serde_json::Map<String, serde_json::Value>,
    pub(crate) operation_known: bool,
}

/// A row that is whole but for its place among the others.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Entry {
    pub(crate) row: RequestRow,
    pub(crate) arrival_ns: i64,
    pub(crate) line: u64,
    /// Which input it came from.
    pub(crate) file: u32,
    pub(crate) attempt: Option<u32>,
}

impl Entry {
    pub(crate) fn failed(&self) -> bool {
        self.row.prod_error.is_some() || self.row.prod_status.is_some_and(|status| status >= 400)
    }

    /// When it ended, where that is known.
    pub(crate) fn end_ns(&self) -> Option<i64> {
        self.row.prod_e2e_ns.and_then(|e2e_ns| self.arrival_ns.checked_add(e2e_ns))
    }
}

impl Draft {
    pub(crate) fn at(place: Place) -> Self {
        Self { place, ..Self::default() }
    }

    /// Derives what follows from the cells, and says when the request started; `Err` where nothing tells.
    pub(crate) fn settle(
        &mut self,
        block_tokens: Option<u32>,
        tally: &mut Tally,
    ) -> Result<i64, RejectReason> {
        let arrival_ns = self.settle_arrival(tally)?;
        self.settle_durations(tally);
        self.settle_outcome();
        self.settle_counts(tally);
        self.settle_blocks(block_tokens, tally);
        if !self.operation_known {
            let place = self.row.path.as_deref().or(self.row.endpoint.as_deref());
            self.row.operation = place.and_then(operation_of_path).unwrap_or_default();
        }
        if !self.params.is_empty() {
            let params = serde_json::Value::Object(std::mem::take(&mut self.params));
            self.row.params = Some(tally.words.share(&params.to_string()));
        }
        self.row.source_offset = self.place.offset;
        Ok(arrival_ns)
    }

    fn settle_arrival(&mut self, tally: &mut Tally) -> Result<i64, RejectReason> {
        if let Some(e2e) = self.e2e
            && !(1..=LONGEST_NS).contains(&e2e.ns)
        {
            tally.drop_value("e2e", if e2e.ns > 0 { "too long" } else { "not positive" });
            self.e2e = None;
        }
        let (stamp, source) = match (self.arrival, self.end, self.e2e, self.log_write) {
            (Some(arrival), Some(end), None, _) => {
                self.e2e = self.span_to(arrival, end, tally);
                (arrival, ArrivalSource::Start)
            }
            (Some(arrival), ..) => (arrival, ArrivalSource::Start),
            (None, Some(end), Some(e2e), _) => {
                // Before the log's own start there is nothing to count from.
                let ns = end.ns.checked_sub(e2e.ns).filter(|ns| *ns >= 0 || end.ns < 0);
                let ns = ns.ok_or(RejectReason::TimeOutOfRange)?;
                let precision_ns = end.precision_ns.max(e2e.precision_ns);
                (Stamp { ns, precision_ns }, ArrivalSource::DerivedFromEnd)
            }
            (None, _, _, Some(written)) => (written, ArrivalSource::LogWrite),
            _ => return Err(RejectReason::NoArrival),
        };
        self.row.arrival_unix_ns = Some(stamp.ns);
        self.row.arrival_precision_ns = stamp.precision_ns;
        self.row.arrival_source = source;
        self.row.prod_e2e_ns = self.e2e.map(|e2e| e2e.ns);
        Ok(stamp.ns)
    }

    fn span_to(&self, arrival: Stamp, end: Stamp, tally: &mut Tally) -> Option<Stamp> {
        let ns = end.ns.checked_sub(arrival.ns).filter(|ns| (1..=LONGEST_NS).contains(ns));
        if ns.is_none() {
            tally.drop_value("end", "not after the arrival");
        }
        Some(Stamp { ns: ns?, precision_ns: arrival.precision_ns.max(end.precision_ns) })
    }

    fn settle_durations(&mut self, tally: &mut Tally) {
        let row = &mut self.row;
        if let (Some(ttft_ns), Some(e2e_ns)) = (row.prod_ttft_ns, row.prod_e2e_ns)
            && ttft_ns > e2e_ns
        {
            tally.drop_value("ttft", "longer than e2e");
            row.prod_ttft_ns = None;
        }
        if row.prod_ttft_ns.is_none() {
            row.prod_ttft_kind = None;
        }
    }

    /// Statuses by which proxies say that the client left.
    fn settle_outcome(&mut self) {
        let row = &mut self.row;
        if matches!(row.prod_status, Some(0 | 460 | 499)) {
            row.client_gone.get_or_insert(true);
        }
        if row.prod_status == Some(0) {
            row.prod_status = None;
        }
        if row.client_gone == Some(true) && row.cancel_after_ns.is_none() {
            row.cancel_after_ns = row.prod_e2e_ns;
        }
    }

    fn settle_counts(&mut self, tally: &mut Tally) {
        let reported = |count: Option<u32>| count.map(|_| Source::Reported);
        let row = &mut self.row;
        row.input_tokens_source = reported(row.input_tokens);
        row.output_tokens_source = reported(row.output_tokens);
        row.cached_tokens_source = reported(row.cached_tokens);
        row.cache_write_tokens_source = reported(row.cache_write_tokens);
        row.reasoning_tokens_source = reported(row.reasoning_tokens);
        tally.count_parts(row);
    }

    /// Blocks that do not fit the input are left out: a prompt cannot be made of them.
    fn settle_blocks(&mut self, block_tokens: Option<u32>, tally: &mut Tally) {
        let row = &mut self.row;
        let Some(blocks) = row.prefix_hashes.as_ref().map(Vec::len) else {
            row.prefix_block_tokens = None;
            return;
        };
        if let Some(why) = blocks_problem(row, blocks, block_tokens) {
            tally.drop_value("prefix_hashes", why);
            (row.prefix_hashes, row.prefix_block_tokens) = (None, None);
            return;
        }
        tally.fixed_blocks |= row.prefix_block_tokens.is_none();
    }
}

/// What speaks against a prompt's blocks.
fn blocks_problem(row: &RequestRow, blocks: usize, block_tokens: Option<u32>) -> Option<&'static str> {
    let input_tokens = u64::from(row.input_tokens?);
    match &row.prefix_block_tokens {
        Some(lengths) if lengths.len() != blocks => Some("not as many lengths as blocks"),
        Some(lengths) => {
            let sum: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
            (sum > input_tokens).then_some("longer than the input")
        }
        // The last block may be begun only.
        None => {
            let most = input_tokens.div_ceil(u64::from(block_tokens?.max(1)));
            (blocks as u64 > most).then_some("more blocks than the input holds: wrong block size?")
        }
    }
}

/// The operation that a URL's path names.
fn operation_of_path(path: &str) -> Option<Operation> {
    let path = path.trim_end_matches('/');
    Some(match path {
        _ if path.ends_with("/chat/completions") => Operation::Chat,
        _ if path.ends_with("/completions") => Operation::Completion,
        _ if path.ends_with("/responses") => Operation::Responses,
        _ if path.ends_with("/messages") => Operation::Messages,
        _ if path.ends_with("/embeddings") => Operation::Embeddings,
        _ if path.ends_with(":generateContent") || path.ends_with(":streamGenerateContent") => {
            Operation::GenerateContent
        }
        _ if path.starts_with('/') => Operation::Http,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(mut draft: Draft, tally: &mut Tally) -> Result<RequestRow, RejectReason> {
        draft.settle(None, tally).map(|arrival_ns| {
            assert_eq!(draft.row.arrival_unix_ns, Some(arrival_ns));
            draft.row
        })
    }

    fn stamp(ns: i64, precision_ns: i64) -> Option<Stamp> {
        Some(Stamp { ns, precision_ns })
    }

    #[test]
    fn the_start_is_derived_where_only_the_end_is_known() {
        let draft = Draft { end: stamp(5_000, 10), e2e: stamp(2_000, 1_000), ..Draft::default() };
        let row = settle(draft, &mut Tally::default()).unwrap();
        assert_eq!(row.arrival_unix_ns, Some(3_000));
        assert_eq!(row.arrival_precision_ns, 1_000);
        assert_eq!(row.arrival_source, ArrivalSource::DerivedFromEnd);
        let draft = Draft { end: stamp(5_000, 10), ..Draft::default() };
        assert_eq!(settle(draft, &mut Tally::default()).unwrap_err(), RejectReason::NoArrival);
    }

    #[test]
    fn a_senseless_duration_is_left_out_and_counted_and_the_row_stays() {
        for e2e in [0, -5, LONGEST_NS + 1] {
            let mut tally = Tally::default();
            let draft = Draft { arrival: stamp(5, 1), e2e: stamp(e2e, 1), ..Draft::default() };
            assert_eq!(settle(draft, &mut tally).unwrap().prod_e2e_ns, None);
            assert_eq!(tally.dropped_values.values().sum::<u64>(), 1);
        }
    }

    #[test]
    fn a_first_output_after_the_end_is_left_out() {
        let mut tally = Tally::default();
        let mut draft = Draft { arrival: stamp(5, 1), e2e: stamp(10, 1), ..Draft::default() };
        draft.row.prod_ttft_ns = Some(11);
        assert_eq!(settle(draft, &mut tally).unwrap().prod_ttft_ns, None);
        assert_eq!(tally.dropped_values.len(), 1);
    }

    #[test]
    fn the_path_tells_the_operation() {
        assert_eq!(operation_of_path("/v1/chat/completions/"), Some(Operation::Chat));
        assert_eq!(operation_of_path("/v1/completions"), Some(Operation::Completion));
        assert_eq!(operation_of_path("/models/m:streamGenerateContent"), Some(Operation::GenerateContent));
        assert_eq!(operation_of_path("/healthz"), Some(Operation::Http));
        assert_eq!(operation_of_path("my-deployment"), None);
    }

    #[test]
    fn a_status_that_says_the_client_left_is_read_as_such() {
        let mut draft = Draft { arrival: stamp(5, 1), e2e: stamp(10, 1), ..Draft::default() };
        draft.row.prod_status = Some(0);
        let row = settle(draft, &mut Tally::default()).unwrap();
        assert_eq!((row.prod_status, row.client_gone, row.cancel_after_ns), (None, Some(true), Some(10)));
    }
}
