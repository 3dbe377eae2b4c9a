//! How much of the time may go into spinning.

/// Spinning that may be saved up, in longest spins.
const SAVED_SPINS: i64 = 8;

/// An allowance for spinning that fills with time: a core that is shared punishes whoever spins without end.
///
/// Percent of the time that passes, saved up to eight of the longest spins.
#[derive(Debug)]
pub(crate) struct SpinAllowance {
    left_ns: i64,
    most_ns: i64,
    percent: i64,
    filled_ns: i64,
}

impl SpinAllowance {
    pub(crate) const fn new(percent: u8, longest_spin_ns: i64, now_ns: i64) -> Self {
        let most_ns = longest_spin_ns.saturating_mul(SAVED_SPINS);
        Self { left_ns: most_ns, most_ns, percent: percent as i64, filled_ns: now_ns }
    }

    /// Takes `spin_ns` from the allowance, or nothing if less is left.
    pub(crate) fn take(&mut self, spin_ns: i64, now_ns: i64) -> bool {
        let gained_ns = now_ns.saturating_sub(self.filled_ns).max(0).saturating_mul(self.percent) / 100;
        if gained_ns > 0 {
            self.left_ns = self.left_ns.saturating_add(gained_ns).min(self.most_ns);
            self.filled_ns = now_ns;
        }
        let granted = spin_ns <= self.left_ns;
        if granted {
            self.left_ns -= spin_ns;
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_any_long_time_no_more_than_its_share_is_spun() {
        let mut allowance = SpinAllowance::new(50, 80_000, 0);
        let mut spun_ns = 0;
        let mut now_ns = 0;
        while now_ns < 1_000_000_000 {
            if allowance.take(40_000, now_ns) {
                spun_ns += 40_000;
            }
            now_ns += 45_000;
        }
        assert!(spun_ns <= 500_000_000 + SAVED_SPINS * 80_000, "{spun_ns}");
        assert!(spun_ns >= 400_000_000, "{spun_ns}");
    }

    #[test]
    fn waits_that_are_far_apart_always_spin() {
        let mut allowance = SpinAllowance::new(50, 80_000, 0);
        assert!((1..1_000).all(|n| allowance.take(80_000, n * 1_000_000)));
    }

    #[test]
    fn a_share_of_nothing_spins_until_the_savings_are_gone() {
        let mut allowance = SpinAllowance::new(0, 10, 0);
        assert_eq!((0..100).filter(|n| allowance.take(10, n * 1_000)).count(), 8);
    }
}
