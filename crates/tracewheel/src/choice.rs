//! Values out of a short list: shown in the help, completed by the shell, and told with the nearest when one is wrong,
//! whether it came from a flag or from a scenario.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use tracewheel_replay::{Engine, PROVIDERS, RetryPolicy};
use tracewheel_timeline::TtftKind;

/// Similarity (Jaro–Winkler) from which a word counts as a slip of the pen.
const NEAR: f64 = 0.8;

/// What a flag or a key of the scenario takes.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// The words and what each means.
    words: Vec<(&'static str, &'static str)>,
    /// A form with a value inside, such as `mix:SHARE`; checked further by whoever reads it.
    form: Option<(&'static str, &'static str)>,
}

/// The choice behind a flag of a command, by the flag's id; `None` where anything may stand.
pub(crate) fn choice(command: &str, id: &str) -> Option<Choice> {
    let of = |words: &[(&'static str, &'static str)]| Choice { words: words.to_vec(), form: None };
    Some(match (command, id) {
        ("ingest", "format") => Choice { words: tracewheel_ingest::formats().collect(), form: None },
        ("ingest", "ttft_kind") => {
            Choice { words: TtftKind::ALL.iter().map(|kind| (kind.as_str(), "")).collect(), form: None }
        }
        ("ingest", "token_rule") => of(&[
            ("auto", "as the counts of the file show"),
            ("inclusive", "totals contain their parts"),
            ("exclusive", "parts are added to the totals"),
        ]),
        ("ingest", "restarts") => of(&[
            ("auto", "join a count of the log's own, keep wall times"),
            ("keep", "times stay as they are written"),
            ("join", "each part follows the one before it"),
        ]),
        ("replay", "protocol") => Choice {
            words: PROVIDERS.iter().map(|provider| (provider.name(), provider.endpoint())).collect(),
            form: None,
        },
        ("replay", "retry") => Choice { words: RetryPolicy::PRESETS.to_vec(), form: None },
        ("replay", "engine") => {
            Choice { words: Engine::ALL.iter().map(|(word, _, sends)| (*word, *sends)).collect(), form: None }
        }
        ("replay", "cache") => Choice {
            words: vec![
                ("natural", "the trace's own sharing"),
                ("cold", "no request finds anything"),
                ("warm", "every prompt is sent ahead once"),
            ],
            form: Some(("mix:SHARE", "warm for that share of the requests, cold for the others")),
        },
        ("replay", "sessions") => of(&[
            ("independent", "at its recorded arrival"),
            ("after-previous", "when the turn before it has ended, after the recorded pause"),
        ]),
        ("replay", "after_failure") => of(&[
            ("stop", "the session's later turns are not sent"),
            ("go-on", "they are, after the recorded pause"),
        ]),
        ("replay", "cancel") => {
            of(&[("recorded", "at the recorded time"), ("never", "the answer is read to its end")])
        }
        ("replay", "flush" | "prime_prefixes") => of(of_cache(id)),
        ("replay", "unknown_tokens") => Choice {
            words: vec![("refuse", "stop before anything is sent"), ("skip", "leave such rows out")],
            form: Some(("fill:IN,OUT", "give them these counts")),
        },
        ("replay", "lengths") => of(&[
            ("exact", "the recorded count is forced, where engine and protocol can"),
            ("cap", "only the limit is sent; hosted APIs refuse more"),
        ]),
        ("replay", "http") => of(&[
            ("auto", "over https what the target chooses, HTTP/2 if it can; over http 1.1"),
            ("1.1", "one request at a time on a connection"),
            ("2", "many; over http by prior knowledge (h2c)"),
        ]),
        ("replay", "connection_use") => of(&[
            ("reuse", "one request after another, as SDKs keep their connections"),
            ("per-request", "each request has a connection of its own, opened before it is due"),
        ]),
        (_, "color") => of(&[
            ("auto", "on a terminal, unless NO_COLOR is set"),
            ("always", "everywhere"),
            ("never", "nowhere"),
        ]),
        (_, "progress") => Choice {
            words: vec![
                ("auto", "a line on a terminal, nothing elsewhere"),
                ("always", "the line, even without a terminal"),
                ("plain", "a line of its own every 10 s, for logs"),
                ("never", "nothing"),
            ],
            form: Some(("plain:EVERY", "the same at another interval, such as plain:1m")),
        },
        (_, "log_format") => {
            of(&[("text", "a line an event"), ("json", "a JSON object an event, a line each")])
        }
        _ => return None,
    })
}

/// What the flags that prepare the target's cache take.
fn of_cache(id: &str) -> &'static [(&'static str, &'static str)] {
    match id {
        "flush" => &[
            ("vllm", "POST /reset_prefix_cache; it needs VLLM_SERVER_DEV_MODE=1"),
            ("sglang", "POST /flush_cache"),
            ("lmcache", "by its controller: its address stands in a scenario"),
            ("llamacpp", "POST /slots/ID?action=erase, each slot; it needs --slot-save-path"),
        ],
        _ => &[
            ("live", "all that were there: a cache that is too small forgets as production's did"),
            ("reused", "those that a request of the window finds: less traffic"),
        ],
    }
}

impl Choice {
    /// Whether `value` is one of the words or has the form.
    ///
    /// # Errors
    /// What would be right, and which of it is nearest.
    pub(crate) fn check(&self, value: &str) -> Result<(), String> {
        let formed = self.form.is_some_and(|(form, _)| {
            form.split_once(':')
                .is_some_and(|(head, _)| value.split_once(':').is_some_and(|(own, _)| own == head))
        });
        if formed || self.words.iter().any(|(word, _)| *word == value) {
            return Ok(());
        }
        let nearest = nearest(value, self.names()).map(|word| format!("; did you mean `{word}`?"));
        Err(format!("`{value}` is none of {}{}", self.listed(), nearest.unwrap_or_default()))
    }

    /// All that is taken: `a, b or c:X`.
    pub(crate) fn listed(&self) -> String {
        let names: Vec<&str> = self.names().collect();
        match names.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, first)) => format!("{} or {last}", first.join(", ")),
            None => String::new(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.words.iter().chain(&self.form).map(|(word, _)| *word)
    }
}

/// The candidate that `word` was most likely meant to be.
pub(crate) fn nearest(word: &str, among: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let word = word.to_lowercase();
    among
        .map(|candidate| (strsim::jaro_winkler(&word, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= NEAR)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| candidate)
}

impl TypedValueParser for Choice {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, clap::Error> {
        let value = value.to_string_lossy().into_owned();
        match self.check(&value) {
            Ok(()) => Ok(value),
            Err(why) => {
                let flag = arg.map(ToString::to_string).unwrap_or_default();
                Err(command.clone().error(ErrorKind::InvalidValue, format!("{flag}: {why}")))
            }
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.words.iter().chain(&self.form).map(|(word, meaning)| {
            let value = PossibleValue::new(*word);
            if meaning.is_empty() { value } else { value.help(*meaning) }
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_list_and_a_value_of_the_form_are_taken() {
        let cache = choice("replay", "cache").unwrap();
        for value in ["natural", "warm", "mix:0.4"] {
            assert_eq!(cache.check(value), Ok(()));
        }
        assert!(cache.check("mix").is_err(), "the form needs its value");
    }

    #[test]
    fn a_slip_is_told_with_the_list_and_the_nearest_word() {
        let protocol = choice("replay", "protocol").unwrap();
        let told = protocol.check("openai-caht").unwrap_err();
        assert!(
            told.contains("openai-completions") && told.ends_with("did you mean `openai-chat`?"),
            "{told}"
        );
        let told = protocol.check("smtp").unwrap_err();
        assert!(told.contains("openai-chat") && !told.contains("did you mean"), "{told}");
    }
}
