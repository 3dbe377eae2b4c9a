//! TCP and TLS streams whose reads and writes carry kernel and user stamps.
//!
//! # What a read's stamp means
//!
//! Every read is logged before anything above sees its bytes, with two stamps of the run clock:
//!
//! * `user_ns`: right after the read returned. Under load it is late by what the event loop was late.
//! * `kernel_ns`: when the kernel received the **last** segment that the read took bytes from, by `SO_TIMESTAMPING`.
//!
//! TCP keeps no boundaries. A read that finds several segments waiting takes them all, and segments that the kernel has
//! merged in one socket buffer keep only the stamp of the last. So for a read's last bytes the kernel stamp is the time
//! of their arrival, and for all bytes before them an **upper bound**: they arrived then or earlier. Whoever counts
//! events on a read has to treat all but the last event as bounded, not as known. A reader that keeps up sees one
//! segment a read and has no such case. One that was late can look at what waits first
//! ([`StampedStream::poll_peek_slice`]) and take it in reads that end where its events end: as long as the kernel holds
//! the segments apart, each read has its own segment's stamp.
//!
//! A kernel stamp is never after the user stamp of its read. The kernel counts wall time; what the mapping to the run
//! clock leaves uncertain (tens of nanoseconds) is cut off at the user stamp, and a stamp that would lie further off
//! shows that the wall clock was set and is dropped. Where the kernel gives no stamps, `kernel_ns` is `None` and all
//! else works as before. The first segment after stamps were asked for may also lack one: the kernel switches them on
//! with a short delay.
//!
//! # What a write's marks mean
//!
//! Bytes are "written" when the kernel has accepted them into the socket, which on an idle connection is within
//! microseconds of the wire. The true moment of the first byte lies between `first_call_ns` and `first_ns`, which
//! enclose the system call (5 to 8 µs; on loopback it includes delivery to the peer).

mod error;
mod listener;
mod receive;
mod stamps;
mod stream;
pub mod tls;

pub use crate::error::NetError;
pub use crate::listener::StampedListener;
pub use crate::stamps::{ReadStamp, StreamStamps, WriteMarks};
pub use crate::stream::StampedStream;
