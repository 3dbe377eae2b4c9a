//! The delay that a server asks for, by header or in an error's body.

use http::HeaderMap;
use serde_json::Value;

use super::ServerDelay;

/// Bytes of an error's body that are looked at; a longer one is no error of Google's.
const BODY_BYTES: usize = 64 << 10;

/// The delay asked for in one of `ways`, in nanoseconds after `now_unix_ns`: the first that can be read, in the order of
/// [`ServerDelay::ALL`]. May be negative (a date in the past). [`i64::MAX`] is a number too large to be kept. `None` where
/// nothing is asked for that can be read; the word `inf` asks for nothing.
pub(crate) fn server_delay_ns(
    ways: &[ServerDelay],
    headers: &HeaderMap,
    body: &[u8],
    now_unix_ns: i64,
) -> Option<i64> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let by = |way| ways.contains(&way);
    let ms = || Some(to_ns(number(text("retry-after-ms")?)? / 1e3));
    let after = || {
        let after = text("retry-after")?;
        number(after).map(to_ns).or_else(|| until(after, now_unix_ns))
    };
    let in_ms = by(ServerDelay::RetryAfterMs).then(ms).flatten();
    let in_seconds = || by(ServerDelay::RetryAfter).then(after).flatten();
    let in_body = || by(ServerDelay::RetryInfo).then(|| retry_info_ns(body)).flatten();
    in_ms.or_else(in_seconds).or_else(in_body)
}

fn number(text: &str) -> Option<f64> {
    // What is spelled as infinity or as no number asks for nothing; digits that overflow ask for very much.
    text.parse::<f64>().ok().filter(|_| text.bytes().any(|byte| byte.is_ascii_digit()))
}

/// Saturates.
fn to_ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

fn until(date: &str, now_unix_ns: i64) -> Option<i64> {
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date).ok()?;
    i64::try_from(date.as_nanosecond() - i128::from(now_unix_ns)).ok()
}

/// `retryDelay` of the `google.rpc.RetryInfo` in an error's details. A stream's error comes as the only element of an array.
fn retry_info_ns(body: &[u8]) -> Option<i64> {
    if body.len() > BODY_BYTES {
        return None;
    }
    let whole: Value = serde_json::from_slice(body).ok()?;
    let error = whole.get(0).unwrap_or(&whole).get("error")?;
    let details = error.get("details")?.as_array()?;
    let info = details.iter().find(|detail| {
        detail.get("@type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("google.rpc.RetryInfo"))
    })?;
    number(info.get("retryDelay")?.as_str()?.strip_suffix('s')?).map(to_ns)
}
