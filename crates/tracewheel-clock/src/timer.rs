//! A timer that the event loop waits on.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::{Context, Poll, ready};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const NS_PER_S: i64 = 1_000_000_000;

/// A one-shot `timerfd` of the monotonic clock, registered with the runtime that it was made on.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: AsyncFd<Fd>,
}

/// The descriptor, private to this module: nothing else can close or replace it while it is registered.
#[derive(Debug)]
struct Fd(TimerFd);

impl Timer {
    /// # Panics
    /// Outside a runtime with I/O enabled.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        register(Fd(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))
    }

    /// Sets it to fire once at an absolute time. Takes back an expiry that was not looked at.
    pub(crate) fn set(&self, absolute_ns: i64) -> io::Result<()> {
        // Zero would disarm it; anything that small is long past and fires at once.
        let absolute_ns = absolute_ns.max(1);
        let at = TimeSpec::new(absolute_ns / NS_PER_S, absolute_ns % NS_PER_S);
        self.fd.get_ref().0.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        Ok(())
    }

    /// Ready once it has fired since it was last set. Setting it takes back an expiry, but not the readiness that the
    /// event loop remembers of it: reading the descriptor tells the two apart.
    pub(crate) fn poll_fired(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.fd.poll_read_ready(cx))?;
            if let Ok(read) = guard.try_io(|fd| Ok(fd.get_ref().0.wait()?)) {
                return Poll::Ready(read);
            }
        }
    }
}

#[allow(unsafe_code)]
fn register(fd: Fd) -> io::Result<Timer> {
    // SAFETY: `Fd` owns an open descriptor and always returns that one. The `AsyncFd` takes `Fd` over and this module
    // never lets it be replaced, closed or taken out, so the descriptor stays open as long as it is registered.
    let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
    Ok(Timer { fd })
}

impl AsRawFd for Fd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
