//! Arrivals: span, gaps, minutes.

const MINUTE_NS: i64 = 60_000_000_000;

/// Statistics of sorted arrivals, in constant memory.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    count: u64,
    ends: Option<(i64, i64)>,
    ties: u64,
    gaps: Moments,
    /// The current minute's number from the first arrival, and its requests.
    minute: (i64, u64),
    peak: u64,
}

/// Mean and sum of squared deviations, updated value by value (Welford 1962): no cancellation.
#[derive(Debug, Default)]
struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn push(&mut self, value: f64) {
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
    }
}

impl Arrivals {
    pub(super) fn push(&mut self, arrival_unix_ns: i64) {
        self.count += 1;
        let Some((first, last)) = self.ends else {
            self.ends = Some((arrival_unix_ns, arrival_unix_ns));
            self.minute = (0, 1);
            self.peak = 1;
            return;
        };
        let gap_ns = arrival_unix_ns.saturating_sub(last);
        self.ties += u64::from(gap_ns == 0);
        self.gaps.push(gap_ns as f64);
        let minute = arrival_unix_ns.saturating_sub(first) / MINUTE_NS;
        self.minute = if minute == self.minute.0 { (minute, self.minute.1 + 1) } else { (minute, 1) };
        self.peak = self.peak.max(self.minute.1);
        self.ends = Some((first, arrival_unix_ns));
    }

    pub(super) fn first(&self) -> Option<i64> {
        self.ends.map(|(first, _)| first)
    }

    pub(super) fn last(&self) -> Option<i64> {
        self.ends.map(|(_, last)| last)
    }

    pub(super) fn span_seconds(&self) -> Option<f64> {
        self.ends.map(|(first, last)| last.saturating_sub(first) as f64 / 1e9)
    }

    pub(super) fn ties(&self) -> u64 {
        self.ties
    }

    pub(super) fn cv(&self) -> Option<f64> {
        let gaps = &self.gaps;
        (gaps.count >= 2 && gaps.mean > 0.0).then(|| (gaps.squares / gaps.count as f64).sqrt() / gaps.mean)
    }

    pub(super) fn peak_minute_requests(&self) -> Option<u64> {
        self.ends.map(|_| self.peak)
    }

    pub(super) fn peak_to_mean(&self) -> Option<f64> {
        let minutes = self.ends.map(|_| self.minute.0 + 1)?;
        Some(self.peak as f64 * minutes as f64 / self.count as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seconds: &[i64]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        seconds.iter().for_each(|second| arrivals.push(second * 1_000_000_000));
        arrivals
    }

    #[test]
    fn the_cv_is_the_population_deviation_over_the_mean_with_ties() {
        // Gaps 0, 2, 4: mean 2, population variance 8/3.
        let arrivals = of(&[10, 10, 12, 16]);
        assert!((arrivals.cv().unwrap() - (8.0_f64 / 3.0).sqrt() / 2.0).abs() < 1e-12);
        assert_eq!(arrivals.ties(), 1);
        assert_eq!(of(&[5, 5, 5]).cv(), None);
        assert_eq!(of(&[5, 6]).cv(), None);
    }

    #[test]
    fn minutes_count_from_the_first_arrival_and_empty_ones_count_in_the_mean() {
        // Bins [30, 90) holds 3, [90, 150) none, [150, 210) one.
        let arrivals = of(&[30, 60, 89, 150]);
        assert_eq!(arrivals.peak_minute_requests(), Some(3));
        assert!((arrivals.peak_to_mean().unwrap() - 3.0 / (4.0 / 3.0)).abs() < 1e-12);
        assert_eq!(arrivals.span_seconds(), Some(120.0));
    }

    #[test]
    fn no_arrivals_have_no_figures() {
        let none = Arrivals::default();
        assert_eq!((none.span_seconds(), none.cv(), none.peak_to_mean()), (None, None, None));
    }
}
