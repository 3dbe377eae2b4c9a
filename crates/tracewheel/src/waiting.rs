//! Progress of work that blocks: something looks at it from time to time.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use tracewheel_clock::{Clock, RunClock};
use tracewheel_live::Part;

use crate::output::Output;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// What is over within this time shows nothing.
const PATIENCE_NS: i64 = 1_000_000_000;

/// Does `work` and, from a second on, shows what `words` says of it; `words` is given the nanoseconds since the start.
pub(crate) fn while_showing<T>(
    output: &Output,
    words: impl Fn(i64) -> Vec<Part> + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (done, waiting) = sync_channel::<()>(0);
    let mut reporter = output.reporter();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let clock = RunClock::start();
            while matches!(waiting.recv_timeout(LOOK), Err(RecvTimeoutError::Timeout)) {
                let now_ns = clock.now().0;
                if now_ns >= PATIENCE_NS {
                    reporter.tell(now_ns, &words(now_ns));
                }
            }
            reporter.end();
        });
        let outcome = work();
        drop(done);
        outcome
    })
}
