//! Which rows of a timeline are planned, when, and with which token counts: one rule for the pass that counts and the
//! pass that plans.

use std::sync::Arc;

use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::{Operation, Phase};

use crate::attempts::LoggedAttempts;
use crate::thin::Thinner;
use crate::{PlanOptions, UnknownTokens, Warmup, Window, WorkloadError};

/// The columns that [`Selector::select`] looks at.
pub(crate) const COLUMNS: &[&str] =
    &["arrival_unix_ns", "session_hash", "retry_of_row", "operation", "input_tokens", "output_tokens"];

/// What becomes of a row. Asked in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    BeforeWindow,
    AfterWindow,
    Retry,
    LeftOut,
    /// Dropped by thinning; its token counts as far as they are known, else 0.
    Thinned {
        input_tokens: u32,
        output_tokens: u32,
    },
    UnknownTokens,
    Planned(Planned),
}

/// A row that is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    pub(crate) planned_ns: i64,
    pub(crate) phase: Phase,
    pub(crate) input_tokens: u32,
    pub(crate) output_tokens: u32,
    pub(crate) filled: bool,
}

/// The rule, for one timeline and its options.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    first_unix_ns: i64,
    window: Window,
    /// Offset of the plan's time zero: the window's start, or before it where a warm-up goes ahead.
    zero_ns: i64,
    warmup: Option<Warmup>,
    thinner: Option<Thinner>,
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
        let warmup = options.warmup.filter(|warmup| warmup.length_ns > 0);
        Ok(Selector {
            first_unix_ns,
            zero_ns: zero_ns(window, warmup, options)?,
            window,
            warmup,
            thinner: options.thin.map(|share| Thinner::new(share, options.seed)),
            options: options.clone(),
            attempts: Arc::new(attempts),
        })
    }

    /// The recorded arrival that is the plan's time zero.
    pub(crate) fn origin_unix_ns(&self) -> i64 {
        self.first_unix_ns.saturating_add(self.zero_ns)
    }

    /// How long the warm-up lasts, in planned time; 0 without one.
    pub(crate) fn warmup_ns(&self) -> i64 {
        match self.warmup {
            Some(Warmup { before_window: true, .. }) => {
                self.options.speed.scale(self.window.from_ns - self.zero_ns).unwrap_or(i64::MAX)
            }
            Some(Warmup { length_ns, .. }) => length_ns,
            None => 0,
        }
    }

    /// What becomes of a row. Only [`COLUMNS`] are looked at.
    pub(crate) fn select(&self, position: u64, row: &RequestRow) -> Result<Selection, WorkloadError> {
        let beyond = WorkloadError::BeyondTime { row: position };
        let arrival = row.arrival_unix_ns.ok_or(WorkloadError::Baseline)?;
        let Some(offset) = arrival.checked_sub(self.first_unix_ns) else { return Err(beyond) };
        if offset < self.zero_ns {
            return Ok(Selection::BeforeWindow);
        }
        if self.window.to_ns.is_some_and(|to_ns| offset >= to_ns) {
            return Ok(Selection::AfterWindow);
        }
        if row.retry_of_row.is_some() {
            return Ok(Selection::Retry);
        }
        if self.options.leave_out.contains(&row.operation) {
            return Ok(Selection::LeftOut);
        }
        let tokens = self.tokens(position, row);
        if self.thinner.is_some_and(|thinner| !thinner.keeps(position, row)) {
            let (input_tokens, output_tokens, _) = tokens.unwrap_or_else(|| known_tokens(row));
            return Ok(Selection::Thinned { input_tokens, output_tokens });
        }
        let Some((input_tokens, output_tokens, filled)) = tokens else {
            return Ok(Selection::UnknownTokens);
        };
        let planned_ns = offset.checked_sub(self.zero_ns).and_then(|ns| self.options.speed.scale(ns));
        let Some(planned_ns) = planned_ns else { return Err(beyond) };
        let phase = self.phase(offset, planned_ns);
        Ok(Selection::Planned(Planned { planned_ns, phase, input_tokens, output_tokens, filled }))
    }

    /// Input tokens of a row of the history, where it would have been planned had it lain in the window.
    pub(crate) fn history_tokens(&self, position: u64, row: &RequestRow) -> Option<u32> {
        // Neither of these fills a cache of prompts.
        let generates = !matches!(row.operation, Operation::Embeddings | Operation::Http);
        if !generates
            || row.retry_of_row.is_some()
            || self.options.leave_out.contains(&row.operation)
            || self.thinner.is_some_and(|thinner| !thinner.keeps(position, row))
        {
            return None;
        }
        // What it put out does not matter: a cache is filled by what it read.
        let known = row.input_tokens.filter(|tokens| *tokens > 0);
        known
            .or_else(|| self.attempts.input_tokens(position))
            .or_else(|| self.tokens(position, row).map(|tokens| tokens.0))
    }

    /// How long before the plan's time zero a row arrived, in recorded nanoseconds.
    pub(crate) fn before_zero_ns(&self, row: &RequestRow) -> Option<i64> {
        Some(self.origin_unix_ns().saturating_sub(row.arrival_unix_ns?))
    }

    fn phase(&self, offset: i64, planned_ns: i64) -> Phase {
        let warms = self.warmup.is_some_and(|warmup| match warmup.before_window {
            true => offset < self.window.from_ns,
            false => planned_ns < warmup.length_ns,
        });
        if warms { Phase::Warmup } else { Phase::Measure }
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

/// Offset of the plan's time zero.
fn zero_ns(window: Window, warmup: Option<Warmup>, options: &PlanOptions) -> Result<i64, WorkloadError> {
    let Some(Warmup { length_ns, before_window: true }) = warmup else { return Ok(window.from_ns) };
    if window.from_ns <= 0 {
        return Err(WorkloadError::NothingBeforeWindow);
    }
    let recorded = options.speed.recorded(length_ns).unwrap_or(i64::MAX);
    Ok(window.from_ns.saturating_sub(recorded).max(0))
}

fn known_tokens(row: &RequestRow) -> (u32, u32, bool) {
    (row.input_tokens.unwrap_or(0), row.output_tokens.unwrap_or(0), false)
}
