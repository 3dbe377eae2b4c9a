//! How this end does TLS as a server: its certificate, and what it speaks.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsConfigError;

/// How a server does TLS: TLS 1.2 and 1.3, one certificate for every name. Cheap to clone.
#[derive(Clone)]
pub struct TlsServer {
    pub(super) config: Arc<ServerConfig>,
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer").finish_non_exhaustive()
    }
}

impl TlsServer {
    /// With the certificate (its issuers behind it) and the key of two PEM files, and these protocols by ALPN, the liked
    /// most first.
    ///
    /// # Errors
    /// A file can't be read, holds nothing of its kind, or the two do not belong together.
    pub fn from_files(certificate: &Path, key: &Path, protocols: &[&str]) -> Result<Self, TlsConfigError> {
        let unusable =
            |path: &Path, problem: String| TlsConfigError::ServerFile { path: path.to_owned(), problem };
        let certificates = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unusable(certificate, error.to_string()))?;
        if certificates.is_empty() {
            return Err(TlsConfigError::NoCertificate { path: certificate.to_owned() });
        }
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error.to_string()))?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| TlsConfigError::Library { problem: error.to_string() })?
                .with_no_client_auth()
                .with_single_cert(certificates, secret)
                .map_err(|error| unusable(key, error.to_string()))?;
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Ok(TlsServer { config: Arc::new(config) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_certificate_or_key_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let told =
            |cert: &Path, key: &Path| TlsServer::from_files(cert, key, &["h2"]).unwrap_err().to_string();
        assert!(told(&certificate, &key).contains("cert.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        assert!(told(&certificate, &key).contains("key.pem"));
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        TlsServer::from_files(&certificate, &key, &["h2"]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
        assert!(told(&certificate, &key).contains("key.pem"), "not the certificate's");
    }
}
