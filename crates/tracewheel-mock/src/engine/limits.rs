//! Request and token budgets: GCRA, on engine time.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::Clock as GovernorClock;
use governor::middleware::{StateInformationMiddleware, StateSnapshot};
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{NotUntil, Quota, RateLimiter};
use tracewheel_clock::RunNs;

use crate::config::LimitConfig;

/// Keys with a budget of their own; later ones share one, so that invented keys can't use up memory.
const MAX_KEYS: usize = 10_000;
const SHARED_KEY: u64 = 0;

/// Which budget refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// Requests per minute.
    Requests,
    /// Tokens per minute: prompt plus the longest answer asked for.
    Tokens,
    /// Requests under way at once.
    InFlight,
}

/// A refusal by a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimited {
    /// The budget that was empty.
    pub budget: Budget,
    /// When the same request would be let through if nothing else came, nanoseconds from now; at least the configured
    /// floor. `None`: never, the request is larger than the budget's burst; or, for requests under way, unknown.
    pub retry_after_ns: Option<i64>,
}

/// What is left of the budgets after a request was let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Remaining {
    /// Requests that could follow at once.
    pub requests: Option<u32>,
    /// Tokens that could follow at once.
    pub tokens: Option<u32>,
}

/// The budgets of every key.
#[derive(Debug)]
pub(crate) struct Limits {
    clock: EngineClock,
    requests: Option<Quota>,
    tokens: Option<Quota>,
    per_key: bool,
    by_key: HashMap<u64, KeyBudgets>,
}

#[derive(Debug)]
struct KeyBudgets {
    requests: Option<Limiter>,
    tokens: Option<Limiter>,
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, EngineClock, StateInformationMiddleware>;

/// Engine time as governor wants it; moved by hand before each check.
#[derive(Debug, Clone, Default)]
struct EngineClock {
    now_ns: Arc<AtomicU64>,
}

impl EngineClock {
    /// Engine time may start below zero (an arrival before the run's start); governor's can't.
    fn set(&self, now: RunNs) {
        let ns = u64::try_from(now.0).unwrap_or(0);
        self.now_ns.fetch_max(ns, Ordering::Relaxed);
    }
}

impl GovernorClock for EngineClock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.now_ns.load(Ordering::Relaxed))
    }
}

impl Limits {
    pub(crate) fn new(config: &LimitConfig) -> Self {
        Self {
            clock: EngineClock::default(),
            requests: quota(config.requests_per_minute, config.request_burst),
            tokens: quota(config.tokens_per_minute, config.token_burst),
            per_key: config.per_key,
            by_key: HashMap::new(),
        }
    }

    /// Charges one request of `tokens` tokens to `key`'s budgets, or says when to come back.
    ///
    /// The request budget is charged first; a request that the token budget refuses has used one request, as with
    /// hosted providers, where refused requests count too.
    pub(crate) fn check(&mut self, now: RunNs, key: u64, tokens: u32) -> Result<Remaining, RateLimited> {
        if self.requests.is_none() && self.tokens.is_none() {
            return Ok(Remaining::default());
        }
        self.clock.set(now);
        let now = self.clock.now();
        let budgets = self.budgets(key);
        let mut remaining = Remaining::default();
        if let Some(limiter) = &budgets.requests {
            let left = limiter.check().map_err(|not_until| refusal(Budget::Requests, &not_until, now))?;
            remaining.requests = Some(left.remaining_burst_capacity());
        }
        if let (Some(limiter), Some(tokens)) = (&budgets.tokens, NonZeroU32::new(tokens)) {
            let left: StateSnapshot = limiter
                .check_n(tokens)
                .map_err(|_| RateLimited { budget: Budget::Tokens, retry_after_ns: None })?
                .map_err(|not_until| refusal(Budget::Tokens, &not_until, now))?;
            remaining.tokens = Some(left.remaining_burst_capacity());
        }
        Ok(remaining)
    }

    fn budgets(&mut self, key: u64) -> &KeyBudgets {
        let full = self.by_key.len() >= MAX_KEYS && !self.by_key.contains_key(&key);
        let key = if self.per_key && !full { key } else { SHARED_KEY };
        let limiter = |quota: Quota| {
            RateLimiter::direct_with_clock(quota, self.clock.clone())
                .with_middleware::<StateInformationMiddleware>()
        };
        self.by_key.entry(key).or_insert_with(|| KeyBudgets {
            requests: self.requests.map(limiter),
            tokens: self.tokens.map(limiter),
        })
    }
}

fn quota(per_minute: Option<NonZeroU32>, burst: Option<NonZeroU32>) -> Option<Quota> {
    per_minute.map(|rate| Quota::per_minute(rate).allow_burst(burst.unwrap_or(rate)))
}

fn refusal(budget: Budget, not_until: &NotUntil<Nanos>, now: Nanos) -> RateLimited {
    let wait: Duration = not_until.wait_time_from(now);
    RateLimited { budget, retry_after_ns: Some(i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn limits(requests: Option<(u32, u32)>, tokens: Option<(u32, u32)>, per_key: bool) -> Limits {
        let some = |n| NonZeroU32::new(n);
        Limits::new(&LimitConfig {
            requests_per_minute: requests.and_then(|(rate, _)| some(rate)),
            request_burst: requests.and_then(|(_, burst)| some(burst)),
            tokens_per_minute: tokens.and_then(|(rate, _)| some(rate)),
            token_burst: tokens.and_then(|(_, burst)| some(burst)),
            per_key,
            ..LimitConfig::default()
        })
    }

    #[test]
    fn without_budgets_everything_passes() {
        let mut limits = limits(None, None, false);
        assert!((0..1000).all(|n| limits.check(RunNs(n), 1, u32::MAX).is_ok()));
    }

    #[test]
    fn a_request_budget_lets_its_burst_through_and_then_one_an_interval() {
        // 60 a minute: one a second, two at once.
        let mut limits = limits(Some((60, 2)), None, false);
        assert_eq!(limits.check(RunNs(0), 1, 5).map(|left| left.requests), Ok(Some(1)));
        assert_eq!(limits.check(RunNs(0), 1, 5).map(|left| left.requests), Ok(Some(0)));
        let refused = limits.check(RunNs(SECOND / 4), 1, 5);
        // The next cell is there at 1 s.
        let wait = RateLimited { budget: Budget::Requests, retry_after_ns: Some(SECOND * 3 / 4) };
        assert_eq!(refused, Err(wait));
        assert!(limits.check(RunNs(SECOND - 1), 1, 5).is_err());
        assert!(limits.check(RunNs(SECOND), 1, 5).is_ok());
    }

    #[test]
    fn a_token_budget_counts_tokens() {
        // 6,000 a minute: one each 10 ms, 1,000 at once.
        let mut limits = limits(None, Some((6000, 1000)), false);
        assert_eq!(limits.check(RunNs(0), 1, 900).map(|left| left.tokens), Ok(Some(100)));
        // 300 more need 200 that are not there yet: 2 s.
        let wait = RateLimited { budget: Budget::Tokens, retry_after_ns: Some(2 * SECOND) };
        assert_eq!(limits.check(RunNs(0), 1, 300), Err(wait));
        assert!(limits.check(RunNs(2 * SECOND), 1, 300).is_ok());
    }

    #[test]
    fn a_request_larger_than_the_burst_can_never_pass() {
        let mut limits = limits(None, Some((6000, 1000)), false);
        let never = RateLimited { budget: Budget::Tokens, retry_after_ns: None };
        assert_eq!(limits.check(RunNs(0), 1, 1001), Err(never));
        assert!(limits.check(RunNs(0), 1, 1000).is_ok());
    }

    #[test]
    fn keys_have_budgets_of_their_own_only_if_asked() {
        let mut shared = limits(Some((60, 1)), None, false);
        assert!(shared.check(RunNs(0), 1, 1).is_ok());
        assert!(shared.check(RunNs(0), 2, 1).is_err());
        let mut own = limits(Some((60, 1)), None, true);
        assert!(own.check(RunNs(0), 1, 1).is_ok());
        assert!(own.check(RunNs(0), 2, 1).is_ok());
        assert!(own.check(RunNs(0), 1, 1).is_err());
    }

    #[test]
    fn invented_keys_end_in_a_shared_budget() {
        let mut own = limits(Some((60, 1)), None, true);
        for key in 1..=MAX_KEYS as u64 {
            assert!(own.check(RunNs(0), key, 1).is_ok());
        }
        assert!(own.check(RunNs(0), 20_000, 1).is_ok());
        assert!(own.check(RunNs(0), 20_001, 1).is_err());
        assert!(own.by_key.len() <= MAX_KEYS + 1);
    }
}
