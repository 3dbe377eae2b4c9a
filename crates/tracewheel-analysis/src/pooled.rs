//! Exact quantiles of what is pooled over the events of all streams, in memory that does not grow with their number.
//!
//! Two passes over the streams. The first fills a histogram whose buckets are at most 1/2048 of their value wide. The
//! second counts, exactly, the values inside those few buckets in which a wanted rank lies, and how much of each request's
//! mass lies below those buckets' edges: the scores for the interval, in which all gaps of a request form one cluster.
//! Quantiles are therefore exact; the ends of their intervals are widened outwards to a bucket's edge.

use std::collections::BTreeMap;

use crate::interval::{Estimate, Measured, Scores, Spectrum, rank_bounds};
use crate::quantile::Percentile;

/// Buckets per doubling: 2^11.
const SUB_BITS: u32 = 11;
/// Values below this have a bucket each.
const LINEAR: u64 = 1 << (SUB_BITS + 1);

/// The bucket of a value; negative values count as 0.
fn bucket(value: i64) -> usize {
    let value = value.max(0) as u64;
    if value < LINEAR {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    (u64::from(shift) * (1 << SUB_BITS) + (value >> shift)) as usize
}

/// The smallest value of a bucket.
fn lower_edge(bucket: usize) -> i64 {
    let bucket = bucket as u64;
    if bucket < LINEAR {
        return bucket as i64;
    }
    let shift = (bucket >> SUB_BITS) - 1;
    let mantissa = bucket - (shift << SUB_BITS);
    i64::try_from(u128::from(mantissa) << shift).unwrap_or(i64::MAX)
}

/// The first pass: how much mass lies in each bucket.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, value: i64, mass: u32) {
        let at = bucket(value);
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += u64::from(mass);
        self.total += u64::from(mass);
    }

    /// The bucket in which a rank (from 1) lies, and the mass before that bucket.
    fn find(&self, rank: u64) -> Option<(usize, u64)> {
        let mut before = 0;
        for (at, count) in self.counts.iter().enumerate() {
            if before + count >= rank {
                return Some((at, before));
            }
            before += count;
        }
        None
    }
}

/// One wanted percentile: where it lies, and what the second pass finds there.
struct Target {
    percentile: Percentile,
    bucket: usize,
    /// Rank of the quantile among the values of its bucket, from 1.
    rank_within: u64,
    within: BTreeMap<i64, u64>,
    /// Each request's mass below the bucket, and below or in it.
    below: Vec<(u32, u32)>,
}

/// The second pass.
pub(crate) struct Pool {
    histogram: Histogram,
    targets: Vec<Target>,
    /// Each request's whole mass.
    mass: Vec<u32>,
}

impl Pool {
    /// Makes ready for the second pass over `requests` requests.
    pub(crate) fn new(histogram: Histogram, percentiles: &[Percentile], requests: usize) -> Self {
        let targets = percentiles.iter().filter_map(|p| {
            let rank = p.rank(histogram.total)?;
            let (bucket, before) = histogram.find(rank)?;
            let below = vec![(0, 0); requests];
            Some(Target {
                percentile: *p,
                bucket,
                rank_within: rank - before,
                within: BTreeMap::new(),
                below,
            })
        });
        Self { targets: targets.collect(), histogram, mass: vec![0; requests] }
    }

    /// The whole mass.
    pub(crate) fn total(&self) -> u64 {
        self.histogram.total
    }

    /// A value of a request, of the same masses as in the first pass.
    pub(crate) fn add(&mut self, request: usize, value: i64, mass: u32) {
        let at = bucket(value);
        self.mass[request] += mass;
        for target in &mut self.targets {
            if at < target.bucket {
                target.below[request].0 += mass;
            }
            if at <= target.bucket {
                target.below[request].1 += mass;
            }
            if at == target.bucket {
                *target.within.entry(value.max(0)).or_default() += u64::from(mass);
            }
        }
    }

    /// The exact quantile and its interval.
    pub(crate) fn measure(&self, p: Percentile, level: f64) -> Option<Measured> {
        let target = self.targets.iter().find(|t| t.percentile == p)?;
        let mut passed = 0;
        let value = target.within.iter().find_map(|(value, count)| {
            passed += count;
            (passed >= target.rank_within).then_some(*value)
        })?;
        let (spectrum, m) = self.dependence(target, level);
        let (lo, hi) = rank_bounds(p, self.histogram.total, m, level);
        let lo = lo.and_then(|rank| self.histogram.find(rank)).map(|(at, _)| lower_edge(at).min(value));
        let hi =
            hi.and_then(|rank| self.histogram.find(rank)).map(|(at, _)| (lower_edge(at + 1) - 1).max(value));
        Some(Measured { estimate: Estimate::new(value, (lo, hi), level, m), spectrum })
    }

    /// The scores' spectrum at the edge of the bucket that says more about the dependence, and the effective size there.
    /// Where neither edge splits the values, every request counts as one observation.
    fn dependence(&self, target: &Target, level: f64) -> (Spectrum, u64) {
        let at_edge = |edge: fn(&(u32, u32)) -> u32| {
            let parts = target.below.iter().zip(&self.mass).map(|(b, n)| (f64::from(edge(b)), f64::from(*n)));
            let scores = Scores::new(parts, self.histogram.total as f64);
            let spectrum = Spectrum::new(&scores.scores);
            let splits = scores.share > 0.0 && scores.share < 1.0;
            let m = splits.then(|| scores.effective(&spectrum, level));
            (spectrum, m)
        };
        let (before, after) = (at_edge(|b| b.0), at_edge(|b| b.1));
        match (before.1, after.1) {
            (Some(a), Some(b)) if a < b => (before.0, a),
            (_, Some(b)) => (after.0, b),
            (Some(a), None) => (before.0, a),
            (None, None) => (after.0, self.mass.iter().filter(|n| **n > 0).count().max(1) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::quantile::nearest_rank;

    fn pool(requests: &[Vec<(i64, u32)>]) -> Pool {
        let mut histogram = Histogram::default();
        for (value, mass) in requests.iter().flatten() {
            histogram.add(*value, *mass);
        }
        let mut pool = Pool::new(histogram, &Percentile::REPORTED, requests.len());
        for (at, request) in requests.iter().enumerate() {
            for (value, mass) in request {
                pool.add(at, *value, *mass);
            }
        }
        pool
    }

    #[test]
    fn buckets_tile_the_values() {
        for value in (0..20_000).chain((14..62).flat_map(|e| [(1i64 << e) - 1, 1 << e, (1 << e) + 12_345])) {
            let at = bucket(value);
            assert!(lower_edge(at) <= value && value < lower_edge(at + 1), "{value} in {at}");
            let width = lower_edge(at + 1) - lower_edge(at);
            assert!(width == 1 || width <= value / 2048, "{value}: {width}");
        }
    }

    #[test]
    fn gaps_that_cluster_by_request_get_the_interval_of_requests() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let requests: Vec<Vec<(i64, u32)>> = (0..400)
            .map(|_| {
                let pace = 1_000_000 + (1e6 * rng.random::<f64>()) as i64;
                (0..50).map(|_| (pace + (1e3 * rng.random::<f64>()) as i64, 1)).collect()
            })
            .collect();
        let measured = pool(&requests).measure(Percentile::P50, 0.95).unwrap();
        let m = measured.estimate.interval.effective_n;
        assert!((150..=800).contains(&m), "20,000 gaps of 400 requests are worth {m}");
        assert!(measured.estimate.lo() <= 1_500_000 && measured.estimate.hi() >= 1_500_000);
    }

    #[test]
    fn one_value_for_all_is_that_value() {
        let measured = pool(&vec![vec![(2_000_000, 1); 10]; 30]).measure(Percentile::P95, 0.95).unwrap();
        assert_eq!(measured.estimate.value_ns, Some(2_000_000));
        assert_eq!(measured.estimate.interval.effective_n, 30);
    }

    proptest! {
        #[test]
        fn pooled_quantiles_equal_sorting_everything(
            requests in prop::collection::vec(
                prop::collection::vec((prop_oneof![0i64..50, 0i64..5_000_000, 0i64..1 << 50], 1u32..4), 0..12),
                1..20,
            )
        ) {
            let mut all: Vec<i64> = requests
                .iter()
                .flatten()
                .flat_map(|(v, m)| std::iter::repeat_n(*v, *m as usize))
                .collect();
            all.sort_unstable();
            let pool = pool(&requests);
            for p in Percentile::REPORTED {
                let measured = pool.measure(p, 0.95).map(|m| m.estimate);
                prop_assert_eq!(measured.map(|e| e.value()), nearest_rank(&all, p));
                if let Some(e) = measured {
                    prop_assert!(e.lo() <= e.value() && e.value() <= e.hi());
                }
            }
        }
    }
}
