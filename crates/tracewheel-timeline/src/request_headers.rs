//! Which headers of a request may be kept in a timeline and sent again.
//!
//! The rule is strict, and the same for whoever fills the column and whoever sends it: what might be a secret, what tells
//! who the person was, and what belongs to one connection stay out.

/// What a header of a recorded request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderClass {
    /// Part of what was asked: kept, and sent again.
    Request,
    /// A secret, or named like one.
    Secret,
    /// Where the request came from, and who asked.
    Person,
    /// Of one connection or one message: made anew by whoever sends.
    Connection,
    /// No header that HTTP allows, or too long.
    Unusable,
}

/// The longest value that is kept.
const MAX_VALUE_BYTES: usize = 1024;
/// The longest name.
const MAX_NAME_BYTES: usize = 128;

/// Parts of names that secrets have. They also take harmless ones, such as `idempotency-key`: that is the price.
const SECRET_PARTS: [&str; 12] = [
    "auth",
    "cookie",
    "credential",
    "jwt",
    "key",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "session",
    "signature",
    "token",
];
/// Beginnings of values that are secrets under any name.
const SECRET_VALUES: [&str; 6] = ["bearer ", "basic ", "digest ", "negotiate ", "sk-", "eyj"];
/// Names and parts of names by which proxies and browsers say who asked, and from where.
const PERSON_PARTS: [&str; 8] =
    ["client-ip", "connecting-ip", "real-ip", "forwarded", "user-email", "user-id", "referer", "geo"];
const PERSON_NAMES: [&str; 4] = ["from", "via", "origin", "cf-ray"];
/// Headers of one hop or one message, and those that a replay sets by itself.
const CONNECTION_NAMES: [&str; 22] = [
    "accept-encoding",
    "b3",
    "connection",
    "content-encoding",
    "content-length",
    "date",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-amzn-trace-id",
    "x-cloud-trace-context",
    "x-correlation-id",
    "x-request-id",
    "x-envoy-attempt-count",
];

impl HeaderClass {
    /// What a header is, by its name in any case and its value.
    ///
    /// ```
    /// use tracewheel_timeline::HeaderClass;
    ///
    /// assert_eq!(HeaderClass::of("OpenAI-Beta", "assistants=v2"), HeaderClass::Request);
    /// assert_eq!(HeaderClass::of("Authorization", "Bearer x"), HeaderClass::Secret);
    /// ```
    pub fn of(name: &str, value: &str) -> HeaderClass {
        let lower = name.to_ascii_lowercase();
        let name_is = |list: &[&str]| list.contains(&lower.as_str());
        let holds = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
        let start = value.trim_start().get(..16.min(value.trim_start().len())).unwrap_or_default();
        let start = start.to_ascii_lowercase();
        if holds(&SECRET_PARTS) || SECRET_VALUES.iter().any(|secret| start.starts_with(secret)) {
            HeaderClass::Secret
        } else if holds(&PERSON_PARTS) || name_is(&PERSON_NAMES) {
            HeaderClass::Person
        } else if name_is(&CONNECTION_NAMES) || lower.starts_with("x-b3-") {
            HeaderClass::Connection
        } else if !is_name(&lower) || !is_value(value) {
            HeaderClass::Unusable
        } else {
            HeaderClass::Request
        }
    }

    /// Why a header of this class is left out, in the words of an import's report; `None` for one that is kept.
    pub fn why_left_out(self) -> Option<&'static str> {
        match self {
            HeaderClass::Request => None,
            HeaderClass::Secret => Some("might be a secret"),
            HeaderClass::Person => Some("tells who asked"),
            HeaderClass::Connection => Some("of one connection or message"),
            HeaderClass::Unusable => Some("no header that can be sent"),
        }
    }
}

/// A name of HTTP's token characters.
fn is_name(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// A value of visible letters, spaces and tabs.
fn is_value(value: &str) -> bool {
    value.len() <= MAX_VALUE_BYTES && value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_never_pass_by_whatever_name_or_value() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "Cookie",
            "Set-Cookie",
            "x-api-key",
            "Api-Key",
            "X-Goog-Api-Key",
            "x-amz-security-token",
            "X-CSRF-Token",
            "x-hub-signature-256",
            "Ocp-Apim-Subscription-Key",
            "x-my-SECRET",
            "openai-session",
        ] {
            assert_eq!(HeaderClass::of(name, "v"), HeaderClass::Secret, "{name}");
        }
        for value in ["Bearer abc", " bearer abc", "Basic dXNlcjpw", "sk-abc", "eyJhbGciOi"] {
            assert_eq!(HeaderClass::of("x-custom", value), HeaderClass::Secret, "{value}");
        }
    }

    #[test]
    fn what_a_request_asks_for_passes_and_what_is_of_its_way_does_not() {
        for (name, value) in [
            ("Content-Type", "application/json; charset=utf-8"),
            ("accept", "text/event-stream"),
            ("anthropic-beta", "tools-2024-04-04"),
            ("User-Agent", "app/1.2 (x; y)"),
            ("x-priority", ""),
        ] {
            assert_eq!(HeaderClass::of(name, value), HeaderClass::Request, "{name}");
        }
        for name in ["Host", "content-length", "Transfer-Encoding", "TE", "x-b3-traceid", "X-Request-Id"] {
            assert_eq!(HeaderClass::of(name, "v"), HeaderClass::Connection, "{name}");
        }
        for name in ["X-Forwarded-For", "forwarded", "CF-Connecting-IP", "Referer", "x-user-email", "Via"] {
            assert_eq!(HeaderClass::of(name, "v"), HeaderClass::Person, "{name}");
        }
    }

    #[test]
    fn what_no_header_can_be_is_told() {
        for (name, value) in
            [("", "v"), ("a b", "v"), ("x:y", "v"), ("x", "a\r\nb: c"), ("x", "\u{e9}"), ("\u{e9}", "v")]
        {
            assert_eq!(HeaderClass::of(name, value), HeaderClass::Unusable, "{name:?} {value:?}");
        }
        assert_eq!(HeaderClass::of("x", &"v".repeat(1025)), HeaderClass::Unusable);
        // A character that is cut by the look at a value's beginning is no panic.
        assert_eq!(HeaderClass::of("x", "123456789012345\u{e9}"), HeaderClass::Unusable);
    }
}
