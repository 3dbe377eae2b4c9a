//! Measures this machine: how late its timers wake, what its loopback and its disk take, what its limits allow, and
//! which rates a whole replay keeps to which precision; and says what to change.
//!
//! Everything but the limits is measured, not looked up: a machine that has a good clock and enough cores may still share
//! them with a neighbour. So the figures are those of the minute in which they were taken.

mod advice;
mod disk;
mod error;
mod limits;
mod loopback;
mod rates;
mod spread;
mod text;
pub mod waits;

use std::path::PathBuf;

use serde::Serialize;

pub use crate::advice::{Advice, Topic};
pub use crate::disk::Disk;
pub use crate::error::DoctorError;
pub use crate::limits::Limits;
pub use crate::loopback::Loopback;
pub use crate::rates::{Machine, Rate};
pub use crate::spread::Spread;
use crate::waits::Wait;

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Rates that a replay is tried at, requests a second, each at least 1.
    pub rates: Vec<u32>,
    /// How long each rate is tried, seconds, at least 1.
    pub seconds: u32,
    /// Folder whose disk is measured. What is written there is removed again.
    pub dir: PathBuf,
    /// Whether the sending threads ask for a real-time class while rates are tried.
    pub realtime: bool,
}

/// One thing that is being measured, told before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// How late timers wake.
    Waits,
    /// The loopback's round trip and the kernel's stamps.
    Loopback,
    /// Writing to the disk.
    Disk,
    /// A replay at so many requests a second.
    Rate(u32),
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Findings {
    /// The machine, as a run's manifest describes it.
    pub machine: Machine,
    /// What the system allows this process.
    pub limits: Limits,
    /// How late each way of waiting was.
    pub waits: Vec<Wait>,
    /// The way to a server on this machine and back.
    pub loopback: Loopback,
    /// Writing a run.
    pub disk: Disk,
    /// Whole replays, one a rate, in the order of their rates.
    pub rates: Vec<Rate>,
    /// The highest of the rates up to which all were kept, requests a second; null where the lowest was not.
    pub keeps_per_second: Option<u32>,
    /// What to change, the most important first.
    pub advice: Vec<Advice>,
}

/// Measures it all, one thing after the other; `tell` hears of each before it begins. Takes about
/// 5 s and, for each rate, [`Options::seconds`] and 1 s.
///
/// # Errors
/// [`DoctorError`] where something cannot be measured at all: no timer, no loopback, no file in the folder.
pub fn examine(options: &Options, tell: &mut dyn FnMut(Step)) -> Result<Findings, DoctorError> {
    // A replay raises the limit on open files for the whole process.
    let limits = Limits::read();
    tell(Step::Waits);
    let waits = waits::measure(waits::Effort::Full);
    tell(Step::Loopback);
    let loopback = loopback::measure()?;
    tell(Step::Disk);
    let disk = disk::measure(&options.dir)?;
    let mut wanted = options.rates.clone();
    wanted.sort_unstable();
    wanted.dedup();
    let (mut rates, mut machine) = (Vec::new(), Machine::default());
    for rate in wanted {
        tell(Step::Rate(rate));
        let (tried, on) = rates::try_rate(rate, options)?;
        rates.push(tried);
        machine = on;
    }
    let keeps_per_second = rates.iter().take_while(|rate| rate.kept).last().map(|rate| rate.per_second);
    let mut findings =
        Findings { machine, limits, waits, loopback, disk, rates, keeps_per_second, advice: Vec::new() };
    findings.advice = advice::advise(&findings);
    Ok(findings)
}
