//! A running replay's event stream as a progress line.
//!
//! [`ProgressLine`] draws on stderr and only where a person watches: without a terminal nothing is written. It reads
//! the events that a replay offers and never slows it down: the replay drops events that nobody takes.

mod line;

use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracewheel_replay::ReplayEvent;

pub use line::tick_text;

/// A progress line on stderr that lives as long as the replay's event stream.
#[derive(Debug)]
pub struct ProgressLine {
    thread: JoinHandle<()>,
}

impl ProgressLine {
    /// Starts a thread that draws what comes out of `events` until the sending side is gone. With `visible` false, or
    /// without a terminal on stderr, the events are taken and nothing is drawn.
    pub fn start(events: Receiver<ReplayEvent>, visible: bool) -> Self {
        let thread = std::thread::spawn(move || {
            let target =
                if visible { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
            let bar = ProgressBar::with_draw_target(None, target);
            for event in events {
                draw(&bar, &event);
            }
            bar.finish_and_clear();
        });
        Self { thread }
    }

    /// Waits for the end of the event stream and clears the line.
    pub fn finish(self) {
        // A panic while drawing must not cost the run its summary.
        let _ = self.thread.join();
    }
}

fn draw(bar: &ProgressBar, event: &ReplayEvent) {
    match event {
        ReplayEvent::Started(started) => {
            bar.set_length(started.planned);
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
                bar.set_style(style);
            }
        }
        ReplayEvent::Tick(tick) => {
            bar.set_position(tick.sent);
            bar.set_message(tick_text(tick));
        }
        ReplayEvent::Finished(_) => bar.finish_and_clear(),
    }
}
