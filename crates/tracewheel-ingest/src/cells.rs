//! One value of a log, as CSV or JSON gave it, and what can be read from it.

use std::borrow::Cow;

use crate::decimal;
use crate::report::RejectReason;

/// Words that stand for a value which is not there.
const NOTHING: [&str; 10] = ["", "-", "null", "NULL", "none", "None", "nan", "NaN", "N/A", "\\N"];

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Missing,
    Text(Cow<'a, str>),
    /// A JSON number's text.
    Number(&'a str),
    Bool(bool),
    /// A JSON list's or object's text.
    Json(&'a str),
}

impl<'a> Cell<'a> {
    pub(crate) fn from_csv(bytes: &'a [u8]) -> Result<Self, RejectReason> {
        let text = std::str::from_utf8(bytes).map_err(|_| RejectReason::InvalidUtf8)?;
        Ok(Self::text(Cow::Borrowed(text.trim())))
    }

    /// From the text of a JSON value that is known to be well formed.
    pub(crate) fn from_json(raw: &'a str) -> Result<Self, RejectReason> {
        match raw.as_bytes().first() {
            Some(b'"') => {
                let inside = &raw[1..raw.len().saturating_sub(1)];
                if !inside.contains('\\') {
                    return Ok(Self::text(Cow::Borrowed(inside)));
                }
                let text: String = serde_json::from_str(raw).map_err(|_| RejectReason::NotJson)?;
                Ok(Self::text(Cow::Owned(text)))
            }
            Some(b't') => Ok(Self::Bool(true)),
            Some(b'f') => Ok(Self::Bool(false)),
            Some(b'[' | b'{') => Ok(Self::Json(raw)),
            Some(b'n') | None => Ok(Self::Missing),
            Some(_) => Ok(Self::Number(raw)),
        }
    }

    fn text(text: Cow<'a, str>) -> Self {
        if NOTHING.contains(&text.as_ref()) { Self::Missing } else { Self::Text(text) }
    }

    /// The text of a number or of a text that may hold one.
    pub(crate) fn number(&self) -> Option<&str> {
        match self {
            Self::Number(text) => Some(text),
            Self::Text(text) => Some(text.trim()),
            _ => None,
        }
    }

    /// A count of at most `most`.
    pub(crate) fn count(&self, most: u32) -> Result<u32, RejectReason> {
        let count = self.number().and_then(decimal::whole).and_then(|value| u32::try_from(value).ok());
        count.filter(|count| *count <= most).ok_or(RejectReason::BadNumber)
    }

    pub(crate) fn small_count(&self) -> Result<u16, RejectReason> {
        u16::try_from(self.count(u16::MAX.into())?).map_err(|_| RejectReason::BadNumber)
    }

    pub(crate) fn truth(&self) -> Result<bool, RejectReason> {
        let is = |text: &str, words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
        match self {
            Self::Bool(value) => Ok(*value),
            Self::Text(text) if is(text, &["true", "t", "yes", "y", "1"]) => Ok(true),
            Self::Text(text) if is(text, &["false", "f", "no", "n", "0"]) => Ok(false),
            Self::Number("1") => Ok(true),
            Self::Number("0") => Ok(false),
            _ => Err(RejectReason::BadValue),
        }
    }

    /// The value as text; lists and objects are none.
    pub(crate) fn as_text(&self) -> Result<&str, RejectReason> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Number(text) => Ok(text),
            Self::Bool(value) => Ok(if *value { "true" } else { "false" }),
            Self::Missing | Self::Json(_) => Err(RejectReason::BadValue),
        }
    }

    /// The items of a list: JSON, or text that parts them by spaces, commas or semicolons.
    pub(crate) fn items(&self) -> Result<Vec<Cell<'_>>, RejectReason> {
        match self {
            Self::Json(raw) => json_items(raw),
            Self::Text(text) if text.starts_with('[') => json_items(text),
            Self::Text(text) => {
                let items = text.split([' ', ',', ';']).filter(|item| !item.is_empty());
                Ok(items.map(|item| Cell::Text(Cow::Borrowed(item))).collect())
            }
            Self::Number(text) => Ok(vec![Cell::Number(text)]),
            Self::Missing | Self::Bool(_) => Err(RejectReason::BadValue),
        }
    }
}

fn json_items(raw: &str) -> Result<Vec<Cell<'_>>, RejectReason> {
    let items: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(raw).map_err(|_| RejectReason::BadValue)?;
    items.into_iter().map(|item| Cell::from_json(item.get())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_value_keeps_its_text() {
        assert_eq!(Cell::from_json("18446744073709551615"), Ok(Cell::Number("18446744073709551615")));
        assert_eq!(Cell::from_json(r#""a\"b""#), Ok(Cell::Text(Cow::Borrowed("a\"b"))));
        assert_eq!(Cell::from_json("null"), Ok(Cell::Missing));
        assert_eq!(Cell::from_json("\"\""), Ok(Cell::Missing));
        assert_eq!(Cell::from_json("{}"), Ok(Cell::Json("{}")));
    }

    #[test]
    fn unknown_is_never_zero() {
        for text in NOTHING {
            assert_eq!(Cell::from_csv(text.as_bytes()), Ok(Cell::Missing), "{text}");
        }
        assert_eq!(Cell::from_csv(b" 0 ").unwrap().count(9), Ok(0));
    }

    #[test]
    fn lists_are_json_or_parted_text() {
        let numbers = |cell: Cell<'_>| {
            cell.items().map(|items| items.iter().map(|item| item.count(99).unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(numbers(Cell::from_csv(b"1 2;3").unwrap()), Ok(vec![1, 2, 3]));
        assert_eq!(numbers(Cell::from_csv(b"[1, 2]").unwrap()), Ok(vec![1, 2]));
        assert_eq!(numbers(Cell::from_json("[1,\"2\"]").unwrap()), Ok(vec![1, 2]));
        assert_eq!(numbers(Cell::from_json("{}").unwrap()), Err(RejectReason::BadValue));
    }
}
