//! The names by which gateways and servers call the timeline's fields, for logs that come without a column map.
//!
//! A column is taken by its name only where its values bear it out and nothing is left to guess: a moment must be a date
//! or a number of the size of a wall time, and a length of time must tell its unit. All else is put into the map that an
//! error or a warning offers, to be looked at by a person.

use crate::cells::Cell;
use crate::column_map::{ColumnMap, Unit};
use crate::decimal;
use crate::stamps;

/// What the values of a column must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Moment,
    Length,
    Count,
    /// An HTTP status, or a word.
    Status,
    /// A text, a number or a truth.
    Scalar,
}

/// One field's names, the surest first, in lower case with `_` between words and without a unit.
struct Alias {
    field: &'static str,
    kind: Kind,
    names: &'static [&'static str],
    /// Names that mean the field only where they stand outermost.
    outermost: &'static [&'static str],
}

/// The first rows of a log.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    pub(crate) columns: Vec<String>,
    /// The texts of each column's values that are there.
    pub(crate) values: Vec<Vec<String>>,
}

/// What the columns of a log seem to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Guess {
    /// Map entries whose meaning is borne out by the values.
    pub(crate) sure: Vec<String>,
    /// Map entries to be looked at: their unit is guessed.
    pub(crate) doubtful: Vec<String>,
}

const fn alias(
    field: &'static str,
    kind: Kind,
    names: &'static [&'static str],
    outermost: &'static [&'static str],
) -> Alias {
    Alias { field, kind, names, outermost }
}

static ALIASES: &[Alias] = &[
    alias(
        "arrival",
        Kind::Moment,
        &[
            "arrival",
            "arrival_time",
            "arrival_timestamp",
            "arrived_at",
            "start_time",
            "started_at",
            "start_ts",
            "start_timestamp",
            "request_start",
            "request_start_time",
            "request_started_at",
            "request_timestamp",
            "request_created_at",
            "requested_at",
            "received_at",
        ],
        &["start", "created_at", "created", "timestamp", "ts", "time", "datetime", "date_time", "event_time"],
    ),
    alias(
        "end",
        Kind::Moment,
        &[
            "end_time",
            "ended_at",
            "end_ts",
            "end_timestamp",
            "finished_at",
            "completed_at",
            "response_created_at",
        ],
        &["end"],
    ),
    alias(
        "ttft",
        Kind::Length,
        &[
            "ttft",
            "time_to_first_token",
            "time_to_first_chunk",
            "time_to_first_byte",
            "first_token_latency",
            "first_token_time",
            "ttfb",
        ],
        &[],
    ),
    alias(
        "e2e",
        Kind::Length,
        &[
            "e2e",
            "e2e_latency",
            "end_to_end_latency",
            "total_latency",
            "total_duration",
            "total_time",
            "request_duration",
            "request_latency",
            "response_time",
            "latency",
            "duration",
            "elapsed",
            "elapsed_time",
            "delay",
        ],
        &[],
    ),
    alias(
        "input_tokens",
        Kind::Count,
        &[
            "input_tokens",
            "prompt_tokens",
            "native_tokens_prompt",
            "tokens_prompt",
            "tokens_in",
            "input_token_count",
            "prompt_token_count",
            "num_input_tokens",
            "num_prompt_tokens",
            "num_prefill_tokens",
            "n_prompt_tokens",
            "context_tokens",
            "request_tokens",
            "input_length",
            "input_len",
            "prompt_length",
            "prompt_len",
        ],
        &[],
    ),
    alias(
        "output_tokens",
        Kind::Count,
        &[
            "output_tokens",
            "completion_tokens",
            "native_tokens_completion",
            "tokens_completion",
            "tokens_out",
            "output_token_count",
            "completion_token_count",
            "candidates_token_count",
            "num_output_tokens",
            "num_completion_tokens",
            "num_decode_tokens",
            "generated_tokens",
            "response_tokens",
            "output_length",
            "output_len",
            "answer_len",
        ],
        &[],
    ),
    alias(
        "cached_tokens",
        Kind::Count,
        &[
            "cached_tokens",
            "cache_read_input_tokens",
            "cache_read_tokens",
            "prompt_cache_read_tokens",
            "prompt_cache_hit_tokens",
            "cached_input_tokens",
            "input_cached_tokens",
            "native_tokens_cached",
            "cached_content_token_count",
        ],
        &[],
    ),
    alias(
        "cache_write_tokens",
        Kind::Count,
        &[
            "cache_write_tokens",
            "cache_creation_input_tokens",
            "prompt_cache_write_tokens",
            "cache_write_input_tokens",
        ],
        &[],
    ),
    alias(
        "reasoning_tokens",
        Kind::Count,
        &["reasoning_tokens", "native_tokens_reasoning", "thoughts_token_count"],
        &[],
    ),
    alias(
        "status",
        Kind::Status,
        &["status_code", "http_status", "response_status", "response_code"],
        &["status"],
    ),
    alias("error", Kind::Scalar, &["error_type", "error_code", "error_class", "is_error"], &[]),
    alias("request_id", Kind::Scalar, &["request_id", "req_id", "x_request_id"], &["id"]),
    alias("session", Kind::Scalar, &["session_id", "conversation_id", "thread_id", "chat_id"], &["session"]),
    alias("user", Kind::Scalar, &["user_id", "end_user", "end_user_id"], &["user"]),
    alias(
        "tenant",
        Kind::Scalar,
        &["tenant_id", "team_id", "organization_id", "org_id", "customer_id", "account_id"],
        &["tenant"],
    ),
    alias(
        "model",
        Kind::Scalar,
        &["request_model", "model_requested", "model_group", "model_name"],
        &["model"],
    ),
    alias("model_served", Kind::Scalar, &["model_served", "response_model"], &[]),
    alias("provider", Kind::Scalar, &["provider_name"], &["provider"]),
    alias("method", Kind::Scalar, &["request_method", "http_method"], &["method"]),
    alias("path", Kind::Scalar, &["request_path", "request_uri", "http_path"], &["path", "uri"]),
    alias("stream", Kind::Scalar, &["stream", "streaming", "streamed", "is_stream"], &[]),
    alias("attempt", Kind::Scalar, &["retry_count", "x_stainless_retry_count"], &[]),
];

impl Guess {
    /// The columns that carry names which are known, without those that `taken` has already.
    pub(crate) fn of(sample: &Sample, taken: Option<&ColumnMap>) -> Self {
        let mut guess = Self::default();
        let is_taken =
            |field: &str| taken.is_some_and(|map| map.bindings.iter().any(|binding| binding.name == field));
        let mut used: Vec<usize> = Vec::new();
        let has_end = |guess: &Self| guess.sure.iter().any(|entry| entry.starts_with("end="));
        for alias in ALIASES.iter().filter(|alias| !is_taken(alias.field)) {
            // The end tells the length better than a figure that may mean the first answer only.
            let unsure = alias.field == "e2e" && has_end(&guess);
            let found = alias.find(sample, &used).filter(|(_, name)| !(unsure && name == "response_time"));
            if let Some((at, _)) = found {
                used.push(at);
                alias.judge(&sample.columns[at], &sample.values[at], &mut guess);
            }
        }
        guess
    }

    /// The map of what is sure, together with what `own` has; `None` where nothing says when a request started.
    pub(crate) fn map(&self, own: &[String]) -> Option<ColumnMap> {
        let entries: Vec<&str> = own.iter().chain(&self.sure).map(String::as_str).collect();
        entries.join(",").parse().ok()
    }

    /// A map to be looked at and given; `None` where no name is known.
    pub(crate) fn offer(&self, own: &[String]) -> Option<String> {
        let entries: Vec<&str> =
            own.iter().chain(&self.sure).chain(&self.doubtful).map(String::as_str).collect();
        (!entries.is_empty()).then(|| entries.join(","))
    }
}

impl Alias {
    /// The column with the surest of the names.
    fn find(&self, sample: &Sample, used: &[usize]) -> Option<(usize, String)> {
        let mut best: Option<(usize, usize, String)> = None;
        for (at, column) in sample.columns.iter().enumerate() {
            if used.contains(&at) || column.contains([',', '=', ':']) || column.trim() != column {
                continue;
            }
            if let Some((rank, name)) = self.rank(column)
                && best.as_ref().is_none_or(|(other, ..)| rank < *other)
            {
                best = Some((rank, at, name));
            }
        }
        best.map(|(_, at, name)| (at, name))
    }

    /// How sure a column's name is: smaller is surer.
    fn rank(&self, column: &str) -> Option<(usize, String)> {
        let (last, outermost) = match column.rsplit_once('.') {
            Some((_, last)) => (last, false),
            None => (column, true),
        };
        let place = |name: &str| {
            let inner = self.names.iter().position(|other| *other == name);
            let outer = self.outermost.iter().position(|other| *other == name).filter(|_| outermost);
            inner.or(outer.map(|at| at + self.names.len()))
        };
        // `request.id` is called as `request_id` is.
        for name in [plain(column), plain(last)] {
            let stem = match self.kind {
                Kind::Moment | Kind::Length => Unit::of_column(&name).1.to_owned(),
                Kind::Count | Kind::Status | Kind::Scalar => name.clone(),
            };
            for name in [name, stem] {
                if let Some(rank) = place(&name) {
                    return Some((rank, name));
                }
            }
        }
        None
    }

    /// Whether the values bear the name out.
    fn judge(&self, column: &str, values: &[String], guess: &mut Guess) {
        let entry = format!("{}={column}", self.field);
        // A bad row among the first ones is a bad row, and no reason to lose the column.
        let most =
            |is: &dyn Fn(&str) -> bool| values.iter().filter(|value| is(value)).count() * 2 > values.len();
        let is_number = |value: &str| decimal::scaled(value, 0).is_some();
        let named = Unit::of_column(&plain(column)).0;
        // A suffix that the map reads by itself need not be written.
        let suffix = Unit::of_column(column).0;
        match self.kind {
            Kind::Count if most(&|value| decimal::whole(value).is_some_and(|count| count >= 0)) => {
                guess.sure.push(entry);
            }
            // Spans have status codes of their own: 0, 1, 2.
            Kind::Status
                if most(&|value| decimal::whole(value).is_none_or(|code| (100..600).contains(&code))) =>
            {
                guess.sure.push(entry);
            }
            Kind::Scalar if !values.is_empty() => guess.sure.push(entry),
            Kind::Moment if most(&stamps::is_moment) => match named.filter(|_| suffix.is_none()) {
                Some(unit) if most(&is_number) => guess.sure.push(format!("{entry}:{unit}")),
                _ => guess.sure.push(entry),
            },
            Kind::Length if most(&is_number) => match (named, suffix) {
                (Some(unit), _) if unit.unix => {}
                (Some(_), Some(_)) => guess.sure.push(entry),
                (Some(unit), None) => guess.sure.push(format!("{entry}:{unit}")),
                (None, _) => guess.doubtful.push(format!("{entry}:{}", likely_unit(values))),
            },
            Kind::Moment if most(&is_number) => match named {
                Some(unit) if suffix.is_some() || unit.unix => guess.sure.push(entry),
                Some(unit) => guess.sure.push(format!("{entry}:{unit}")),
                None => guess.doubtful.push(format!("{entry}:{}", likely_unit(values))),
            },
            _ => {}
        }
    }
}

/// Seconds where the numbers are small or have fractions, else milliseconds.
fn likely_unit(values: &[String]) -> &'static str {
    let seconds = |value: &String| {
        decimal::scaled(value, 0)
            .is_some_and(|number| (number.last_digit < 0 && number.value < 100_000) || number.value < 100)
    };
    let number = |value: &&String| decimal::scaled(value, 0).is_some();
    if values.iter().filter(number).all(seconds) { "s" } else { "ms" }
}

/// `promptTokens`, `Prompt tokens` and `prompt-tokens` are `prompt_tokens`.
fn plain(column: &str) -> String {
    let mut name = String::with_capacity(column.len() + 4);
    let mut after_small = false;
    for letter in column.trim_start_matches(['@', '_', '$']).chars() {
        match letter {
            '-' | ' ' | '.' | '_' | '/' => {
                if !name.ends_with('_') {
                    name.push('_');
                }
            }
            letter => {
                if letter.is_ascii_uppercase() && after_small {
                    name.push('_');
                }
                name.push(letter.to_ascii_lowercase());
            }
        }
        after_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
    }
    name
}

impl Sample {
    /// A sample of these columns without a value.
    pub(crate) fn new(columns: Vec<String>) -> Self {
        let values = vec![Vec::new(); columns.len()];
        Self { columns, values }
    }

    /// Adds a value, if it is there and a scalar.
    pub(crate) fn add(&mut self, at: usize, cell: &Cell<'_>) {
        if let (Ok(text), Some(values)) = (cell.as_text(), self.values.get_mut(at)) {
            values.push(text.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(columns: &[(&str, &[&str])]) -> Guess {
        let sample = Sample {
            columns: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
            values: columns
                .iter()
                .map(|(_, values)| values.iter().map(|value| (*value).to_owned()).collect())
                .collect(),
        };
        Guess::of(&sample, None)
    }

    #[test]
    fn a_gateways_columns_are_known_by_name_and_borne_out_by_their_values() {
        let guess = guess(&[
            ("ts", &["1795536000.123", "1795536001"]),
            ("requestId", &["a1"]),
            ("usage.prompt_tokens", &["812", "3"]),
            ("usage.completion_tokens", &["64"]),
            ("usage.prompt_tokens_details.cached_tokens", &["0"]),
            ("durationMs", &["12"]),
            ("ttft_ms", &["3.5"]),
            ("status_code", &["200"]),
            ("note", &["hello"]),
        ]);
        assert_eq!(
            guess.sure.join(","),
            "arrival=ts,ttft=ttft_ms,e2e=durationMs:ms,input_tokens=usage.prompt_tokens,\
             output_tokens=usage.completion_tokens,cached_tokens=usage.prompt_tokens_details.cached_tokens,\
             status=status_code,request_id=requestId"
        );
        assert!(guess.doubtful.is_empty() && guess.map(&[]).is_some());
    }

    #[test]
    fn what_has_no_unit_is_offered_and_not_taken() {
        let guess = guess(&[
            ("timestamp", &["0", "27482", "30535"]),
            ("latency", &["0.52", "1.5"]),
            ("prompt_tokens", &["5"]),
        ]);
        assert_eq!(guess.sure, ["input_tokens=prompt_tokens"]);
        assert_eq!(guess.map(&[]), None, "nothing sure says when requests started");
        let offered = guess.offer(&[]).unwrap();
        assert_eq!(offered, "input_tokens=prompt_tokens,arrival=timestamp:ms,e2e=latency:s");
        assert!(offered.parse::<ColumnMap>().is_ok(), "ready to paste");
    }

    #[test]
    fn a_name_whose_values_say_otherwise_is_passed_over() {
        let none = guess(&[
            ("time", &["yesterday"]),
            ("prompt_tokens", &["many"]),
            ("latency_ms", &["fast"]),
            ("metadata.id", &["x"]),
            ("input_len", &["-5", "5"]),
            ("status_code", &["1", "2"]),
            ("a,b", &["1"]),
        ]);
        assert_eq!(none, Guess::default());
        assert_eq!(none.offer(&[]), None);
    }

    #[test]
    fn one_bad_row_among_the_first_does_not_cost_the_column() {
        let guess = guess(&[
            ("ts", &["1795536000", "later", "1795536001"]),
            ("prompt_tokens", &["5", "many", "7"]),
            ("latency", &["0.5", "fast", "0.7"]),
        ]);
        assert_eq!(guess.sure, ["arrival=ts", "input_tokens=prompt_tokens"]);
        assert_eq!(guess.doubtful, ["e2e=latency:s"]);
    }

    #[test]
    fn the_surest_name_wins_and_a_column_is_taken_once() {
        let moments: &[&str] = &["2026-11-24T16:00:00Z"];
        let guess = guess(&[
            ("created_at", moments),
            ("start_time", moments),
            ("endTime", moments),
            ("response_time_ms", &["5"]),
        ]);
        assert_eq!(guess.sure, ["arrival=start_time", "end=endTime"]);
    }

    #[test]
    fn names_are_compared_in_one_spelling() {
        for name in ["promptTokens", "Prompt tokens", "prompt-tokens", "PROMPT_TOKENS", "prompt.tokens"] {
            assert_eq!(plain(name), "prompt_tokens", "{name}");
        }
        assert_eq!(plain("@timestamp"), "timestamp");
        assert_eq!(plain("e2eLatencyMs"), "e2e_latency_ms");
    }

    #[test]
    fn every_alias_names_a_field_that_exists_and_no_name_stands_twice() {
        let mut names = std::collections::BTreeSet::new();
        for alias in ALIASES {
            assert!(crate::fields::by_name(alias.field).is_some(), "{}", alias.field);
            for name in alias.names.iter().chain(alias.outermost) {
                assert!(names.insert(*name), "{name}");
                assert_eq!(plain(name), *name);
            }
        }
    }
}
