//! Requests joined with their attempts.

use std::collections::HashMap;

use super::Rows;
use crate::error::Result;
use crate::rows::{AttemptRecord, RequestRecord};

/// Bytes of attempts that wait for their request at most, roughly. A writer records a request's attempts before the
/// request, so that no more wait than are in flight; where attempts were lost, requests come without them instead of
/// the whole run being held in memory.
const WAITING_BYTES: usize = 256 << 20;

/// A streaming iterator over requests, each with its attempts in order. It ends after its first error.
#[derive(Debug)]
pub struct Exchanges {
    requests: Rows<RequestRecord>,
    attempts: Rows<AttemptRecord>,
    /// Attempts read ahead, by `(row, copy)`.
    waiting: HashMap<(u64, u32), Vec<AttemptRecord>>,
    waiting_bytes: usize,
    ended: bool,
}

impl Exchanges {
    pub(crate) fn new(requests: Rows<RequestRecord>, attempts: Rows<AttemptRecord>) -> Self {
        Self { requests, attempts, waiting: HashMap::new(), waiting_bytes: 0, ended: false }
    }

    /// The attempts of a request, read ahead until all are there.
    fn attempts_of(&mut self, request: &RequestRecord) -> Result<Vec<AttemptRecord>> {
        let key = (request.row, request.copy);
        let wanted = usize::from(request.attempts);
        let mut found = self.waiting.remove(&key).unwrap_or_default();
        self.waiting_bytes -= found.iter().map(size).sum::<usize>();
        while found.len() < wanted && self.waiting_bytes < WAITING_BYTES {
            let Some(attempt) = self.attempts.next().transpose()? else { break };
            if (attempt.row, attempt.copy) == key {
                found.push(attempt);
            } else {
                self.waiting_bytes += size(&attempt);
                self.waiting.entry((attempt.row, attempt.copy)).or_default().push(attempt);
            }
        }
        found.sort_by_key(|attempt| attempt.attempt);
        Ok(found)
    }
}

impl Iterator for Exchanges {
    type Item = Result<(RequestRecord, Vec<AttemptRecord>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let joined = self.requests.next()?.and_then(|request| {
            let attempts = self.attempts_of(&request)?;
            Ok((request, attempts))
        });
        self.ended = joined.is_err();
        Some(joined)
    }
}

/// What an attempt takes in memory, roughly.
fn size(attempt: &AttemptRecord) -> usize {
    size_of_val(attempt) + size_of_val(attempt.reads.as_slice()) + size_of_val(attempt.events.as_slice())
}
