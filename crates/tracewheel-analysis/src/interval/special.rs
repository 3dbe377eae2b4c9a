//! The three special functions that intervals need, each checked against tabulated values.

/// Natural logarithm of the gamma function for `x > 0`, by Stirling's series after lifting `x` above 10
/// (Abramowitz & Stegun 6.1.41; error below 1e-14 relative there).
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut lifted) = (x, 0.0);
    while x < 10.0 {
        lifted += x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    let series = inverse * (1.0 / 12.0 - square * (1.0 / 360.0 - square * (1.0 / 1260.0 - square / 1680.0)));
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - lifted
}

/// The regularised incomplete beta function `I_x(a, b)` for `a, b > 0`, by its continued fraction (A&S 26.5.8),
/// evaluated with the modified Lentz method on the side of the mean where it converges fast.
pub(super) fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp() / a;
    front * beta_fraction(x, a, b)
}

/// The continued fraction of `I_x(a, b)`. Needs about √max(a, b) steps; the cap is beyond any sample we can hold.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let lift = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / lift(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for step in 1..100_000 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / lift(1.0 + even * d);
        c = lift(1.0 + even / c);
        value *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / lift(1.0 + odd * d);
        c = lift(1.0 + odd / c);
        let factor = d * c;
        value *= factor;
        if (factor - 1.0).abs() < 1e-14 {
            break;
        }
    }
    value
}

/// `P(X ≤ k)` for `X` binomial with `n` trials of chance `q`.
pub(super) fn binomial_cdf(k: u64, n: u64, q: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    incomplete_beta(1.0 - q, (n - k) as f64, k as f64 + 1.0)
}

/// The upper quantile `t` of Student's distribution with `dof` degrees of freedom: `P(|T| ≤ t) = level`.
pub(super) fn student_two_sided(level: f64, dof: f64) -> f64 {
    let outside = |t: f64| incomplete_beta(dof / (dof + t * t), dof / 2.0, 0.5);
    let (mut lo, mut hi) = (0.0, 1.0);
    while outside(hi) > 1.0 - level && hi < 1e9 {
        hi *= 2.0;
    }
    for _ in 0..80 {
        let middle = 0.5 * (lo + hi);
        if outside(middle) > 1.0 - level {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    0.5 * (lo + hi)
}

/// The two-sided quantile `z` of the normal distribution: `P(|Z| ≤ z) = level`, for levels below 0.9999999.
pub(super) fn normal_two_sided(level: f64) -> f64 {
    let (mut lo, mut hi) = (0.0, 6.0);
    for _ in 0..80 {
        let middle = 0.5 * (lo + hi);
        if normal_within(middle) < level {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    0.5 * (lo + hi)
}

/// `P(|Z| ≤ z)` by the series `√(2/π)·e^(−z²/2)·Σ z^(2n+1)/(2n+1)!!` (A&S 26.2.11), whose terms are all positive.
fn normal_within(z: f64) -> f64 {
    let (mut term, mut sum) = (z, z);
    for n in 1..200 {
        term *= z * z / f64::from(2 * n + 1);
        sum += term;
        if term < 1e-17 * sum {
            break;
        }
    }
    (2.0 / std::f64::consts::PI).sqrt() * (-0.5 * z * z).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, tolerance: f64) {
        assert!((a - b).abs() <= tolerance, "{a} is not {b}");
    }

    #[test]
    fn ln_gamma_meets_factorials_and_the_half() {
        close(ln_gamma(1.0), 0.0, 1e-11);
        close(ln_gamma(5.0), 24f64.ln(), 1e-11);
        close(ln_gamma(0.5), std::f64::consts::PI.sqrt().ln(), 1e-11);
        close(ln_gamma(101.0), 363.739_375_555_563_5, 1e-10);
    }

    #[test]
    fn binomial_tails_equal_the_sum_of_their_terms() {
        for (n, q) in [(1u64, 0.5f64), (7, 0.3), (20, 0.95), (60, 0.01)] {
            let mut term = (1.0 - q).powi(n as i32);
            let mut sum = 0.0;
            for k in 0..=n {
                sum += term;
                close(binomial_cdf(k, n, q), sum.min(1.0), 1e-12);
                term *= (n - k) as f64 / (k + 1) as f64 * q / (1.0 - q);
            }
        }
    }

    #[test]
    fn a_large_binomial_is_still_accurate() {
        // Median of a symmetric binomial: exactly one half plus half of the central term.
        let n = 100_000_000u64;
        let central = 1.0 / (std::f64::consts::PI * n as f64 / 2.0).sqrt();
        close(binomial_cdf(n / 2, n, 0.5), 0.5 + central / 2.0, 1e-6);
    }

    #[test]
    fn student_and_normal_quantiles_meet_the_tables() {
        for (dof, expected) in
            [(1.0, 12.706_204_7), (2.0, 4.302_652_7), (5.0, 2.570_581_8), (30.0, 2.042_272_5)]
        {
            close(student_two_sided(0.95, dof), expected, 1e-6);
        }
        close(normal_two_sided(0.95), 1.959_963_984_540_054, 1e-13);
        close(normal_two_sided(0.99), 2.575_829_303_548_900_4, 1e-13);
    }
}
