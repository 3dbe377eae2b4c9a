//! What can go wrong with TLS, before and during a handshake.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// TLS can't be set up as asked; nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The file of trusted certificates can't be read.
    #[error("cannot read the CA file {}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is larger than any collection of certificates.
    #[error("the CA file {} is larger than {limit_bytes} bytes: name a PEM file of certificates", path.display())]
    CaFileTooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit_bytes: u64,
    },
    /// There is no certificate in it.
    #[error("the file {} holds no certificate: PEM blocks `-----BEGIN CERTIFICATE-----` are read", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A server's certificate or key can't be used.
    #[error("cannot use {} for TLS: {problem}: a PEM certificate and its PEM key are needed", path.display())]
    ServerFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A certificate in it can't be read.
    #[error("certificate {number} of the CA file {} cannot be read: {problem}", path.display())]
    BadCertificate {
        /// The file.
        path: PathBuf,
        /// Which one, from 1.
        number: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The name that the certificate must be for is no name.
    #[error("`{name}` is neither a host name nor an address: a certificate can't be for it")]
    BadName {
        /// The name.
        name: String,
    },
    /// The TLS library refused its set-up.
    #[error("TLS cannot be set up: {problem}")]
    Library {
        /// What it said.
        problem: String,
    },
}

/// A handshake failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {detail}")]
pub struct TlsError {
    /// What went wrong.
    pub kind: TlsErrorKind,
    /// The library's words, with a remedy where one is known.
    pub detail: String,
}

/// Why a handshake failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TlsErrorKind {
    /// The certificate's issuer is not trusted, or the certificate is not acceptable in another way.
    Untrusted,
    /// The certificate has expired or is not valid yet.
    Expired,
    /// The certificate is for another name.
    WrongName,
    /// The peer refused with an alert.
    Alert,
    /// The peer speaks none of the protocols that were offered by ALPN, and said so with an alert.
    NoProtocol,
    /// The peer closed or reset the connection.
    Closed,
    /// The peer's first bytes are not TLS.
    NotTls,
    /// The two ends have nothing in common, or the peer breaks the protocol.
    Protocol,
}

impl TlsErrorKind {
    /// A short name for records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Untrusted => "TLS certificate not trusted",
            Self::Expired => "TLS certificate not valid now",
            Self::WrongName => "TLS certificate for another name",
            Self::Alert => "TLS refused by the peer",
            Self::NoProtocol => "no protocol in common (ALPN)",
            Self::Closed => "closed within the TLS handshake",
            Self::NotTls => "not TLS",
            Self::Protocol => "TLS failed",
        }
    }
}

impl fmt::Display for TlsErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TlsError {
    /// What a rustls error is; `greeting` holds the first bytes that the peer sent.
    pub(super) fn of(error: &rustls::Error, greeting: &[u8]) -> Self {
        use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
        let said = error.to_string();
        let (kind, detail) = match error {
            Error::InvalidCertificate(problem) => match problem {
                Certificate::Expired
                | Certificate::ExpiredContext { .. }
                | Certificate::NotValidYet
                | Certificate::NotValidYetContext { .. } => (TlsErrorKind::Expired, said),
                Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => {
                    (TlsErrorKind::WrongName, said)
                }
                _ => (TlsErrorKind::Untrusted, said),
            },
            Error::AlertReceived(Alert::NoApplicationProtocol) => {
                (TlsErrorKind::NoProtocol, format!("{said}: the peer speaks another HTTP than was asked for"))
            }
            Error::AlertReceived(Alert::CertificateRequired) => {
                (TlsErrorKind::Alert, format!("{said}: the peer wants a client certificate"))
            }
            Error::AlertReceived(_) => (TlsErrorKind::Alert, said),
            Error::InvalidMessage(_) if !looks_like_tls(greeting) => {
                (TlsErrorKind::NotTls, format!("the peer answered with {}", shown(greeting)))
            }
            _ => (TlsErrorKind::Protocol, said),
        };
        Self { kind, detail }
    }
}

/// Whether bytes begin like a TLS record: a handshake message or an alert.
fn looks_like_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [0x15 | 0x16, 3, ..])
}

/// The beginning of something that was not expected, on one line.
fn shown(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    format!("\"{}\"", line.escape_ascii())
}

#[cfg(test)]
mod tests {
    use rustls::{CertificateError, Error, InvalidMessage};

    use super::*;

    #[test]
    fn what_the_library_says_becomes_one_of_our_kinds() {
        let of = |error: Error, greeting: &[u8]| TlsError::of(&error, greeting).kind;
        let certificate = |error| of(Error::InvalidCertificate(error), b"\x16\x03\x03");
        assert_eq!(certificate(CertificateError::UnknownIssuer), TlsErrorKind::Untrusted);
        assert_eq!(certificate(CertificateError::Expired), TlsErrorKind::Expired);
        assert_eq!(certificate(CertificateError::NotValidYet), TlsErrorKind::Expired);
        assert_eq!(certificate(CertificateError::NotValidForName), TlsErrorKind::WrongName);
        let garbage = || Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(of(garbage(), b"HTTP/1.1 400 Bad Request\r\n"), TlsErrorKind::NotTls);
        assert_eq!(of(garbage(), b"\x16\x03\x03\x00"), TlsErrorKind::Protocol);
        let told = TlsError::of(&garbage(), b"HTTP/1.1 400 Bad\r\nx").to_string();
        assert_eq!(told, "not TLS: the peer answered with \"HTTP/1.1 400 Bad\"");
    }
}
