//! A TLS stream over a stamped one.

use std::io::{self, IoSlice, Read as _, Write};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use rustls::{ClientConnection, Connection, HandshakeKind, ServerConnection};
use tokio::io::AsyncWrite;

use super::records::{Records, feed};
use super::{CertificateFacts, TlsClient, TlsError, TlsErrorKind, TlsServer};
use crate::{StampedStream, StreamStamps};

/// Encrypted bytes that one read may bring.
const READ_BYTES: usize = 32 * 1024;
/// Plaintext that is encrypted and not yet written, at most. With what TLS adds it fits one write call of the stream.
const AHEAD_BYTES: usize = 60 * 1024;
/// The peer's first bytes that are kept during the handshake, to say what it speaks.
const GREETING_BYTES: usize = 64;

/// What was negotiated, and with whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFacts {
    /// Protocol version, `TLSv1.2` or `TLSv1.3`.
    pub version: Option<String>,
    /// Cipher suite, by its registered name.
    pub cipher_suite: Option<String>,
    /// Application protocol that the server chose; `None` where it chose none.
    pub alpn: Option<String>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The server's own certificate (of a resumed session: of its first handshake).
    pub certificate: Option<CertificateFacts>,
}

/// A TLS stream whose reads and writes are stamped on the wire. The page of [`crate::tls`] says what the stamps mean.
#[derive(Debug)]
pub struct TlsStream {
    tcp: StampedStream,
    tls: Box<Connection>,
    stamps: StreamStamps,
    /// Encrypted bytes that were read; those from `at` to `end` wait.
    wire: Box<[u8]>,
    at: usize,
    end: usize,
    records: Records,
    /// The last call took a whole slice of more: the next one lets others go first.
    slice_taken: bool,
}

impl TlsStream {
    /// Shakes hands over a connected stream.
    ///
    /// # Errors
    /// The peer's certificate is not accepted, the peer refuses or leaves, or it does not speak TLS.
    pub async fn connect(tcp: StampedStream, client: &TlsClient) -> Result<Self, TlsError> {
        let tls = ClientConnection::new(client.config.clone(), client.name.clone());
        Self::over(tcp, Connection::Client(tls.map_err(|error| TlsError::of(&error, b""))?)).await
    }

    /// Shakes hands over an accepted stream, as its server.
    ///
    /// # Errors
    /// The peer refuses or leaves, or it does not speak TLS.
    pub async fn accept(tcp: StampedStream, server: &TlsServer) -> Result<Self, TlsError> {
        let tls = ServerConnection::new(server.config.clone());
        Self::over(tcp, Connection::Server(tls.map_err(|error| TlsError::of(&error, b""))?)).await
    }

    async fn over(tcp: StampedStream, tls: Connection) -> Result<Self, TlsError> {
        let mut tls = Box::new(tls);
        tls.set_buffer_limit(Some(AHEAD_BYTES));
        let stamps = tcp.stamps();
        let mut stream = Self {
            tcp,
            tls,
            stamps,
            wire: vec![0; READ_BYTES].into_boxed_slice(),
            at: 0,
            end: 0,
            records: Records::default(),
            slice_taken: false,
        };
        stream.shake_hands().await?;
        // From here on only reads that bring the peer's own bytes are logged.
        stream.stamps.hold_reads();
        Ok(stream)
    }

    async fn shake_hands(&mut self) -> Result<(), TlsError> {
        let mut greeting = Vec::new();
        let outcome = std::future::poll_fn(|cx| self.poll_handshake(cx, &mut greeting)).await;
        if outcome.is_err() {
            // The alert that says why; whether it gets there does not matter.
            let _told = self.poll_send(&mut Context::from_waker(Waker::noop()));
        }
        outcome
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>, greeting: &mut Vec<u8>) -> Poll<Result<(), TlsError>> {
        let broken = |detail: String| Err(TlsError { kind: TlsErrorKind::Closed, detail });
        loop {
            match self.poll_send(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(broken(error.to_string())),
                Poll::Pending => return Poll::Pending,
            }
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.at == self.end {
                match ready!(self.tcp.poll_read_slice(cx, &mut self.wire)) {
                    Ok(0) => return Poll::Ready(broken("the peer closed the connection".to_owned())),
                    Ok(read) => (self.at, self.end) = (0, read),
                    Err(error) => return Poll::Ready(broken(error.to_string())),
                }
                let missing = GREETING_BYTES - greeting.len();
                greeting.extend_from_slice(&self.wire[..self.end.min(missing)]);
            }
            if let Err(error) = self.take_record() {
                return Poll::Ready(Err(TlsError::of(&error, greeting)));
            }
        }
    }

    /// Decrypts the next record that was read, or the part of it that is there.
    fn take_record(&mut self) -> Result<(), rustls::Error> {
        let (used, whole) = self.records.take(&self.wire[self.at..self.end]);
        let state = feed(&mut self.tls, &self.wire[self.at..self.at + used])?;
        self.at += used;
        if whole {
            if state.plaintext_bytes_to_read() > 0 {
                self.stamps.commit_held();
            } else {
                self.stamps.forget_held(self.at < self.end);
            }
        }
        Ok(())
    }

    /// As a read into a plain slice: decrypted bytes; `Ok(0)` is the peer's orderly end, or no room.
    ///
    /// # Errors
    /// As any read; besides, `UnexpectedEof` where the peer ended the connection without ending TLS (what came may have
    /// been cut), and `InvalidData` for bytes that are no TLS records of this connection.
    pub fn poll_read_slice(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            match self.tls.reader().read(into) {
                Ok(0) => {
                    self.tcp.note_end();
                    return Poll::Ready(Ok(0));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
            if self.at < self.end {
                self.take_record().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                continue;
            }
            let read = ready!(self.tcp.poll_read_slice(cx, &mut self.wire))?;
            (self.at, self.end) = (0, read);
            if read == 0 {
                // So that the library knows whether the end was orderly.
                let _nothing = self.tls.read_tls(&mut io::empty())?;
                self.tls
                    .process_new_packets()
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
        }
    }

    /// Encrypts as much of `bufs` as may be held, and writes nothing: how much was taken. `Pending` when nothing more may
    /// be held; no waker is kept, since only [`Self::poll_send`] makes room.
    ///
    /// # Errors
    /// The connection was ended or broke.
    pub fn poll_accept(&mut self, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self.tls.writer().write_vectored(bufs)? {
            0 if bufs.iter().any(|buf| !buf.is_empty()) => Poll::Pending,
            taken => Poll::Ready(Ok(taken)),
        }
    }

    /// Writes what was encrypted.
    ///
    /// # Errors
    /// As any write.
    pub fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let written = self.tls.write_tls(&mut Wire { tcp: &mut self.tcp, cx: &mut *cx });
            match written {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Encrypts and writes a slice of `bufs`.
    ///
    /// # Errors
    /// As any write.
    pub fn poll_write_slice(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if std::mem::take(&mut self.slice_taken) {
            // As in the plain stream: the event loop gets a look at everything else between two slices.
            ready!(pin!(tokio::task::yield_now()).poll(cx));
        }
        let Poll::Ready(taken) = self.poll_accept(bufs) else {
            // What was encrypted before is a slice: the next one is encrypted after everything else had its turn.
            ready!(self.poll_send(cx))?;
            ready!(pin!(tokio::task::yield_now()).poll(cx));
            return Poll::Pending;
        };
        let taken = taken?;
        self.slice_taken = taken < bufs.iter().map(|buf| buf.len()).sum();
        if let Poll::Ready(sent) = self.poll_send(cx) {
            sent?;
        }
        Poll::Ready(Ok(taken))
    }

    /// Whether encrypted bytes wait to be written.
    pub fn holds_bytes(&self) -> bool {
        self.tls.wants_write()
    }

    /// Ends this end's half: TLS's own end, then the connection's. What was encrypted and not written is given up.
    ///
    /// # Errors
    /// As any shutdown.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.say_goodbye();
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    /// Tells the peer that no more will come, if that can be told at once and nothing else would be told with it.
    fn say_goodbye(&mut self) {
        if !self.tls.wants_write() {
            self.tls.send_close_notify();
            let _told = self.poll_send(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// A handle to this stream's stamps.
    pub fn stamps(&self) -> StreamStamps {
        self.stamps.clone()
    }

    /// The stream below.
    pub fn tcp(&self) -> &StampedStream {
        &self.tcp
    }

    /// What was negotiated.
    pub fn facts(&self) -> TlsFacts {
        let certificates = self.tls.peer_certificates();
        TlsFacts {
            version: self.tls.protocol_version().map(|version| match version {
                rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2".to_owned(),
                rustls::ProtocolVersion::TLSv1_3 => "TLSv1.3".to_owned(),
                other => format!("{other:?}"),
            }),
            cipher_suite: self.tls.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite())),
            alpn: self.tls.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
            resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
            certificate: certificates.and_then(<[_]>::first).map(|der| CertificateFacts::of(der)),
        }
    }
}

impl Drop for TlsStream {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}

/// The stream below as the library wants to write to it.
struct Wire<'a, 'b, 'c> {
    tcp: &'a mut StampedStream,
    cx: &'b mut Context<'c>,
}

impl Write for Wire<'_, '_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.tcp).poll_write_vectored(self.cx, bufs) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
