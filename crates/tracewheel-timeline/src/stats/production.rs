//! What production recorded about its own answers.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::row::RequestRow;
use crate::vocab::TtftKind;

/// Production's own figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProductionStats {
    /// Time to the first output; `None` where it is known nowhere.
    pub ttft_ns: Option<LatencyStats>,
    /// Rows by the moment that their TTFT ends at. Of several kinds, the figures above are a mixture.
    pub ttft_kinds: BTreeMap<TtftKind, u64>,
    /// Time to the last byte; `None` where it is known nowhere.
    pub e2e_ns: Option<LatencyStats>,
    /// Rows by HTTP status.
    pub status: BTreeMap<u16, u64>,
    /// Rows that name an error.
    pub errors: u64,
    /// Attempts.
    pub attempts: AttemptStats,
}

/// Quantiles of a latency, nearest rank, over the rows where it is known and not negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LatencyStats {
    /// Median.
    pub p50: i64,
    /// 90 % quantile.
    pub p90: i64,
    /// 95 % quantile.
    pub p95: i64,
    /// 99 % quantile.
    pub p99: i64,
    /// Largest.
    pub max: i64,
    /// Rows where it is known.
    pub known: u64,
}

/// Attempts as production recorded them: folded into a row, or as rows of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AttemptStats {
    /// Sum of the attempts of the rows that state them.
    pub total: u64,
    /// Rows that state their attempts.
    pub known: u64,
    /// Rows that are a logged retry of an earlier row.
    pub retry_rows: u64,
}

#[derive(Debug, Default)]
pub(super) struct Production {
    ttft_ns: Vec<i64>,
    ttft_kinds: BTreeMap<TtftKind, u64>,
    e2e_ns: Vec<i64>,
    status: BTreeMap<u16, u64>,
    errors: u64,
    attempts: AttemptStats,
}

impl Production {
    pub(super) fn push(&mut self, row: &RequestRow) {
        let measured = |latency: Option<i64>| latency.filter(|latency| *latency >= 0);
        self.ttft_ns.extend(measured(row.prod_ttft_ns));
        self.e2e_ns.extend(measured(row.prod_e2e_ns));
        if let Some(kind) = row.prod_ttft_kind {
            *self.ttft_kinds.entry(kind).or_default() += 1;
        }
        if let Some(status) = row.prod_status {
            *self.status.entry(status).or_default() += 1;
        }
        self.errors += u64::from(row.prod_error.is_some());
        if let Some(attempts) = row.prod_attempts {
            self.attempts.total += u64::from(attempts);
            self.attempts.known += 1;
        }
        self.attempts.retry_rows += u64::from(row.retry_of_row.is_some());
    }

    pub(super) fn finish(self) -> Option<ProductionStats> {
        let stats = ProductionStats {
            ttft_ns: LatencyStats::of(self.ttft_ns),
            ttft_kinds: self.ttft_kinds,
            e2e_ns: LatencyStats::of(self.e2e_ns),
            status: self.status,
            errors: self.errors,
            attempts: self.attempts,
        };
        let nothing = stats.ttft_ns.is_none()
            && stats.e2e_ns.is_none()
            && stats.status.is_empty()
            && stats.errors == 0
            && stats.attempts == AttemptStats::default();
        (!nothing).then_some(stats)
    }
}

impl LatencyStats {
    fn of(mut latencies: Vec<i64>) -> Option<Self> {
        latencies.sort_unstable();
        let count = latencies.len();
        // Nearest rank: the smallest value with at least p of all values at or below it.
        let rank = |percent: usize| latencies[(count * percent).div_ceil(100).max(1) - 1];
        let max = *latencies.last()?;
        Some(Self { p50: rank(50), p90: rank(90), p95: rank(95), p99: rank(99), max, known: count as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_quantiles_are_values_that_occurred() {
        let stats = LatencyStats::of((1..=10).rev().collect()).unwrap();
        assert_eq!((stats.p50, stats.p90, stats.p95, stats.p99, stats.max), (5, 9, 10, 10, 10));
        assert_eq!(LatencyStats::of(vec![7]).unwrap().p50, 7);
        assert_eq!(LatencyStats::of(Vec::new()), None);
    }

    #[test]
    fn rows_without_production_figures_have_none() {
        let mut production = Production::default();
        production.push(&RequestRow::default());
        assert_eq!(production.finish(), None);
    }

    #[test]
    fn negative_latencies_are_left_out_and_statuses_counted() {
        let mut production = Production::default();
        for (ttft_ns, status) in [(-1, 200), (5, 200), (9, 429)] {
            production.push(&RequestRow {
                prod_ttft_ns: Some(ttft_ns),
                prod_ttft_kind: Some(TtftKind::Headers),
                prod_status: Some(status),
                prod_attempts: Some(2),
                ..RequestRow::default()
            });
        }
        let stats = production.finish().unwrap();
        assert_eq!(stats.ttft_ns.unwrap().known, 2);
        assert_eq!(stats.status, BTreeMap::from([(200, 2), (429, 1)]));
        assert_eq!(stats.attempts, AttemptStats { total: 6, known: 3, retry_rows: 0 });
    }
}
