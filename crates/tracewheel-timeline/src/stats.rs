//! Statistics of a timeline: what `inspect` shows.
//!
//! One streaming pass. Memory grows with the number of distinct token counts, distinct blocks (16 bytes or so each),
//! distinct sessions and, where production's latencies are known, 8 bytes a latency and a source id; not with the file.
//!
//! Token quantiles are interpolated, latency quantiles are nearest rank; [`Methods`] goes into the output and says so.

use serde::Serialize;

use crate::error::TimelineError;
use crate::meta::{BlockBasis, TimelineMeta};
use crate::read::Timeline;
use crate::row::RequestRow;
use crate::schema::column_names;
use crate::validate::{Oddity, Validator};

mod arrivals;
mod clock;
mod hash;
mod prefix;
mod production;
mod tokens;

pub use clock::{ClockResolution, ClockRule, FoundResolution};
pub use production::{AttemptStats, LatencyStats, ProductionStats};
pub use tokens::TokenStats;

use arrivals::Arrivals;
pub(crate) use hash::Mixer;
use hash::U64Set;
use prefix::Prefixes;
use production::Production;
use tokens::TokenCounts;

/// What a timeline holds, in figures. Its serde form is the JSON of `inspect --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TimelineStats {
    /// Rows, logged retries included.
    pub requests: u64,
    /// Whether arrivals are wall times. Without an epoch they count from a start of the trace's own.
    pub has_epoch: bool,
    /// The first known arrival, in nanoseconds since 1970 UTC; `None` without an epoch.
    pub first_arrival_unix_ns: Option<i64>,
    /// The last known arrival; `None` without an epoch.
    pub last_arrival_unix_ns: Option<i64>,
    /// From the first to the last arrival, in seconds.
    pub span_seconds: Option<f64>,
    /// Prompt tokens of the rows where they are known.
    pub input_tokens: TokenStats,
    /// Answer tokens of the rows where they are known.
    pub output_tokens: TokenStats,
    /// Prompt tokens that production read from its cache, of the rows where they are known.
    pub cached_tokens: TokenStats,
    /// Population standard deviation of the gaps between neighbours, over their mean. `None` below two gaps, or where
    /// all arrivals are equal.
    pub interarrival_cv: Option<f64>,
    /// Neighbours with equal arrivals.
    pub ties: u64,
    /// Requests in the busiest minute, minutes counted from the first arrival.
    pub peak_minute_requests: Option<u64>,
    /// The busiest minute over the mean minute, empty minutes counted.
    pub peak_to_mean: Option<f64>,
    /// Clock resolution found in the arrivals, in nanoseconds.
    pub clock_resolution_ns: Option<i64>,
    /// How the resolution was found.
    pub clock_resolution_rule: Option<ClockRule>,
    /// Prefix sharing; `None` where no row has blocks.
    pub prefix: Option<PrefixStats>,
    /// Distinct sessions; `None` where no row names one.
    pub sessions: Option<u64>,
    /// Rows that name a session.
    pub session_requests: u64,
    /// What production recorded about its answers; `None` where it recorded nothing.
    pub production: Option<ProductionStats>,
    /// What is odd about the rows.
    pub oddities: Vec<Oddity>,
    /// How the figures were computed.
    pub methods: Methods,
}

/// How much of the prompts an infinite prefix cache would have known. See [`PrefixStats::DEFINITION`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PrefixStats {
    /// Length of a block, where it is the same for all.
    pub block_tokens: Option<u32>,
    /// Unit of block lengths.
    pub block_basis: Option<BlockBasis>,
    /// Rows that have blocks.
    pub requests: u64,
    /// Blocks of all rows.
    pub blocks: u64,
    /// Distinct blocks.
    pub distinct_blocks: u64,
    /// Blocks that an earlier row had brought.
    pub hit_blocks: u64,
    /// Hit blocks over blocks, 0 to 1.
    pub block_hit_ratio: Option<f64>,
    /// Tokens of hit blocks over prompt tokens, 0 to 1; `None` where block lengths are unknown or in bytes.
    pub token_hit_ratio: Option<f64>,
    /// What a hit is, and which tokens count.
    pub definition: &'static str,
}

impl PrefixStats {
    /// The definition of a hit, as it stands in every output.
    pub const DEFINITION: &'static str = "infinite cache in file order, warm from nothing: a block is hit when it and every \
        block before it in its prompt stand in an earlier row; tokens: those of the hit blocks (a prompt's last block may be \
        partial and counts the remainder) over the prompt tokens of the rows with blocks";
}

/// The names of the methods behind the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Methods {
    /// For `input_tokens`, `output_tokens` and `cached_tokens`.
    pub token_quantiles: &'static str,
    /// For `production`.
    pub latency_quantiles: &'static str,
    /// For `interarrival_cv`.
    pub interarrival_cv: &'static str,
    /// For `peak_minute_requests` and `peak_to_mean`.
    pub peak: &'static str,
    /// For `clock_resolution_ns`.
    pub clock_resolution: &'static str,
}

impl Default for Methods {
    fn default() -> Self {
        Self {
            token_quantiles: "linear interpolation between order statistics",
            latency_quantiles: "nearest rank",
            interarrival_cv: "population standard deviation / mean of the gaps between neighbours, ties kept",
            peak: "60 s bins counted from the first arrival; mean over all bins, empty ones too",
            clock_resolution: ClockResolution::METHOD,
        }
    }
}

impl TimelineStats {
    /// Reads every row once, without its body.
    pub fn collect(timeline: &Timeline) -> Result<Self, TimelineError> {
        let mut collector = StatsCollector::new(timeline.meta());
        let columns: Vec<&str> = column_names().iter().copied().filter(|name| *name != "body").collect();
        for row in timeline.columns_in(0..timeline.num_rows(), &columns) {
            let (position, row) = row?;
            collector.push(position, &row);
        }
        Ok(collector.finish())
    }
}

/// Collects statistics row by row, for rows that do not come from a file.
#[derive(Debug)]
pub struct StatsCollector {
    requests: u64,
    has_epoch: bool,
    arrivals: Arrivals,
    clock: ClockResolution,
    input_tokens: TokenCounts,
    output_tokens: TokenCounts,
    cached_tokens: TokenCounts,
    prefixes: Prefixes,
    sessions: U64Set,
    session_requests: u64,
    production: Production,
    validator: Validator,
}

impl StatsCollector {
    /// Nothing collected yet; the metadata gives the blocks' length and unit.
    pub fn new(meta: &TimelineMeta) -> Self {
        Self {
            requests: 0,
            has_epoch: meta.has_epoch,
            arrivals: Arrivals::default(),
            clock: ClockResolution::new(),
            input_tokens: TokenCounts::default(),
            output_tokens: TokenCounts::default(),
            cached_tokens: TokenCounts::default(),
            prefixes: Prefixes::new(meta.block_tokens, meta.block_basis),
            sessions: U64Set::default(),
            session_requests: 0,
            production: Production::default(),
            validator: Validator::new(meta),
        }
    }

    /// Takes the row at a position; rows must come in the order of the timeline.
    pub fn push(&mut self, position: u64, row: &RequestRow) {
        self.requests += 1;
        if let Some(arrival_unix_ns) = row.arrival_unix_ns {
            self.arrivals.push(arrival_unix_ns);
            self.clock.push(arrival_unix_ns, row.arrival_precision_ns);
        }
        self.input_tokens.push(row.input_tokens);
        self.output_tokens.push(row.output_tokens);
        self.cached_tokens.push(row.cached_tokens);
        self.prefixes.push(row);
        if let Some(session) = row.session_hash {
            self.sessions.insert(session);
            self.session_requests += 1;
        }
        self.production.push(row);
        self.validator.push(position, row);
    }

    /// The figures of all rows so far.
    pub fn finish(self) -> TimelineStats {
        let clock = self.clock.finish();
        TimelineStats {
            requests: self.requests,
            has_epoch: self.has_epoch,
            first_arrival_unix_ns: self.arrivals.first().filter(|_| self.has_epoch),
            last_arrival_unix_ns: self.arrivals.last().filter(|_| self.has_epoch),
            span_seconds: self.arrivals.span_seconds(),
            input_tokens: self.input_tokens.finish(),
            output_tokens: self.output_tokens.finish(),
            cached_tokens: self.cached_tokens.finish(),
            interarrival_cv: self.arrivals.cv(),
            ties: self.arrivals.ties(),
            peak_minute_requests: self.arrivals.peak_minute_requests(),
            peak_to_mean: self.arrivals.peak_to_mean(),
            clock_resolution_ns: clock.map(|found| found.resolution_ns),
            clock_resolution_rule: clock.map(|found| found.rule),
            prefix: self.prefixes.finish(),
            sessions: (self.session_requests > 0).then_some(self.sessions.len() as u64),
            session_requests: self.session_requests,
            production: self.production.finish(),
            oddities: self.validator.finish(),
            methods: Methods::default(),
        }
    }
}
