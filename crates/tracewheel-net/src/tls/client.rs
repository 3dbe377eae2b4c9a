//! How this end does TLS: whom it trusts, which name it expects, what it offers.

use std::fmt;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::{TlsConfigError, TlsRoots};

/// How this end does TLS with one target. Cheap to clone; all clones share one store of sessions to resume.
///
/// TLS 1.2 and 1.3, `http/1.1` offered by ALPN unless told otherwise, the server's name by SNI, sessions resumed where the server hands out
/// tickets. The certificate is always verified.
#[derive(Clone)]
pub struct TlsClient {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").field("name", &self.name).finish_non_exhaustive()
    }
}

impl TlsClient {
    /// For a server whose certificate must be for `name` (a host name or an address) and come from `roots`.
    ///
    /// # Errors
    /// `name` is no name.
    pub fn new(roots: TlsRoots, name: &str) -> Result<Self, TlsConfigError> {
        let library = |error: Error| TlsConfigError::Library { problem: error.to_string() };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsConfigError::BadName { name: name.to_owned() })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let web = WebPkiServerVerifier::builder_with_provider(Arc::new(roots.store), Arc::clone(&provider))
            .build()
            .map_err(|error| TlsConfigError::Library { problem: error.to_string() })?;
        let verifier = Arc::new(Verifier { web, exact: roots.exact });
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(library)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), name })
    }

    /// As it is, with these protocols offered by ALPN instead, the liked most first.
    #[must_use]
    pub fn with_alpn(mut self, protocols: &[&str]) -> Self {
        Arc::make_mut(&mut self.config).alpn_protocols =
            protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    /// The name that the certificate must be for.
    pub fn name(&self) -> String {
        self.name.to_str().into_owned()
    }
}

/// The usual verification, and besides it certificates that a person named one by one.
#[derive(Debug)]
struct Verifier {
    web: Arc<WebPkiServerVerifier>,
    exact: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.exact.iter().any(|named| named.as_ref() == end_entity.as_ref()) {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.web.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.web.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.web.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.web.supported_verify_schemes()
    }
}
