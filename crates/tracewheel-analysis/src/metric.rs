//! What is measured, of whom: the closed lists behind every table, each with the one definition that outputs repeat.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A latency metric. `docs/reference/metrics.md` holds the same definitions at length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Time to the first output event of any output kind.
    Ttft,
    /// Time to the first visible `text` event.
    Ttfv,
    /// Time to the last output event (not streamed: the end of the body).
    E2e,
    /// Time between output events, pooled over all streams.
    Gap,
    /// Gap spread over the tokens of the event that ends it.
    Itl,
    /// (Last − first output event) / tokens after the first event.
    Tpot,
}

impl Metric {
    /// All metrics, in the order of tables.
    pub const ALL: [Self; 6] = [Self::Ttft, Self::Ttfv, Self::E2e, Self::Gap, Self::Itl, Self::Tpot];
    /// Metrics that exist for each population.
    pub const OF_REQUESTS: [Self; 3] = [Self::Ttft, Self::Ttfv, Self::E2e];
    /// Metrics inside a stream: of successful requests only, the same in every population.
    pub const OF_STREAMS: [Self; 3] = [Self::Gap, Self::Itl, Self::Tpot];

    /// The word in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Ttfv => "ttfv",
            Self::E2e => "e2e",
            Self::Gap => "gap",
            Self::Itl => "itl",
            Self::Tpot => "tpot",
        }
    }

    /// The definition in one line.
    pub const fn definition(self) -> &'static str {
        match self {
            Self::Ttft => {
                "first output event (text, reasoning, tool arguments, refusal) - start; never 0 when there is none"
            }
            Self::Ttfv => "first text event - start",
            Self::E2e => "last output event - start; not streamed: end of body - start; not [DONE]",
            Self::Gap => "time between output events of one stream, pooled",
            Self::Itl => "gap / tokens of the event that ends it, once a token",
            Self::Tpot => "(last - first output event) / tokens after the first event",
        }
    }
}

/// Whose latency is counted, and from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Population {
    /// Successful requests from the due time of attempt 1; failed and unsent ones at +∞. The headline.
    User,
    /// Successful requests, from the due time of attempt 1.
    Success,
    /// Successful attempts, from their last byte written.
    Service,
}

impl Population {
    /// The three, headline first.
    pub const ALL: [Self; 3] = [Self::User, Self::Success, Self::Service];

    /// The word in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Success => "success",
            Self::Service => "service",
        }
    }

    /// The definition in one line.
    pub const fn definition(self) -> &'static str {
        match self {
            Self::User => {
                "successful requests from the due time of attempt 1, failed and unsent ones at +infinity"
            }
            Self::Success => "successful requests from the due time of attempt 1",
            Self::Service => "successful attempts from their last byte written",
        }
    }
}

/// What the replay says about the baseline, for one percentile or as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval of the ratio lies wholly within the tolerance.
    Agree,
    /// The interval of the ratio lies wholly below the tolerance.
    Faster,
    /// The interval of the ratio lies wholly above the tolerance.
    Slower,
    /// The interval reaches across an edge of the tolerance, or there is none.
    CannotTell,
}

impl Verdict {
    /// The words that a person reads.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agree => "agree",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// What each metric and each population is, in one line, under its word: for outputs.
pub fn definitions() -> BTreeMap<String, String> {
    let metrics = Metric::ALL.map(|m| (m.as_str(), m.definition()));
    let populations = Population::ALL.map(|p| (p.as_str(), p.definition()));
    metrics.into_iter().chain(populations).map(|(word, text)| (word.to_owned(), text.to_owned())).collect()
}
