//! Seeded chance without state: every draw is named by what it is drawn for.

/// What a draw is for; keeps the streams apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draw {
    Step,
    Intake,
    OutputLength,
    Text,
    RetryAfter,
    Tenants,
    Fault,
}

/// Draws that depend on the seed, the purpose and a number only, never on order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chance {
    seed: u64,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// 64 random bits for the `n`-th draw of a purpose.
    pub(crate) fn bits(self, draw: Draw, n: u64) -> u64 {
        mix(n ^ mix(self.seed ^ mix(draw as u64)))
    }

    /// Whether something with this chance (0 to 1) happens the `n`-th time.
    pub(crate) fn happens(self, draw: Draw, n: u64, probability: f64) -> bool {
        ((self.bits(draw, n) >> 11) as f64) < probability * (1_u64 << 53) as f64
    }

    /// A whole number from `low` to `high`, both included, all equally likely (to within 2⁻³²).
    pub(crate) fn between(self, draw: Draw, n: u64, low: u32, high: u32) -> u32 {
        let span = u64::from(high.saturating_sub(low)) + 1;
        low + (((self.bits(draw, n) >> 32) * span) >> 32) as u32
    }

    /// The `n`-th of a row of numbers from 0 to `high` that lie evenly at any length of the row (a Weyl sequence by the
    /// golden ratio, begun where the seed says): one number more or less hardly changes how a few are spread.
    pub(crate) fn evenly(self, draw: Draw, n: u64, high: u32) -> u32 {
        let place = self.bits(draw, 0).wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (((place >> 32) * (u64::from(high) + 1)) >> 32) as u32
    }

    /// `ns` changed by up to `percent` per cent either way.
    pub(crate) fn around(self, draw: Draw, n: u64, ns: i64, percent: u32) -> i64 {
        if percent == 0 {
            return ns;
        }
        let millionths = i128::from(self.between(draw, n, 0, 2_000_000)) - 1_000_000;
        let change = i128::from(ns) * millionths * i128::from(percent) / 100_000_000;
        ns + change as i64
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_seed_purpose_and_number() {
        let chance = Chance::new(1);
        assert_eq!(chance.bits(Draw::Step, 5), Chance::new(1).bits(Draw::Step, 5));
        assert_ne!(chance.bits(Draw::Step, 5), chance.bits(Draw::Step, 6));
        assert_ne!(chance.bits(Draw::Step, 5), chance.bits(Draw::Text, 5));
        assert_ne!(chance.bits(Draw::Step, 5), Chance::new(2).bits(Draw::Step, 5));
    }

    #[test]
    fn jitter_stays_in_its_bounds_and_is_even_on_average() {
        let chance = Chance::new(7);
        let draws: Vec<i64> = (0..10_000).map(|n| chance.around(Draw::Step, n, 1_000_000, 10)).collect();
        assert!(draws.iter().all(|ns| (900_000..=1_100_000).contains(ns)));
        let mean = draws.iter().sum::<i64>() / 10_000;
        assert!((995_000..1_005_000).contains(&mean), "{mean}");
        assert_eq!(chance.around(Draw::Step, 3, 1_000_000, 0), 1_000_000);
    }

    #[test]
    fn an_even_row_leaves_no_quarter_empty_for_long() {
        let chance = Chance::new(3);
        for begin in 0..50 {
            let mut quarters = [false; 4];
            (begin..begin + 8).for_each(|n| quarters[chance.evenly(Draw::RetryAfter, n, 3) as usize] = true);
            assert_eq!(quarters, [true; 4]);
        }
        assert_ne!(
            chance.evenly(Draw::RetryAfter, 0, 1000),
            Chance::new(4).evenly(Draw::RetryAfter, 0, 1000)
        );
    }

    #[test]
    fn what_is_certain_happens_and_what_is_impossible_does_not() {
        let chance = Chance::new(4);
        let count = |p: f64| (0..10_000).filter(|n| chance.happens(Draw::Fault, *n, p)).count();
        assert_eq!((count(0.0), count(1.0)), (0, 10_000));
        assert!((900..1100).contains(&count(0.1)), "{}", count(0.1));
    }

    #[test]
    fn whole_numbers_reach_both_ends() {
        let chance = Chance::new(9);
        let draws: Vec<u32> = (0..200).map(|n| chance.between(Draw::OutputLength, n, 3, 5)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&3), Some(&5)));
        assert_eq!(chance.between(Draw::OutputLength, 1, 0, u32::MAX) as u64 >> 32, 0);
    }
}
