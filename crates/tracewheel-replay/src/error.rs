//! Why a replay could not be carried out.

use std::path::PathBuf;

use tracewheel_record::RecordError;
use tracewheel_tokens::VocabularyError;
use tracewheel_transport::{EndpointError, TlsConfigError};
use tracewheel_workload::WorkloadError;

/// Why a replay could not be carried out, or had to end early. What was recorded until then stays readable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// An option makes no sense; nothing was sent.
    #[error("{option}: {problem}")]
    Config {
        /// The option's name.
        option: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The target's address is no address; nothing was sent.
    #[error(transparent)]
    Target {
        /// What is wrong with it.
        source: EndpointError,
    },
    /// TLS can't be set up as asked; nothing was sent.
    #[error(transparent)]
    Tls {
        /// What is wrong.
        source: TlsConfigError,
    },
    /// The tokenizer can't be used; nothing was sent.
    #[error(transparent)]
    Tokenizer {
        /// What is wrong.
        source: VocabularyError,
    },
    /// The plan can't be read on. What was sent until then is recorded.
    #[error("cannot read the plan on")]
    Plan {
        /// What went wrong.
        #[source]
        source: WorkloadError,
    },
    /// The run can't be written (exit code 40 where [`RecordError::is_output_failure`]). What was written stays.
    #[error("cannot record the run")]
    Record {
        /// What went wrong.
        #[source]
        source: RecordError,
    },
    /// The sender or a thread of it could not be set up.
    #[error("cannot start {what}")]
    Start {
        /// What could not be started.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The recorder fell behind and its queue filled up; the run ended early (exit code 40).
    #[error(
        "the recorder fell behind: {queued} messages waited; the run in {} is kept up to there, write to a faster disk or raise recorder_queue",
        run_dir.display()
    )]
    RecorderBehind {
        /// Messages that waited.
        queued: u64,
        /// The run directory.
        run_dir: PathBuf,
    },
    /// A person stopped the replay before its run was made.
    #[error("stopped before anything was sent; no run was made")]
    Stopped,
    /// A part of the program failed in a way that is a defect of tracewheel.
    #[error("internal error in the {thread} thread: {problem}")]
    Internal {
        /// The thread.
        thread: &'static str,
        /// What happened.
        problem: String,
    },
}

/// Whose the remedy of a [`ReplayError`] is; an exit code follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// An option or the target's address is wrong, and nothing was sent; or the timeline behind the plan is damaged.
    Usage,
    /// The target's name has no address: nothing was sent.
    Target,
    /// The run can't be written, or not fast enough.
    Output,
    /// A person stopped it before there was a run.
    Stopped,
    /// The system refused what a sender needs, the run can't be read back, or tracewheel has a defect.
    Internal,
}

impl ReplayError {
    /// Whose the remedy is.
    pub fn class(&self) -> ErrorClass {
        match self {
            ReplayError::Target { source: EndpointError::Resolve { .. } } => ErrorClass::Target,
            ReplayError::Config { .. }
            | ReplayError::Target { .. }
            | ReplayError::Tls { .. }
            | ReplayError::Tokenizer { .. }
            | ReplayError::Plan { .. } => ErrorClass::Usage,
            ReplayError::Stopped => ErrorClass::Stopped,
            ReplayError::RecorderBehind { .. } => ErrorClass::Output,
            ReplayError::Record { source } if source.is_output_failure() => ErrorClass::Output,
            ReplayError::Record { .. } | ReplayError::Start { .. } | ReplayError::Internal { .. } => {
                ErrorClass::Internal
            }
        }
    }
}
