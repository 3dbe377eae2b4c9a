//! The closed list of what can go wrong with a connection and an exchange.

use std::error::Error as _;
use std::fmt;
use std::io;

/// No connection could be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect: {kind}")]
pub struct ConnectError {
    /// What went wrong.
    pub kind: ConnectErrorKind,
    /// What the system said.
    pub source: io::Error,
}

/// Why no connection could be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectErrorKind {
    /// Nobody listens there.
    Refused,
    /// The system gave up waiting for an answer.
    TimedOut,
    /// The address can't be reached from here.
    Unreachable,
    /// This process or system has no file descriptor, port or memory left: the generator's fault, not the target's.
    LocalLimit,
    /// Anything else.
    Other,
}

impl ConnectErrorKind {
    /// A short name for records.
    pub fn as_str(self) -> &'static str {
        match self {
            ConnectErrorKind::Refused => "refused",
            ConnectErrorKind::TimedOut => "timed out",
            ConnectErrorKind::Unreachable => "unreachable",
            ConnectErrorKind::LocalLimit => "local limit",
            ConnectErrorKind::Other => "other",
        }
    }
}

impl fmt::Display for ConnectErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// EMFILE and ENFILE have no `io::ErrorKind` of their own.
const TOO_MANY_FILES: [i32; 2] = [24, 23];

impl From<io::Error> for ConnectError {
    fn from(source: io::Error) -> Self {
        use io::ErrorKind as K;
        let kind = match source.kind() {
            K::ConnectionRefused => ConnectErrorKind::Refused,
            K::TimedOut => ConnectErrorKind::TimedOut,
            K::HostUnreachable | K::NetworkUnreachable | K::NetworkDown => ConnectErrorKind::Unreachable,
            K::AddrNotAvailable | K::AddrInUse | K::OutOfMemory => ConnectErrorKind::LocalLimit,
            _ if source.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code)) => {
                ConnectErrorKind::LocalLimit
            }
            _ => ConnectErrorKind::Other,
        };
        ConnectError { kind, source }
    }
}

/// An exchange did not come to its proper end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct ExchangeError {
    /// What went wrong.
    pub kind: ExchangeErrorKind,
    /// The layers' own words, for people.
    pub detail: String,
}

/// Why an exchange did not come to its proper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExchangeErrorKind {
    /// The connection was closed before a byte of the request was written. Safe to send on another one.
    ClosedBeforeWrite,
    /// The connection broke after the request (or part of it) left and before a byte of the answer came: whether the
    /// server acted on the request can't be known.
    ResetBeforeResponse,
    /// The connection broke within the answer's head or body.
    ResetMidResponse,
    /// The answer is not HTTP/1.1.
    Malformed,
    /// The answer's body is larger than the limit.
    BodyTooLarge,
    /// The caller gave up: a time-out, a cancellation, the end of the run.
    Aborted,
}

impl ExchangeErrorKind {
    /// A short name for records.
    pub fn as_str(self) -> &'static str {
        match self {
            ExchangeErrorKind::ClosedBeforeWrite => "closed before write",
            ExchangeErrorKind::ResetBeforeResponse => "reset before response",
            ExchangeErrorKind::ResetMidResponse => "reset mid response",
            ExchangeErrorKind::Malformed => "malformed response",
            ExchangeErrorKind::BodyTooLarge => "body too large",
            ExchangeErrorKind::Aborted => "aborted",
        }
    }
}

impl fmt::Display for ExchangeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// All layers' words, outermost first.
pub(crate) fn chain(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

/// The answer was not HTTP (bad head, bad chunk framing), as opposed to a connection that broke.
pub(crate) fn is_malformed(error: &hyper::Error) -> bool {
    if error.is_parse() {
        return true;
    }
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return matches!(io.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData);
        }
        if inner.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse) {
            return true;
        }
        cause = inner.source();
    }
    false
}
