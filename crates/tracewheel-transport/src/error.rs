//! The closed list of what can go wrong with a connection and an exchange.

use std::fmt;
use std::io;

use tracewheel_net::tls::{TlsError, TlsErrorKind};

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
    /// This process or system has no file descriptor left: the generator's fault, not the target's.
    Descriptors,
    /// This machine has no port or memory left: the generator's fault, not the target's.
    LocalLimit,
    /// TCP stood, TLS did not.
    Tls(TlsErrorKind),
    /// TCP stood, and the TLS handshake was not over in time.
    TlsTimedOut,
    /// HTTP/2 was asked for, and the peer speaks only HTTP/1.1.
    Http1Only,
    /// HTTP/2 was asked for without TLS, and the peer answered with TLS.
    TlsExpected,
    /// HTTP/2 was asked for, and the peer closed the connection, refused it or spoke something else.
    Http2Refused,
    /// TCP stood (and TLS, where it is spoken), and the peer's part of HTTP/2's beginning did not come in time.
    Http2TimedOut,
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
            ConnectErrorKind::Descriptors => "no file descriptor left",
            ConnectErrorKind::LocalLimit => "local limit",
            ConnectErrorKind::Tls(kind) => kind.as_str(),
            ConnectErrorKind::TlsTimedOut => "TLS handshake timed out",
            ConnectErrorKind::Http1Only => "HTTP/1.1 only",
            ConnectErrorKind::TlsExpected => "TLS answer to plain HTTP/2",
            ConnectErrorKind::Http2Refused => "HTTP/2 refused",
            ConnectErrorKind::Http2TimedOut => "HTTP/2 beginning timed out",
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
                ConnectErrorKind::Descriptors
            }
            _ => ConnectErrorKind::Other,
        };
        ConnectError { kind, source }
    }
}

impl From<TlsError> for ConnectError {
    fn from(error: TlsError) -> Self {
        ConnectError { kind: ConnectErrorKind::Tls(error.kind), source: io::Error::other(error.detail) }
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
    /// The connection broke within the answer's head.
    ResetInHead,
    /// The connection broke within the answer's body.
    ResetMidResponse,
    /// The answer is not HTTP/1.1.
    Malformed,
    /// The answer is TLS: the port wants https.
    AnsweredTls,
    /// The answer is HTTP/2.
    AnsweredHttp2,
    /// The answer's body breaks its own framing.
    BadFraming,
    /// The answer's head is larger than any sensible one, or never ends.
    HeadTooLarge,
    /// The answer's body is larger than the limit, or came in more reads than the limit.
    BodyTooLarge,
    /// The peer refused the stream and says so: nothing of the request was looked at.
    StreamRefused,
    /// The peer reset the stream.
    StreamReset(StreamCode),
    /// The request can't be said in HTTP/2.
    Unsendable,
    /// The caller gave up: a time-out, a cancellation, the end of the run.
    Aborted,
}

/// Why the peer reset a stream, by its code (RFC 9113, section 7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamCode {
    /// `PROTOCOL_ERROR`.
    Protocol,
    /// `INTERNAL_ERROR`.
    Internal,
    /// `FLOW_CONTROL_ERROR`.
    FlowControl,
    /// `CANCEL`.
    Cancel,
    /// `ENHANCE_YOUR_CALM`.
    Calm,
    /// `HTTP_1_1_REQUIRED`.
    Http1Required,
    /// Any other; the detail names it.
    Other,
}

impl ExchangeErrorKind {
    /// A short name for records.
    pub fn as_str(self) -> &'static str {
        match self {
            ExchangeErrorKind::ClosedBeforeWrite => "closed before write",
            ExchangeErrorKind::ResetBeforeResponse => "reset before response",
            ExchangeErrorKind::ResetInHead => "reset in head",
            ExchangeErrorKind::ResetMidResponse => "reset mid response",
            ExchangeErrorKind::Malformed => "malformed response",
            ExchangeErrorKind::AnsweredTls => "TLS answer to plain HTTP",
            ExchangeErrorKind::AnsweredHttp2 => "HTTP/2 answer",
            ExchangeErrorKind::BadFraming => "bad body framing",
            ExchangeErrorKind::HeadTooLarge => "head too large",
            ExchangeErrorKind::BodyTooLarge => "body too large",
            ExchangeErrorKind::StreamRefused => "stream refused",
            ExchangeErrorKind::StreamReset(_) => "stream reset",
            ExchangeErrorKind::Unsendable => "unsendable request",
            ExchangeErrorKind::Aborted => "aborted",
        }
    }

    /// Whether the peer said so in a frame for the stream, so that the end has that read's stamp.
    pub(crate) fn is_said_by_peer(self) -> bool {
        matches!(self, ExchangeErrorKind::StreamReset(_))
    }
}

impl fmt::Display for ExchangeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What else than HTTP/1.1 an answer's first bytes are, with the remedy.
pub(crate) fn foreign(greeting: &[u8]) -> Option<(ExchangeErrorKind, &'static str)> {
    match greeting {
        // An alert or a handshake message, TLS 1.0 to 1.3.
        [0x15 | 0x16, 3, 0..=4, ..] => {
            Some((ExchangeErrorKind::AnsweredTls, "the port speaks TLS: write the target as https://"))
        }
        // A SETTINGS or GOAWAY frame on stream 0.
        [0, _, _, 4 | 7, _, 0, 0, 0, 0, ..] => Some((
            ExchangeErrorKind::AnsweredHttp2,
            "the port speaks HTTP/2 without TLS: ask for it (--http 2)",
        )),
        _ => None,
    }
}

/// The beginning of an answer on one line.
pub(crate) fn shown(greeting: &[u8]) -> String {
    let line = greeting.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    format!("the answer begins with \"{}\"", line.escape_ascii())
}
