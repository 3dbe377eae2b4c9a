//! The section `[protocol]`: what a wire protocol is told besides its name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tracewheel_replay::{AnswerForm, Engine, LimitField, ProtocolOptions, Secret, TokenDetail};

use crate::choice::choice;

/// The keys of the section; unknown ones are refused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Protocol {
    pub(super) engine: Option<String>,
    pub(super) limit_field: Option<LimitField>,
    pub(super) token_detail: Option<TokenDetail>,
    pub(super) api_version: Option<String>,
    pub(super) prompt_ids: Option<bool>,
    pub(super) stream_usage: Option<bool>,
    pub(super) answer: Option<AnswerForm>,
    pub(super) method: Option<String>,
    pub(super) path: Option<String>,
    pub(super) body: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers: BTreeMap<String, String>,
}

impl Protocol {
    /// Words that a flag would have been refused for.
    ///
    /// # Errors
    /// An engine that is not known, with the nearest that is.
    pub(super) fn check(&self) -> Result<(), String> {
        match (&self.engine, choice("replay", "engine")) {
            (Some(engine), Some(choice)) => {
                choice.check(engine).map_err(|why| format!("[protocol] engine: {why}"))
            }
            _ => Ok(()),
        }
    }

    /// The section with the engine that a flag named.
    pub(crate) fn with_engine(&self, engine: Option<&String>) -> Protocol {
        Protocol { engine: engine.cloned(), ..self.clone() }
    }

    /// This section, and what it leaves open as `other` has it; headers of both.
    pub(super) fn over(self, other: &Protocol) -> Protocol {
        let mut headers = other.headers.clone();
        headers.extend(self.headers);
        Protocol {
            engine: self.engine.or_else(|| other.engine.clone()),
            limit_field: self.limit_field.or(other.limit_field),
            token_detail: self.token_detail.or(other.token_detail),
            api_version: self.api_version.or_else(|| other.api_version.clone()),
            prompt_ids: self.prompt_ids.or(other.prompt_ids),
            stream_usage: self.stream_usage.or(other.stream_usage),
            answer: self.answer.or(other.answer),
            method: self.method.or_else(|| other.method.clone()),
            path: self.path.or_else(|| other.path.clone()),
            body: self.body.or_else(|| other.body.clone()),
            headers,
        }
    }

    /// As the replay takes it. `lengths`: what the recorded lengths are to do, where that was said.
    pub(crate) fn options(&self, force_length: Option<bool>) -> ProtocolOptions {
        ProtocolOptions {
            engine: self.engine.as_deref().and_then(Engine::parse),
            force_length,
            limit_field: self.limit_field,
            token_detail: self.token_detail,
            api_version: self.api_version.clone(),
            prompt_ids: self.prompt_ids.unwrap_or(false),
            stream_usage: self.stream_usage.unwrap_or(false),
            answer: self.answer.unwrap_or_default(),
            method: self.method.clone(),
            path: self.path.clone(),
            body: self.body.clone(),
        }
    }

    /// Further request headers, in the order of their names.
    pub(crate) fn headers(&self) -> Vec<(String, String)> {
        self.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// What a variable's name may begin with. A manifest writes it so: the name then is no secret, whatever its header is called.
const OF_ENVIRONMENT: &str = "env:";

/// Headers with the values of these environment variables.
///
/// # Errors
/// A variable that is not set.
pub(super) fn secret_headers(
    by_variable: &BTreeMap<String, String>,
) -> Result<Vec<(String, Secret)>, String> {
    let headers = by_variable.iter().map(|(header, variable)| {
        let variable = variable.strip_prefix(OF_ENVIRONMENT).unwrap_or(variable);
        match std::env::var_os(variable) {
            Some(value) => Ok((header.clone(), Secret::new(value.to_string_lossy().into_owned()))),
            None => Err(format!("the environment variable {variable} of the header {header} is not set")),
        }
    });
    headers.collect()
}

/// The same headers and variables as a manifest writes them.
pub(super) fn published_headers(by_variable: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let told = |variable: &String| match variable.starts_with(OF_ENVIRONMENT) {
        true => variable.clone(),
        false => format!("{OF_ENVIRONMENT}{variable}"),
    };
    by_variable.iter().map(|(header, variable)| (header.clone(), told(variable))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_section_are_those_of_the_protocol_crate() {
        for (word, detail) in TokenDetail::ALL {
            let section: Protocol = toml::from_str(&format!("token_detail = \"{word}\"")).unwrap();
            assert_eq!(section.options(None).token_detail, Some(detail));
        }
        for (word, field) in LimitField::ALL {
            let section: Protocol = toml::from_str(&format!("limit_field = \"{word}\"")).unwrap();
            assert_eq!(section.options(None).limit_field, Some(field));
        }
        for (word, form) in AnswerForm::ALL {
            let section: Protocol = toml::from_str(&format!("answer = \"{word}\"")).unwrap();
            assert_eq!(section.options(None).answer, form);
        }
        for (word, engine, _) in Engine::ALL {
            let section: Protocol = toml::from_str(&format!("engine = \"{word}\"")).unwrap();
            section.check().unwrap();
            assert_eq!(section.options(None).engine, Some(engine));
        }
    }

    #[test]
    fn an_engine_that_is_not_known_is_refused_with_the_nearest() {
        let section: Protocol = toml::from_str("engine = \"vlm\"").unwrap();
        assert!(section.check().unwrap_err().ends_with("did you mean `vllm`?"));
    }
}
