//! The body of a free-form request: a text with places in it.

use std::fmt::Write as _;
use std::io::Write as _;

use crate::RenderRequest;
use crate::options::OptionError;

/// A body with places such as `{{prompt}}`, read once and filled in for each request.
///
/// Text goes in as the inside of a JSON string, escaped, so the quotes around it are the template's own; with `raw:`
/// before the name (`{{raw:prompt}}`) it goes in as it is. Numbers and truth values go in as JSON writes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Place { value: Value, raw: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Prompt,
    Model,
    MaxTokens,
    Temperature,
    Stream,
}

/// Every place, by its name.
const PLACES: [(&str, Value); 5] = [
    ("prompt", Value::Prompt),
    ("model", Value::Model),
    ("max_tokens", Value::MaxTokens),
    ("temperature", Value::Temperature),
    ("stream", Value::Stream),
];

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// A place that there is not, or one that is not closed.
    pub fn parse(text: &str) -> Result<Template, OptionError> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("{{") {
            let (name, after) = behind.split_once("}}").ok_or_else(|| {
                let shown: String = behind.chars().take(20).collect();
                problem(&format!("`{{{{{shown}` is not closed by `}}}}`"))
            })?;
            let name = name.trim();
            let plain = name.strip_prefix("raw:");
            let found = PLACES.iter().find(|(own, _)| *own == plain.unwrap_or(name).trim());
            let (_, value) = found.ok_or_else(|| problem(&format!("`{{{{{name}}}}}` is no place in it")))?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(Part::Place { value: *value, raw: plain.is_some() });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template { parts })
    }

    /// Whether the model is named in it.
    pub fn names_model(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Place { value: Value::Model, .. }))
    }

    /// Writes the body of one request to the end of `out`.
    pub(super) fn fill(&self, request: &RenderRequest<'_>, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Place { value: Value::Prompt, raw } => fill_text(request.prompt, *raw, out),
                Part::Place { value: Value::Model, raw } => fill_text(request.model, *raw, out),
                Part::Place { value: Value::MaxTokens, .. } => shown(out, request.max_tokens),
                Part::Place { value: Value::Temperature, .. } => shown(out, request.temperature),
                Part::Place { value: Value::Stream, .. } => shown(out, request.stream),
            }
        }
    }
}

fn problem(what: &str) -> OptionError {
    let mut names = String::new();
    for (name, _) in PLACES {
        let _infallible = write!(names, " {{{{{name}}}}}");
    }
    OptionError {
        option: "body",
        problem: format!("{what}: the places are{names}, with `raw:` before a name for text as it is"),
    }
}

fn shown(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    write!(out, "{value}").expect("writing into memory does not fail");
}

fn fill_text(text: &str, raw: bool, out: &mut Vec<u8>) {
    if raw {
        return out.extend_from_slice(text.as_bytes());
    }
    let quote = out.len();
    crate::write::string(out, text);
    out.remove(quote);
    out.pop();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> String {
        let request = RenderRequest {
            model: "m\"1",
            prompt: "a\n\"b\"",
            max_tokens: 7,
            temperature: 0.5,
            stream: true,
            ..RenderRequest::default()
        };
        let mut out = Vec::new();
        Template::parse(text).unwrap().fill(&request, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn places_are_filled_in_and_text_is_escaped_unless_it_is_asked_for_raw() {
        let body = filled(
            r#"{"q":"{{prompt}}","m":"{{ model }}","n":{{max_tokens}},"s":{{stream}},"t":{{temperature}},"o":{}}"#,
        );
        assert_eq!(body, r#"{"q":"a\n\"b\"","m":"m\"1","n":7,"s":true,"t":0.5,"o":{}}"#);
        assert_eq!(filled("{{raw:prompt}}"), "a\n\"b\"");
        assert_eq!(filled("plain"), "plain");
        assert_eq!(filled(""), "");
    }

    #[test]
    fn a_place_that_there_is_not_is_refused_with_those_that_there_are() {
        let error = Template::parse("{\"a\":\"{{promt}}\"}").unwrap_err().to_string();
        assert!(error.contains("{{promt}}") && error.contains("{{prompt}} {{model}}"), "{error}");
        assert!(Template::parse("{{prompt").unwrap_err().to_string().contains("not closed"));
    }
}
