//! What a long command is doing, as one line below everything else that goes to a terminal.
//!
//! A [`Screen`] owns the stream (the binary hands in its stderr): messages and logs are printed above the line, the line
//! is drawn again below them and erased at the end. A [`Reporter`] decides how progress is shown ([`Manner`]): as that
//! line, as plain lines now and then, or not at all. [`ReplayProgress`] feeds it from a replay's event stream and never
//! slows the replay down: events that nobody takes are dropped by the replay.

mod part;
mod replay;
mod reporter;
mod screen;
mod words;

pub use part::{Part, fitted};
pub use replay::ReplayProgress;
pub use reporter::{Manner, Reporter};
pub use screen::Screen;
pub use words::{amount, bar, clock, replay_parts, short};
