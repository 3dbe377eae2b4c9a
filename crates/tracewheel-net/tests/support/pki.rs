//! Certificates made for a test, and a blocking TLS server over them. Other crates' tests take this file by its path.

#![allow(dead_code)] // Each test file uses a part.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};

/// Who issues certificates in a test.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A server's certificate with its key.
pub(crate) struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = params(&[], "Test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The authority's certificate, for a CA file.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn issue(&self, names: &[&str]) -> Identity {
        self.issue_changed(names, |_| {})
    }

    /// A certificate whose validity ended long ago.
    pub(crate) fn issue_expired(&self, names: &[&str]) -> Identity {
        self.issue_changed(names, |params| params.not_after = rcgen::date_time_ymd(2001, 2, 3))
    }

    fn issue_changed(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = params(names, "Test server");
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity::of(&certificate, &key)
    }
}

impl Identity {
    /// A certificate that nobody else vouches for.
    pub(crate) fn self_signed(names: &[&str]) -> Self {
        Self::self_signed_until(names, 2999)
    }

    /// A certificate that nobody else vouches for, and that ended with that year.
    pub(crate) fn self_signed_until(names: &[&str], year: i32) -> Self {
        let mut params = params(names, "Test server");
        params.not_after = rcgen::date_time_ymd(year, 12, 31);
        let key = KeyPair::generate().unwrap();
        Self::of(&params.self_signed(&key).unwrap(), &key)
    }

    fn of(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        Self {
            certificate: certificate.der().clone(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            pem: certificate.pem(),
        }
    }

    /// The certificate, for a CA file.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// How a server uses it: TLS 1.2 and 1.3, `http/1.1`.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.server_of(rustls::ALL_VERSIONS, &[b"http/1.1"])
    }

    pub(crate) fn server_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        alpn: &[&[u8]],
    ) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Arc::new(config)
    }
}

/// The server's end of TLS over an accepted connection; the handshake happens with the first read.
pub(crate) fn accept(config: &Arc<ServerConfig>, tcp: TcpStream) -> StreamOwned<ServerConnection, TcpStream> {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), tcp)
}

/// Puts TLS before a plain server: each connection is decrypted and passed on, until either side leaves.
pub(crate) fn proxy(config: Arc<ServerConfig>, behind: std::net::SocketAddr) -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for tcp in listener.incoming().flatten() {
            let config = Arc::clone(&config);
            std::thread::spawn(move || {
                let _left = pass_on(&config, tcp, behind);
            });
        }
    });
    addr
}

/// One thread serves both ways in turn: the library's connection is not to be shared.
fn pass_on(config: &Arc<ServerConfig>, tcp: TcpStream, behind: std::net::SocketAddr) -> std::io::Result<()> {
    tcp.set_nodelay(true)?;
    let mut plain = TcpStream::connect(behind)?;
    plain.set_nodelay(true)?;
    let mut tls = accept(config, tcp);
    while tls.conn.is_handshaking() {
        tls.conn.complete_io(&mut tls.sock)?;
    }
    tls.sock.set_nonblocking(true)?;
    plain.set_nonblocking(true)?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let up = step(&mut tls, &mut plain, &mut buffer)?;
        let down = step(&mut plain, &mut tls, &mut buffer)?;
        match (up, down) {
            (Some(0), _) => return Ok(()),
            (_, Some(0)) => {
                tls.sock.set_nonblocking(false)?;
                tls.conn.send_close_notify();
                return tls.flush();
            }
            (None, None) => tracewheel_clock::blocking::sleep(100_000),
            _ => {}
        }
    }
}

/// Passes on what is there: how many bytes, 0 at the end, `None` if nothing waits.
fn step(from: &mut impl Read, to: &mut impl Write, buffer: &mut [u8]) -> std::io::Result<Option<usize>> {
    let read = match from.read(buffer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
        read => read?,
    };
    let mut rest = &buffer[..read];
    while !rest.is_empty() {
        match to.write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                tracewheel_clock::blocking::sleep(100_000);
            }
            Err(error) => return Err(error),
        }
    }
    while let Err(error) = to.flush() {
        if error.kind() != std::io::ErrorKind::WouldBlock {
            return Err(error);
        }
        tracewheel_clock::blocking::sleep(100_000);
    }
    Ok(Some(read))
}

fn params(names: &[&str], common_name: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
