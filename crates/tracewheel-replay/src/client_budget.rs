//! Limits that a client keeps by itself, and the meters that keep them.
//!
//! A meter is the generic cell rate algorithm: one number, the time up to which what was taken is paid for. It says *when*
//! an amount may leave instead of whether it may now, so that a request gets its time once, in order, and sits in the
//! wheel until then. It reads no clock.

use serde::{Deserialize, Serialize};

use crate::config::SECOND_NS;

const MINUTE_NS: i64 = 60 * SECOND_NS;

/// Limits of the client, all off by default. A request passes them once, in planned order, before its first attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientBudget {
    /// Requests a minute, at least 1.
    pub requests_per_minute: Option<u64>,
    /// Planned input and output tokens a minute, at least 1. A request that is larger than what may leave at once takes all
    /// of it, and what follows waits until it is paid for.
    pub tokens_per_minute: Option<u64>,
    /// Requests in flight at once, at least 1, from the first release to the last attempt's end: a request that waits for a
    /// retry is in flight.
    pub in_flight: Option<u32>,
    /// How much may leave at once after a pause: what the rates allow in this time, at least one request. In nanoseconds.
    pub burst_ns: i64,
    /// A request whose wait is longer is not sent (`budget_exceeded`); `None`: it waits. In nanoseconds.
    pub max_wait_ns: Option<i64>,
}

impl Default for ClientBudget {
    fn default() -> Self {
        ClientBudget {
            requests_per_minute: None,
            tokens_per_minute: None,
            in_flight: None,
            burst_ns: MINUTE_NS,
            max_wait_ns: None,
        }
    }
}

impl ClientBudget {
    /// Whether anything is limited.
    pub fn is_on(&self) -> bool {
        self.requests_per_minute.is_some() || self.tokens_per_minute.is_some() || self.in_flight.is_some()
    }

    /// The first field that can't be kept, and why.
    pub(crate) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let zero = [
            ("budget.requests_per_minute", self.requests_per_minute == Some(0)),
            ("budget.tokens_per_minute", self.tokens_per_minute == Some(0)),
            ("budget.in_flight", self.in_flight == Some(0)),
        ];
        let zero = zero.iter().find(|(_, wrong)| *wrong).map(|(name, _)| (*name, "it must be at least 1"));
        let negative = [
            ("budget.burst", self.burst_ns < 0),
            ("budget.max_wait", self.max_wait_ns.is_some_and(|ns| ns < 0)),
        ];
        let negative = negative.iter().find(|(_, wrong)| *wrong);
        zero.or(negative.map(|(name, _)| (*name, "it must not be negative")))
    }
}

/// The rates of a budget.
#[derive(Debug)]
pub(crate) struct Meters {
    requests: Option<Meter>,
    tokens: Option<Meter>,
}

impl Meters {
    pub(crate) fn new(budget: &ClientBudget) -> Self {
        let meter = |per_minute: Option<u64>| per_minute.map(|rate| Meter::new(rate, budget.burst_ns));
        Meters { requests: meter(budget.requests_per_minute), tokens: meter(budget.tokens_per_minute) }
    }

    /// The earliest time from `from_ns` on at which a request of so many tokens may leave.
    pub(crate) fn earliest_ns(&self, from_ns: i64, tokens: u64) -> i64 {
        let of = |meter: &Option<Meter>, amount| {
            meter.as_ref().map_or(from_ns, |meter| meter.earliest_ns(from_ns, amount))
        };
        of(&self.requests, 1).max(of(&self.tokens, tokens))
    }

    /// Takes a request of so many tokens that leaves at `at_ns`.
    pub(crate) fn take(&mut self, at_ns: i64, tokens: u64) {
        for (meter, amount) in [(&mut self.requests, 1), (&mut self.tokens, tokens)] {
            if let Some(meter) = meter {
                meter.take(at_ns, amount);
            }
        }
    }
}

/// One rate. Times are kept in nanoseconds times the rate, so that nothing is ever rounded away.
#[derive(Debug)]
struct Meter {
    per_minute: i128,
    burst: i128,
    /// Up to when what was taken is paid for.
    paid_until: i128,
}

impl Meter {
    fn new(per_minute: u64, burst_ns: i64) -> Self {
        let per_minute = i128::from(per_minute);
        Meter { per_minute, burst: i128::from(burst_ns) * per_minute, paid_until: i128::MIN }
    }

    fn cost(amount: u64) -> i128 {
        i128::from(amount) * i128::from(MINUTE_NS)
    }

    fn earliest_ns(&self, from_ns: i64, amount: u64) -> i64 {
        let room = (self.burst - Self::cost(amount)).max(0);
        let ahead = self.paid_until.saturating_sub(room);
        // Rounded up: never early.
        let at = ahead.div_euclid(self.per_minute) + i128::from(ahead.rem_euclid(self.per_minute) > 0);
        i64::try_from(at.max(i128::from(from_ns))).unwrap_or(i64::MAX)
    }

    fn take(&mut self, at_ns: i64, amount: u64) {
        let at = i128::from(at_ns) * self.per_minute;
        // What came of rounding a time up to a nanosecond is no pause.
        let paused = at.saturating_sub(self.paid_until) >= self.per_minute;
        self.paid_until = if paused { at } else { self.paid_until } + Self::cost(amount);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leave(meter: &mut Meter, from_ns: i64, amount: u64) -> i64 {
        let at = meter.earliest_ns(from_ns, amount);
        meter.take(at, amount);
        at
    }

    #[test]
    fn a_minutes_worth_leaves_at_once_and_then_one_at_a_time() {
        let mut meter = Meter::new(60, MINUTE_NS);
        for _ in 0..60 {
            assert_eq!(leave(&mut meter, 5, 1), 5);
        }
        assert_eq!(leave(&mut meter, 5, 1), 5 + SECOND_NS);
        assert_eq!(leave(&mut meter, 5, 1), 5 + 2 * SECOND_NS);
        // Thirty idle seconds later thirty may leave at once.
        let later = 5 + 32 * SECOND_NS;
        for _ in 0..30 {
            assert_eq!(leave(&mut meter, later, 1), later);
        }
        assert_eq!(leave(&mut meter, later, 1), later + SECOND_NS);
    }

    #[test]
    fn without_a_burst_requests_leave_evenly() {
        let mut meter = Meter::new(7, 0);
        let times: Vec<i64> = (0..8).map(|_| leave(&mut meter, 0, 1)).collect();
        // 60 s / 7 = 8571428571.43 ns: each rounded up by itself, so that seven take the minute exactly.
        assert_eq!(times[..3], [0, 8_571_428_572, 17_142_857_143]);
        assert_eq!(times[7], MINUTE_NS);
    }

    #[test]
    fn a_request_larger_than_the_burst_leaves_when_all_is_paid_and_is_paid_for_by_those_that_follow() {
        let mut meter = Meter::new(600, 10 * SECOND_NS);
        assert_eq!(leave(&mut meter, 0, 300), 0, "a hundred are the burst");
        assert_eq!(leave(&mut meter, 0, 100), 30 * SECOND_NS);
        assert_eq!(leave(&mut meter, 0, 1_000), 40 * SECOND_NS);
        assert_eq!(leave(&mut meter, 0, 10), 131 * SECOND_NS);
    }

    #[test]
    fn the_tighter_of_two_rates_decides() {
        let budget = ClientBudget {
            requests_per_minute: Some(60),
            tokens_per_minute: Some(6_000),
            burst_ns: 0,
            ..ClientBudget::default()
        };
        let mut meters = Meters::new(&budget);
        let mut at = 0;
        for (tokens, expected_s) in [(50, 0), (500, 1), (10, 6), (10, 7)] {
            at = meters.earliest_ns(at, tokens);
            meters.take(at, tokens);
            assert_eq!(at, expected_s * SECOND_NS, "{tokens}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_named() {
        let named = |budget: ClientBudget| budget.problem().map(|(field, _)| field);
        let off = ClientBudget::default();
        assert!(!off.is_on() && named(off).is_none());
        assert_eq!(named(ClientBudget { in_flight: Some(0), ..off }), Some("budget.in_flight"));
        assert_eq!(named(ClientBudget { burst_ns: -1, ..off }), Some("budget.burst"));
    }

    proptest! {
        /// Against the definition: in no stretch does more leave than its length allows and the burst (or one request).
        #[test]
        fn no_stretch_of_time_holds_more_than_the_rate_and_the_burst(
            per_minute in 1..5_000u64, burst_ms in 0..100_000i64,
            steps in proptest::collection::vec((0..3_000i64, 1..40u64), 1..60),
        ) {
            let mut meter = Meter::new(per_minute, burst_ms * 1_000_000);
            let (mut from, mut left) = (0i64, Vec::new());
            for (pause_ms, amount) in steps {
                from += pause_ms * 1_000_000;
                let at = leave(&mut meter, left.last().map_or(from, |(last, _)| from.max(*last)), amount);
                prop_assert!(at >= from);
                left.push((at, amount));
            }
            for first in 0..left.len() {
                let mut sum = 0i128;
                for (at, amount) in &left[first..] {
                    // The last one may be larger than what is left of the burst only where it waited for all of it.
                    let length = i128::from(at - left[first].0);
                    let allowed = (length + i128::from(burst_ms) * 1_000_000) * i128::from(per_minute);
                    sum += Meter::cost(*amount);
                    let largest = left[first..].iter().map(|(_, amount)| Meter::cost(*amount)).max().unwrap_or(0);
                    prop_assert!(sum <= allowed.max(allowed - i128::from(burst_ms) * 1_000_000 * i128::from(per_minute) + largest)
                        + i128::from(per_minute) * 2);
                }
            }
        }
    }
}
