//! What can go wrong when an analysis is made.

use tracewheel_record::RecordError;
use tracewheel_timeline::TimelineError;

/// Why an analysis could not be made.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The run could not be read.
    #[error("reading the run: {0}")]
    Run(#[from] RecordError),
    /// The timeline could not be read.
    #[error("reading the timeline: {0}")]
    Timeline(#[from] TimelineError),
    /// An option is out of its range.
    #[error("option `{name}` is {value}: {expected}")]
    Option {
        /// The option.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// The run holds nothing that could be compared.
    #[error("no request of phase `measure` in run `{run}`: nothing to analyse")]
    Empty {
        /// The run's id.
        run: String,
    },
    /// The baseline holds none of the requests that the replay sent.
    #[error("no request of the replay is in the baseline `{baseline}`: {remedy}")]
    NothingMatches {
        /// The baseline's name.
        baseline: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// The result of an analysis.
pub type Result<T> = std::result::Result<T, AnalysisError>;
