//! How a person ends a replay: the first request drains, the second cuts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::sync::{AtomicU8, Ordering};

/// How far a stop has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopLevel {
    /// Nobody asked.
    Running,
    /// No further releases; what is in flight may end. What was not released is unsent.
    Drain,
    /// What is in flight is interrupted too.
    Cut,
}

/// A handle that any thread may use to stop a replay; clones share one state. Safe to use from a signal thread.
#[derive(Debug, Clone, Default)]
pub struct StopSignal(Arc<AtomicU8>);

impl StopSignal {
    /// A signal that nobody has given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes one level further: running, drain, cut. Further calls change nothing.
    pub fn escalate(&self) -> StopLevel {
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |level| (level < 2).then_some(level + 1));
        self.level()
    }

    /// Goes to `level` unless it has gone further already.
    pub fn raise_to(&self, level: StopLevel) {
        self.0.fetch_max(level as u8, Ordering::AcqRel);
    }

    /// The level reached.
    pub fn level(&self) -> StopLevel {
        match self.0.load(Ordering::Acquire) {
            0 => StopLevel::Running,
            1 => StopLevel::Drain,
            _ => StopLevel::Cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_stop_cuts_and_a_third_changes_nothing() {
        crate::sync::each_interleaving(|| {
            let signal = StopSignal::new();
            let other = signal.clone();
            assert_eq!(signal.level(), StopLevel::Running);
            assert_eq!(other.escalate(), StopLevel::Drain);
            assert_eq!(signal.escalate(), StopLevel::Cut);
            assert_eq!(signal.escalate(), StopLevel::Cut);
            signal.raise_to(StopLevel::Drain);
            assert_eq!(other.level(), StopLevel::Cut);
        });
    }
}
