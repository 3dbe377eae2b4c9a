//! The requests that fill a target's cache ahead of a run.

use tracewheel_timeline::vocab::Phase;
use xxhash_rust::xxh3::Xxh3;

use crate::block_set::{BlockSet, Inserted};
use crate::history::HistoryRequests;
use crate::prefix_cache::apart;
use crate::{Assign, CacheMode, PlannedRequest, PlannedRequests, PromptSpec, WorkloadError, request_id};

/// Set in the `copy` of every priming request, so that it is never taken for the planned request of the same row.
pub const PRIMING_COPY: u32 = 1 << 31;

/// The most prompts that are told apart; beyond it some may be sent twice, which warms no less.
const MAX_PROMPTS: usize = 1 << 22;

/// What is sent before a run to fill the target's cache: for a warm run the distinct prompts of the plan, each once; for
/// a natural one the prefixes that the rows before the plan left behind ([`History`](crate::History)), where the plan's
/// options ask for that.
///
/// Each is the planned request with one token of output to ask for, a plain answer, no recorded body or cancel, its own
/// `copy` (with [`PRIMING_COPY`]) and id, and `planned_ns` 0: when it is sent is the replay's to decide. Its prompt is
/// that of the planned request and must be rendered under the run's nonce itself.
#[derive(Debug)]
pub struct PrimingRequests {
    source: Source,
    assign: Option<Assign>,
}

#[derive(Debug)]
enum Source {
    Own(Box<OwnPrompts>),
    History(Box<HistoryRequests>),
}

impl PrimingRequests {
    pub(crate) fn new(requests: PlannedRequests, mode: CacheMode, timeline_digest: &str) -> Self {
        let seen = BlockSet::new(MAX_PROMPTS);
        let own = OwnPrompts { requests, mode, timeline_digest: timeline_digest.to_owned(), seen };
        PrimingRequests { source: Source::Own(Box::new(own)), assign: None }
    }

    pub(crate) fn of_history(history: HistoryRequests) -> Self {
        PrimingRequests { source: Source::History(Box::new(history)), assign: None }
    }

    /// The same, each with its lane: a prompt that is wanted warm in several caches is sent to each.
    pub fn assigned(mut self, assign: Assign) -> Self {
        match &mut self.source {
            Source::Own(own) => own.assign(assign),
            Source::History(_) => self.assign = Some(assign),
        }
        self
    }
}

impl Iterator for PrimingRequests {
    type Item = Result<PlannedRequest, WorkloadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Own(own) => own.next(),
            Source::History(history) => {
                let next = history.next()?;
                Some(next.map(|mut request| {
                    if let Some(assign) = &mut self.assign {
                        request.lane = assign.of(&request);
                    }
                    request
                }))
            }
        }
    }
}

/// The plan's own prompts.
#[derive(Debug)]
struct OwnPrompts {
    requests: PlannedRequests,
    mode: CacheMode,
    timeline_digest: String,
    seen: BlockSet,
}

impl OwnPrompts {
    fn assign(&mut self, assign: Assign) {
        self.requests.assign(assign);
    }

    fn priming(&self, planned: PlannedRequest) -> PlannedRequest {
        let copy = planned.copy | PRIMING_COPY;
        PlannedRequest {
            copy,
            request_id: request_id(&self.timeline_digest, planned.row, copy),
            planned_ns: 0,
            phase: Phase::Prime,
            output_tokens: 1,
            stream: false,
            cancel_after_ns: None,
            body: None,
            predicted_cached_tokens: None,
            ..planned
        }
    }
}

impl Iterator for OwnPrompts {
    type Item = Result<PlannedRequest, WorkloadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if matches!(self.mode, CacheMode::Natural | CacheMode::Cold) {
            return None;
        }
        loop {
            let planned = match self.requests.next()? {
                Ok(planned) => planned,
                Err(error) => return Some(Err(error)),
            };
            if self.mode.is_primed(planned.request_id)
                && self.seen.insert(identity(&planned.prompt) ^ apart(planned.lane.cache)) != Inserted::Known
            {
                return Some(Ok(self.priming(planned)));
            }
        }
    }
}

/// Hashes are chained, so the last block stands for all before it.
fn identity(prompt: &PromptSpec) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&prompt.tokens().to_le_bytes());
    hasher.update(&prompt.blocks.last().map_or(0, |block| block.hash).to_le_bytes());
    hasher.update(&prompt.tail.map_or(0, |tail| tail.key).to_le_bytes());
    hasher.digest()
}
