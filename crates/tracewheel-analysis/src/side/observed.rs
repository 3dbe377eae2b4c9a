//! A request of one side as plain numbers.

use std::collections::HashMap;
use std::sync::Arc;

use tracewheel_timeline::vocab::{Operation, RequestStatus, TtftKind};

use super::streams::TokenSource;
use crate::cache::CacheBin;
use crate::metric::{Metric, Population};
use crate::quantile::NEVER_NS;

/// What names a request: the timeline's row and the amplified copy.
pub(crate) type Key = (u64, u32);

/// The moment at which a TTFT ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FirstStamp {
    /// First output event: `token` and `first_chunk`.
    Output,
    /// First byte of the body: `first_byte`.
    Byte,
    /// Response headers: `headers` and `upstream_headers`.
    Headers,
}

impl From<TtftKind> for FirstStamp {
    fn from(kind: TtftKind) -> Self {
        match kind {
            TtftKind::Token | TtftKind::FirstChunk => Self::Output,
            TtftKind::FirstByte => Self::Byte,
            TtftKind::Headers | TtftKind::UpstreamHeaders => Self::Headers,
        }
    }
}

/// One request of one side. Times are on the side's own clock: run clock or unix.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    pub(crate) key: Key,
    /// Arrival order: planned send, or recorded arrival.
    pub(crate) order_ns: i64,
    pub(crate) status: Ended,
    /// What was asked for; a run's only.
    pub(crate) operation: Option<Operation>,
    /// The scenario's route that it took; a run's only.
    pub(crate) sent_route: Option<Arc<str>>,
    /// The answer was asked for as a stream of output; a run's only.
    pub(crate) streamed: bool,
    /// Due time of attempt 1, or the first logged attempt's arrival.
    pub(crate) start_ns: i64,
    /// Last byte written of the attempt that counted, or the last logged attempt's arrival.
    pub(crate) service_start_ns: Option<i64>,
    pub(crate) first_output_ns: Option<i64>,
    pub(crate) first_byte_ns: Option<i64>,
    pub(crate) headers_ns: Option<i64>,
    /// Production only: which moment its TTFT ends at; the time itself stands in `first_output_ns` whatever it is.
    pub(crate) first_kind: Option<TtftKind>,
    pub(crate) first_visible_ns: Option<i64>,
    /// Last output event; not streamed: end of body. Production: last byte.
    pub(crate) last_ns: Option<i64>,
    /// When the request was over, for concurrency.
    pub(crate) end_ns: Option<i64>,
    pub(crate) tpot_ns: Option<i64>,
    /// Where the tokens behind `tpot_ns` come from.
    pub(crate) token_source: Option<TokenSource>,
    /// Production only.
    pub(crate) http_status: Option<u16>,
    /// Gaps of the stream.
    pub(crate) gaps: u32,
    /// Whether the gaps are spread over tokens: a log's events do not say how many they carried.
    pub(crate) spread: bool,
    /// Input tokens that a made-up prompt was made for, where the target said how many it counted.
    pub(crate) asked_input_tokens: Option<u32>,
    pub(crate) input_tokens: Option<u32>,
    pub(crate) cached_tokens: Option<u32>,
    /// Runs only: what the plan expected.
    pub(crate) predicted_cached_tokens: Option<u32>,
    pub(crate) output_tokens: Option<u32>,
    pub(crate) attempts: u16,
    /// Whether a byte of any attempt was written.
    pub(crate) sent: bool,
    /// The attempt (run) that counted; production: the row that did.
    pub(crate) counted: u64,
    pub(crate) throttled: bool,
    pub(crate) backoff_ns: i64,
    pub(crate) budget_wait_ns: i64,
}

/// How a request ended, with a default for rows under construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended(pub(crate) RequestStatus);

impl Default for Ended {
    fn default() -> Self {
        Self(RequestStatus::Unsent)
    }
}

impl Observed {
    /// Whether the request belongs to the populations at all: cancelled and interrupted ones have no latency.
    pub(crate) fn counts(&self) -> bool {
        matches!(self.status.0, RequestStatus::Ok | RequestStatus::Failed | RequestStatus::Unsent)
    }

    pub(crate) fn is_ok(&self) -> bool {
        self.status.0 == RequestStatus::Ok
    }

    /// The bin of its cached share.
    pub(crate) fn cache_bin(&self) -> CacheBin {
        CacheBin::of(self.cached_tokens, self.input_tokens)
    }

    /// When the TTFT ends.
    fn first(&self, stamp: FirstStamp) -> Option<i64> {
        match (self.first_kind, stamp) {
            (Some(_), _) | (None, FirstStamp::Output) => self.first_output_ns,
            (None, FirstStamp::Byte) => self.first_byte_ns,
            (None, FirstStamp::Headers) => self.headers_ns,
        }
    }

    /// The request's latency in a population: `None` when it is no member or has no such value, [`NEVER_NS`] when it
    /// was never answered. `stamp` says where a TTFT ends.
    pub(crate) fn latency(&self, metric: Metric, population: Population, stamp: FirstStamp) -> Option<i64> {
        if !self.is_ok() {
            let unanswered =
                population == Population::User && self.counts() && Metric::OF_REQUESTS.contains(&metric);
            return unanswered.then_some(NEVER_NS);
        }
        let end = match metric {
            Metric::Ttft => self.first(stamp)?,
            Metric::Ttfv => self.first_visible_ns?,
            Metric::E2e => self.last_ns?,
            Metric::Tpot => return self.tpot_ns,
            Metric::Gap | Metric::Itl => return None,
        };
        let start = match population {
            Population::User | Population::Success => self.start_ns,
            Population::Service => self.service_start_ns?,
        };
        Some(end.saturating_sub(start))
    }

    /// Whether the metric is known for this (successful) request.
    pub(crate) fn knows(&self, metric: Metric) -> bool {
        match metric {
            Metric::Gap => self.is_ok() && self.gaps > 0,
            Metric::Itl => self.is_ok() && self.gaps > 0 && self.spread,
            _ => self.is_ok() && self.latency(metric, Population::Success, FirstStamp::Output).is_some(),
        }
    }
}

/// Requests of a side in arrival order, and where each stands.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    pub(crate) requests: Vec<Observed>,
    index: HashMap<Key, u32>,
}

impl Roster {
    /// Sorts by arrival; ties by row and copy.
    pub(crate) fn new(mut requests: Vec<Observed>) -> Self {
        requests.sort_unstable_by_key(|r| (r.order_ns, r.key));
        let index = requests.iter().enumerate().map(|(at, r)| (r.key, at as u32)).collect();
        Self { requests, index }
    }

    pub(crate) fn position(&self, key: Key) -> Option<usize> {
        self.index.get(&key).map(|at| *at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok() -> Observed {
        Observed {
            status: Ended(RequestStatus::Ok),
            start_ns: 100,
            service_start_ns: Some(150),
            first_output_ns: Some(400),
            first_byte_ns: Some(300),
            headers_ns: Some(250),
            first_visible_ns: Some(500),
            last_ns: Some(900),
            tpot_ns: Some(7),
            ..Observed::default()
        }
    }

    #[test]
    fn each_population_counts_from_its_own_start() {
        let latency = |metric, population| ok().latency(metric, population, FirstStamp::Output);
        assert_eq!(latency(Metric::Ttft, Population::User), Some(300));
        assert_eq!(latency(Metric::Ttft, Population::Service), Some(250));
        assert_eq!(latency(Metric::Ttfv, Population::Success), Some(400));
        assert_eq!(latency(Metric::E2e, Population::Success), Some(800));
        assert_eq!(latency(Metric::Tpot, Population::User), Some(7));
    }

    #[test]
    fn the_stamp_asked_for_is_the_one_taken() {
        let ttft = |stamp| ok().latency(Metric::Ttft, Population::User, stamp);
        assert_eq!((ttft(FirstStamp::Byte), ttft(FirstStamp::Headers)), (Some(200), Some(150)));
    }

    #[test]
    fn an_unanswered_request_is_infinite_for_the_user_and_absent_elsewhere() {
        for status in [RequestStatus::Failed, RequestStatus::Unsent] {
            let request = Observed { status: Ended(status), ..ok() };
            assert_eq!(request.latency(Metric::E2e, Population::User, FirstStamp::Output), Some(NEVER_NS));
            assert_eq!(request.latency(Metric::E2e, Population::Success, FirstStamp::Output), None);
            assert_eq!(request.latency(Metric::Tpot, Population::User, FirstStamp::Output), None);
        }
        for status in [RequestStatus::Cancelled, RequestStatus::Interrupted] {
            let request = Observed { status: Ended(status), ..ok() };
            assert_eq!(request.latency(Metric::Ttft, Population::User, FirstStamp::Output), None);
        }
    }

    #[test]
    fn an_answer_without_output_has_no_ttft() {
        let request = Observed { first_output_ns: None, ..ok() };
        assert_eq!(request.latency(Metric::Ttft, Population::User, FirstStamp::Output), None);
    }
}
