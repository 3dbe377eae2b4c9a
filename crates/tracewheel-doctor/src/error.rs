//! What cannot be measured.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why the machine could not be examined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DoctorError {
    /// The loopback does not work.
    #[error("cannot measure the loopback: {what}")]
    Loopback {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The folder cannot be written.
    #[error("cannot {action} {}; name a folder that can be written with --dir", path.display())]
    Folder {
        /// What was being done.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A replay at one of the rates failed.
    #[error("cannot replay at {per_second} requests a second")]
    Replay {
        /// The rate.
        per_second: u32,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl DoctorError {
    pub(crate) fn loopback(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| DoctorError::Loopback { what, source }
    }

    pub(crate) fn replay<E: std::error::Error + Send + Sync + 'static>(
        per_second: u32,
    ) -> impl FnOnce(E) -> Self {
        move |source| DoctorError::Replay { per_second, source: Box::new(source) }
    }
}
