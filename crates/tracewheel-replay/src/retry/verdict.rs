//! What a policy makes of an attempt that ended.

use http::HeaderMap;
use tracewheel_timeline::vocab::Reason;

use super::jitter::Delay;
use super::{LongerDelay, RetryKind, RetryPolicy, server_delay_ns};

/// What is known of an attempt that did not end well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure<'a> {
    /// Why, by the transport or the status.
    pub(crate) reason: Reason,
    /// What came, if a head did.
    pub(crate) response: Option<Answer<'a>>,
    /// Wall time of the end, for dates in headers.
    pub(crate) end_unix_ns: i64,
    /// Retries made so far.
    pub(crate) retries: u32,
    /// The request's last wait; `None` before its first retry.
    pub(crate) last_delay_ns: Option<i64>,
    /// From the request's due time to the end of this attempt.
    pub(crate) elapsed_ns: i64,
    /// A streamed answer was asked for.
    pub(crate) streamed: bool,
}

impl Failure<'_> {
    /// Whether the caller of an SDK had the beginning of the answer, so that it can't be asked for again unseen: a stream is
    /// handed over with its head, a plain answer only when it is whole.
    fn was_handed_over(&self) -> bool {
        self.streamed && self.response.is_some()
    }
}

/// A head and what came of the body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
}

/// What follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request has failed.
    Final,
    /// Another attempt, so long after the end of this one.
    Retry {
        /// In nanoseconds.
        delay_ns: i64,
    },
}

impl RetryPolicy {
    /// Whether and when another attempt follows. `chance` draws from [0, 1).
    pub(crate) fn decide(&self, failure: Failure<'_>, chance: impl FnOnce() -> f64) -> Verdict {
        if self.kind == RetryKind::None || failure.retries >= self.max_retries || !self.repeats(failure) {
            return Verdict::Final;
        }
        let asked = failure.response.and_then(|answer| {
            server_delay_ns(&self.server_delays, answer.headers, answer.body, failure.end_unix_ns)
        });
        let delay_ns = match asked.filter(|delay| *delay > 0) {
            Some(delay_ns) if delay_ns <= self.server_delay_max_ns => delay_ns,
            Some(_) if self.server_delay_longer == LongerDelay::GiveUp => return Verdict::Final,
            Some(_) if self.server_delay_longer == LongerDelay::Shorten => self.server_delay_max_ns,
            _ => self.formula_ns(failure, chance()),
        };
        let begins_ns = failure.elapsed_ns.saturating_add(delay_ns);
        if self.total_time_ns.is_some_and(|most| begins_ns > most) {
            return Verdict::Final;
        }
        Verdict::Retry { delay_ns }
    }

    fn formula_ns(&self, failure: Failure<'_>, chance: f64) -> i64 {
        let grown = match self.kind {
            RetryKind::None | RetryKind::Fixed => self.base_delay_ns as f64,
            RetryKind::Exponential => {
                // Infinite at worst, which the cap makes finite.
                self.base_delay_ns as f64 * self.multiplier.powi(failure.retries.min(1_000) as i32)
            }
        };
        let delay = Delay {
            formula_ns: (grown as i64).min(self.max_delay_ns),
            base_ns: self.base_delay_ns,
            max_ns: self.max_delay_ns,
            last_ns: failure.last_delay_ns,
        };
        self.jitter.spread(delay, chance)
    }

    fn repeats(&self, failure: Failure<'_>) -> bool {
        match failure.reason {
            Reason::LimitExceeded | Reason::Internal => false,
            reason if reason.is_timeout() => self.on_timeout && !failure.was_handed_over(),
            reason if reason.is_connect() => self.on_connect_error,
            Reason::ResetBeforeResponse
            | Reason::StreamRefused
            // A head that broke off or was no HTTP: to an SDK all of this is one error of the connection.
            | Reason::ResetInHeaders
            | Reason::HttpProtocol
            | Reason::HttpsExpected
            | Reason::Http2Only
            | Reason::HeadTooLarge
            | Reason::ResetMidStream
            | Reason::HttpFraming
            | Reason::StreamCancelled
            | Reason::StreamInternalError
            | Reason::StreamCalm
            | Reason::StreamProtocol
            | Reason::StreamReset => self.on_reset_before_response && !failure.was_handed_over(),
            _ => failure.response.is_some_and(|answer| self.repeats_status(answer)),
        }
    }

    fn repeats_status(&self, answer: Answer<'_>) -> bool {
        if self.obey_should_retry {
            match answer.headers.get("x-should-retry").map(|value| value.as_bytes()) {
                Some(b"true") => return true,
                Some(b"false") => return false,
                _ => {}
            }
        }
        self.statuses.iter().any(|range| (range.from..=range.to).contains(&answer.status))
    }
}
