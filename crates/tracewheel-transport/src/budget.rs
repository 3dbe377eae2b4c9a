//! A bound on what all answers under way hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that every answer may hold, however many there are: a budget that others have used up ends no ordinary answer.
const MIN_SHARE_BYTES: u64 = 256 << 10;

/// Bytes that answers hold together, from their first byte until their outcome is dropped. Above the bound, an answer
/// that grows and holds more than its fair share (the bound divided by the answers that hold any) ends.
#[derive(Debug)]
pub struct BodyBudget {
    max_bytes: u64,
    held_bytes: AtomicU64,
    holders: AtomicU64,
}

impl BodyBudget {
    /// A budget of `max_bytes`.
    pub fn new(max_bytes: u64) -> Arc<Self> {
        Arc::new(BodyBudget { max_bytes, held_bytes: AtomicU64::new(0), holders: AtomicU64::new(0) })
    }

    /// The bound, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// What is held now, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn fair_share(&self) -> u64 {
        (self.max_bytes / self.holders.load(Ordering::Relaxed).max(1)).max(MIN_SHARE_BYTES)
    }
}

/// What one answer holds of a budget; given back when it is dropped.
#[derive(Debug, Default)]
pub struct Held {
    budget: Option<Arc<BodyBudget>>,
    bytes: u64,
}

impl Held {
    pub(crate) fn of(budget: Option<Arc<BodyBudget>>) -> Self {
        Held { budget, bytes: 0 }
    }

    /// Notes that the answer holds `bytes` now; `false` when that is too much.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> bool {
        let Some(budget) = &self.budget else { return true };
        if bytes > self.bytes {
            if self.bytes == 0 {
                budget.holders.fetch_add(1, Ordering::Relaxed);
            }
            budget.held_bytes.fetch_add(bytes - self.bytes, Ordering::Relaxed);
            self.bytes = bytes;
        }
        budget.held_bytes() <= budget.max_bytes || self.bytes <= budget.fair_share()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(budget) = self.budget.as_ref().filter(|_| self.bytes > 0) {
            budget.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
            budget.holders.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn above_the_bound_only_what_exceeds_its_fair_share_ends_and_all_is_given_back() {
        let budget = BodyBudget::new(1 << 20);
        let mut small = Held::of(Some(Arc::clone(&budget)));
        let mut large = Held::of(Some(Arc::clone(&budget)));
        assert!(small.grow_to(4_096) && large.grow_to(1_000_000), "below the bound anything goes");
        assert!(!large.grow_to(1 << 20));
        assert!(small.grow_to(8_192), "others' use ends no small answer");
        assert_eq!(budget.held_bytes(), (1 << 20) + 8_192);
        drop(large);
        assert!(small.grow_to(600_000));
        drop(small);
        assert_eq!((budget.held_bytes(), budget.holders.load(Ordering::Relaxed)), (0, 0));
        assert!(Held::default().grow_to(u64::MAX), "without a budget there is no bound");
    }
}
