//! TCP streams whose reads and writes carry kernel and user stamps.

mod error;
mod listener;
mod stamps;
mod stream;

pub use crate::error::NetError;
pub use crate::listener::StampedListener;
pub use crate::stamps::{ReadStamp, StreamStamps, WriteMarks};
pub use crate::stream::StampedStream;
