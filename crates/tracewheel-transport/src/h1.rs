//! The bytes of HTTP/1.1, without a socket: a request's head, an answer's head, a body's framing.
//!
//! Bodies are handed out as slices of the read that brought them, so that a token's bytes are copied once, into the
//! record, and nothing is allocated for it.

mod body;
mod head;
mod request;

pub(crate) use body::Framing;
pub(crate) use head::{Head, HeadError, HeadReader};
pub(crate) use request::encode_head;
