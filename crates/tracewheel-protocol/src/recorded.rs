//! Recorded bodies: sent byte for byte, but for what a scenario says otherwise.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use serde_json::value::RawValue;

use crate::write::string;
use crate::{Provider, TokenDetail};

/// What a recorded body is to say instead of what it said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides<'a> {
    /// The model. Protocols that name it in the path have none in the body.
    pub model: Option<&'a str>,
    /// A stream reports its usage, in this detail. Of the details only `continuous_usage` is a stream option; the others
    /// are left as recorded.
    pub usage: Option<TokenDetail>,
}

/// A place in a body and what stands there instead.
struct Edit {
    place: Range<usize>,
    text: Vec<u8>,
}

type Fields<'a> = HashMap<Cow<'a, str>, &'a RawValue>;

impl Overrides<'_> {
    /// `body` with the overrides that `provider`'s bodies can carry, every other byte as recorded. `None` where nothing
    /// changes: nothing is to be said otherwise, or the body is no JSON object.
    pub fn apply(self, provider: &dyn Provider, body: &[u8]) -> Option<Vec<u8>> {
        let knobs = provider.knobs();
        let model = self.model.filter(|_| knobs.model_in_body);
        let usage = self.usage.filter(|_| knobs.stream_usage);
        if model.is_none() && usage.is_none() {
            return None;
        }
        let fields: Fields<'_> = serde_json::from_slice(body).ok()?;
        let top = 0..body.len();
        let mut edits = Vec::new();
        if let Some(model) = model {
            let mut text = Vec::new();
            string(&mut text, model);
            edits.push(set(body, &top, &fields, "model", text)?);
        }
        let streams = fields.get("stream").is_some_and(|value| value.get() == "true");
        if let Some(detail) = usage.filter(|_| streams) {
            let mut wanted = vec!["include_usage"];
            if detail == TokenDetail::ContinuousUsage {
                wanted.push("continuous_usage_stats");
            }
            edits.extend(stream_options(body, &fields, &wanted)?);
        }
        Some(edited(body, edits))
    }
}

/// The edits after which these stream options are true and the others as recorded.
fn stream_options(body: &[u8], fields: &Fields<'_>, wanted: &[&str]) -> Option<Vec<Edit>> {
    let recorded = fields.get("stream_options");
    let inner: Option<Fields<'_>> = recorded.and_then(|value| serde_json::from_str(value.get()).ok());
    let Some((place, inner)) = recorded.map(|value| place_of(body, value)).zip(inner) else {
        let all: Vec<String> = wanted.iter().map(|name| format!("\"{name}\":true")).collect();
        let text = format!("{{{}}}", all.join(",")).into_bytes();
        return Some(vec![set(body, &(0..body.len()), fields, "stream_options", text)?]);
    };
    wanted.iter().map(|name| set(body, &place, &inner, name, b"true".to_vec())).collect()
}

/// The edit after which the field of the object at `object` has this value. A field that is not there is put first.
fn set(body: &[u8], object: &Range<usize>, fields: &Fields<'_>, name: &str, value: Vec<u8>) -> Option<Edit> {
    if let Some(recorded) = fields.get(name) {
        return Some(Edit { place: place_of(body, recorded), text: value });
    }
    let opening = object.start + body[object.clone()].iter().position(|byte| *byte == b'{')?;
    let mut text = format!("\"{name}\":").into_bytes();
    text.extend(value);
    if !fields.is_empty() {
        text.push(b',');
    }
    Some(Edit { place: opening + 1..opening + 1, text })
}

/// Where in the body a value stands that was borrowed from it.
fn place_of(body: &[u8], value: &RawValue) -> Range<usize> {
    let at = value.get().as_ptr().addr() - body.as_ptr().addr();
    at..at + value.get().len()
}

fn edited(body: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
    // Stable: of two that are put at one place the first stays first.
    edits.sort_by_key(|edit| edit.place.start);
    let more: usize = edits.iter().map(|edit| edit.text.len()).sum();
    let mut out = Vec::with_capacity(body.len() + more);
    let mut kept = 0;
    for Edit { place, text } in edits {
        out.extend_from_slice(&body[kept..place.start]);
        out.extend_from_slice(&text);
        kept = place.end;
    }
    out.extend_from_slice(&body[kept..]);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::provider;

    fn apply(protocol: &str, overrides: Overrides<'_>, body: &str) -> Option<String> {
        let changed = overrides.apply(provider(protocol).unwrap(), body.as_bytes())?;
        Some(String::from_utf8(changed).unwrap())
    }

    fn model(name: &str) -> Overrides<'_> {
        Overrides { model: Some(name), usage: None }
    }

    const USAGE: Overrides<'static> = Overrides { model: None, usage: Some(TokenDetail::None) };

    #[test]
    fn the_model_is_replaced_where_it_stands_and_every_other_byte_stays() {
        let body = "{ \"messages\": [{\"role\":\"user\",\"content\":\"say \\\"model\\\": \\u00e9\"}],\n  \"model\" : \"gpt-4o\", \"n\":1.0 }";
        assert_eq!(
            apply("openai-chat", model("a\"b"), body).unwrap(),
            body.replace("\"gpt-4o\"", "\"a\\\"b\"")
        );
        for protocol in ["anthropic-messages", "ollama-chat", "ollama-generate", "openai-responses"] {
            assert!(apply(protocol, model("m"), body).unwrap().contains("\"model\" : \"m\""), "{protocol}");
        }
        assert_eq!(apply("openai-chat", model("m"), " {\"n\":1}").unwrap(), " {\"model\":\"m\",\"n\":1}");
        assert_eq!(apply("openai-chat", model("m"), "{}").unwrap(), "{\"model\":\"m\"}");
    }

    #[test]
    fn what_names_its_model_in_the_path_or_is_free_form_or_no_object_stays_as_it_is() {
        for protocol in ["gemini", "azure-openai", "tgi-generate", "http"] {
            assert_eq!(apply(protocol, model("m"), "{\"model\":\"x\"}"), None, "{protocol}");
        }
        for body in ["", "[]", "null", "{\"a\":", "{\"model\":\"x\"} {}", "\u{feff}{}"] {
            assert_eq!(apply("openai-chat", model("m"), body), None, "{body}");
        }
        assert_eq!(apply("openai-chat", Overrides::default(), "{\"model\":\"x\"}"), None);
    }

    #[test]
    fn a_stream_is_made_to_report_its_usage_and_its_other_options_stay() {
        let cases = [
            ("{\"stream\":true}", "{\"stream_options\":{\"include_usage\":true},\"stream\":true}"),
            (
                "{\"stream\":true,\"stream_options\":{}}",
                "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
            ),
            (
                "{\"stream\":true,\"stream_options\": {\"include_obfuscation\":false, \"include_usage\": false}}",
                "{\"stream\":true,\"stream_options\": {\"include_obfuscation\":false, \"include_usage\": true}}",
            ),
            (
                "{\"stream\":true,\"stream_options\":null}",
                "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
            ),
            ("{\"stream\":false}", "{\"stream\":false}"),
            ("{\"a\":{\"stream\":true}}", "{\"a\":{\"stream\":true}}"),
        ];
        for (body, expected) in cases {
            assert_eq!(apply("openai-chat", USAGE, body).unwrap(), expected);
            assert_eq!(apply("azure-openai", USAGE, body).unwrap(), expected);
            assert_eq!(apply("anthropic-messages", USAGE, body), None);
        }
        let both = Overrides { model: Some("m"), usage: Some(TokenDetail::ContinuousUsage) };
        assert_eq!(
            apply("openai-completions", both, "{\"stream\":true,\"stream_options\":{\"x\":1}}").unwrap(),
            "{\"model\":\"m\",\"stream\":true,\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true,\"x\":1}}"
        );
        assert_eq!(
            apply("openai-completions", both, "{\"stream\":true}").unwrap(),
            "{\"model\":\"m\",\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true},\"stream\":true}"
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map(
                    "model|stream|stream_options|include_usage|[a-z]{1,3}",
                    inner,
                    0..5
                )
                .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Against the same change of the parsed value, for any body.
        #[test]
        fn a_changed_body_means_what_was_recorded_but_for_what_was_changed(body in value(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
            let both = Overrides { model: Some("m\n"), usage: Some(TokenDetail::None) };
            let changed = apply("openai-chat", both, &text);
            let Value::Object(mut expected) = body else {
                prop_assert_eq!(changed, None);
                return Ok(());
            };
            expected.insert("model".to_owned(), json!("m\n"));
            if expected.get("stream") == Some(&json!(true)) {
                let options = expected.entry("stream_options").or_insert(json!({}));
                if !options.is_object() {
                    *options = json!({});
                }
                options["include_usage"] = json!(true);
            }
            let changed: Value = serde_json::from_str(&changed.unwrap()).unwrap();
            prop_assert_eq!(changed, Value::Object(expected));
        }

        #[test]
        fn any_bytes_are_taken(body: Vec<u8>) {
            let both = Overrides { model: Some("m"), usage: Some(TokenDetail::ContinuousUsage) };
            let _changed = both.apply(provider("openai-chat").unwrap(), &body);
        }
    }
}
