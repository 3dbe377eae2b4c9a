//! HTTP/1.1 and HTTP/2 exchanges and connections with a stamp at every milestone; knows nothing of LLMs.
//!
//! Three things set this apart from a pooled client:
//!
//! * **One task.** An [`H1Connection`] owns its socket and an [`Exchange`] polls it itself. Nothing is spawned,
//!   so no byte waits for another task's turn.
//! * **A valve.** [`H1Connection::arm`] encodes the request ahead of time, up to the socket, and keeps the connection
//!   watched. [`Exchange::release`] opens the valve; the next poll is one write call. A connection that the server
//!   closes while armed is reported by [`Exchange::poll_armed`], and the request can be had back: not a byte of it left.
//! * **Stamps before parsing.** Reads are stamped in the stream (`tracewheel-net`); the body keeps, for each stretch of
//!   bytes, which read brought it ([`BodyMark`]).
//!
//! Time-outs come from outside: a caller that has waited long enough calls [`Exchange::abort`]. No timer runs here.

mod answer;
mod apart;
mod body;
mod budget;
mod connection;
mod endpoint;
mod error;
mod exchange;
mod h1;
mod h2;
mod io;
mod lane;
mod opening;
mod request;

pub use crate::body::Body;
pub use crate::budget::{BodyBudget, Held};
pub use crate::connection::{ConnectStamps, H1Connection};
pub use crate::endpoint::{Endpoint, EndpointError};
pub use crate::error::{ConnectError, ConnectErrorKind, ExchangeError, ExchangeErrorKind, StreamCode};
pub use crate::exchange::{BodyMark, ExchangeLimits, ExchangeOutcome, H1Exchange, Response};
pub use crate::h2::{H2Connection, H2Exchange, H2Lane, H2Options};
pub use crate::lane::{Exchange, Lane};
pub use crate::opening::{HttpChoice, Opened, Opening, Way};
pub use crate::request::PreparedRequest;
pub use tracewheel_net::tls::{
    CertificateFacts, TlsClient, TlsConfigError, TlsErrorKind, TlsFacts, TlsRoots,
};
pub use tracewheel_net::{ReadStamp, WriteMarks};
