//! The retry policy as a scenario or a flag spells it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tracewheel_replay::{LongerDelay, RetryKind, RetryPolicy, ServerDelay, StatusRange};

use super::{duration_ns, duration_text};

/// The keys of `[retry]`, and of `--retry-with`: what is changed in the named policy.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    policy: Option<String>,
    kind: Option<String>,
    #[serde(default, deserialize_with = "number")]
    max_retries: Option<u32>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    total_time: Option<i64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    base_delay: Option<i64>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    max_delay: Option<i64>,
    #[serde(default, deserialize_with = "number")]
    multiplier: Option<f64>,
    jitter: Option<String>,
    #[serde(default, deserialize_with = "statuses", serialize_with = "statuses_text")]
    statuses: Option<Vec<StatusRange>>,
    #[serde(default, deserialize_with = "words")]
    reasons: Option<Vec<String>>,
    #[serde(default, deserialize_with = "words")]
    server_delays: Option<Vec<String>>,
    #[serde(default, deserialize_with = "duration_ns", serialize_with = "duration_text")]
    server_delay_max: Option<i64>,
    server_delay_longer: Option<String>,
    #[serde(default, deserialize_with = "number")]
    obey_should_retry: Option<bool>,
    count_header: Option<String>,
}

/// Why an attempt without an answer may be repeated, with the fields of the policy.
const REASONS: [&str; 3] = ["connect", "reset", "timeout"];

/// What joins the values of a list on the command line, where a comma ends the key.
const JOIN: char = '+';

impl Retry {
    /// The keys that `pairs` of the command line set.
    ///
    /// # Errors
    /// Which pair is wrong, and how.
    pub(crate) fn of_pairs(pairs: &[String]) -> Result<Retry, String> {
        let mut table = toml::Table::new();
        for pair in pairs {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("`{pair}`: write KEY=VALUE, as in max_retries=4"));
            };
            let (key, value) = (key.trim().to_owned(), toml::Value::String(value.trim().to_owned()));
            // By itself first: so that what is wrong with it is told with its key.
            let alone = toml::Table::from_iter([(key.clone(), value.clone())]);
            Retry::deserialize(alone).map_err(|error| format!("{key}: {}", error.message()))?;
            table.insert(key, value);
        }
        let keys = Retry::deserialize(table).map_err(|error| error.message().to_owned())?;
        match keys.policy {
            Some(_) => Err("the policy itself is named by --retry".to_owned()),
            None => Ok(keys),
        }
    }

    /// What `other` says, else what this says.
    pub(crate) fn overridden_by(self, other: Retry) -> Retry {
        Retry {
            policy: other.policy.or(self.policy),
            kind: other.kind.or(self.kind),
            max_retries: other.max_retries.or(self.max_retries),
            total_time: other.total_time.or(self.total_time),
            base_delay: other.base_delay.or(self.base_delay),
            max_delay: other.max_delay.or(self.max_delay),
            multiplier: other.multiplier.or(self.multiplier),
            jitter: other.jitter.or(self.jitter),
            statuses: other.statuses.or(self.statuses),
            reasons: other.reasons.or(self.reasons),
            server_delays: other.server_delays.or(self.server_delays),
            server_delay_max: other.server_delay_max.or(self.server_delay_max),
            server_delay_longer: other.server_delay_longer.or(self.server_delay_longer),
            obey_should_retry: other.obey_should_retry.or(self.obey_should_retry),
            count_header: other.count_header.or(self.count_header),
        }
    }

    /// The policy's name, if these keys have it.
    pub(crate) fn policy(&self) -> Option<&str> {
        self.policy.as_deref()
    }

    /// The named policy with these changes; one that differs from it is called `custom`.
    ///
    /// # Errors
    /// Which key is wrong, and what would be right.
    pub(crate) fn resolve(&self, name: &str) -> Result<RetryPolicy, String> {
        let base = RetryPolicy::preset(name).ok_or_else(|| {
            let names: Vec<&str> = RetryPolicy::PRESETS.iter().map(|(name, _)| *name).collect();
            format!("`{name}` is no policy: {}", names.join(", "))
        })?;
        let mut policy = base.clone();
        self.change(&mut policy)?;
        policy.check().map_err(|error| error.to_string())?;
        if policy != base {
            policy.name = "custom".to_owned();
        }
        Ok(policy)
    }

    fn change(&self, policy: &mut RetryPolicy) -> Result<(), String> {
        if let Some(word) = &self.kind {
            policy.kind = of_words("kind", word, &RetryKind::ALL)?;
        }
        policy.max_retries = self.max_retries.unwrap_or(policy.max_retries);
        policy.total_time_ns = self.total_time.or(policy.total_time_ns);
        policy.base_delay_ns = self.base_delay.unwrap_or(policy.base_delay_ns);
        policy.max_delay_ns = self.max_delay.unwrap_or(policy.max_delay_ns);
        if self.max_delay.is_none() && policy.kind == RetryKind::Fixed {
            policy.max_delay_ns = policy.max_delay_ns.max(policy.base_delay_ns);
        }
        policy.multiplier = self.multiplier.unwrap_or(policy.multiplier);
        if let Some(text) = &self.jitter {
            policy.jitter = text.parse().map_err(|error| format!("jitter: {error}"))?;
        }
        if let Some(statuses) = &self.statuses {
            policy.statuses.clone_from(statuses);
        }
        if let Some(reasons) = &self.reasons {
            if let Some(wrong) = reasons.iter().find(|reason| !REASONS.contains(&reason.as_str())) {
                return Err(format!("reasons: `{wrong}` is none of {}", REASONS.join(", ")));
            }
            let has = |reason: &str| reasons.iter().any(|named| named == reason);
            policy.on_connect_error = has("connect");
            policy.on_reset_before_response = has("reset");
            policy.on_timeout = has("timeout");
        }
        if let Some(ways) = &self.server_delays {
            let ways = ways.iter().map(|way| of_words("server_delays", way, &ServerDelay::ALL));
            policy.server_delays = ways.collect::<Result<_, _>>()?;
        }
        policy.server_delay_max_ns = self.server_delay_max.unwrap_or(policy.server_delay_max_ns);
        if let Some(word) = &self.server_delay_longer {
            policy.server_delay_longer = of_words("server_delay_longer", word, &LongerDelay::ALL)?;
        }
        policy.obey_should_retry = self.obey_should_retry.unwrap_or(policy.obey_should_retry);
        if let Some(header) = &self.count_header {
            policy.count_header = Some(header.clone()).filter(|header| !header.is_empty());
        }
        Ok(())
    }

    /// Every key, so that resolving them again gives this policy.
    pub(crate) fn of(policy: &RetryPolicy) -> Retry {
        let named = RetryPolicy::preset(&policy.name).is_some();
        let reasons =
            [policy.on_connect_error, policy.on_reset_before_response, policy.on_timeout].into_iter();
        Retry {
            // A policy of one's own is the plainest one with every key changed.
            policy: Some(if named { policy.name.clone() } else { "none".to_owned() }),
            kind: Some(word_of(policy.kind, &RetryKind::ALL)),
            max_retries: Some(policy.max_retries),
            total_time: policy.total_time_ns,
            base_delay: Some(policy.base_delay_ns),
            max_delay: Some(policy.max_delay_ns),
            multiplier: Some(policy.multiplier),
            jitter: Some(policy.jitter.to_string()),
            statuses: Some(policy.statuses.clone()),
            reasons: Some(
                reasons.zip(REASONS).filter(|(on, _)| *on).map(|(_, word)| word.to_owned()).collect(),
            ),
            server_delays: Some(
                policy.server_delays.iter().map(|way| word_of(*way, &ServerDelay::ALL)).collect(),
            ),
            server_delay_max: Some(policy.server_delay_max_ns),
            server_delay_longer: Some(word_of(policy.server_delay_longer, &LongerDelay::ALL)),
            obey_should_retry: Some(policy.obey_should_retry),
            count_header: Some(policy.count_header.clone().unwrap_or_default()),
        }
    }
}

/// What a word out of a list stands for.
pub(super) fn of_words<T: Copy>(key: &str, word: &str, all: &[(&'static str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == word);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("{key}: `{word}` is none of {}", words.join(", "))
    })
}

/// The word for a value out of a list.
pub(super) fn word_of<T: PartialEq>(value: T, all: &[(&'static str, T)]) -> String {
    let found = all.iter().find(|(_, known)| *known == value);
    found.map(|(word, _)| (*word).to_owned()).unwrap_or_default()
}

/// A value as TOML has it, or as text, as the command line has it.
pub(super) fn number<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: std::str::FromStr,
{
    let value = toml::Value::deserialize(deserializer)?;
    let text = match &value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.trim().parse().map(Some).map_err(|_| {
        serde::de::Error::custom(format!(
            "`{text}` is no number that can stand here: write it in digits, such as 600"
        ))
    })
}

/// A list of words, or one text that joins them.
fn words<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    let items = match toml::Value::deserialize(deserializer)? {
        toml::Value::Array(items) => items,
        toml::Value::String(text) => {
            let parts = text.split(JOIN).map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| toml::Value::String(part.to_owned())).collect()
        }
        other => vec![other],
    };
    Ok(Some(
        items
            .into_iter()
            .map(|item| match item {
                toml::Value::String(text) => text,
                other => other.to_string(),
            })
            .collect(),
    ))
}

/// Status codes and ranges: `429`, `"500-599"`.
fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<StatusRange>>, D::Error> {
    let parsed = |text: &String| {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let code = |text: &str| text.trim().parse::<u16>().ok();
        Some(StatusRange { from: code(from)?, to: code(to)? })
    };
    let texts = words(deserializer)?.unwrap_or_default();
    let ranges = texts.iter().map(|text| {
        parsed(text).ok_or_else(|| {
            serde::de::Error::custom(format!("`{text}` is no status code and no range such as 500-599"))
        })
    });
    ranges.collect::<Result<_, _>>().map(Some)
}

fn statuses_text<S: Serializer>(ranges: &Option<Vec<StatusRange>>, serializer: S) -> Result<S::Ok, S::Error> {
    let Some(ranges) = ranges else { return serializer.serialize_none() };
    serializer.collect_seq(ranges.iter().map(|range| match range {
        StatusRange { from, to } if from == to => from.to_string(),
        StatusRange { from, to } => format!("{from}-{to}"),
    }))
}

#[cfg(test)]
mod tests {
    use tracewheel_replay::Jitter;

    use super::*;

    fn pairs(text: &str) -> Result<Retry, String> {
        Retry::of_pairs(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn keys_of_a_file_and_of_the_command_line_say_the_same() {
        let file: Retry = toml::from_str(
            "kind = \"exponential\"\nmax_retries = 5\ntotal_time = \"90s\"\nbase_delay = \"250ms\"\nmultiplier = 3\n\
             jitter = \"equal\"\nstatuses = [429, \"500-599\"]\nreasons = [\"connect\", \"reset\"]\n\
             server_delays = [\"retry-after\", \"retry-info\"]\nserver_delay_max = \"30s\"\nobey_should_retry = false\n",
        )
        .unwrap();
        let flags = pairs(
            "kind=exponential,max_retries=5,total_time=90s,base_delay=250ms,multiplier=3,jitter=equal,\
             statuses=429+500-599,reasons=connect+reset,server_delays=retry-after+retry-info,server_delay_max=30s,\
             obey_should_retry=false",
        )
        .unwrap();
        assert_eq!(file, flags);
        let policy = flags.resolve("openai-sdk").unwrap();
        assert_eq!((policy.name.as_str(), policy.max_retries, policy.multiplier), ("custom", 5, 3.0));
        assert_eq!((policy.jitter, policy.on_timeout, policy.on_connect_error), (Jitter::Equal, false, true));
        assert_eq!(policy.statuses, [(429, 429), (500, 599)].map(|(from, to)| StatusRange { from, to }));
        assert_eq!((policy.base_delay_ns, policy.max_delay_ns), (250_000_000, 8_000_000_000));
        assert_eq!(
            policy.count_header.as_deref(),
            Some("x-stainless-retry-count"),
            "what is not named stays"
        );
    }

    #[test]
    fn a_policy_written_out_resolves_to_itself() {
        let custom = pairs("jitter=decorrelated,count_header=").unwrap().resolve("anthropic-sdk").unwrap();
        let presets = RetryPolicy::PRESETS.iter().map(|(name, _)| RetryPolicy::preset(name).unwrap());
        for policy in presets.chain([custom]) {
            let text = toml::to_string(&Retry::of(&policy)).unwrap();
            let keys: Retry = toml::from_str(&text).unwrap();
            assert_eq!(keys.resolve(keys.policy().unwrap()).unwrap(), policy, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_key() {
        for (text, told) in [
            ("max_retries", "KEY=VALUE"),
            ("max_retry=4", "unknown field"),
            ("policy=none", "--retry"),
            ("max_retries=many", "`many`"),
            ("statuses=5xx", "`5xx`"),
            ("base_delay=soon", "`soon`"),
        ] {
            let error = pairs(text).unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
        for (text, told) in [
            ("kind=linear", "kind: `linear`"),
            ("jitter=some", "jitter: `some`"),
            ("reasons=bad", "reasons: `bad`"),
            ("server_delay_longer=wait", "server_delay_longer: `wait`"),
            ("max_delay=1ms", "max_delay"),
            ("multiplier=0.5", "multiplier"),
        ] {
            let error = pairs(text).unwrap().resolve("openai-sdk").unwrap_err();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
