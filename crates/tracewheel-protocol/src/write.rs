//! Writing JSON bodies, byte for byte, and the recorded parameters that go into them.

use std::io::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Appends `,"name":value`.
pub(crate) fn number(out: &mut Vec<u8>, name: &str, value: impl std::fmt::Display) {
    write!(out, ",\"{name}\":{value}").expect("writing into memory does not fail");
}

/// Appends a JSON string, escaped.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    json(out, text);
}

/// Appends a value.
pub(crate) fn json<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("numbers and text always serialise, and memory takes them");
}

/// The recorded sampling parameters that are sent on, as the very text of their numbers.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Params<'a> {
    #[serde(borrow)]
    pub(crate) temperature: Option<&'a RawValue>,
    pub(crate) top_p: Option<&'a RawValue>,
    pub(crate) top_k: Option<&'a RawValue>,
    pub(crate) seed: Option<&'a RawValue>,
    pub(crate) presence_penalty: Option<&'a RawValue>,
    pub(crate) frequency_penalty: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    /// Reads a JSON object; values that are no numbers, and text that is no object, count as absent.
    pub(crate) fn parse(text: &'a str) -> Params<'a> {
        // An array would fill the fields by their order.
        let object = text.trim_ascii_start().starts_with('{');
        let mut params: Params<'a> =
            if object { serde_json::from_str(text).unwrap_or_default() } else { Params::default() };
        for value in [
            &mut params.temperature,
            &mut params.top_p,
            &mut params.top_k,
            &mut params.seed,
            &mut params.presence_penalty,
            &mut params.frequency_penalty,
        ] {
            value.take_if(|raw| !raw.get().starts_with(|first: char| first == '-' || first.is_ascii_digit()));
        }
        params
    }
}
