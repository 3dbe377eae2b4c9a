//! Requests joined with their attempts.

use std::collections::HashMap;

use super::Rows;
use crate::error::Result;
use crate::rows::{AttemptRecord, RequestRecord};

/// Attempts that wait for their request at most. A writer records a request's attempts before the request, so that
/// no more wait than are in flight; a run that breaks this rule is read with requests lacking attempts.
const WAITING: usize = 1 << 20;

/// A streaming iterator over requests, each with its attempts in order.
#[derive(Debug)]
pub struct Exchanges {
    requests: Rows<RequestRecord>,
    attempts: Rows<AttemptRecord>,
    /// Attempts read ahead, by `(row, copy)`.
    waiting: HashMap<(u64, u32), Vec<AttemptRecord>>,
    count: usize,
}

impl Exchanges {
    pub(crate) fn new(requests: Rows<RequestRecord>, attempts: Rows<AttemptRecord>) -> Self {
        Self { requests, attempts, waiting: HashMap::new(), count: 0 }
    }

    /// The attempts of a request, read ahead until all are there.
    fn attempts_of(&mut self, request: &RequestRecord) -> Result<Vec<AttemptRecord>> {
        let key = (request.row, request.copy);
        let wanted = usize::from(request.attempts);
        let mut found = self.waiting.remove(&key).unwrap_or_default();
        self.count -= found.len();
        while found.len() < wanted && self.count < WAITING {
            let Some(attempt) = self.attempts.next().transpose()? else { break };
            if (attempt.row, attempt.copy) == key {
                found.push(attempt);
            } else {
                self.waiting.entry((attempt.row, attempt.copy)).or_default().push(attempt);
                self.count += 1;
            }
        }
        found.sort_by_key(|attempt| attempt.attempt);
        Ok(found)
    }
}

impl Iterator for Exchanges {
    type Item = Result<(RequestRecord, Vec<AttemptRecord>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let request = match self.requests.next()? {
            Ok(request) => request,
            Err(error) => return Some(Err(error)),
        };
        Some(self.attempts_of(&request).map(|attempts| (request, attempts)))
    }
}
