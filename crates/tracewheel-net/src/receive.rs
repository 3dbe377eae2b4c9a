//! Receiving with the kernel's stamp.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, TimestampingFlag, recv, recvmsg, setsockopt, sockopt::Timestamping,
};
use nix::sys::time::TimeSpec;

/// Room for the one control message that is asked for (64 bytes), and another.
const CONTROL_BYTES: usize = 128;

/// A buffer for control messages, aligned as their headers must be; used again for each read.
#[derive(Debug)]
#[repr(align(16))]
pub(crate) struct ControlBuffer([u8; CONTROL_BYTES]);

impl ControlBuffer {
    pub(crate) const fn new() -> Self {
        Self([0; CONTROL_BYTES])
    }
}

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// 0 at the end of the stream.
    pub(crate) bytes: usize,
    /// The kernel's receive stamp, wall time, nanoseconds since 1970.
    pub(crate) kernel_unix_ns: Option<i64>,
}

/// Asks the kernel to stamp what a socket receives. Returns whether it will. A listening socket passes this on to the
/// connections that it accepts, so that what arrives before `accept` is stamped too.
pub(crate) fn stamp_received(socket: &impl AsFd) -> bool {
    let flags = TimestampingFlag::SOF_TIMESTAMPING_RX_SOFTWARE | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE;
    setsockopt(socket, Timestamping, &flags).is_ok()
}

/// One non-blocking read, with the kernel's stamp if it comes with one.
///
/// # Errors
/// As `recvmsg`; `WouldBlock` if nothing waits.
pub(crate) fn receive(
    socket: &impl AsRawFd,
    into: &mut [u8],
    control: &mut ControlBuffer,
) -> io::Result<Received> {
    let fd = socket.as_raw_fd();
    loop {
        match receive_once(fd, into, control) {
            Err(Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Bytes that wait, copied and left there.
///
/// # Errors
/// As `recv`; `WouldBlock` if nothing waits.
pub(crate) fn peek(fd: RawFd, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match recv(fd, into, MsgFlags::MSG_PEEK) {
            Err(Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}

fn receive_once(fd: RawFd, into: &mut [u8], control: &mut ControlBuffer) -> nix::Result<Received> {
    let mut buffers = [IoSliceMut::new(into)];
    let message = recvmsg::<()>(fd, &mut buffers, Some(&mut control.0), MsgFlags::empty())?;
    // A control message that was cut off is one without a stamp, not a failed read.
    let kernel_unix_ns = message.cmsgs().ok().and_then(|messages| messages.filter_map(software_stamp).last());
    Ok(Received { bytes: message.bytes, kernel_unix_ns })
}

fn software_stamp(message: ControlMessageOwned) -> Option<i64> {
    match message {
        ControlMessageOwned::ScmTimestampsns(stamps) => unix_ns(stamps.system),
        _ => None,
    }
}

/// Zero stands for "not stamped".
fn unix_ns(stamp: TimeSpec) -> Option<i64> {
    let unix_ns = stamp.tv_sec().checked_mul(1_000_000_000)?.checked_add(stamp.tv_nsec())?;
    (unix_ns > 0).then_some(unix_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_kernel_stamp_is_none_and_not_1970() {
        assert_eq!(unix_ns(TimeSpec::new(0, 0)), None);
        assert_eq!(unix_ns(TimeSpec::new(1_700_000_000, 5)), Some(1_700_000_000_000_000_005));
        assert_eq!(unix_ns(TimeSpec::new(i64::MAX, 0)), None);
    }
}
