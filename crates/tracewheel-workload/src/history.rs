//! What production's cache held when a window began: the prefixes that the rows before it left behind.
//!
//! The prefix hashes of the rows before a window form a forest: a block's parent is the block before it. What a cache
//! held is the part of the forest that was used last. One request for each leaf brings all of it back, because a
//! prompt brings every block on the way to its last one. The requests go in the order of the leaves' last use, the one
//! used longest ago first, so that a target that forgets what was used longest ago forgets the same as production's.

mod forest;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tracewheel_timeline::vocab::{BodyState, Phase};
use tracewheel_timeline::{RequestRow, Rows, Timeline};

use crate::layout::Layout;
use crate::select::{self, Selector};
use crate::{Lane, PRIMING_COPY, PlannedRequest, PlannedRequests, WorkloadError, request_id};

use forest::Forest;

/// The most distinct blocks of a history that are kept apart: 2^21, at about 80 bytes each 170 MB while they are counted.
pub const MAX_HISTORY_BLOCKS: usize = 1 << 21;

/// How much of what lies before a window is sent ahead of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// How far back rows are looked at, in recorded time, in nanoseconds; `None` is all the way to the first row.
    pub look_back_ns: Option<i64>,
    /// Size of the cache: of the blocks found, those used last that hold so many tokens together. `None` is no bound.
    pub cache_tokens: Option<u64>,
    /// Send only the prefixes that a request of the window finds. Less traffic; a target whose cache is too small for
    /// all of it then forgets less than production's did.
    pub reused_only: bool,
}

/// What a history came to, before anything is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistorySurvey {
    /// Requests that bring it back: one for each prefix that is not the beginning of another.
    pub requests: u64,
    /// Their input tokens together.
    pub input_tokens: u64,
    /// Tokens of the distinct blocks in them: what a target with an empty cache has to compute, at least.
    pub distinct_tokens: u64,
    /// Distinct blocks in them.
    pub distinct_blocks: u64,
    /// Rows looked at, all of which came before the window and would have been planned.
    pub rows: u64,
    /// Those of them without prefix hashes: nothing is known of what they left behind.
    pub rows_without_hashes: u64,
    /// Those of them with a recorded body: it shares its text with no prompt that is made up.
    pub rows_with_bodies: u64,
    /// From the first row looked at to the window's beginning, in recorded nanoseconds.
    pub look_back_ns: i64,
    /// Whether blocks were left out because more were live than [`MAX_HISTORY_BLOCKS`].
    pub beyond_memory: bool,
}

/// A history that was gone through: which rows stand for its leaves.
#[derive(Clone, Debug)]
pub(crate) struct Lived {
    pub(crate) survey: HistorySurvey,
    /// For each row that last used a leaf, how many of its blocks lead to it.
    leaves: Arc<BTreeMap<u64, u32>>,
    first_row: u64,
    end_row: u64,
}

/// The columns that a prompt's blocks come from.
pub(crate) const BLOCK_COLUMNS: &[&str] = &["prefix_hashes", "prefix_block_tokens"];

/// The columns of a row that its request carries on; no body.
const COLUMNS: &[&str] = &[
    "arrival_unix_ns",
    "session_hash",
    "tenant_hash",
    "user_hash",
    "turn",
    "retry_of_row",
    "operation",
    "method",
    "path",
    "endpoint",
    "model",
    "provider",
    "route",
    "input_tokens",
    "output_tokens",
    "prefix_hashes",
    "prefix_block_tokens",
    "params",
    "tags",
];

/// Goes through the rows before `end_row`, the first one of the plan. `window` are the requests of the plan, of which
/// only the blocks are looked at.
pub(crate) fn survey(
    timeline: &Timeline,
    history: History,
    (selector, layout): (&Selector, &Layout),
    end_row: u64,
    window: PlannedRequests,
) -> Result<Lived, WorkloadError> {
    if end_row == 0 {
        return Err(WorkloadError::NoHistory);
    }
    let first_row = first_row(timeline, history, selector, end_row)?;
    let mut survey = HistorySurvey::default();
    let mut forest = Forest::new(MAX_HISTORY_BLOCKS);
    let mut columns = select::COLUMNS.to_vec();
    columns.extend(BLOCK_COLUMNS);
    columns.push("body_state");
    for row in timeline.columns_in(first_row..end_row, &columns) {
        let (position, row) = row?;
        let Some(input_tokens) = selector.history_tokens(position, &row) else { continue };
        if survey.rows == 0 {
            survey.look_back_ns = selector.before_zero_ns(&row).unwrap_or(0);
        }
        survey.rows += 1;
        if row.body_state == BodyState::Full {
            survey.rows_with_bodies += 1;
        } else if row.prefix_hashes.is_none() {
            survey.rows_without_hashes += 1;
        } else {
            forest.visit(position, &layout.prompt(0, input_tokens, &row).blocks);
        }
    }
    forest.keep_last(history.cache_tokens.unwrap_or(u64::MAX), MAX_HISTORY_BLOCKS);
    if history.reused_only {
        for planned in window {
            forest.mark(&planned?.prompt.blocks);
        }
        forest.keep_marked();
    }
    survey.beyond_memory = forest.forgot();
    (survey.distinct_blocks, survey.distinct_tokens) = forest.size();
    let leaves = forest.leaves();
    survey.requests = leaves.len() as u64;
    let mut lived = Lived { survey, leaves: Arc::new(leaves), first_row, end_row };
    let requests = HistoryRequests::new(timeline, &lived, selector, layout, &WhoAsks::default());
    for request in requests {
        lived.survey.input_tokens += u64::from(request?.input_tokens);
    }
    Ok(lived)
}

/// The first row that is looked at.
fn first_row(
    timeline: &Timeline,
    history: History,
    selector: &Selector,
    end_row: u64,
) -> Result<u64, WorkloadError> {
    let Some(look_back_ns) = history.look_back_ns else { return Ok(0) };
    let from_unix_ns = selector.origin_unix_ns().saturating_sub(look_back_ns);
    for row in timeline.columns_in(0..end_row, &["arrival_unix_ns"]) {
        let (position, row) = row?;
        // Rows are sorted by arrival.
        if row.arrival_unix_ns.is_some_and(|arrival| arrival >= from_unix_ns) {
            return Ok(position);
        }
    }
    Ok(end_row)
}

/// What the requests of a history say beside their prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhoAsks {
    pub(crate) timeline_digest: Arc<str>,
    /// The plan's own model, if it has one.
    pub(crate) model: Option<Arc<str>>,
}

/// The requests that bring a history back: each asks for one token in a plain answer, has its own `copy` (with
/// [`PRIMING_COPY`]) and id, and `planned_ns` 0. In the order of the rows.
#[derive(Debug)]
pub(crate) struct HistoryRequests {
    rows: Rows,
    left: u64,
    leaves: Arc<BTreeMap<u64, u32>>,
    selector: Selector,
    layout: Layout,
    who: WhoAsks,
}

impl HistoryRequests {
    pub(crate) fn new(
        timeline: &Timeline,
        lived: &Lived,
        selector: &Selector,
        layout: &Layout,
        who: &WhoAsks,
    ) -> Self {
        HistoryRequests {
            rows: timeline.columns_in(lived.first_row..lived.end_row, COLUMNS),
            left: lived.leaves.len() as u64,
            leaves: Arc::clone(&lived.leaves),
            selector: selector.clone(),
            layout: *layout,
            who: who.clone(),
        }
    }

    fn request(&self, position: u64, row: RequestRow, blocks: u32) -> Option<PlannedRequest> {
        let mut prompt = self.layout.prompt(0, self.selector.history_tokens(position, &row)?, &row);
        prompt.blocks.truncate(blocks as usize);
        prompt.tail = None;
        let copy = PRIMING_COPY;
        Some(PlannedRequest {
            row: position,
            copy,
            request_id: request_id(&self.who.timeline_digest, position, copy),
            planned_ns: 0,
            phase: Phase::Prime,
            trace_unix_ns: row.arrival_unix_ns,
            operation: row.operation,
            method: row.method,
            path: row.path,
            model: self.who.model.clone().or(row.model),
            route: row.route,
            endpoint: row.endpoint,
            provider: row.provider,
            input_tokens: prompt.tokens(),
            output_tokens: 1,
            tokens_filled: false,
            stream: false,
            cancel_after_ns: None,
            session_hash: row.session_hash,
            turn: row.turn,
            think_ns: None,
            tenant_hash: row.tenant_hash,
            user_hash: row.user_hash,
            tags: row.tags,
            params: row.params,
            headers: None,
            body: None,
            body_state: BodyState::Absent,
            prompt,
            predicted_cached_tokens: None,
            lane: Lane::default(),
        })
    }
}

impl Iterator for HistoryRequests {
    type Item = Result<PlannedRequest, WorkloadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            let (position, row) = match self.rows.next()? {
                Ok(found) => found,
                Err(error) => {
                    self.left = 0;
                    return Some(Err(error.into()));
                }
            };
            let Some(&blocks) = self.leaves.get(&position) else { continue };
            self.left -= 1;
            if let Some(request) = self.request(position, row, blocks) {
                return Some(Ok(request));
            }
        }
        None
    }
}
