//! TLS over a stamped stream, by rustls with the ring provider.
//!
//! # What stamps mean under TLS
//!
//! * **Reads.** A byte can be handed up only when its whole record is there, so it belongs to the read that completed the
//!   record: an **upper bound**, as everywhere. The bytes that a stamp counts are those on the wire, encrypted. Reads that
//!   brought only TLS's own messages (session tickets, key updates) are in no log: whoever looks for the first byte of an
//!   answer must not find a ticket.
//! * **Writes.** Marks are those of the encrypted bytes that the kernel accepted.
//!
//! # Encrypting ahead
//!
//! [`TlsStream::poll_accept`] encrypts and keeps, [`TlsStream::poll_send`] writes. A caller that holds a request back
//! until its time has it encrypted by then; at the release what remains is the write call. One slice (60 KiB) is
//! encrypted ahead at most.

mod certificate;
mod client;
mod error;
mod records;
mod roots;
mod server;
mod stream;

pub use certificate::CertificateFacts;
pub use client::TlsClient;
pub use error::{TlsConfigError, TlsError, TlsErrorKind};
pub use roots::TlsRoots;
pub use server::TlsServer;
pub use stream::{TlsFacts, TlsStream};
