//! Token counts: mean and interpolated quantiles.

use serde::Serialize;

use super::hash::CountOf;

/// Mean and quantiles of a token count over the rows where it is known; all `None` where it is known nowhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenStats {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median, linear interpolation between order statistics.
    pub p50: Option<f64>,
    /// 95 % quantile, interpolated.
    pub p95: Option<f64>,
    /// 99 % quantile, interpolated.
    pub p99: Option<f64>,
    /// Largest count.
    pub max: Option<u32>,
    /// Smallest count.
    pub min: Option<u32>,
    /// Sum of all counts.
    pub total: u64,
    /// Rows where the count is known.
    pub known: u64,
}

/// Counts by value: exact quantiles in memory that grows with distinct values only.
#[derive(Debug, Default)]
pub(super) struct TokenCounts {
    rows_of: CountOf<u32>,
    total: u64,
    known: u64,
}

impl TokenCounts {
    pub(super) fn push(&mut self, tokens: Option<u32>) {
        let Some(tokens) = tokens else { return };
        *self.rows_of.entry(tokens).or_default() += 1;
        self.total += u64::from(tokens);
        self.known += 1;
    }

    pub(super) fn finish(self) -> TokenStats {
        let mut sorted: Vec<(u32, u64)> = self.rows_of.into_iter().collect();
        sorted.sort_unstable();
        let quantile = |percent| interpolated(&sorted, self.known, percent);
        TokenStats {
            mean: (self.known > 0).then(|| self.total as f64 / self.known as f64),
            p50: quantile(50),
            p95: quantile(95),
            p99: quantile(99),
            max: sorted.last().map(|(tokens, _)| *tokens),
            min: sorted.first().map(|(tokens, _)| *tokens),
            total: self.total,
            known: self.known,
        }
    }
}

/// The quantile at position (n − 1)·p of the sorted values, straight between its neighbours.
fn interpolated(sorted: &[(u32, u64)], known: u64, percent: u64) -> Option<f64> {
    let hundredths = known.checked_sub(1)? * percent;
    let (position, between) = (hundredths / 100, (hundredths % 100) as f64 / 100.0);
    let at = |position: u64| {
        let mut end = 0;
        let found = sorted.iter().find(|(_, rows)| {
            end += rows;
            position < end
        });
        found.map(|(tokens, _)| f64::from(*tokens))
    };
    let lower = at(position)?;
    let upper = at((position + 1).min(known - 1))?;
    Some(lower + (upper - lower) * between)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_straight_between_order_statistics() {
        let mut counts = TokenCounts::default();
        [Some(10), Some(40), None, Some(20), Some(20)].into_iter().for_each(|tokens| counts.push(tokens));
        let stats = counts.finish();
        assert_eq!(
            (stats.mean, stats.p50, stats.max, stats.min),
            (Some(22.5), Some(20.0), Some(40), Some(10))
        );
        // Position 2.85 between 20 and 40.
        assert!((stats.p95.unwrap() - 37.0).abs() < 1e-9);
        assert_eq!((stats.total, stats.known), (90, 4));
    }

    #[test]
    fn unknown_counts_have_no_figures() {
        let mut counts = TokenCounts::default();
        counts.push(None);
        let stats = counts.finish();
        assert_eq!((stats.mean, stats.p50, stats.max, stats.known), (None, None, None, 0));
        let mut one = TokenCounts::default();
        one.push(Some(7));
        assert_eq!(one.finish().p99, Some(7.0));
    }
}
