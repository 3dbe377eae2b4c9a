//! Whom a certificate may be issued by.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::TlsConfigError;

/// Where systems keep the certificates that they trust, in the order in which they are looked for.
const SYSTEM_FILES: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/usr/local/share/certs/ca-root-nss.crt",
];
/// A file larger than this is no collection of certificates.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The certificates that are trusted, and where they came from.
#[derive(Debug)]
pub struct TlsRoots {
    pub(super) store: RootCertStore,
    /// Certificates that are trusted as they are when a server presents them: those that a person named.
    pub(super) exact: Vec<CertificateDer<'static>>,
    source: String,
}

impl TlsRoots {
    /// Those of the system, from the first of the usual files that holds any; else Mozilla's as they were when tracewheel
    /// was built.
    pub fn system() -> Self {
        for path in SYSTEM_FILES {
            let Ok(bytes) = read(Path::new(path)) else { continue };
            let mut store = RootCertStore::empty();
            // What the system trusts and we can't read is left out, as every TLS client does.
            let (added, _left_out) =
                store.add_parsable_certificates(CertificateDer::pem_slice_iter(&bytes).flatten());
            if added > 0 {
                return Self { store, exact: Vec::new(), source: format!("{path} ({added} certificates)") };
            }
        }
        let store: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
        let source = format!("built in ({} certificates)", store.len());
        Self { store, exact: Vec::new(), source }
    }

    /// Those of a PEM file, instead of the system's. A server's own (self-signed) certificate may stand there too: it is
    /// trusted as it is, expired or not, for the names that it is for.
    ///
    /// # Errors
    /// The file can't be read, holds no certificate or a broken one, or is too large.
    pub fn from_file(path: &Path) -> Result<Self, TlsConfigError> {
        let bytes = read(path).map_err(|source| TlsConfigError::CaFile { path: path.to_owned(), source })?;
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let limit_bytes = MAX_FILE_BYTES;
            return Err(TlsConfigError::CaFileTooLarge { path: path.to_owned(), limit_bytes });
        }
        let mut store = RootCertStore::empty();
        let mut exact = Vec::new();
        for (index, found) in CertificateDer::pem_slice_iter(&bytes).enumerate() {
            let bad = |problem| TlsConfigError::BadCertificate {
                path: path.to_owned(),
                number: index + 1,
                problem,
            };
            let certificate = found.map_err(|error| bad(error.to_string()))?;
            store.add(certificate.clone()).map_err(|error| bad(error.to_string()))?;
            exact.push(certificate);
        }
        if exact.is_empty() {
            return Err(TlsConfigError::NoCertificate { path: path.to_owned() });
        }
        let source = format!("{} ({} certificates)", path.display(), exact.len());
        Ok(Self { store, exact, source })
    }

    /// Where they came from and how many there are, for people.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// A file's bytes, one more than the limit at most.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_always_roots_and_their_source_is_told() {
        let roots = TlsRoots::system();
        assert!(roots.store.len() > 10, "{}", roots.source());
        assert!(roots.source().contains("certificates"));
    }

    #[test]
    fn a_file_without_a_usable_certificate_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let told = TlsRoots::from_file(&path).unwrap_err().to_string();
        assert!(told.contains("cannot read") && told.contains("ca.pem"), "{told}");
        std::fs::write(&path, "no certificate").unwrap();
        let told = TlsRoots::from_file(&path).unwrap_err().to_string();
        assert!(told.contains("BEGIN CERTIFICATE"), "{told}");
        std::fs::write(&path, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let told = TlsRoots::from_file(&path).unwrap_err().to_string();
        assert!(told.contains("certificate 1") && told.contains("cannot be read"), "{told}");
        std::fs::write(&path, vec![b'x'; MAX_FILE_BYTES as usize + 1]).unwrap();
        assert!(TlsRoots::from_file(&path).unwrap_err().to_string().contains("larger than"));
    }
}
