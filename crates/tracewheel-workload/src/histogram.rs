//! Quantiles of durations and counts in bounded memory.
//!
//! A value falls into the bucket of its highest 8 bits: 128 buckets for each power of two, so that the middle of a bucket
//! is at most 0.4 % away from any value in it. Below 256 the buckets are exact. Thirty kilobytes, no allocation after the
//! first value.

const SUB_BITS: u32 = 7;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize) * SUB;

/// Counts of non-negative values; negative ones count as 0 and are told apart by [`Histogram::min`].
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: Vec<u32>,
    count: u64,
    min: Option<i64>,
    max: Option<i64>,
}

impl Histogram {
    /// Adds one value.
    pub fn record(&mut self, value: i64) {
        if self.counts.is_empty() {
            self.counts.resize(BUCKETS, 0);
        }
        let bucket = &mut self.counts[bucket_of(value.max(0).unsigned_abs())];
        *bucket = bucket.saturating_add(1);
        self.count += 1;
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
    }

    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.fill(0);
        (self.count, self.min, self.max) = (0, None, None);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest value, exact.
    pub fn min(&self) -> Option<i64> {
        self.min
    }

    /// The largest value, exact.
    pub fn max(&self) -> Option<i64> {
        self.max
    }

    /// Nearest-rank quantile: the value of rank ⌈q·n⌉, for 0 < q ≤ 1.
    pub fn quantile(&self, q: f64) -> Option<i64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((q * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                let value = middle_of(bucket);
                return Some(value.clamp(self.min.unwrap_or(value), self.max.unwrap_or(value)));
            }
        }
        self.max
    }
}

fn bucket_of(value: u64) -> usize {
    let bits = 64 - value.leading_zeros();
    let shift = bits.saturating_sub(SUB_BITS + 1);
    let bucket = (value >> shift) as usize + (shift as usize) * SUB;
    bucket.min(BUCKETS - 1)
}

fn middle_of(bucket: usize) -> i64 {
    let shift = (bucket / SUB).saturating_sub(1);
    let low = (bucket - shift * SUB) << shift;
    (low + ((1usize << shift) >> 1)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_within_four_thousandths_of_its_values() {
        for exponent in 0..62 {
            for offset in [0u64, 1, 3, 1 << exponent >> 1, (1 << exponent) - 1] {
                let value = (1u64 << exponent) + offset.min((1 << exponent) - 1);
                let back = middle_of(bucket_of(value)) as f64;
                let error = (back - value as f64).abs();
                assert!(error <= 0.5 || error / value as f64 <= 0.004, "{value} came back as {back}");
            }
        }
    }

    #[test]
    fn quantiles_are_of_nearest_rank() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for value in 1..=100 {
            histogram.record(value);
        }
        let at = |q| histogram.quantile(q);
        assert_eq!((at(0.5), at(0.9), at(0.99), histogram.max()), (Some(50), Some(90), Some(99), Some(100)));
        histogram.record(-5);
        assert_eq!(histogram.quantile(0.001), Some(0));
        histogram.clear();
        assert_eq!((histogram.count(), histogram.max()), (0, None));
    }
}
