//! Sections that are known only at the end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How the run ended.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct OutcomeSection {
    /// What ended it.
    pub ended_by: EndedBy,
    /// When sending ended on the run clock: with the last release, or when a person stopped it.
    pub ended_ns: Option<i64>,
    /// Planned requests by status; set by the writer.
    pub counts: Counts,
    /// Requests beside the plan (phases `calibrate` and `prime`) by status; set by the writer.
    pub extra: Counts,
    /// Failed, cancelled, interrupted and unsent requests of the plan by reason; set by the writer.
    pub reasons: BTreeMap<String, u64>,
    /// Attempts recorded; set by the writer.
    pub attempts: u64,
    /// Finished parts of each table; set by the writer.
    pub parts: BTreeMap<String, u64>,
    /// Requests per second that left, over the span from the first to the last.
    pub achieved_per_second: Option<f64>,
    /// First byte written − due, over first attempts of the phase `measure`.
    pub lateness: Option<PercentilesNs>,
    /// Due − planned, over gated requests.
    pub gate_drift: Option<PercentilesNs>,
    /// Requests in flight, seen by each arriving request.
    pub in_flight: Option<DistributionSection>,
    /// What was seen of the connections, and learned of how long the target keeps them.
    pub connections: Option<ConnectionOutcome>,
    /// What filling the target's cache took; `None` where nothing was sent ahead.
    pub prime: Option<PrimeOutcome>,
    /// What became of live answers; `None` where they did not go on into the next turn.
    pub threading: Option<ThreadingOutcome>,
}

/// What became of the turns of sessions whose live answers go on into the next turn.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ThreadingOutcome {
    /// Turns whose body holds the live answer to the turn before it.
    pub turns: u64,
    /// Live answers in them altogether: a third turn holds two.
    pub answers: u64,
    /// Turns behind another one that were sent as planned, by reason: `no_answer`, `not_continued`, `forgotten`.
    pub as_planned: BTreeMap<String, u64>,
    /// Recorded output tokens of the answers that were replaced, each counted once.
    pub recorded_tokens: u64,
    /// Tokens of the live answers in their place, as the target counted them where it did, without reasoning.
    pub live_tokens: u64,
}

/// What filling the target's cache ahead of a plan took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PrimeOutcome {
    /// Requests that ended well.
    pub ok: u64,
    /// Requests that did not.
    pub failed: u64,
    /// Input tokens of those that ended well, as the target counted them where it did.
    pub input_tokens: u64,
    /// Those of them that the target had already; `None` where no answer said so.
    pub cached_tokens: Option<u64>,
    /// Tokens that it put out.
    pub output_tokens: u64,
    /// From the first to the last of them.
    pub took_ns: i64,
}

/// What became of a run's connections, and what was learned of how long the target keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionOutcome {
    /// Connections opened.
    pub opened: u64,
    /// Requests moved to another connection because the server had closed theirs before a byte was written.
    pub moved: u64,
    /// Attempts whose connection stood only after they were due.
    pub connected_at_send: u64,
    /// Attempts that lost their connection before a byte was written and took one that stood ready.
    pub spares_used: u64,
    /// Idle connections that the server closed.
    pub closed_idle: u64,
    /// Idle connections that were closed ahead of the server's limit.
    pub retired: u64,
    /// Idle time since the last answer after which the server closed a connection, or said that it would: the smallest.
    pub idle_limit_ns: Option<i64>,
    /// The same for connections that had carried nothing, since they stood.
    pub idle_limit_unused_ns: Option<i64>,
    /// Idle time after which a connection that had carried something was taken out of use.
    pub retire_after_ns: Option<i64>,
    /// Answers after which the server ends a connection.
    pub answers_limit: Option<u32>,
    /// How that is known.
    pub answers_limit_from: Option<AnswersLimitFrom>,
    /// HTTP/2: requests at once that a connection carried at most, the smaller of what was chosen and what the server allows.
    pub streams: Option<u32>,
    /// HTTP/2: attempts whose request waited for the server's flow-control window.
    pub window_waits: u64,
    /// The longest of these waits.
    pub window_wait_max_ns: Option<i64>,
}

impl ConnectionOutcome {
    /// Adds what another sender saw: counts are summed, of limits the smaller one stays.
    pub fn add(&mut self, other: &ConnectionOutcome) {
        let smaller = |one: Option<i64>, two: Option<i64>| one.into_iter().chain(two).min();
        self.opened += other.opened;
        self.moved += other.moved;
        self.connected_at_send += other.connected_at_send;
        self.spares_used += other.spares_used;
        self.closed_idle += other.closed_idle;
        self.retired += other.retired;
        self.idle_limit_ns = smaller(self.idle_limit_ns, other.idle_limit_ns);
        self.idle_limit_unused_ns = smaller(self.idle_limit_unused_ns, other.idle_limit_unused_ns);
        self.retire_after_ns = smaller(self.retire_after_ns, other.retire_after_ns);
        if other.answers_limit.is_some_and(|limit| self.answers_limit.is_none_or(|known| limit < known)) {
            (self.answers_limit, self.answers_limit_from) = (other.answers_limit, other.answers_limit_from);
        }
        self.streams = self.streams.into_iter().chain(other.streams).min();
        self.window_waits += other.window_waits;
        self.window_wait_max_ns = self.window_wait_max_ns.max(other.window_wait_max_ns);
    }
}

/// How a limit on the answers of a connection is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswersLimitFrom {
    /// The server says so: `connection: close`, or `max` of `keep-alive`.
    Announced,
    /// It closed connections right behind that answer, without a word.
    Seen,
}

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// The plan was done.
    Plan,
    /// A person's signal; in flight requests were drained.
    Drained,
    /// A person's second signal; in flight requests were cut.
    Cut,
    /// A limit on failures.
    Failures,
    /// The recorder could not keep up, or its disk was full.
    Recorder,
    /// The process died; the run was closed from its journal.
    Killed,
    /// Unknown, or a word that this version does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Requests by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Ended well.
    pub ok: u64,
    /// Ended badly.
    pub failed: u64,
    /// Cancelled as in production.
    pub cancelled: u64,
    /// Cut by the end of the run.
    pub interrupted: u64,
    /// Never left.
    pub unsent: u64,
    /// Those of `unsent` that have no row in `requests`.
    pub unsent_without_row: u64,
}

impl Counts {
    /// Sum over the five states.
    pub fn total(&self) -> u64 {
        self.ok + self.failed + self.cancelled + self.interrupted + self.unsent
    }
}

/// Nearest-rank percentiles of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PercentilesNs {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50_ns: i64,
    /// 90th percentile.
    pub p90_ns: i64,
    /// 99th percentile.
    pub p99_ns: i64,
    /// 99.9th percentile.
    pub p999_ns: i64,
    /// Maximum.
    pub max_ns: i64,
}

/// Nearest-rank percentiles of a count.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DistributionSection {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}
