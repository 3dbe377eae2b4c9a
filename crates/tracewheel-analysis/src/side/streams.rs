//! The output events of one answer, and what is counted over them.

use tracewheel_record::AttemptRecord;
use tracewheel_timeline::vocab::EventKind;

use super::report::{JitterSummary, StallSummary, StampShare, StreamReport};
use crate::quantile::{Percentile, nearest_rank, nearest_rank_f64};

/// Fewest gaps from which a jitter is made: with fewer, the p95 is the largest gap.
const JITTER_MIN_GAPS: usize = 20;

/// Where a count of tokens came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenSource {
    Event,
    Usage,
    OnePerEvent,
    ToLastByte,
}

/// The output events of one answer: their times and, where known, their tokens. Kept and refilled, so that a pass over
/// a run allocates nothing a request.
#[derive(Debug, Default)]
pub(crate) struct OutputStream {
    times: Vec<i64>,
    tokens: Vec<Option<u16>>,
    first_visible_ns: Option<i64>,
    kernel: u64,
    user: u64,
    logged: u64,
    coalesced: u64,
    merged: u64,
}

impl OutputStream {
    /// Takes the output events of an attempt. An event's time is its read's: the kernel's stamp where there is one,
    /// else the user-space stamp. A stamp that lies before the one of the event before it counts as equal to it: bytes of
    /// a stream arrive in order, so only the two clocks' difference can say otherwise.
    pub(crate) fn load(&mut self, attempt: &AttemptRecord) {
        *self = Self {
            times: std::mem::take(&mut self.times),
            tokens: std::mem::take(&mut self.tokens),
            ..Self::default()
        };
        self.times.clear();
        self.tokens.clear();
        let mut last_read = None;
        let beside = |at: usize| at.checked_sub(1).into_iter().chain([at + 1]);
        for (place, event) in attempt.events.iter().enumerate().filter(|(_, e)| e.kind.is_output()) {
            // Events stand in the order of the stream, so those of one read stand together.
            let shared =
                beside(place).filter_map(|at| attempt.events.get(at)).any(|other| other.read == event.read);
            let Some(read) = attempt.reads.get(event.read as usize) else { continue };
            let at = read.kernel_ns.unwrap_or(read.user_ns);
            let at = self.times.last().map_or(at, |before| at.max(*before));
            self.times.push(at);
            self.tokens.push(event.tokens);
            if event.kind == EventKind::Text && self.first_visible_ns.is_none() {
                self.first_visible_ns = Some(at);
            }
            self.coalesced += u64::from(last_read == Some(event.read));
            self.merged += u64::from(shared);
            last_read = Some(event.read);
            if read.kernel_ns.is_some() { self.kernel += 1 } else { self.user += 1 }
        }
    }

    /// Takes logged event times.
    pub(crate) fn load_logged(&mut self, times: impl Iterator<Item = i64>) {
        *self = Self::default();
        self.times.extend(times);
        self.times.sort_unstable();
        self.tokens.resize(self.times.len(), None);
        self.logged = self.times.len() as u64;
    }

    pub(crate) fn first_ns(&self) -> Option<i64> {
        self.times.first().copied()
    }

    /// Time of the first `text` event; unknown in logged streams, which do not say what their events were.
    pub(crate) fn first_visible_ns(&self) -> Option<i64> {
        self.first_visible_ns
    }

    pub(crate) fn last_ns(&self) -> Option<i64> {
        self.times.last().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// Times between consecutive output events.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = i64> + '_ {
        self.times.windows(2).map(|pair| pair[1] - pair[0])
    }

    /// Each gap spread evenly over the tokens of the event that ends it: the nanoseconds a token (rounded down) and how
    /// many tokens. An event without a count is one token; one that says 0 leaves its gap to the next.
    pub(crate) fn inter_token(&self) -> impl Iterator<Item = (i64, u32)> + '_ {
        let mut carried = 0;
        self.gaps().zip(&self.tokens[1.min(self.tokens.len())..]).filter_map(move |(gap, tokens)| {
            let tokens = tokens.map_or(1, u32::from);
            let whole = carried + gap;
            carried = if tokens == 0 { whole } else { 0 };
            (tokens > 0).then(|| (whole / i64::from(tokens), tokens))
        })
    }

    /// (Last − first output event) / tokens after the first event, rounded down, and where the count came from; `None`
    /// for fewer than two output events or no token after the first.
    pub(crate) fn per_token(&self, usage_output_tokens: Option<u32>) -> Option<(i64, TokenSource)> {
        if self.times.len() < 2 {
            return None;
        }
        let after_first = &self.tokens[1..];
        let counted: Option<u64> = after_first.iter().map(|tokens| tokens.map(u64::from)).sum();
        let first = u64::from(self.tokens[0].unwrap_or(1));
        let (tokens, source) = match (counted, usage_output_tokens) {
            (Some(counted), _) => (counted, TokenSource::Event),
            (None, Some(usage)) => (u64::from(usage).saturating_sub(first), TokenSource::Usage),
            (None, None) => (after_first.len() as u64, TokenSource::OnePerEvent),
        };
        let span = self.times[self.times.len() - 1] - self.times[0];
        (tokens > 0).then(|| (span / tokens as i64, source))
    }
}

/// What is counted over the streams of successful requests.
#[derive(Debug)]
pub(crate) struct StreamTally {
    report: StreamReport,
    stamps: StampShare,
    jitter: Vec<f64>,
    gaps: Vec<i64>,
    stall_ns: i64,
}

impl StreamTally {
    pub(crate) fn new(stall_ns: i64) -> Self {
        Self {
            report: StreamReport::default(),
            stamps: StampShare::default(),
            jitter: Vec::new(),
            gaps: Vec::new(),
            stall_ns,
        }
    }

    /// A successful request's stream.
    pub(crate) fn add(&mut self, stream: &OutputStream) {
        if stream.len() == 0 {
            self.report.without_output += 1;
            return;
        }
        self.report.streams += 1;
        self.report.output_events += stream.len() as u64;
        self.report.coalesced_events += stream.coalesced;
        self.report.merged_events += stream.merged;
        self.report.counted_events += stream.tokens.iter().flatten().count() as u64;
        self.stamps.kernel += stream.kernel;
        self.stamps.user += stream.user;
        self.stamps.logged += stream.logged;
        self.gaps.clear();
        self.gaps.extend(stream.gaps());
        let stalls = self.gaps.iter().filter(|gap| **gap > self.stall_ns);
        let (count, total) = stalls.fold((0, 0), |(n, sum), gap| (n + 1, sum + gap));
        add_stalls(&mut self.report.stalls, count, total);
        self.gaps.sort_unstable();
        if self.gaps.len() >= JITTER_MIN_GAPS
            && let (Some(p50), Some(p95)) =
                (nearest_rank(&self.gaps, Percentile::P50), nearest_rank(&self.gaps, Percentile::P95))
            && p50 > 0
        {
            self.jitter.push(p95 as f64 / p50 as f64);
        }
    }

    pub(crate) fn finish(mut self) -> (StreamReport, StampShare) {
        self.jitter.sort_unstable_by(f64::total_cmp);
        let (merged, all) = (self.report.merged_events, self.report.output_events);
        // A log does not say what came in one read.
        self.report.merged_share = (all > 0 && self.stamps.logged == 0).then(|| merged as f64 / all as f64);
        self.report.jitter = JitterSummary {
            streams: self.jitter.len() as u64,
            p50: nearest_rank_f64(&self.jitter, Percentile::P50),
            p95: nearest_rank_f64(&self.jitter, Percentile::P95),
        };
        (self.report, self.stamps)
    }
}

fn add_stalls(summary: &mut StallSummary, count: u64, total_ns: i64) {
    summary.stalls += count;
    summary.streams += u64::from(count > 0);
    summary.total_ns += total_ns;
}

#[cfg(test)]
mod tests {
    use tracewheel_record::{EventRow, ReadStampRow};

    use super::*;

    /// An attempt whose events are (read, kind, tokens) and whose reads are (user, kernel).
    fn attempt(reads: &[(i64, Option<i64>)], events: &[(u32, EventKind, Option<u16>)]) -> AttemptRecord {
        AttemptRecord {
            reads: reads
                .iter()
                .map(|(user_ns, kernel_ns)| ReadStampRow {
                    user_ns: *user_ns,
                    kernel_ns: *kernel_ns,
                    bytes: 9,
                })
                .collect(),
            events: events
                .iter()
                .map(|(read, kind, tokens)| EventRow {
                    read: *read,
                    kind: *kind,
                    tokens: *tokens,
                    bytes: 3,
                    choice: 0,
                })
                .collect(),
            ..AttemptRecord::default()
        }
    }

    fn stream(reads: &[(i64, Option<i64>)], events: &[(u32, EventKind, Option<u16>)]) -> OutputStream {
        let mut stream = OutputStream::default();
        stream.load(&attempt(reads, events));
        stream
    }

    #[test]
    fn only_output_events_count_and_the_kernel_stamp_is_preferred() {
        use EventKind::{Heartbeat, Reasoning, Structure, Terminal, Text, Usage};
        let s = stream(
            &[(10, Some(8)), (20, None), (35, Some(30)), (40, Some(39))],
            &[
                (0, Structure, None),
                (0, Reasoning, None),
                (1, Heartbeat, None),
                (1, Text, None),
                (2, Text, None),
                (3, Usage, None),
                (3, Terminal, None),
            ],
        );
        assert_eq!(s.times, [8, 20, 30]);
        assert_eq!(s.first_visible_ns(), Some(20));
        assert_eq!((s.kernel, s.user, s.coalesced), (2, 1, 0));
        // The first two came beside a structure event and a heartbeat, the third alone.
        assert_eq!(s.merged, 2);
        assert_eq!(s.gaps().collect::<Vec<_>>(), [12, 10]);
    }

    #[test]
    fn events_of_one_read_share_its_time_and_are_counted() {
        let s = stream(
            &[(10, None), (50, None)],
            &[(0, EventKind::Text, None), (1, EventKind::Text, None), (1, EventKind::Text, None)],
        );
        assert_eq!(s.gaps().collect::<Vec<_>>(), [40, 0]);
        assert_eq!((s.coalesced, s.merged), (1, 2));
    }

    #[test]
    fn a_gap_is_spread_over_the_tokens_of_the_event_that_ends_it() {
        let text = EventKind::Text;
        let s = stream(
            &[(0, None), (90, None), (100, None), (130, None)],
            &[(0, text, Some(1)), (1, text, Some(3)), (2, text, Some(0)), (3, text, Some(2))],
        );
        assert_eq!(s.inter_token().collect::<Vec<_>>(), [(30, 3), (20, 2)]);
        assert_eq!(s.per_token(Some(99)), Some((26, TokenSource::Event)));
    }

    #[test]
    fn tokens_come_from_events_then_usage_then_one_each() {
        let text = EventKind::Text;
        let s = stream(&[(0, None), (100, None)], &[(0, text, None), (1, text, None)]);
        assert_eq!(s.per_token(Some(11)), Some((10, TokenSource::Usage)));
        assert_eq!(s.per_token(None), Some((100, TokenSource::OnePerEvent)));
        assert_eq!(s.per_token(Some(1)), None);
        assert_eq!(stream(&[(5, None)], &[(0, text, None)]).per_token(Some(11)), None);
    }

    #[test]
    fn time_within_a_stream_never_runs_backwards() {
        let text = EventKind::Text;
        let s = stream(&[(100, None), (101, Some(99))], &[(0, text, None), (1, text, None)]);
        assert_eq!(s.gaps().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn jitter_is_the_p95_over_the_median_of_a_streams_gaps_and_stalls_are_the_long_ones() {
        let mut stream = OutputStream::default();
        let mut at = 0;
        let times: Vec<i64> = (0..=20)
            .map(|i| {
                at += if i == 20 || i == 19 { 500 } else { 100 };
                at
            })
            .collect();
        stream.load_logged(times.into_iter());
        let mut tally = StreamTally::new(499);
        tally.add(&stream);
        tally.add(&OutputStream::default());
        let (report, stamps) = tally.finish();
        assert_eq!((report.jitter.streams, report.jitter.p50), (1, Some(5.0)));
        assert_eq!((report.stalls.stalls, report.stalls.streams, report.stalls.total_ns), (2, 1, 1000));
        assert_eq!((report.streams, report.without_output, stamps.logged), (1, 1, 21));
    }
}
