//! Quantiles and medians.

use std::collections::BTreeMap;

/// What one round of one row gave, by name; times in microseconds.
pub(crate) type Figures = BTreeMap<&'static str, f64>;

/// A sorted sample.
#[derive(Debug, Clone)]
pub(crate) struct Spread(Vec<i64>);

impl Spread {
    pub(crate) fn of(mut values: Vec<i64>) -> Self {
        values.sort_unstable();
        Spread(values)
    }

    /// The distances from the median.
    pub(crate) fn around_median(values: &[i64]) -> Self {
        let median = Spread::of(values.to_vec()).at(0.5);
        Spread::of(values.iter().map(|value| (value - median).abs()).collect())
    }

    /// The quantile (nearest rank); 0 without values.
    pub(crate) fn at(&self, q: f64) -> i64 {
        let rank = (q * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.clamp(1, self.0.len().max(1)) - 1).copied().unwrap_or(0)
    }

    /// The quantile in microseconds.
    pub(crate) fn us(&self, q: f64) -> f64 {
        self.at(q) as f64 / 1e3
    }
}

/// How fast errors grow, in microseconds a second: the tenth percentile of the last third less that of the first, over the
/// time between the middles of the two. The tenth percentile, because that of the requests that leave alone is not moved by
/// how the bursts lie.
pub(crate) fn drift(errors: &[i64], offsets: &[i64]) -> f64 {
    let third = errors.len() / 3;
    if third == 0 {
        return 0.0;
    }
    let last = errors.len() - third;
    let change = Spread::of(errors[last..].to_vec()).at(0.1) - Spread::of(errors[..third].to_vec()).at(0.1);
    let seconds = (offsets[last + third / 2] - offsets[third / 2]) as f64 / 1e9;
    change as f64 / 1e3 / seconds
}

/// The median of each figure over the rounds.
pub(crate) fn medians(rounds: &[Figures]) -> Figures {
    let names = rounds.iter().flat_map(BTreeMap::keys);
    let median = |name: &'static str| {
        let mut values: Vec<f64> = rounds.iter().filter_map(|round| round.get(name).copied()).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    names.map(|name| (*name, median(name))).collect()
}
