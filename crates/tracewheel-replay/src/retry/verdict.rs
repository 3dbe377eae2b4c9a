//! What a policy makes of an attempt that ended.

use http::HeaderMap;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tracewheel_timeline::vocab::Reason;

use super::{LongerDelay, RetryPolicy};

/// What is known of an attempt that did not end well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure<'a> {
    /// Why, by the transport or the status.
    pub(crate) reason: Reason,
    /// Status code and headers, if a head came.
    pub(crate) response: Option<(u16, &'a HeaderMap)>,
    /// Wall time of the end, for dates in headers.
    pub(crate) end_unix_ns: i64,
    /// Retries made so far.
    pub(crate) retries: u32,
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
        if failure.retries >= self.max_retries || !self.repeats(failure) {
            return Verdict::Final;
        }
        let asked = failure.response.and_then(|(_, headers)| server_delay_ns(headers, failure.end_unix_ns));
        match asked.filter(|delay| *delay > 0) {
            Some(delay_ns) if delay_ns <= self.server_delay_max_ns => return Verdict::Retry { delay_ns },
            Some(_) if self.server_delay_longer == LongerDelay::GiveUp => return Verdict::Final,
            _ => {}
        }
        let doubled =
            self.base_delay_ns.saturating_mul(1i64.checked_shl(failure.retries.min(62)).unwrap_or(i64::MAX));
        let full = doubled.min(self.max_delay_ns);
        let shortened = (full as f64 * (1.0 - self.jitter * chance())).round() as i64;
        Verdict::Retry { delay_ns: shortened.max(0) }
    }

    fn repeats(&self, failure: Failure<'_>) -> bool {
        match failure.reason {
            // A stream that had begun is never sent again: its beginning was handed over.
            Reason::ResetInHeaders
            | Reason::ResetMidStream
            | Reason::HttpProtocol
            | Reason::HttpsExpected
            | Reason::Http2Only
            | Reason::HttpFraming
            | Reason::HeadTooLarge
            | Reason::LimitExceeded
            | Reason::Internal => false,
            reason if reason.is_timeout() => self.on_timeout,
            reason if reason.is_connect() => self.on_connect_error,
            Reason::ResetBeforeResponse | Reason::StreamRefused => self.on_reset_before_response,
            // As a connection that breaks: before an answer by the policy, within one never.
            Reason::StreamCancelled
            | Reason::StreamInternalError
            | Reason::StreamCalm
            | Reason::StreamProtocol
            | Reason::StreamReset => self.on_reset_before_response && failure.response.is_none(),
            _ => failure.response.is_some_and(|(status, headers)| self.repeats_status(status, headers)),
        }
    }

    fn repeats_status(&self, status: u16, headers: &HeaderMap) -> bool {
        if self.obey_should_retry {
            match headers.get("x-should-retry").map(|value| value.as_bytes()) {
                Some(b"true") => return true,
                Some(b"false") => return false,
                _ => {}
            }
        }
        self.statuses.iter().any(|range| (range.from..=range.to).contains(&status))
    }
}

/// The delay that the server asks for: `retry-after-ms`, else `retry-after` as seconds, else as an HTTP date. May be
/// negative (a date in the past). `None` where it asks for nothing that can be read.
pub(crate) fn server_delay_ns(headers: &HeaderMap, now_unix_ns: i64) -> Option<i64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Some(to_ns(ms / 1e3));
    }
    let after = text("retry-after")?;
    match number(after) {
        Some(seconds) => Some(to_ns(seconds)),
        None => {
            let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(after).ok()?;
            i64::try_from(date.as_nanosecond() - i128::from(now_unix_ns)).ok()
        }
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| !number.is_nan())
}

/// Saturates: an endless delay is a very long one.
fn to_ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

/// Draws the jitter of one request's retries: the same for the same seed, request and attempt, on every machine.
pub(crate) fn jitter(seed: u64, request_id: u64, retries: u32) -> f64 {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&request_id.to_le_bytes());
    key[16..20].copy_from_slice(&retries.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    unit(&mut rng)
}

/// Uniform over [0, 1) in steps of 2⁻⁵³.
fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    fn status(policy: &RetryPolicy, status: u16, retries: u32, pairs: &[(&'static str, &str)]) -> Verdict {
        let headers = headers(pairs);
        let reason = Reason::from_http_status(status).unwrap();
        policy.decide(Failure { reason, response: Some((status, &headers)), end_unix_ns: 0, retries }, || 0.0)
    }

    fn broken(policy: &RetryPolicy, reason: Reason) -> Verdict {
        policy.decide(Failure { reason, response: None, end_unix_ns: 0, retries: 0 }, || 0.0)
    }

    fn after(ns: i64) -> Verdict {
        Verdict::Retry { delay_ns: ns }
    }

    #[test]
    fn the_sdks_repeat_408_409_429_and_500_up_twice_and_nothing_else() {
        for policy in [RetryPolicy::openai_sdk(), RetryPolicy::anthropic_sdk()] {
            for code in [408, 409, 429, 500, 502, 503, 504, 529] {
                assert_eq!(status(&policy, code, 0, &[]), after(SECOND / 2), "{code}");
                assert_eq!(status(&policy, code, 1, &[]), after(SECOND), "{code}");
                assert_eq!(status(&policy, code, 2, &[]), Verdict::Final, "{code}");
            }
            for code in [400, 401, 403, 404, 413, 422] {
                assert_eq!(status(&policy, code, 0, &[]), Verdict::Final, "{code}");
            }
        }
    }

    #[test]
    fn should_retry_overrides_the_status_in_both_directions() {
        let policy = RetryPolicy::openai_sdk();
        assert_eq!(status(&policy, 500, 0, &[("x-should-retry", "false")]), Verdict::Final);
        assert_eq!(status(&policy, 400, 0, &[("x-should-retry", "true")]), after(SECOND / 2));
        assert_eq!(
            status(&policy, 400, 2, &[("x-should-retry", "true")]),
            Verdict::Final,
            "the budget still holds"
        );
    }

    #[test]
    fn broken_connections_and_time_outs_are_repeated_but_never_a_stream_that_had_begun() {
        let policy = RetryPolicy::openai_sdk();
        for reason in [
            Reason::ConnectRefused,
            Reason::ResetBeforeResponse,
            Reason::ResponseTimeout,
            Reason::TotalTimeout,
            Reason::TlsClosed,
            // As the SDKs do, though it will hardly help.
            Reason::TlsUntrusted,
        ] {
            assert_eq!(broken(&policy, reason), after(SECOND / 2), "{reason}");
            assert_eq!(broken(&RetryPolicy::none(), reason), Verdict::Final, "{reason}");
        }
        for reason in
            [Reason::ResetInHeaders, Reason::ResetMidStream, Reason::HttpProtocol, Reason::LimitExceeded]
        {
            assert_eq!(broken(&policy, reason), Verdict::Final, "{reason}");
        }
        let careful = RetryPolicy { on_reset_before_response: false, ..RetryPolicy::openai_sdk() };
        assert_eq!(broken(&careful, Reason::ResetBeforeResponse), Verdict::Final);
    }

    #[test]
    fn the_servers_delay_is_read_in_the_sdks_order() {
        let policy = RetryPolicy::openai_sdk();
        let both = [("retry-after-ms", "1500"), ("retry-after", "7")];
        assert_eq!(status(&policy, 429, 0, &both), after(3 * SECOND / 2));
        assert_eq!(status(&policy, 429, 0, &[("retry-after", "7")]), after(7 * SECOND));
        assert_eq!(status(&policy, 429, 0, &[("retry-after", "0.25")]), after(SECOND / 4));
        assert_eq!(
            status(&policy, 429, 1, &[("retry-after", " 3 ")]),
            after(3 * SECOND),
            "no doubling, no jitter"
        );
        let date = [("retry-after", "Thu, 01 Jan 1970 00:00:09 GMT")];
        assert_eq!(status(&policy, 429, 0, &date), after(9 * SECOND));
    }

    #[test]
    fn a_delay_of_nothing_or_of_the_past_falls_back_to_the_formula() {
        let policy = RetryPolicy::openai_sdk();
        for text in ["0", "-3", "soon", "nan"] {
            assert_eq!(status(&policy, 429, 0, &[("retry-after", text)]), after(SECOND / 2), "{text}");
        }
        let map = headers(&[("retry-after", "Thu, 01 Jan 1970 00:00:09 GMT")]);
        assert_eq!(server_delay_ns(&map, 12 * SECOND), Some(-3 * SECOND));
    }

    #[test]
    fn a_longer_delay_ends_the_request_for_one_sdk_and_is_ignored_by_the_other() {
        let (openai, anthropic) = (RetryPolicy::openai_sdk(), RetryPolicy::anthropic_sdk());
        let ask = |policy, text| status(policy, 429, 0, &[("retry-after", text)]);
        assert_eq!(ask(&openai, "120"), after(120 * SECOND));
        assert_eq!(ask(&openai, "121"), Verdict::Final);
        assert_eq!(ask(&openai, "inf"), Verdict::Final);
        assert_eq!(ask(&anthropic, "60"), after(60 * SECOND));
        assert_eq!(ask(&anthropic, "61"), after(SECOND / 2));
    }

    #[test]
    fn jitter_only_shortens_and_by_a_quarter_at_most() {
        let policy = RetryPolicy::openai_sdk();
        let failure =
            |retries| Failure { reason: Reason::ConnectRefused, response: None, end_unix_ns: 0, retries };
        for id in 0..200 {
            let Verdict::Retry { delay_ns } = policy.decide(failure(0), || jitter(7, id, 0)) else {
                panic!()
            };
            assert!((375_000_000..=500_000_000).contains(&delay_ns), "{delay_ns}");
        }
        let long = RetryPolicy { max_retries: 80, ..policy };
        assert_eq!(long.decide(failure(70), || 0.0), after(8 * SECOND), "capped, without overflow");
        assert_eq!(jitter(7, 1, 0), jitter(7, 1, 0));
        assert_ne!(jitter(7, 1, 0), jitter(7, 1, 1));
        assert_ne!(jitter(7, 1, 0), jitter(8, 1, 0));
    }
}
