//! Which requests of the two sides are compared, and their latencies side by side in arrival order.
//!
//! Where both sides come from the same timeline, a request of the replay meets the row that it replays, and a metric is
//! compared over the requests for which the baseline knows it: those that production answered without recording it are
//! left out on both sides, and so are those that were cancelled or cut on either. What failed stays, at +∞.

use std::collections::BTreeMap;

use crate::cache::CacheBin;
use crate::comparison::{Matching, SampleSize};
use crate::metric::{Metric, Population};
use crate::quantile::NEVER_NS;
use crate::side::observed::{FirstStamp, Observed, Roster};

/// Latencies in arrival order, a slot a request, and what they consist of.
pub(crate) struct Slots {
    pub(crate) values: Vec<Option<i64>>,
    pub(crate) size: SampleSize,
}

impl Slots {
    fn new(values: Vec<Option<i64>>, without_value: u64) -> Self {
        let n = values.iter().flatten().count() as u64;
        let infinite = values.iter().flatten().filter(|v| **v == NEVER_NS).count() as u64;
        Self { values, size: SampleSize { n, infinite, without_value } }
    }
}

/// The two sides laid next to each other.
pub(crate) struct Alignment<'a> {
    replay: &'a Roster,
    baseline: Option<&'a Roster>,
    matching: Matching,
    /// For each request of the replay, where its row stands in the baseline.
    row_of: Vec<Option<usize>>,
    /// For each row of the baseline, the slot of the first request that replays it.
    slot_of: Vec<Option<usize>>,
    /// Requests of the replay that never left and have no row.
    extra_unsent: u64,
    /// Where a TTFT ends for requests whose row does not say.
    usual_stamp: FirstStamp,
    /// The metrics that the baseline knows for any request.
    known: Vec<Metric>,
}

impl<'a> Alignment<'a> {
    /// A run by itself.
    pub(crate) fn alone(replay: &'a Roster, extra_unsent: u64) -> Self {
        let row_of = vec![None; replay.requests.len()];
        Self {
            replay,
            baseline: None,
            matching: Matching::None,
            row_of,
            slot_of: Vec::new(),
            extra_unsent,
            usual_stamp: FirstStamp::Output,
            known: Vec::new(),
        }
    }

    /// A replay and its baseline; `copies` says whether the baseline tells the copies of a row apart (a run does).
    pub(crate) fn new(
        replay: &'a Roster,
        baseline: &'a Roster,
        matching: Matching,
        copies: bool,
        extra_unsent: u64,
    ) -> Self {
        let mut slot_of = vec![None; baseline.requests.len()];
        let mut row_of = vec![None; replay.requests.len()];
        if matching == Matching::ByRow {
            for (slot, request) in replay.requests.iter().enumerate() {
                let (row, copy) = request.key;
                row_of[slot] = baseline.position((row, if copies { copy } else { 0 }));
                if let Some(at) = row_of[slot] {
                    slot_of[at].get_or_insert(slot);
                }
            }
        }
        let usual_stamp = usual_stamp(baseline);
        let known =
            Metric::ALL.into_iter().filter(|m| baseline.requests.iter().any(|r| r.knows(*m))).collect();
        Self { replay, baseline: Some(baseline), matching, row_of, slot_of, extra_unsent, usual_stamp, known }
    }

    /// Whether both sides hold the same requests, slot by slot.
    pub(crate) fn is_by_row(&self) -> bool {
        self.matching == Matching::ByRow
    }

    /// How many requests of the replay met a row of the baseline.
    pub(crate) fn matched(&self) -> u64 {
        self.row_of.iter().flatten().count() as u64
    }

    /// Whether the baseline knows the metric for any request.
    pub(crate) fn baseline_knows(&self, metric: Metric) -> bool {
        self.known.contains(&metric)
    }

    fn row(&self, slot: usize) -> Option<&'a Observed> {
        Some(&self.baseline?.requests[self.row_of[slot]?])
    }

    /// Whether the request in a slot enters a metric that the baseline knows.
    fn takes_part(&self, slot: usize, metric: Metric) -> bool {
        let counts = self.replay.requests[slot].counts();
        match (self.matching, self.row(slot)) {
            (Matching::None, _) => counts,
            (Matching::ByRow, None) => false,
            (Matching::ByRow, Some(row)) => counts && row.counts() && (!row.is_ok() || row.knows(metric)),
        }
    }

    /// The replay's latencies: over the common requests where the baseline knows the metric, else over all.
    pub(crate) fn replay_slots(&self, metric: Metric, population: Population) -> Slots {
        let common = self.baseline_knows(metric);
        let mut without_value = 0;
        let requests = self.replay.requests.iter().enumerate();
        let mut values: Vec<Option<i64>> = requests
            .map(|(slot, request)| {
                let stamp = if common { self.stamp(slot) } else { FirstStamp::Output };
                let member = if common { self.takes_part(slot, metric) } else { request.counts() };
                let value = request.latency(metric, population, stamp).filter(|_| member);
                without_value += u64::from(member && request.is_ok() && value.is_none());
                value
            })
            .collect();
        if population == Population::User && Metric::OF_REQUESTS.contains(&metric) {
            values.extend((0..self.extra_unsent).map(|_| Some(NEVER_NS)));
        }
        Slots::new(values, without_value)
    }

    /// The baseline's latencies, in the replay's slots where the two are matched, else in its own order.
    pub(crate) fn baseline_slots(&self, metric: Metric, population: Population) -> Option<Slots> {
        let baseline = self.baseline.filter(|_| self.baseline_knows(metric))?;
        let mut without_value = 0;
        let mut value = |request: &Observed| {
            let value = request.latency(metric, population, FirstStamp::Output);
            without_value += u64::from(request.is_ok() && value.is_none());
            value
        };
        let values = match self.matching {
            Matching::None => baseline.requests.iter().map(|r| value(r).filter(|_| r.counts())).collect(),
            Matching::ByRow => {
                let mut values = vec![None; self.replay.requests.len()];
                for (at, request) in baseline.requests.iter().enumerate() {
                    if let Some(slot) = self.slot_of[at].filter(|slot| self.takes_part(*slot, metric)) {
                        values[slot] = value(request);
                    }
                }
                if population == Population::User && Metric::OF_REQUESTS.contains(&metric) {
                    values.extend((0..self.extra_unsent).map(|_| None));
                }
                values
            }
        };
        Some(Slots::new(values, without_value))
    }

    /// The cache bin of each successful request that the two sides have in common (all of them for a run by itself), in
    /// the slots of [`replay_slots`](Self::replay_slots).
    pub(crate) fn replay_bins(&self) -> Vec<Option<CacheBin>> {
        let member = |slot: usize| !self.is_by_row() || self.row(slot).is_some_and(Observed::counts);
        let requests = self.replay.requests.iter().enumerate();
        requests.map(|(slot, r)| (r.is_ok() && member(slot)).then(|| r.cache_bin())).collect()
    }

    /// The same of the baseline, in the slots of [`baseline_slots`](Self::baseline_slots).
    pub(crate) fn baseline_bins(&self) -> Option<Vec<Option<CacheBin>>> {
        let baseline = self.baseline?;
        let bin = |r: &Observed| r.is_ok().then(|| r.cache_bin());
        if !self.is_by_row() {
            return Some(baseline.requests.iter().map(bin).collect());
        }
        let mut bins = vec![None; self.replay.requests.len()];
        for (at, request) in baseline.requests.iter().enumerate() {
            if let Some(slot) = self.slot_of[at].filter(|slot| self.replay.requests[*slot].counts()) {
                bins[slot] = bin(request);
            }
        }
        Some(bins)
    }

    /// Which streams of the replay are pooled: `None` for those that are left out, else their slot.
    pub(crate) fn replay_stream_slot(&self, position: usize, metric: Metric) -> Option<usize> {
        let member = !self.baseline_knows(metric) || self.takes_part(position, metric);
        member.then_some(position)
    }

    /// Which streams of the baseline are pooled, and in which slot.
    pub(crate) fn baseline_stream_slot(&self, position: usize, metric: Metric) -> Option<usize> {
        match self.matching {
            Matching::None => Some(position),
            Matching::ByRow => self.slot_of[position].filter(|slot| self.takes_part(*slot, metric)),
        }
    }

    /// Where the TTFT of the request in a slot ends.
    fn stamp(&self, slot: usize) -> FirstStamp {
        self.row(slot).and_then(|row| row.first_kind).map_or(self.usual_stamp, FirstStamp::from)
    }
}

/// The stamp that most of the baseline's TTFTs end at.
fn usual_stamp(baseline: &Roster) -> FirstStamp {
    let mut kinds: BTreeMap<FirstStamp, u64> = BTreeMap::new();
    for kind in baseline.requests.iter().filter_map(|r| r.first_kind) {
        *kinds.entry(kind.into()).or_default() += 1;
    }
    kinds.into_iter().max_by_key(|(_, n)| *n).map_or(FirstStamp::Output, |(stamp, _)| stamp)
}
