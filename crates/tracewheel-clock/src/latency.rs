//! How late this thread wakes up, learned from its own wake-ups.

/// Wake-ups that the estimate looks back on.
const WINDOW: usize = 64;
/// Below this many the estimate keeps to its first guess.
const ENOUGH: usize = 8;
/// Share of the wake-ups that shall come in time: the ninth decile. A tail beyond it is the machine's, and waiting
/// earlier for it would only burn the core.
const COVERED_TENTHS: usize = 9;

/// A robust estimate of the wake-up latency: from the moment that a timer expires to the moment that user code runs.
///
/// The ninth decile of the last 64 wake-ups. A quantile and not a mean, so that one pre-emption of milliseconds
/// moves it by one rank at most; a window, so that it follows a machine that becomes busy or quiet.
#[derive(Debug)]
pub(crate) struct WakeLatency {
    seen_ns: [i64; WINDOW],
    len: usize,
    next: usize,
    estimate_ns: i64,
    fresh: bool,
}

impl WakeLatency {
    pub(crate) const fn new(first_guess_ns: i64) -> Self {
        Self { seen_ns: [0; WINDOW], len: 0, next: 0, estimate_ns: first_guess_ns, fresh: false }
    }

    /// Notes one wake-up. Constant time: it runs between a wake-up and a send.
    pub(crate) fn record(&mut self, latency_ns: i64) {
        self.seen_ns[self.next] = latency_ns.max(0);
        self.next = (self.next + 1) % WINDOW;
        self.len = (self.len + 1).min(WINDOW);
        self.fresh = true;
    }

    /// The estimate, nanoseconds. Sorts what was seen since the last call, so it is for the moment of arming.
    pub(crate) fn estimate_ns(&mut self) -> i64 {
        if self.fresh && self.len >= ENOUGH {
            let mut sorted = self.seen_ns;
            let seen = &mut sorted[..self.len];
            let rank = (seen.len() * COVERED_TENTHS).div_ceil(10) - 1;
            self.estimate_ns = *seen.select_nth_unstable(rank).1;
            self.fresh = false;
        }
        self.estimate_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_wake_ups_do_not_displace_the_first_guess() {
        let mut latency = WakeLatency::new(50_000);
        (1..ENOUGH).for_each(|_| latency.record(1));
        assert_eq!(latency.estimate_ns(), 50_000);
        latency.record(1);
        assert_eq!(latency.estimate_ns(), 1);
    }

    #[test]
    fn rare_pre_emptions_do_not_move_the_estimate() {
        let mut latency = WakeLatency::new(50_000);
        for n in 0..1_000 {
            latency.record(if n % 50 == 0 { 20_000_000 } else { 20_000 });
        }
        assert_eq!(latency.estimate_ns(), 20_000);
    }

    #[test]
    fn it_follows_a_machine_that_becomes_busy() {
        let mut latency = WakeLatency::new(50_000);
        (0..WINDOW).for_each(|_| latency.record(10_000));
        assert_eq!(latency.estimate_ns(), 10_000);
        (0..WINDOW).for_each(|_| latency.record(70_000));
        assert_eq!(latency.estimate_ns(), 70_000);
    }

    #[test]
    fn an_early_wake_up_counts_as_none() {
        let mut latency = WakeLatency::new(50_000);
        (0..ENOUGH).for_each(|_| latency.record(-5));
        assert_eq!(latency.estimate_ns(), 0);
    }
}
