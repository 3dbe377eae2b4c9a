//! Writing JSON bodies, byte for byte, and the recorded parameters that go into them.

use std::io::Write;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::RenderRequest;
use crate::conversation::Chat;

/// Empties `out` and makes room for a body around the prompt.
pub(crate) fn clear(request: &RenderRequest<'_>, out: &mut Vec<u8>) {
    let text: usize = request.turns.iter().map(|turn| turn.text.len()).sum::<usize>() + request.prompt.len();
    out.clear();
    out.reserve(text + text / 16 + 64 * request.turns.len() + 512);
}

/// Begins a body that names its model first.
pub(crate) fn begin(request: &RenderRequest<'_>, out: &mut Vec<u8>) {
    clear(request, out);
    out.extend_from_slice(b"{\"model\":");
    string(out, request.model);
}

/// Appends the prompt as the message of a user, behind what was said before.
pub(crate) fn user_message(request: &RenderRequest<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"messages\":");
    Chat::OpenAi.messages(request.turns, request.prompt, out);
}

/// Appends `,"name":"value"`, the value escaped.
pub(crate) fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    write!(out, ",\"{name}\":").expect("writing into memory does not fail");
    string(out, value);
}

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

/// A sampling parameter that changes neither length nor form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    Temperature,
    TopP,
    TopK,
    Seed,
    PresencePenalty,
    FrequencyPenalty,
}

/// The names that OpenAI's chat and completions protocols and their clones have for them.
pub(crate) const OPENAI_NAMES: &[(Parameter, &str)] = &[
    (Parameter::Temperature, "temperature"),
    (Parameter::TopP, "top_p"),
    (Parameter::TopK, "top_k"),
    (Parameter::Seed, "seed"),
    (Parameter::PresencePenalty, "presence_penalty"),
    (Parameter::FrequencyPenalty, "frequency_penalty"),
];

/// Appends the sampling parameters that a protocol knows, under its names: as they were recorded, and the temperature
/// always.
pub(crate) fn sampling(request: &RenderRequest<'_>, names: &[(Parameter, &str)], out: &mut Vec<u8>) {
    let recorded = request.params.map(Params::parse).unwrap_or_default();
    for (parameter, name) in names {
        match recorded.get(*parameter) {
            Some(raw) => number(out, name, raw),
            None if *parameter == Parameter::Temperature => {
                write!(out, ",\"{name}\":").expect("writing into memory does not fail");
                json(out, &request.temperature);
            }
            None => {}
        }
    }
}

/// A recorded sampling parameter as a number.
pub(crate) fn recorded_number(request: &RenderRequest<'_>, parameter: Parameter) -> Option<f64> {
    request.params.map(Params::parse).unwrap_or_default().get(parameter)?.get().parse().ok()
}

/// The recorded sampling parameters that are sent on, as the very text of their numbers.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Params<'a> {
    #[serde(borrow)]
    temperature: Option<&'a RawValue>,
    top_p: Option<&'a RawValue>,
    top_k: Option<&'a RawValue>,
    seed: Option<&'a RawValue>,
    presence_penalty: Option<&'a RawValue>,
    frequency_penalty: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    fn get(&self, parameter: Parameter) -> Option<&'a RawValue> {
        match parameter {
            Parameter::Temperature => self.temperature,
            Parameter::TopP => self.top_p,
            Parameter::TopK => self.top_k,
            Parameter::Seed => self.seed,
            Parameter::PresencePenalty => self.presence_penalty,
            Parameter::FrequencyPenalty => self.frequency_penalty,
        }
    }

    /// Reads a JSON object; values that are no numbers, and text that is no object, count as absent.
    fn parse(text: &'a str) -> Params<'a> {
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
