//! What can go wrong before bytes flow.

use std::io;
use std::net::SocketAddr;

/// A socket could not be brought up. Once it is, reads and writes fail with [`io::Error`] as for any stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// The peer could not be reached.
    #[error("cannot connect to {addr}")]
    Connect {
        /// The address that was tried.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The address could not be listened on.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address that was asked for.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// A connection could not be accepted.
    #[error("cannot accept a connection")]
    Accept {
        /// What the system said.
        source: io::Error,
    },
    /// A socket option was refused.
    #[error("cannot set {option} on a socket")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl NetError {
    /// What the system said.
    pub fn io(&self) -> &io::Error {
        match self {
            Self::Connect { source, .. }
            | Self::Listen { source, .. }
            | Self::Accept { source }
            | Self::Option { source, .. } => source,
        }
    }
}
