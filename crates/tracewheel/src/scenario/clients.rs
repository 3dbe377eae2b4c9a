//! What the clients of a replay keep to: their budgets and their sessions, as a scenario or a flag spells it.

use serde::{Deserialize, Serialize};
use tracewheel_replay::{AfterFailure, ClientBudget, SessionMode, SessionRule};

use super::retry::{number, of_words, word_of};
use super::{duration_ns, duration_text};

/// The keys of `[budget]`, and of `--budget`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budget {
    #[serde(default, deserialize_with = "number")]
    requests_per_minute: Option<u64>,
    #[serde(default, deserialize_with = "number")]
    tokens_per_minute: Option<u64>,
    #[serde(default, deserialize_with = "number")]
    in_flight: Option<u32>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    burst: Option<i64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    max_wait: Option<i64>,
}

impl Budget {
    /// The keys that `pairs` of the command line set.
    ///
    /// # Errors
    /// Which pair is wrong, and how.
    pub(crate) fn of_pairs(pairs: &[String]) -> Result<Budget, String> {
        let mut table = toml::Table::new();
        for pair in pairs {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("`{pair}`: write KEY=VALUE, as in requests_per_minute=600"));
            };
            let (key, value) = (key.trim().to_owned(), toml::Value::String(value.trim().to_owned()));
            // By itself first: so that what is wrong with it is told with its key.
            let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
            Budget::deserialize(alone).map_err(|error| format!("{key}: {}", error.message()))?;
            table.insert(key, value);
        }
        Budget::deserialize(table).map_err(|error| error.message().to_owned())
    }

    /// What `other` says, else what this says.
    pub(crate) fn overridden_by(self, other: Budget) -> Budget {
        Budget {
            requests_per_minute: other.requests_per_minute.or(self.requests_per_minute),
            tokens_per_minute: other.tokens_per_minute.or(self.tokens_per_minute),
            in_flight: other.in_flight.or(self.in_flight),
            burst: other.burst.or(self.burst),
            max_wait: other.max_wait.or(self.max_wait),
        }
    }

    /// The budget with its defaults.
    pub(crate) fn resolve(&self) -> ClientBudget {
        ClientBudget {
            requests_per_minute: self.requests_per_minute,
            tokens_per_minute: self.tokens_per_minute,
            in_flight: self.in_flight,
            burst_ns: self.burst.unwrap_or(ClientBudget::default().burst_ns),
            max_wait_ns: self.max_wait,
        }
    }

    /// Every key of a budget.
    pub(crate) fn of(budget: &ClientBudget) -> Budget {
        Budget {
            requests_per_minute: budget.requests_per_minute,
            tokens_per_minute: budget.tokens_per_minute,
            in_flight: budget.in_flight,
            burst: Some(budget.burst_ns),
            max_wait: budget.max_wait_ns,
        }
    }
}

/// The keys of `[sessions]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sessions {
    pub(crate) mode: Option<String>,
    pub(crate) after_failure: Option<String>,
    pub(crate) thread: Option<bool>,
}

impl Sessions {
    /// The rule with its defaults.
    ///
    /// # Errors
    /// Which word is wrong, and what would be right.
    pub(crate) fn resolve(&self) -> Result<SessionRule, String> {
        let mut rule = SessionRule::default();
        if let Some(word) = &self.mode {
            rule.mode = of_words("mode", word, &SessionMode::ALL)?;
        }
        if let Some(word) = &self.after_failure {
            rule.after_failure = of_words("after_failure", word, &AfterFailure::ALL)?;
        }
        rule.thread = self.thread.unwrap_or(false);
        Ok(rule)
    }

    /// Every key of a rule.
    pub(crate) fn of(rule: &SessionRule) -> Sessions {
        Sessions {
            mode: Some(word_of(rule.mode, &SessionMode::ALL)),
            after_failure: Some(word_of(rule.after_failure, &AfterFailure::ALL)),
            thread: Some(rule.thread),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_read_from_pairs_and_written_out_again() {
        let pairs = ["requests_per_minute=600", "in_flight=8", "burst=2s"].map(str::to_owned);
        let budget = Budget::of_pairs(&pairs).unwrap().resolve();
        assert_eq!((budget.requests_per_minute, budget.in_flight), (Some(600), Some(8)));
        assert_eq!((budget.burst_ns, budget.max_wait_ns), (2_000_000_000, None));
        let text = toml::to_string(&Budget::of(&budget)).unwrap();
        assert_eq!(toml::from_str::<Budget>(&text).unwrap().resolve(), budget);
        for wrong in ["rpm=5", "in_flight=-1", "in_flight", "burst=long"] {
            assert!(Budget::of_pairs(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
        for (wrong, told) in [
            ("requests_per_minute=1e9", "requests_per_minute: `1e9` is no number that can stand here"),
            ("burst=-1s", "burst: `-1s` is negative"),
        ] {
            let error = Budget::of_pairs(&[wrong.to_owned()]).unwrap_err();
            assert!(error.starts_with(told), "{error}");
        }
    }

    #[test]
    fn a_session_rule_is_read_from_its_words_and_written_out_again() {
        let keys = Sessions {
            mode: Some("after-previous".to_owned()),
            after_failure: Some("go-on".to_owned()),
            thread: Some(true),
        };
        let rule = keys.resolve().unwrap();
        assert_eq!(Sessions::of(&rule), keys);
        let wrong = Sessions { mode: Some("before".to_owned()), ..keys };
        assert!(wrong.resolve().unwrap_err().contains("independent, after-previous"));
    }
}
