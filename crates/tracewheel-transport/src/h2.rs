//! HTTP/2: one connection for many exchanges, each on a lane of its own.
//!
//! * **One task, one reader.** The owner polls the [`H2Connection`]; that reads, decodes and wakes the lanes whose
//!   streams got something. Nothing is spawned.
//! * **Nothing before its time.** A request is handed to the library when it is released: until then not a byte of it is
//!   where it could leave. The release encodes its head, queues its body and makes the write call, all in one.
//! * **Frames are tied to system calls.** What goes over the socket is followed frame by frame, before it is encrypted and
//!   after it was decrypted: a stream's write marks are those of the calls that took its frames, and each part of a body
//!   belongs to the read that completed its frame.

mod connection;
mod exchange;
mod scan;
mod wire;

pub use connection::{H2Connection, H2Lane, H2Options};
pub use exchange::H2Exchange;
