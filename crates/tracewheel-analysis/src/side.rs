//! One side of a comparison: the requests of a run or of a timeline as plain numbers, and what is said about each side.
//!
//! Memory is bounded by the number of requests (about 300 bytes each): the events of a stream are looked at while their
//! attempt passes by and are never kept. What is pooled over events is made in further passes ([`Side::visit_streams`]).

mod cached;
mod load_level;
pub(crate) mod observed;
mod prompts;
mod report;
mod run;
pub(crate) mod streams;
mod timeline;
mod wave;

use std::collections::{BTreeMap, BTreeSet};

use tracewheel_record::Run;
use tracewheel_timeline::Timeline;
use tracewheel_timeline::vocab::{RequestStatus, TtftKind};

use crate::error::Result;
use crate::fidelity::{DurationSummary, Fidelity};
use observed::Roster;
use run::PhaseCounts;
use streams::{OutputStream, StreamTally, TokenSource};

pub use cached::{CacheClass, CacheClassReport, CachedDifference, CachedReport, CachedShare};
pub use prompts::PromptReport;
pub use report::{
    Concurrency, Counts, JitterSummary, RetryReport, SideKind, SideReport, StallSummary, StampShare,
    StreamReport, TokenSources, Window,
};
pub(crate) use run::load as load_run;
pub(crate) use timeline::load as load_timeline;
pub use wave::RetryWave;

/// What a side is read from, for the passes that follow.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    Run(&'a Run),
    Timeline(&'a Timeline),
}

/// One side, read.
pub(crate) struct Side<'a> {
    source: Source<'a>,
    pub(crate) roster: Roster,
    pub(crate) report: SideReport,
    /// Runs only.
    pub(crate) fidelity: Option<Fidelity>,
    /// Runs only: end of body − last output event.
    pub(crate) body_tail: DurationSummary,
    /// Runs only.
    pub(crate) phases: PhaseCounts,
    /// Runs only: planned requests that never left, have no row, and count at +∞.
    pub(crate) unsent_without_row: u64,
    /// Timelines only.
    pub(crate) logged: Logged,
}

/// What a timeline's rows say about their recording.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    pub(crate) ttft_kinds: BTreeMap<TtftKind, u64>,
    /// Rows whose arrival was not recorded as a start.
    pub(crate) arrival_not_start: u64,
    pub(crate) sampled: bool,
    /// What the rows say about the environment, under the manifest's keys.
    pub(crate) facts: BTreeMap<&'static str, BTreeSet<String>>,
}

impl<'a> Side<'a> {
    fn new(kind: SideKind, name: String, source: Source<'a>, roster: Roster) -> Self {
        let report = SideReport {
            kind,
            name,
            window: load_level::window(&roster.requests),
            concurrency: load_level::concurrency(&roster.requests),
            counts: Counts::default(),
            retries: retries(&roster),
            cached: cached::report(&roster),
            prompts: PromptReport::of(&roster),
            streams: StreamReport::default(),
            stamps: StampShare::default(),
        };
        Self {
            source,
            roster,
            report,
            fidelity: None,
            body_tail: DurationSummary::default(),
            phases: PhaseCounts::new(),
            unsent_without_row: 0,
            logged: Logged::default(),
        }
    }

    fn set_streams(&mut self, tally: StreamTally) {
        (self.report.streams, self.report.stamps) = tally.finish();
        let tokens = &mut self.report.streams.tokens;
        for source in self.roster.requests.iter().filter(|r| r.is_ok()).filter_map(|r| r.token_source) {
            *match source {
                TokenSource::Event => &mut tokens.event,
                TokenSource::Usage => &mut tokens.usage,
                TokenSource::OnePerEvent => &mut tokens.one_per_event,
                TokenSource::ToLastByte => &mut tokens.to_last_byte,
            } += 1;
        }
    }

    /// Visits the output stream of each request that has gaps, with the request's position in the roster.
    pub(crate) fn visit_streams(&self, visit: &mut dyn FnMut(usize, &OutputStream)) -> Result<()> {
        match self.source {
            Source::Run(run) => run::visit_streams(run, &self.roster, visit),
            Source::Timeline(timeline) => timeline::visit_streams(timeline, &self.roster, visit),
        }
    }
}

impl Counts {
    fn add(&mut self, status: RequestStatus) {
        self.planned += 1;
        *match status {
            RequestStatus::Ok => &mut self.ok,
            RequestStatus::Failed => &mut self.failed,
            RequestStatus::Cancelled => &mut self.cancelled,
            RequestStatus::Interrupted => &mut self.interrupted,
            RequestStatus::Unsent => &mut self.unsent,
        } += 1;
    }
}

/// Whether an HTTP status refuses for rate or load.
fn throttled_status(status: Option<u16>) -> bool {
    matches!(status, Some(429 | 503 | 529))
}

fn retries(roster: &Roster) -> RetryReport {
    let sent = roster.requests.iter().filter(|r| r.attempts > 0);
    let share = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
    let (mut all, mut attempts, mut retried, mut throttled) = (0, 0, 0, 0);
    for request in sent {
        all += 1;
        attempts += u64::from(request.attempts);
        retried += u64::from(request.attempts > 1);
        throttled += u64::from(request.throttled);
    }
    let waits = |wait: fn(&observed::Observed) -> i64| {
        DurationSummary::of(roster.requests.iter().map(wait).filter(|ns| *ns > 0).collect())
    };
    RetryReport {
        attempts,
        retried,
        retried_share: share(retried, all),
        throttled,
        throttled_share: share(throttled, all),
        backoff: waits(|r| r.backoff_ns),
        budget_wait: waits(|r| r.budget_wait_ns),
        wave: RetryWave::default(),
    }
}
