//! How many independent observations a correlated sample is worth.
//!
//! Requests that arrive together wait in the same queue, so their latencies resemble each other, and `n` of them say less
//! than `n` independent ones. For a threshold `x` let request `i` bring `c_i`, its mass at or below `x`, out of `n_i`, its
//! whole mass (for one latency a request: 1 or 0, of 1; for gaps: so many of so many). The share at or below `x` is
//! `p = Σc_i / Σn_i`, and its error is carried by the scores `s_i = c_i − p·n_i`, which sum to zero. Their long-run variance
//! `Ω` in arrival order contains correlation within a request (its gaps are one score) and between neighbours.
//!
//! `Ω` is estimated by equal-weighted cosine projections: the mean of the first `B` squared projections of the scores on
//! `√(2/R)·cos(π j (i−½)/R)`, which is about chi-squared with `B` degrees of freedom, so that the estimate's own
//! uncertainty is known and enters through Student's distribution. `B = 0.4·R^⅔` (Lazarus, Lewis, Stock & Watson, *HAR
//! inference: recommendations for practice*, J. Business & Economic Statistics 36 (2018)), at least 4, at most 128. The
//! projection is made on at most 4,096 bins of neighbours, which bounds the cost and changes nothing visible at such low
//! frequencies.
//!
//! The sample is then worth `m = p(1−p) / (RΩ / (Σn_i)²)` independent observations, made smaller by `(z/t_B)²` for the
//! estimate's uncertainty, and never more than it has (Korn & Graubard, *Confidence intervals for proportions with small
//! expected number of positive counts estimated from survey data*, Survey Methodology 24 (1998); Dean & Pagano, 2015).

use std::f64::consts::PI;

use super::special::{normal_two_sided, student_two_sided};

/// Most bins that the scores are projected from.
const MAX_BINS: usize = 4096;
/// Most cosines.
const MAX_COSINES: usize = 128;
/// Fewest requests from which a dependence can be estimated at all.
const MIN_REQUESTS: usize = 8;

/// The scores of one threshold, in arrival order, with what they were made from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scores {
    /// `s_i = c_i − p·n_i`, one a request.
    pub(crate) scores: Vec<f64>,
    /// The share of the mass at or below the threshold.
    pub(crate) share: f64,
    /// The whole mass, `Σn_i`.
    pub(crate) mass: f64,
    /// How many equal observations that mass is worth at best: `(Σn)²/Σn²` for weights, the count for counts.
    pub(crate) ceiling: f64,
}

impl Scores {
    /// From each request's mass at or below the threshold and its whole mass; `ceiling` as in the field.
    pub(crate) fn new(parts: impl Iterator<Item = (f64, f64)> + Clone, ceiling: f64) -> Self {
        let (below, mass) = parts.clone().fold((0.0, 0.0), |(c, n), part| (c + part.0, n + part.1));
        let share = if mass > 0.0 { below / mass } else { 0.0 };
        Self { scores: parts.map(|(c, n)| c - share * n).collect(), share, mass, ceiling }
    }

    /// The number of independent observations that this sample is worth at its threshold, rounded down, between 1 and
    /// the ceiling.
    pub(crate) fn effective(&self, spectrum: &Spectrum, level: f64) -> u64 {
        let requests = self.scores.len();
        let spread = self.share * (1.0 - self.share);
        let largest = self.ceiling.max(1.0);
        if requests < MIN_REQUESTS || spread <= 0.0 {
            return largest as u64;
        }
        let variance = spectrum.long_run_variance() * requests as f64 / (self.mass * self.mass);
        if variance <= 0.0 {
            return largest as u64;
        }
        let caution =
            (normal_two_sided(level) / student_two_sided(level, spectrum.projections.len() as f64)).powi(2);
        (spread / variance * caution).clamp(1.0, largest) as u64
    }
}

/// The low-frequency cosine projections of a score series.
pub(crate) struct Spectrum {
    projections: Vec<f64>,
}

impl Spectrum {
    /// Projects the scores on the first cosines.
    pub(crate) fn new(scores: &[f64]) -> Self {
        let requests = scores.len();
        let bins = requests.min(MAX_BINS);
        let count = ((0.4 * (requests as f64).powf(2.0 / 3.0)) as usize).clamp(4, MAX_COSINES);
        let mut sums = vec![0.0; bins];
        for (at, score) in scores.iter().enumerate() {
            sums[at * bins / requests] += score;
        }
        let norm = (2.0 / requests as f64).sqrt();
        let table = CosineTable::new(bins);
        let projections = (1..=count).map(|j| norm * table.sum(&sums, j)).collect();
        Self { projections }
    }

    /// The estimate of the long-run variance of one score.
    fn long_run_variance(&self) -> f64 {
        self.projections.iter().map(|v| v * v).sum::<f64>() / self.projections.len() as f64
    }

    /// A cautious estimate of the long-run correlation between two score series over the same requests: one standard
    /// error nearer to zero than the plain estimate, and never below zero, because an interval may only become narrower
    /// by a correlation that is surely there.
    pub(crate) fn correlation(&self, other: &Self) -> f64 {
        let count = self.projections.len().min(other.projections.len());
        let product: f64 = self.projections.iter().zip(&other.projections).map(|(a, b)| a * b).sum();
        let scale = (self.long_run_variance() * other.long_run_variance()).sqrt() * count as f64;
        if scale <= 0.0 {
            return 0.0;
        }
        let plain = product / scale;
        let error = (1.0 - plain * plain).max(0.0) / (count as f64).sqrt();
        (plain - error).clamp(0.0, 0.95)
    }
}

/// The cosines of all multiples of `π / (2·bins)` in one turn: every cosine of the projections is one of them. A recurrence
/// would lose half of the digits over 4,096 steps.
struct CosineTable {
    turn: Vec<f64>,
}

impl CosineTable {
    fn new(bins: usize) -> Self {
        let step = PI / (2 * bins.max(1)) as f64;
        Self { turn: (0..4 * bins.max(1)).map(|k| (k as f64 * step).cos()).collect() }
    }

    /// `Σ sums_b · cos(π j (b+½) / bins)`.
    fn sum(&self, sums: &[f64], j: usize) -> f64 {
        let turn = self.turn.len();
        let (mut at, step) = (j % turn, 2 * j % turn);
        let mut total = 0.0;
        for sum in sums {
            total += sum * self.turn[at];
            at += step;
            at -= if at < turn { 0 } else { turn };
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn worth(scores: &Scores) -> f64 {
        scores.effective(&Spectrum::new(&scores.scores), 0.95) as f64
    }

    fn coin_scores(n: usize, seed: u64, repeat: usize) -> Scores {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let coins: Vec<(f64, f64)> = (0..n / repeat)
            .flat_map(|_| std::iter::repeat_n((f64::from(u8::from(rng.random::<f64>() < 0.9)), 1.0), repeat))
            .collect();
        Scores::new(coins.iter().copied(), n as f64)
    }

    #[test]
    fn the_table_of_cosines_is_walked_as_the_formula_says() {
        let sums: Vec<f64> = (0..257).map(|i| f64::from(i % 7) - 3.0).collect();
        for j in [1usize, 2, 17, 128] {
            let plain: f64 = sums
                .iter()
                .enumerate()
                .map(|(b, s)| s * (PI * j as f64 * (b as f64 + 0.5) / sums.len() as f64).cos())
                .sum();
            assert!((CosineTable::new(sums.len()).sum(&sums, j) - plain).abs() < 1e-11);
        }
    }

    #[test]
    fn independent_observations_are_worth_nearly_what_they_are() {
        let mean = (0..40).map(|seed| worth(&coin_scores(4000, seed, 1))).sum::<f64>() / 40.0;
        assert!((3200.0..=4000.0).contains(&mean), "{mean}");
    }

    #[test]
    fn observations_that_come_eight_alike_are_worth_an_eighth() {
        let mean = (0..40).map(|seed| worth(&coin_scores(16_000, seed, 8))).sum::<f64>() / 40.0;
        assert!((1600.0..2400.0).contains(&mean), "{mean}");
    }

    #[test]
    fn a_sample_without_spread_keeps_its_size() {
        let scores = Scores::new(std::iter::repeat_n((1.0, 1.0), 50), 50.0);
        assert_eq!(worth(&scores), 50.0);
    }

    #[test]
    fn correlation_is_seen_between_equal_series_and_not_between_foreign_ones() {
        let (a, b) = (coin_scores(8000, 1, 1), coin_scores(8000, 2, 1));
        let (a, b) = (Spectrum::new(&a.scores), Spectrum::new(&b.scores));
        assert!(a.correlation(&a) > 0.9);
        assert!(a.correlation(&b) < 0.15);
    }
}
