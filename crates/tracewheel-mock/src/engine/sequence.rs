//! One request in the engine: what is left of it, and what a step does for it.

use crate::engine::Ticket;

/// One request of the engine.
#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) ticket: Ticket,
    pub(crate) key: u64,
    pub(crate) prompt_tokens: u32,
    pub(crate) blocks: Vec<u64>,
    pub(crate) output_tokens: u32,
    pub(crate) kv_tokens: u64,
    /// Prompt tokens that are still to be computed after the steps so far.
    pub(crate) prefill_left: u32,
    /// Tokens given out so far.
    pub(crate) emitted: u32,
    pub(crate) work: Work,
    /// How many of the other tenants' requests must have left the queue before it is first.
    pub(crate) mark: u64,
}

/// What the step that is being computed does for a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Nothing,
    Prefill(u32),
    Decode,
}

impl Sequence {
    /// Takes its share of a step's token budget and returns it.
    pub(crate) fn plan(&mut self, budget: u32) -> u32 {
        let tokens = self.prefill_left.max(1).min(budget);
        self.work = match (tokens, self.prefill_left) {
            (0, _) => Work::Nothing,
            (_, 0) => Work::Decode,
            _ => Work::Prefill(tokens),
        };
        tokens
    }

    /// Does the step's work and returns whether it gave a token: each decoding step does, and the prefill step that
    /// computes the last of the prompt.
    pub(crate) fn compute(&mut self) -> bool {
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Nothing => false,
            Work::Decode => true,
            Work::Prefill(tokens) => {
                self.prefill_left -= tokens;
                self.prefill_left == 0
            }
        }
    }
}
