//! What an exchange collects, whichever way the answer comes, and the bounds of it.

use bytes::Bytes;
use tracewheel_net::{ReadStamp, WriteMarks};

use crate::budget::Held;
use crate::error::{ExchangeError, ExchangeErrorKind};
use crate::exchange::{BodyMark, ExchangeLimits, ExchangeOutcome};

/// An answer as far as it came.
pub(crate) struct Answer {
    pub(crate) outcome: ExchangeOutcome,
    pub(crate) limits: ExchangeLimits,
}

impl Answer {
    /// With room for so many reads from the beginning, and a body to match.
    pub(crate) fn new(limits: ExchangeLimits, reads: usize) -> Self {
        let held = Held::of(limits.budget.clone());
        Answer {
            limits,
            outcome: ExchangeOutcome {
                writes: WriteMarks::default(),
                response: None,
                reads: Vec::with_capacity(reads),
                marks: Vec::with_capacity(reads),
                body: Vec::with_capacity(reads * 256),
                end_ns: None,
                error: None,
                reusable: false,
                stream: None,
                window_wait_ns: None,
                held,
            },
        }
    }

    /// Adds to the body. `stamps`: reads and marks that there is room for, wherever they are kept.
    ///
    /// # Errors
    /// The body, its reads, or what all answers hold are over their bounds.
    pub(crate) fn take(&mut self, data: &Bytes, stamps: (usize, usize)) -> Result<(), ExchangeError> {
        let end_offset = (self.outcome.body.len() + data.len()) as u64;
        let most = self.max_body_bytes();
        if end_offset > most {
            return Err(too_large(format!("the limit is {most} bytes")));
        }
        self.outcome.body.extend_from_slice(data);
        let holds = self.outcome.body.capacity()
            + stamps.0 * size_of::<ReadStamp>()
            + stamps.1 * size_of::<BodyMark>();
        if !self.outcome.held.grow_to(holds as u64) {
            let most = self.limits.budget.as_ref().map_or(0, |budget| budget.max_bytes());
            return Err(too_large(format!(
                "the limit is {most} bytes for all answers under way (this one held too large a share)"
            )));
        }
        Ok(())
    }

    /// Refuses more reads than the limit.
    ///
    /// # Errors
    /// `reads` is over it.
    pub(crate) fn check_reads(&self, reads: usize) -> Result<(), ExchangeError> {
        if reads > self.limits.max_reads as usize {
            return Err(too_large(format!("the limit is {} reads", self.limits.max_reads)));
        }
        Ok(())
    }

    /// Of an error's body nobody wants more than its beginning.
    fn max_body_bytes(&self) -> u64 {
        let good = self.outcome.response.as_ref().is_none_or(|head| head.status.is_success());
        let most = self.limits.max_body_bytes;
        if good { most } else { most.min(self.limits.max_error_body_bytes) }
    }
}

fn too_large(detail: String) -> ExchangeError {
    ExchangeError { kind: ExchangeErrorKind::BodyTooLarge, detail }
}
