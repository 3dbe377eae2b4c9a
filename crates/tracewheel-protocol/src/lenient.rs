//! Reading JSON that may have any shape, without building it.
//!
//! A [`Sink`] says what it wants of a value; whatever has another shape than it hoped for is passed over, because one
//! odd field of one clone must not lose a token's time. Only text that is no JSON at all is an error. Nothing is
//! allocated, but for strings that are asked for and strings with escapes.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Takes what it wants of one JSON value.
pub(crate) trait Sink {
    /// `null`.
    fn null(&mut self) {}

    /// `true` or `false`.
    fn boolean(&mut self, _value: bool) {}

    /// A whole number that is not negative.
    fn whole(&mut self, _value: u64) {}

    /// Any other number.
    fn number(&mut self, _value: f64) {}

    /// A string.
    fn text(&mut self, _value: &str) {}

    /// An object begins.
    fn object(&mut self) {}

    /// One key of an object. Must take its value from `values`.
    fn entry<'de, A: MapAccess<'de>>(&mut self, _key: &str, values: &mut A) -> Result<(), A::Error> {
        skip(values)
    }

    /// The next element of an array, if there is one. Must take it from `elements`.
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        Ok(elements.next_element::<IgnoredAny>()?.is_some())
    }
}

/// Passes over a value.
pub(crate) fn skip<'de, A: MapAccess<'de>>(values: &mut A) -> Result<(), A::Error> {
    values.next_value::<IgnoredAny>().map(|_| ())
}

/// Gives the value of a key to `sink`.
pub(crate) fn take<'de, A: MapAccess<'de>>(values: &mut A, sink: &mut impl Sink) -> Result<(), A::Error> {
    values.next_value_seed(Into(sink))
}

/// Gives the next element of an array to `sink`; `false` at its end.
pub(crate) fn take_element<'de, A: SeqAccess<'de>>(
    elements: &mut A,
    sink: &mut impl Sink,
) -> Result<bool, A::Error> {
    Ok(elements.next_element_seed(Into(sink))?.is_some())
}

/// Reads one JSON text, with nothing but white space around it, into `sink`.
pub(crate) fn read(json: &[u8], sink: &mut impl Sink) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    Into(sink).deserialize(&mut deserializer)?;
    deserializer.end()
}

/// As [`read`], for what a server sends: a message with lone halves of surrogate pairs is read again without them, into
/// the cleared `sink`.
pub(crate) fn read_message<S: Sink>(json: &[u8], sink: &mut S, clear: fn(&mut S)) -> serde_json::Result<()> {
    let result = read(json, sink);
    match result.is_err().then(|| with_whole_surrogates(json)).flatten() {
        Some(repaired) => {
            clear(sink);
            read(&repaired, sink)
        }
        None => result,
    }
}

struct Into<'s, S>(&'s mut S);

impl<'de, S: Sink> DeserializeSeed<'de> for Into<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Into<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.null();
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.boolean(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.0.whole(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        match u64::try_from(value) {
            Ok(whole) => self.0.whole(whole),
            Err(_) => self.0.number(value as f64),
        }
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.0.number(value);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.0.text(value);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.object();
        while let Some(key) = map.next_key_seed(Key)? {
            self.0.entry(key, &mut map)?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while self.0.element(&mut elements)? {}
        Ok(())
    }
}

/// Reads an object's key as a slice of the input. A key with escapes is none that anyone asks for.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = &'de str;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'de str, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = &'de str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<&'de str, E> {
        Ok(key)
    }

    fn visit_str<E>(self, _key: &str) -> Result<&'de str, E> {
        Ok("")
    }
}

/// Bytes of a string, decoded; of an array, the sum over its elements; of anything else, 0.
#[derive(Default)]
pub(crate) struct Length(pub(crate) u32);

impl Sink for Length {
    fn text(&mut self, value: &str) {
        self.0 = self.0.saturating_add(length(value));
    }

    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }
}

/// Bytes of `text`, which no event's bound lets grow beyond 32 bits.
pub(crate) fn length(text: &str) -> u32 {
    u32::try_from(text.len()).unwrap_or(u32::MAX)
}

/// A count: a whole number that fits, also when it is written as a float. Anything else is unknown.
#[derive(Default)]
pub(crate) struct Count(pub(crate) Option<u32>);

impl Sink for Count {
    fn whole(&mut self, value: u64) {
        self.0 = u32::try_from(value).ok();
    }

    fn number(&mut self, value: f64) {
        if value >= 0.0 && value <= f64::from(u32::MAX) && value.fract() == 0.0 {
            self.0 = Some(value as u32);
        }
    }
}

/// Elements of an array; unknown for anything else.
#[derive(Default)]
pub(crate) struct Elements(pub(crate) Option<u32>);

impl Sink for Elements {
    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        let mut count = 0_u32;
        while elements.next_element::<IgnoredAny>()?.is_some() {
            count = count.saturating_add(1);
        }
        self.0 = Some(count);
        Ok(false)
    }
}

/// Whether a value says anything: not null, false, 0, or an empty string, array or object.
#[derive(Default)]
pub(crate) struct Truthy(pub(crate) bool);

impl Sink for Truthy {
    fn boolean(&mut self, value: bool) {
        self.0 = value;
    }

    fn whole(&mut self, value: u64) {
        self.0 = value != 0;
    }

    fn number(&mut self, value: f64) {
        self.0 = value != 0.0;
    }

    fn text(&mut self, value: &str) {
        self.0 = !value.is_empty();
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, _key: &str, values: &mut A) -> Result<(), A::Error> {
        self.0 = true;
        skip(values)
    }

    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        let more = elements.next_element::<IgnoredAny>()?.is_some();
        self.0 |= more;
        Ok(more)
    }
}

/// Keeps the first string that is not empty, cut to 256 bytes.
pub(crate) struct First<'s>(pub(crate) &'s mut Option<String>);

/// The longest string that [`First`] keeps.
const FIRST_MAX_BYTES: usize = 256;

impl Sink for First<'_> {
    fn text(&mut self, value: &str) {
        if self.0.is_none() && !value.is_empty() {
            *self.0 = Some(cut(value, FIRST_MAX_BYTES).to_owned());
        }
    }
}

/// Whether a value is this very string.
pub(crate) struct Is {
    pub(crate) wanted: &'static str,
    pub(crate) found: bool,
}

impl Sink for Is {
    fn text(&mut self, value: &str) {
        self.found = value == self.wanted;
    }
}

/// Keeps the first string of a key. What every chunk repeats is passed over once it is known.
pub(crate) fn first<'de, A: MapAccess<'de>>(
    values: &mut A,
    into: &mut Option<String>,
) -> Result<(), A::Error> {
    if into.is_some() { skip(values) } else { take(values, &mut First(into)) }
}

/// Sets `flag` if the value of a key says anything.
pub(crate) fn flag<'de, A: MapAccess<'de>>(values: &mut A, flag: &mut bool) -> Result<(), A::Error> {
    let mut truthy = Truthy::default();
    take(values, &mut truthy)?;
    *flag |= truthy.0;
    Ok(())
}

/// Adds the bytes of a key's value.
pub(crate) fn measure<'de, A: MapAccess<'de>>(values: &mut A, bytes: &mut u32) -> Result<(), A::Error> {
    let mut length = Length::default();
    take(values, &mut length)?;
    *bytes = bytes.saturating_add(length.0);
    Ok(())
}

/// Takes the count of a key over, where it is one; without `replace` only if none is known.
pub(crate) fn count<'de, A: MapAccess<'de>>(
    values: &mut A,
    into: &mut Option<u32>,
    replace: bool,
) -> Result<(), A::Error> {
    let mut count = Count::default();
    take(values, &mut count)?;
    if replace || into.is_none() {
        *into = count.0.or(*into);
    }
    Ok(())
}

/// A number of units of a duration, kept in whole milliseconds; `per_ms` units are one.
pub(crate) fn millis<'de, A: MapAccess<'de>>(
    values: &mut A,
    per_ms: f64,
    into: &mut Option<i64>,
) -> Result<(), A::Error> {
    let mut number = Number::default();
    take(values, &mut number)?;
    let ms = number.0.map(|units| (units / per_ms).round());
    *into = ms.filter(|ms| (0.0..9.0e15).contains(ms)).map(|ms| ms as i64).or(*into);
    Ok(())
}

/// Any number.
#[derive(Default)]
pub(crate) struct Number(pub(crate) Option<f64>);

impl Sink for Number {
    fn whole(&mut self, value: u64) {
        self.0 = Some(value as f64);
    }

    fn number(&mut self, value: f64) {
        self.0 = Some(value);
    }
}

/// Content that is no readable text: all strings in it count.
pub(crate) struct Payload<'c>(pub(crate) &'c mut u32);

impl Sink for Payload<'_> {
    fn text(&mut self, value: &str) {
        *self.0 = self.0.saturating_add(length(value));
    }

    fn element<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<bool, A::Error> {
        take_element(elements, self)
    }

    fn entry<'de, A: MapAccess<'de>>(&mut self, _key: &str, values: &mut A) -> Result<(), A::Error> {
        take(values, self)
    }
}

/// `json` with every escaped half of a surrogate pair that stands alone replaced by U+FFFD; `None` if there is none.
///
/// Servers that count in UTF-16 cut pairs between two chunks. JSON's grammar allows that; our parser does not, because
/// such a half is no text. Its length, three bytes, is as good as any.
pub(crate) fn with_whole_surrogates(json: &[u8]) -> Option<Vec<u8>> {
    let mut repaired: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(backslash) = memchr::memchr(b'\\', &json[at..]) {
        let escape = at + backslash;
        at = (escape + 2).min(json.len());
        let Some(unit) = utf16_unit(&json[escape..]) else { continue };
        at = escape + 6;
        match unit {
            0xd800..0xdc00 if utf16_unit(&json[at..]).is_some_and(|low| (0xdc00..0xe000).contains(&low)) => {
                at += 6
            }
            0xd800..0xe000 => {
                repaired.get_or_insert_with(|| json.to_vec())[escape..at].copy_from_slice(b"\\ufffd");
            }
            _ => {}
        }
    }
    repaired
}

/// The code unit of an escape at the start of `json`.
fn utf16_unit(json: &[u8]) -> Option<u16> {
    let digits = json.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The longest beginning of `text` that has at most `max_bytes` and ends at a character.
pub(crate) fn cut(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_numbers_or_unknown() {
        let cases = [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("0", Some(0)),
            ("-1", None),
            ("7.5", None),
            ("4294967296", None),
            ("1e300", None),
            ("null", None),
            ("\"7\"", None),
            ("[7]", None),
            ("{\"a\":7}", None),
        ];
        for (json, expected) in cases {
            let mut count = Count::default();
            read(json.as_bytes(), &mut count).unwrap();
            assert_eq!(count.0, expected, "{json}");
        }
    }

    #[test]
    fn lengths_are_those_of_the_decoded_text() {
        for (json, expected) in
            [("\"a\\n\\u00e9\"", 4), ("null", 0), ("7", 0), ("[\"ab\",[\"c\"],7]", 3), ("{}", 0)]
        {
            let mut length = Length::default();
            read(json.as_bytes(), &mut length).unwrap();
            assert_eq!(length.0, expected, "{json}");
        }
    }

    #[test]
    fn only_what_says_something_is_truthy() {
        for json in ["null", "false", "0", "0.0", "\"\"", "[]", "{}"] {
            let mut truthy = Truthy::default();
            read(json.as_bytes(), &mut truthy).unwrap();
            assert!(!truthy.0, "{json}");
        }
        for json in ["true", "1", "-0.5", "\"x\"", "[null]", "{\"a\":null}"] {
            let mut truthy = Truthy::default();
            read(json.as_bytes(), &mut truthy).unwrap();
            assert!(truthy.0, "{json}");
        }
    }

    #[test]
    fn what_is_no_json_is_an_error_and_so_is_what_follows_it() {
        for json in ["", "{", "{\"a\"}", "nul", "{} {}", "\"\\x\"", "[1,]", "\u{feff}{}"] {
            assert!(read(json.as_bytes(), &mut Truthy::default()).is_err(), "{json}");
        }
        assert!(read(b" {}  \n", &mut Truthy::default()).is_ok());
    }

    #[test]
    fn halves_of_surrogate_pairs_that_stand_alone_are_replaced() {
        let cases: [(&str, Option<&str>); 7] = [
            (r#""\ud83d\ude00""#, None),
            (r#""\ud83d""#, Some(r#""\ufffd""#)),
            (r#""\uDE00x""#, Some(r#""\ufffdx""#)),
            (r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\\ud83d""#, None),
            (r#""\\\ud83d""#, Some(r#""\\\ufffd""#)),
            (r#""\u00e9\n\"#, None),
        ];
        for (json, expected) in cases {
            let repaired = with_whole_surrogates(json.as_bytes());
            assert_eq!(repaired.as_deref(), expected.map(str::as_bytes), "{json}");
        }
    }

    #[test]
    fn cutting_keeps_characters_whole() {
        assert_eq!(cut("a\u{e9}b", 2), "a");
        assert_eq!(cut("a\u{e9}b", 3), "a\u{e9}");
        assert_eq!(cut("ab", 9), "ab");
    }
}
