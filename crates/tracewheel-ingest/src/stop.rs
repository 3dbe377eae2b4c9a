//! How an import is stopped from outside.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::IngestError;

const RUNNING: u8 = 0;
const STOPPED: u8 = 1;
/// The timeline is being put into its place: too late to stop.
const COMMITTED: u8 = 2;

/// Stops a running import, if it comes before the timeline is put into its place.
#[derive(Debug, Default)]
pub struct ImportStop {
    state: AtomicU8,
}

impl ImportStop {
    /// Has the import end with [`IngestError::Interrupted`] at its next row. False when it is too late: then the
    /// timeline is complete or about to be. While an input brings nothing there is no next row; the caller may end the
    /// process after a true, nothing will be put into place.
    pub fn stop(&self) -> bool {
        let stopped = self.state.compare_exchange(RUNNING, STOPPED, Ordering::SeqCst, Ordering::SeqCst);
        stopped != Err(COMMITTED)
    }

    /// Fails once it was stopped.
    pub(crate) fn check(&self) -> Result<(), IngestError> {
        match self.state.load(Ordering::Relaxed) {
            STOPPED => Err(IngestError::Interrupted),
            _ => Ok(()),
        }
    }

    /// From here on it is too late, unless it was stopped already.
    pub(crate) fn commit(&self) -> Result<(), IngestError> {
        match self.state.compare_exchange(RUNNING, COMMITTED, Ordering::SeqCst, Ordering::SeqCst) {
            Err(STOPPED) => Err(IngestError::Interrupted),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_first_wins() {
        let stopped = ImportStop::default();
        assert!(stopped.check().is_ok());
        assert!(stopped.stop() && stopped.stop());
        assert!(matches!(stopped.check(), Err(IngestError::Interrupted)));
        assert!(matches!(stopped.commit(), Err(IngestError::Interrupted)));
        let committed = ImportStop::default();
        assert!(committed.commit().is_ok());
        assert!(!committed.stop() && committed.check().is_ok());
    }
}
