//! The requests that tell how a target counts: two prompts of known words, sent before anything else.

use tracewheel_timeline::vocab::{BodyState, Phase};

use crate::priming::PRIMING_COPY;
use crate::{PlannedRequest, PromptSpec, TailSpec, request_id};

/// Set in the `copy` of a probe, beside [`PRIMING_COPY`].
const PROBE_COPY: u32 = 1 << 30;

/// Words of the two probes: the second longer by enough that the slope between them is known to a thousandth.
pub const PROBE_WORDS: [u32; 2] = [32, 1056];

/// The probes for a plan, made from the first of its requests whose prompt is made up: the same model and operation, a
/// prompt that nobody else has, one token of output to ask for, a plain answer.
pub(crate) fn probes(planned: &PlannedRequest, timeline_digest: &str) -> Vec<PlannedRequest> {
    let probe = |(number, tokens): (u32, u32)| {
        let copy = PRIMING_COPY | PROBE_COPY | number;
        let request_id = request_id(timeline_digest, planned.row, copy);
        PlannedRequest {
            copy,
            request_id,
            planned_ns: 0,
            phase: Phase::Calibrate,
            input_tokens: tokens,
            output_tokens: 1,
            stream: false,
            cancel_after_ns: None,
            session_hash: None,
            turn: None,
            think_ns: None,
            body: None,
            body_state: BodyState::Absent,
            prompt: PromptSpec { blocks: Vec::new(), tail: Some(TailSpec { key: request_id, tokens }) },
            predicted_cached_tokens: None,
            ..planned.clone()
        }
    };
    (0..).zip(PROBE_WORDS).map(probe).collect()
}
