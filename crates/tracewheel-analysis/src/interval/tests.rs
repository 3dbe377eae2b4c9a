use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

/// A normal variate by Box and Muller.
fn normal(rng: &mut impl Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random::<f64>().max(1e-300), rng.random());
    (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
}

/// Latencies whose logarithm is an AR(1) series with standard normal margins: 100 ms at the median.
pub(crate) fn latencies(n: usize, phi: f64, rng: &mut impl Rng) -> Vec<Option<i64>> {
    let mut state = normal(rng);
    (0..n)
        .map(|_| {
            state = phi * state + (1.0 - phi * phi).sqrt() * normal(rng);
            Some((1e8 * state.exp()) as i64)
        })
        .collect()
}

/// The true quantile of those latencies.
fn truth(z: f64) -> i64 {
    (1e8 * z.exp()) as i64
}

/// The share of 95 % intervals that contain the truth.
fn coverage(n: usize, phi: f64, p: Percentile, z: f64, rounds: u32) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(20_26 + n as u64);
    let truth = truth(z);
    let hits = (0..rounds)
        .filter(|_| {
            let estimate = Series::new(latencies(n, phi, &mut rng)).estimate(p, 0.95).unwrap();
            estimate.lo() <= truth && truth <= estimate.hi()
        })
        .count();
    hits as f64 / f64::from(rounds)
}

/// Reported percentiles with the normal quantiles behind them.
const LEVELS: [(Percentile, f64); 4] = [
    (Percentile::P50, 0.0),
    (Percentile::P90, 1.281_552),
    (Percentile::P95, 1.644_854),
    (Percentile::P99, 2.326_348),
];

#[test]
fn intervals_keep_their_level_on_autocorrelated_latencies() {
    for (p, z) in LEVELS {
        for phi in [0.0, 0.5, 0.9] {
            // 300 rounds at a true level of 0.95 fall below 0.91 in one of 1,000 cases.
            let share = coverage(200, phi, p, z, 300);
            assert!(share >= 0.91, "{p} at phi {phi}: {share}");
        }
    }
}

/// The table of `docs/reference/metrics.md`: `cargo test --release -p tracewheel-analysis -- --ignored --nocapture coverage`.
#[test]
#[ignore = "minutes long: makes the table of the documentation"]
fn coverage_table() {
    for (p, z) in LEVELS {
        for n in [200, 1000, 5000] {
            let row = [0.0, 0.5, 0.8, 0.9, 0.95].map(|phi| format!("{:.3}", coverage(n, phi, p, z, 2000)));
            println!("| {p} | {n} | {} |", row.join(" | "));
        }
    }
}

#[test]
fn an_independent_sample_that_counts_fully_gets_the_classical_ranks() {
    // Table values of the order-statistic interval for the median, 95 %.
    assert_eq!(rank_bounds(Percentile::P50, 10, 10, 0.95), (Some(2), Some(9)));
    assert_eq!(rank_bounds(Percentile::P50, 20, 20, 0.95), (Some(6), Some(15)));
    assert_eq!(rank_bounds(Percentile::P50, 100, 100, 0.95), (Some(40), Some(61)));
}

#[test]
fn a_small_sample_does_not_bound_its_tail() {
    // 0.99^150 = 0.22: all 150 may lie below the true p99.
    assert_eq!(rank_bounds(Percentile::P99, 150, 150, 0.95).1, None);
    // 0.99^368 = 0.0248.
    assert_eq!(rank_bounds(Percentile::P99, 367, 367, 0.95).1, None);
    assert_eq!(rank_bounds(Percentile::P99, 368, 368, 0.95).1, Some(368));
    let estimate = Series::new((1..=150).map(Some).collect()).estimate(Percentile::P99, 0.95).unwrap();
    assert_eq!(estimate.interval.hi_is, BoundIs::Unbounded);
    assert_eq!(estimate.interval.hi_ns, None);
    assert_eq!(estimate.value_ns, Some(149));
}

#[test]
fn failures_make_the_upper_end_infinite_before_the_quantile_itself() {
    let values =
        (0..1000i64).map(|i| Some(if i % 25 == 0 { NEVER_NS } else { 1000 + i * 7919 % 1000 })).collect();
    let series = Series::new(values);
    assert_eq!(series.infinite(), 40);
    let p95 = series.estimate(Percentile::P95, 0.95).unwrap();
    assert!(!p95.infinite && p95.value_ns.is_some());
    assert_eq!(p95.interval.hi_is, BoundIs::Infinite);
    let p99 = series.estimate(Percentile::P99, 0.95).unwrap();
    assert!(p99.infinite && p99.value_ns.is_none());
}

#[test]
fn fewer_effective_observations_widen_the_ranks() {
    let full = rank_bounds(Percentile::P90, 1000, 1000, 0.95);
    let tenth = rank_bounds(Percentile::P90, 1000, 100, 0.95);
    assert_eq!(full, (Some(881), Some(919)));
    assert!(tenth.0 < full.0 && tenth.1 > full.1, "{tenth:?}");
}

#[test]
fn equal_weights_change_nothing() {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let values = latencies(500, 0.3, &mut rng);
    let plain = Series::new(values.clone()).estimate(Percentile::P95, 0.95).unwrap();
    let weighted = Series::weighted(values, vec![0.25; 500]).estimate(Percentile::P95, 0.95).unwrap();
    assert_eq!(plain, weighted);
}

#[test]
fn nothing_gives_nothing_and_one_gives_one_without_bounds() {
    assert!(Series::new(vec![None, None]).estimate(Percentile::P50, 0.95).is_none());
    let one = Series::new(vec![None, Some(7)]).estimate(Percentile::P50, 0.95).unwrap();
    assert_eq!(
        (one.value_ns, one.interval.lo_is, one.interval.hi_is),
        (Some(7), BoundIs::Unbounded, BoundIs::Unbounded)
    );
}

proptest! {
    #[test]
    fn the_interval_contains_its_quantile(
        values in prop::collection::vec(prop_oneof![9 => (0i64..5000).prop_map(Some), 1 => Just(Some(NEVER_NS)), 1 => Just(None)], 1..200),
        thousandths in 1_000u32..=99_900,
    ) {
        let p = Percentile::from_thousandths(thousandths).unwrap();
        if let Some(estimate) = Series::new(values).estimate(p, 0.95) {
            prop_assert!(estimate.lo() <= estimate.value());
            prop_assert!(estimate.value() <= estimate.hi());
        }
    }
}
