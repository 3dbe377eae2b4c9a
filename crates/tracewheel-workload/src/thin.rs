//! Thinning: a share of the traffic, in whole sessions.

use serde::{Deserialize, Serialize};
use tracewheel_timeline::RequestRow;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Share;
use crate::block_set::BlockSet;

/// Distinct sessions that are counted; beyond it their number is unknown.
const MAX_SESSIONS: usize = 1 << 20;

/// Whether a row stays, by a draw from the seed and the row's session alone: a session stays whole or goes whole. A row
/// without a session is drawn for by its position. The draws of one seed are the same at every share, so what stays at
/// a smaller share also stays at a larger one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Thinner {
    share: Share,
    seed: u64,
}

impl Thinner {
    pub(crate) fn new(share: Share, seed: u64) -> Thinner {
        Thinner { share, seed }
    }

    /// Whether the row at `position` stays. Looks at the session only.
    pub(crate) fn keeps(&self, position: u64, row: &RequestRow) -> bool {
        let (kind, id) = match row.session_hash {
            Some(session) => (SESSION, session),
            None => (ROW, position),
        };
        let mut key = [0; 16];
        key[..8].copy_from_slice(&kind.to_le_bytes());
        key[8..].copy_from_slice(&id.to_le_bytes());
        self.share.takes(xxh3_64_with_seed(&key, self.seed))
    }
}

/// Keep the draws of sessions and of rows apart from each other and from every other use of the seed.
const SESSION: u64 = 0x7468_696e_2073_6573;
const ROW: u64 = 0x7468_696e_2072_6f77;

/// What thinning did to the rows of a window, up to the limit. Shares are achieved ones: kept / (kept + dropped).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thinned {
    /// The share that was asked for: what is expected over all seeds.
    pub share: Share,
    /// Requests that were dropped.
    pub requests_dropped: u64,
    /// Share of the requests that stayed.
    pub requests_share: f64,
    /// Share of the input tokens that stayed, over known counts; `None` where there are none.
    pub input_tokens_share: Option<f64>,
    /// Share of the output tokens that stayed, over known counts; `None` where there are none.
    pub output_tokens_share: Option<f64>,
    /// Different sessions; `None` above a million.
    pub sessions: Option<u64>,
    /// Those that stayed.
    pub sessions_kept: Option<u64>,
    /// Requests without a session, each drawn for by itself.
    pub requests_without_session: u64,
}

/// Counts what is kept and what is dropped.
#[derive(Debug)]
pub(crate) struct ThinCount {
    share: Share,
    kept: Side,
    dropped: Side,
    without_session: u64,
    overrun: bool,
}

#[derive(Debug)]
struct Side {
    requests: u64,
    input_tokens: u64,
    output_tokens: u64,
    sessions: BlockSet,
}

impl ThinCount {
    pub(crate) fn new(share: Share) -> ThinCount {
        let side =
            || Side { requests: 0, input_tokens: 0, output_tokens: 0, sessions: BlockSet::new(MAX_SESSIONS) };
        ThinCount { share, kept: side(), dropped: side(), without_session: 0, overrun: false }
    }

    pub(crate) fn take(&mut self, kept: bool, row: &RequestRow, input_tokens: u32, output_tokens: u32) {
        let side = if kept { &mut self.kept } else { &mut self.dropped };
        side.requests += 1;
        side.input_tokens += u64::from(input_tokens);
        side.output_tokens += u64::from(output_tokens);
        match row.session_hash {
            Some(session) => {
                self.overrun |= side.sessions.insert(session) == crate::block_set::Inserted::Full;
            }
            None => self.without_session += 1,
        }
    }

    pub(crate) fn finish(self) -> Thinned {
        let ThinCount { share, kept, dropped, without_session, overrun } = self;
        let part =
            |kept: u64, dropped: u64| (kept + dropped > 0).then(|| kept as f64 / (kept + dropped) as f64);
        let sessions = (kept.sessions.len() as u64, dropped.sessions.len() as u64);
        Thinned {
            share,
            requests_dropped: dropped.requests,
            requests_share: part(kept.requests, dropped.requests).unwrap_or(0.0),
            input_tokens_share: part(kept.input_tokens, dropped.input_tokens),
            output_tokens_share: part(kept.output_tokens, dropped.output_tokens),
            sessions: (!overrun).then_some(sessions.0 + sessions.1),
            sessions_kept: (!overrun).then_some(sessions.0),
            requests_without_session: without_session,
        }
    }
}
