//! What response headers tell about the server and its limits.

use serde::Serialize;

/// The response headers worth keeping with an attempt. Unknown is `None`; a limit of -1 is how some gateways say that
/// they do not know.
///
/// ```
/// let headers = [("X-Request-Id", b"r-1".as_slice()), ("x-ratelimit-reset-tokens", b"6m0.5s")];
/// let reported = tracewheel_protocol::ReportedHeaders::read(headers);
/// assert_eq!(reported.request_id.as_deref(), Some("r-1"));
/// assert_eq!(reported.tokens_reset_ns, Some(360_500_000_000));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReportedHeaders {
    /// The server's id of the request: `x-request-id`, else `request-id`, else `apim-request-id`.
    pub request_id: Option<String>,
    /// `server`: what answered, or the gateway before it.
    pub server: Option<String>,
    /// Whole milliseconds that the server says it spent: `openai-processing-ms`, else TGI's `x-total-time` or LiteLLM's
    /// `x-litellm-response-duration-ms`, else `x-envoy-upstream-service-time`. On a stream it covers at most the time to
    /// the headers.
    pub server_ms: Option<i64>,
    /// The wait that the server asks for, in nanoseconds: `retry-after-ms`, else `retry-after` in seconds. The form
    /// with a date is not read, since it needs a clock. May be 0 or negative, as sent.
    pub retry_after_ns: Option<i64>,
    /// What the server says about a retry: `x-should-retry`.
    pub should_retry: Option<bool>,
    /// Requests allowed in a window: `x-ratelimit-limit-requests`, else `anthropic-ratelimit-requests-limit`.
    pub requests_limit: Option<i64>,
    /// Requests left in the window: `x-ratelimit-remaining-requests`.
    pub requests_remaining: Option<i64>,
    /// Nanoseconds until the request window is full again: `x-ratelimit-reset-requests`.
    pub requests_reset_ns: Option<i64>,
    /// Tokens allowed in a window: `x-ratelimit-limit-tokens`, else `anthropic-ratelimit-tokens-limit`, else
    /// `anthropic-ratelimit-input-tokens-limit`; those left likewise. Anthropic's resets are points of wall time and are
    /// not read, since that needs a clock.
    pub tokens_limit: Option<i64>,
    /// Tokens left in the window: `x-ratelimit-remaining-tokens`.
    pub tokens_remaining: Option<i64>,
    /// Nanoseconds until the token window is full again: `x-ratelimit-reset-tokens`.
    pub tokens_reset_ns: Option<i64>,
    /// `content-encoding` other than `identity`: the body was encoded although nobody asked, and the times of its
    /// events show the encoder.
    pub content_encoding: Option<String>,
}

/// The longest header value that is looked at.
const VALUE_MAX_BYTES: usize = 512;

impl ReportedHeaders {
    /// Reads the headers of one response. Names in any case; values that are no text or too long are passed over.
    pub fn read<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> ReportedHeaders {
        let mut reported = ReportedHeaders::default();
        let mut second_choice = ReportedHeaders::default();
        let mut third_choice = ReportedHeaders::default();
        for (name, value) in headers {
            let Some(value) = std::str::from_utf8(value).ok().filter(|value| value.len() <= VALUE_MAX_BYTES)
            else {
                continue;
            };
            let value = value.trim();
            let (into, field) = match name.to_ascii_lowercase().as_str() {
                "x-request-id" => (&mut reported, Field::RequestId),
                "request-id" => (&mut second_choice, Field::RequestId),
                "apim-request-id" => (&mut third_choice, Field::RequestId),
                "server" => (&mut reported, Field::Server),
                "openai-processing-ms" => (&mut reported, Field::ServerMs),
                "x-total-time" | "x-litellm-response-duration-ms" => (&mut second_choice, Field::ServerMs),
                "x-envoy-upstream-service-time" => (&mut third_choice, Field::ServerMs),
                "anthropic-ratelimit-input-tokens-limit" => (&mut third_choice, Field::TokensLimit),
                "anthropic-ratelimit-input-tokens-remaining" => (&mut third_choice, Field::TokensRemaining),
                "x-rate-limit-reset-tokens" => (&mut second_choice, Field::TokensReset),
                "retry-after-ms" => (&mut reported, Field::RetryAfter { unit_ns: 1e6 }),
                "retry-after" => (&mut second_choice, Field::RetryAfter { unit_ns: 1e9 }),
                "x-should-retry" => (&mut reported, Field::ShouldRetry),
                "x-ratelimit-limit-requests" => (&mut reported, Field::RequestsLimit),
                "anthropic-ratelimit-requests-limit" => (&mut second_choice, Field::RequestsLimit),
                "x-ratelimit-remaining-requests" => (&mut reported, Field::RequestsRemaining),
                "anthropic-ratelimit-requests-remaining" => (&mut second_choice, Field::RequestsRemaining),
                "x-ratelimit-reset-requests" => (&mut reported, Field::RequestsReset),
                "x-ratelimit-limit-tokens" => (&mut reported, Field::TokensLimit),
                "anthropic-ratelimit-tokens-limit" => (&mut second_choice, Field::TokensLimit),
                "x-ratelimit-remaining-tokens" => (&mut reported, Field::TokensRemaining),
                "anthropic-ratelimit-tokens-remaining" => (&mut second_choice, Field::TokensRemaining),
                "x-ratelimit-reset-tokens" => (&mut reported, Field::TokensReset),
                "content-encoding" => (&mut reported, Field::ContentEncoding),
                _ => continue,
            };
            into.take(field, value);
        }
        reported.or(second_choice).or(third_choice)
    }

    fn take(&mut self, field: Field, value: &str) {
        let text = || Some(value.to_owned()).filter(|text| !text.is_empty());
        let count = || value.parse::<i64>().ok().filter(|count| *count >= 0);
        match field {
            Field::RequestId => self.request_id = self.request_id.take().or_else(text),
            Field::Server => self.server = self.server.take().or_else(text),
            Field::ServerMs => self.server_ms = self.server_ms.or_else(|| in_units(value, 1.0)),
            Field::RetryAfter { unit_ns } => {
                self.retry_after_ns = self.retry_after_ns.or(in_units(value, unit_ns))
            }
            Field::ShouldRetry => self.should_retry = self.should_retry.or(value.parse().ok()),
            Field::RequestsLimit => self.requests_limit = self.requests_limit.or_else(count),
            Field::RequestsRemaining => self.requests_remaining = self.requests_remaining.or_else(count),
            Field::RequestsReset => {
                self.requests_reset_ns = self.requests_reset_ns.or_else(|| span_ns(value))
            }
            Field::TokensLimit => self.tokens_limit = self.tokens_limit.or_else(count),
            Field::TokensRemaining => self.tokens_remaining = self.tokens_remaining.or_else(count),
            Field::TokensReset => self.tokens_reset_ns = self.tokens_reset_ns.or_else(|| span_ns(value)),
            Field::ContentEncoding => {
                let encoding = text().filter(|encoding| !encoding.eq_ignore_ascii_case("identity"));
                self.content_encoding = self.content_encoding.take().or(encoding);
            }
        }
    }

    /// The fields of a lesser choice, where the better one said nothing.
    fn or(self, lesser: ReportedHeaders) -> ReportedHeaders {
        ReportedHeaders {
            request_id: self.request_id.or(lesser.request_id),
            server_ms: self.server_ms.or(lesser.server_ms),
            retry_after_ns: self.retry_after_ns.or(lesser.retry_after_ns),
            requests_limit: self.requests_limit.or(lesser.requests_limit),
            requests_remaining: self.requests_remaining.or(lesser.requests_remaining),
            tokens_limit: self.tokens_limit.or(lesser.tokens_limit),
            tokens_remaining: self.tokens_remaining.or(lesser.tokens_remaining),
            tokens_reset_ns: self.tokens_reset_ns.or(lesser.tokens_reset_ns),
            ..self
        }
    }
}

#[derive(Clone, Copy)]
enum Field {
    RequestId,
    Server,
    ServerMs,
    RetryAfter { unit_ns: f64 },
    ShouldRetry,
    RequestsLimit,
    RequestsRemaining,
    RequestsReset,
    TokensLimit,
    TokensRemaining,
    TokensReset,
    ContentEncoding,
}

/// A decimal number of units, in whole parts of them.
fn in_units(text: &str, unit: f64) -> Option<i64> {
    let number: f64 = text.parse().ok()?;
    let whole = (number * unit).round();
    // Up to here every whole number is exact.
    (whole.abs() < 9.0e15).then_some(whole as i64)
}

/// A span such as `12ms`, `1.5s`, `6m0s` or `1h2m3s`, in nanoseconds; a bare number is seconds.
fn span_ns(text: &str) -> Option<i64> {
    if text.is_empty() || text.starts_with(['-', '+']) {
        return None;
    }
    let mut rest = text;
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit_ns = match unit {
            "ns" => 1.0,
            "us" | "\u{b5}s" => 1e3,
            "ms" => 1e6,
            "s" | "" => 1e9,
            "m" => 60e9,
            "h" => 3_600e9,
            "d" => 86_400e9,
            _ => return None,
        };
        total = total.checked_add(in_units(number, unit_ns)?)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&str, &str)]) -> ReportedHeaders {
        ReportedHeaders::read(headers.iter().map(|(name, value)| (*name, value.as_bytes())))
    }

    #[test]
    fn spans_are_read_in_every_usual_form() {
        let cases = [
            ("12ms", Some(12_000_000)),
            ("0s", Some(0)),
            ("1.5s", Some(1_500_000_000)),
            ("6m0s", Some(360_000_000_000)),
            ("1h2m3.25s", Some(3_723_250_000_000)),
            ("1d", Some(86_400_000_000_000)),
            ("20", Some(20_000_000_000)),
            ("", None),
            ("-1", None),
            ("soon", None),
            ("1..2s", None),
            ("5 s", None),
            ("9999999999999999999s", None),
        ];
        for (text, expected) in cases {
            assert_eq!(span_ns(text), expected, "{text}");
        }
    }

    #[test]
    fn the_better_header_wins_whatever_the_order() {
        for headers in [
            [("request-id", "b"), ("X-Request-ID", "a"), ("retry-after", "2"), ("Retry-After-Ms", "1500.5")],
            [("retry-after-ms", "1500.5"), ("retry-after", "2"), ("x-request-id", "a"), ("request-id", "b")],
        ] {
            let reported = read(&headers);
            assert_eq!(reported.request_id.as_deref(), Some("a"));
            assert_eq!(reported.retry_after_ns, Some(1_500_500_000));
        }
        assert_eq!(read(&[("retry-after", "0.25")]).retry_after_ns, Some(250_000_000));
        assert_eq!(read(&[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")]).retry_after_ns, None);
        assert_eq!(read(&[("apim-request-id", "c")]).request_id.as_deref(), Some("c"));
    }

    #[test]
    fn a_limit_of_minus_one_is_unknown() {
        let reported = read(&[
            ("x-ratelimit-limit-requests", "-1"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-reset-requests", "8.64s"),
        ]);
        assert_eq!(reported.requests_limit, None);
        assert_eq!((reported.tokens_remaining, reported.tokens_limit), (Some(0), Some(150_000)));
        assert_eq!(reported.requests_reset_ns, Some(8_640_000_000));
    }

    #[test]
    fn limits_are_read_under_the_names_of_either_provider() {
        let reported = read(&[
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2026-11-30T12:00:00Z"),
            ("anthropic-ratelimit-tokens-limit", "40000"),
            ("anthropic-ratelimit-tokens-remaining", "39000"),
        ]);
        assert_eq!((reported.requests_limit, reported.requests_remaining), (Some(50), Some(49)));
        assert_eq!((reported.tokens_limit, reported.tokens_remaining), (Some(40_000), Some(39_000)));
        assert_eq!(reported.requests_reset_ns, None);
        // A gateway that translates says both: OpenAI's names win.
        let both =
            read(&[("anthropic-ratelimit-requests-limit", "50"), ("x-ratelimit-limit-requests", "60")]);
        assert_eq!(both.requests_limit, Some(60));
    }

    #[test]
    fn limits_and_times_of_other_servers_are_read_where_the_usual_ones_are_missing() {
        let reported = read(&[
            ("request-id", "req_1"),
            ("anthropic-ratelimit-requests-limit", "50"),
            ("anthropic-ratelimit-requests-remaining", "49"),
            ("anthropic-ratelimit-requests-reset", "2026-11-30T04:00:00Z"),
            ("anthropic-ratelimit-input-tokens-limit", "40000"),
            ("anthropic-ratelimit-tokens-limit", "48000"),
            ("anthropic-ratelimit-tokens-remaining", "47000"),
            ("x-envoy-upstream-service-time", "451"),
        ]);
        assert_eq!(reported.request_id.as_deref(), Some("req_1"));
        assert_eq!((reported.requests_limit, reported.requests_remaining), (Some(50), Some(49)));
        assert_eq!((reported.tokens_limit, reported.tokens_remaining), (Some(48_000), Some(47_000)));
        assert_eq!((reported.requests_reset_ns, reported.server_ms), (None, Some(451)));
        let both = read(&[("x-envoy-upstream-service-time", "451"), ("x-total-time", "440")]);
        assert_eq!(both.server_ms, Some(440));
        let azure = read(&[("x-rate-limit-reset-tokens", "7")]);
        assert_eq!(azure.tokens_reset_ns, Some(7_000_000_000));
    }

    #[test]
    fn server_times_words_and_encodings_are_kept() {
        let reported = read(&[
            ("server", "uvicorn"),
            ("openai-processing-ms", "451"),
            ("x-should-retry", "false"),
            ("content-encoding", "gzip"),
        ]);
        assert_eq!((reported.server.as_deref(), reported.server_ms), (Some("uvicorn"), Some(451)));
        assert_eq!(
            (reported.should_retry, reported.content_encoding.as_deref()),
            (Some(false), Some("gzip"))
        );
        assert_eq!(read(&[("content-encoding", "identity"), ("server", "")]), ReportedHeaders::default());
    }

    #[test]
    fn values_that_are_no_text_or_too_long_are_passed_over() {
        let long = "x".repeat(600);
        let headers = [("x-request-id", b"\xff".as_slice()), ("server", long.as_bytes())];
        assert_eq!(ReportedHeaders::read(headers), ReportedHeaders::default());
    }
}
