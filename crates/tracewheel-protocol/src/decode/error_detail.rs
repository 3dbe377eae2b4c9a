//! Errors as servers put them.

use serde::Serialize;
use serde_json::Value;

use crate::lenient::cut;

/// An error as the server put it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ErrorDetail {
    /// The message, at most 2 KiB; empty if there is none.
    pub message: String,
    /// The error's type, for example `rate_limit_error`.
    pub kind: Option<String>,
    /// The error's code, a number or a word, for example `context_length_exceeded`.
    pub code: Option<String>,
    /// The first 2 KiB of the message that carried the error, cut at a character.
    pub body: String,
}

/// How much of a message and of a body is kept.
const KEPT_MAX_BYTES: usize = 2 << 10;
/// How much of a type or code is kept.
const WORD_MAX_BYTES: usize = 128;

impl ErrorDetail {
    /// Finds message, type and code in what a server sent: an object with `error` (itself an object or a string), the
    /// error's own object, that of a failed `response`, `detail` of some frameworks, any of them inside an array, or any other text.
    pub(crate) fn of(json: &[u8]) -> ErrorDetail {
        let body = text(json);
        let Ok(value) = serde_json::from_slice::<Value>(json) else {
            return ErrorDetail { message: body.trim().to_owned(), body, ..ErrorDetail::default() };
        };
        let outer = match &value {
            Value::Array(elements) => elements.first().unwrap_or(&value),
            _ => &value,
        };
        let error = |of: &Value| matches!(of.get("error"), Some(Value::Object(_) | Value::String(_)));
        let inner = match outer.get("response") {
            _ if error(outer) => &outer["error"],
            Some(response) if error(response) => &response["error"],
            _ => outer,
        };
        let message = match inner {
            Value::String(message) => message.clone(),
            _ => ["message", "detail", "msg"]
                .into_iter()
                .find_map(|key| Some(inner.get(key)?).filter(|value| !value.is_null()))
                .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
                .unwrap_or_default(),
        };
        ErrorDetail {
            message: cut(&message, KEPT_MAX_BYTES).to_owned(),
            kind: word(inner.get("type")),
            code: word(inner.get("code")).or_else(|| word(outer.get("code"))),
            body,
        }
    }
}

/// The beginning of `bytes` as text.
fn text(bytes: &[u8]) -> String {
    // Some bytes more, so that a character at the cut is not mistaken for a broken one.
    let start = &bytes[..bytes.len().min(KEPT_MAX_BYTES + 4)];
    cut(&String::from_utf8_lossy(start), KEPT_MAX_BYTES).to_owned()
}

fn word(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::String(word) if !word.is_empty() => Some(cut(word, WORD_MAX_BYTES).to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(json: &str) -> (String, Option<String>, Option<String>) {
        let detail = ErrorDetail::of(json.as_bytes());
        assert_eq!(detail.body, json);
        (detail.message, detail.kind, detail.code)
    }

    fn some(word: &str) -> Option<String> {
        Some(word.to_owned())
    }

    #[test]
    fn message_type_and_code_are_found_in_every_usual_form() {
        assert_eq!(
            parts(
                r#"{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit_exceeded"}}"#
            ),
            ("slow down".into(), some("rate_limit_error"), some("rate_limit_exceeded"))
        );
        assert_eq!(
            parts(r#"{"object":"error","message":"bad","type":"BadRequestError","param":null,"code":400}"#),
            ("bad".into(), some("BadRequestError"), some("400"))
        );
        assert_eq!(parts(r#"{"error":"model not found"}"#), ("model not found".into(), None, None));
        assert_eq!(parts(r#"[{"error":{"code":503,"message":"busy"}}]"#), ("busy".into(), None, some("503")));
        assert_eq!(parts(r#"{"detail":"Not Found"}"#), ("Not Found".into(), None, None));
        assert_eq!(parts(r#"{"detail":[{"msg":"x"}]}"#), (r#"[{"msg":"x"}]"#.into(), None, None));
        assert_eq!(parts("upstream connect error"), ("upstream connect error".into(), None, None));
        assert_eq!(parts("{}"), (String::new(), None, None));
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let long = "\u{e9}".repeat(3000);
        let detail = ErrorDetail::of(format!("x{long}").as_bytes());
        assert_eq!(detail.body.len(), 2047);
        assert!(detail.body.ends_with('\u{e9}'));
        let detail = ErrorDetail::of(format!("{{\"error\":{{\"message\":\"x{long}\"}}}}").as_bytes());
        assert_eq!(detail.message.len(), 2047);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(ErrorDetail::of(b"\xff\xfe!").message, "\u{fffd}\u{fffd}!");
    }
}
