//! The table: what each row runs, and what it must reach.

mod cost;
mod crowd;
mod day;
mod send;

use std::collections::BTreeMap;
use std::io;

use crate::client::Lab;
use crate::figures::Figures;

pub(crate) use day::simulate;
pub(crate) use send::rate_trace;

/// A row of the table.
pub(crate) struct Row {
    /// How it is picked.
    pub(crate) name: &'static str,
    /// Rounds of which the median is taken; those of a row that asks only whether something works are 1.
    pub(crate) rounds: usize,
    /// One round.
    pub(crate) run: fn(&Lab) -> io::Result<Figures>,
    /// What the medians say, given those of the rows before it as well.
    pub(crate) judge: fn(&Figures, &BTreeMap<&'static str, Figures>) -> Vec<Line>,
}

/// A line of the page.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) what: String,
    pub(crate) goal: String,
    /// What it is measured against, in the same run.
    pub(crate) beside: String,
    pub(crate) measured: String,
    /// `None`: nothing to compare it with.
    pub(crate) reached: Option<bool>,
}

/// All rows, in the order of the page.
pub(crate) const ROWS: [Row; 16] = [
    Row { name: "send-10", rounds: 3, run: send::at_10, judge: send::judge_10 },
    Row { name: "send-50", rounds: 3, run: send::at_50, judge: send::judge_50 },
    Row { name: "send-200", rounds: 3, run: send::at_200, judge: send::judge_200 },
    Row { name: "send-1000", rounds: 3, run: send::at_1000, judge: send::judge_1000 },
    Row { name: "realtime-5000", rounds: 3, run: send::realtime, judge: send::judge_realtime },
    Row { name: "https-1000", rounds: 3, run: send::https, judge: send::judge_https },
    Row { name: "h2-1000", rounds: 3, run: send::h2, judge: send::judge_h2 },
    Row { name: "stamps-200", rounds: 3, run: send::stamps_200, judge: send::judge_stamps_200 },
    Row { name: "stamps-1000", rounds: 3, run: send::stamps_1000, judge: send::judge_stamps_1000 },
    Row { name: "cpu-16", rounds: 3, run: cost::of_16, judge: cost::judge_16 },
    Row { name: "cpu-256", rounds: 3, run: cost::of_256, judge: cost::judge_256 },
    Row { name: "flood", rounds: 3, run: cost::flood, judge: cost::judge_flood },
    Row { name: "memory", rounds: 3, run: crowd::memory, judge: crowd::judge_memory },
    Row { name: "streams-19000", rounds: 1, run: crowd::h1, judge: crowd::judge_h1 },
    Row { name: "streams-50000", rounds: 1, run: crowd::h2, judge: crowd::judge_h2 },
    Row { name: "day", rounds: 1, run: day::run, judge: day::judge },
];

/// The error of a row that this binary can't run.
fn unsupported(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, what.to_owned())
}

/// A figure; not a number where it is missing, which reaches no goal.
fn get(figures: &Figures, name: &str) -> f64 {
    figures.get(name).copied().unwrap_or(f64::NAN)
}
