//! Which rows of a timeline are planned, when, and with which token counts: one rule for the pass that counts and the
//! pass that plans.

use std::sync::Arc;

use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::Operation;

use crate::attempts::LoggedAttempts;
use crate::{PlanOptions, UnknownTokens, Window, WorkloadError};

/// The columns that [`Selector::select`] looks at.
pub(crate) const COLUMNS: &[&str] =
    &["arrival_unix_ns", "retry_of_row", "operation", "input_tokens", "output_tokens"];

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    BeforeWindow,
    AfterWindow,
    Retry,
    UnknownTokens,
    Planned(Planned),
}

/// A row that is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) planned_ns: i64,
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
    pub(crate) filled: bool,
}

/// The rule, for one timeline and its options.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    first_unix_ns: i64,
    window: Window,
    options: PlanOptions,
    attempts: Arc<LoggedAttempts>,
}

impl Selector {
    /// The rule for a timeline whose first arrival is `first_unix_ns` and whose retries know `attempts`.
    pub(crate) fn new(
        first_unix_ns: i64,
        attempts: LoggedAttempts,
        options: &PlanOptions,
    ) -> Result<Selector, WorkloadError> {
        let window = options.window.unwrap_or(Window { from_ns: 0, to_ns: None });
        if let Some(to_ns) = window.to_ns
            && to_ns <= window.from_ns
        {
            return Err(WorkloadError::EmptyWindow { from_ns: window.from_ns, to_ns });
        }
        if let UnknownTokens::Fill { input, output } = options.unknown_tokens {
            for (which, value) in [("input", input), ("output", output)] {
                if value == 0 {
                    return Err(WorkloadError::ZeroFill { which });
                }
            }
        }
        Ok(Selector { first_unix_ns, window, options: options.clone(), attempts: Arc::new(attempts) })
    }

    /// The recorded arrival that is the plan's time zero.
    pub(crate) fn origin_unix_ns(&self) -> i64 {
        self.first_unix_ns.saturating_add(self.window.from_ns)
    }

    /// What becomes of a row. Only [`COLUMNS`] are looked at.
    pub(crate) fn select(&self, position: u64, row: &RequestRow) -> Result<Selection, WorkloadError> {
        let beyond = WorkloadError::BeyondTime { row: position };
        let arrival = row.arrival_unix_ns.ok_or(WorkloadError::Baseline)?;
        let Some(offset) = arrival.checked_sub(self.first_unix_ns) else { return Err(beyond) };
        if offset < self.window.from_ns {
            return Ok(Selection::BeforeWindow);
        }
        if self.window.to_ns.is_some_and(|to_ns| offset >= to_ns) {
            return Ok(Selection::AfterWindow);
        }
        if row.retry_of_row.is_some() {
            return Ok(Selection::Retry);
        }
        let Some((input_tokens, output_tokens, filled)) = self.tokens(position, row) else {
            return Ok(Selection::UnknownTokens);
        };
        let planned_ns = offset.checked_sub(self.window.from_ns).and_then(|ns| self.options.speed.scale(ns));
        let Some(planned_ns) = planned_ns else { return Err(beyond) };
        Ok(Selection::Planned(Planned { planned_ns, input_tokens, output_tokens, filled }))
    }

    fn tokens(&self, position: u64, row: &RequestRow) -> Option<(u32, u32, bool)> {
        let (needs_input, needs_output) = match row.operation {
            Operation::Http => (false, false),
            Operation::Embeddings => (true, false),
            _ => (true, true),
        };
        let usable = |tokens: Option<u32>| tokens.filter(|tokens| *tokens > 0);
        let input = usable(row.input_tokens).or_else(|| self.attempts.input_tokens(position));
        let output = usable(row.output_tokens).or_else(|| self.attempts.output_tokens(position));
        let filled = (needs_input && input.is_none()) || (needs_output && output.is_none());
        let fill = match self.options.unknown_tokens {
            UnknownTokens::Fill { input, output } => Some((input, output)),
            UnknownTokens::Refuse | UnknownTokens::Skip if filled => return None,
            UnknownTokens::Refuse | UnknownTokens::Skip => None,
        };
        let value = |known: Option<u32>, needed: bool, fill: Option<u32>| match known {
            Some(tokens) => tokens,
            None if needed => fill.unwrap_or(0),
            None => 0,
        };
        let input = value(input, needs_input, fill.map(|fill| fill.0));
        let output = value(output, needs_output, fill.map(|fill| fill.1));
        Some((input, output, filled))
    }
}
