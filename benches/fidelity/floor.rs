//! The floor: a bare loop that sleeps, spins and writes ready bytes onto kept connections, in a process of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use tracewheel_clock::{Clock, RunClock, blocking, tighten_timer_slack};

const CONNECTIONS: usize = 64;
/// Left to spin after the sleep.
const SPIN_NS: i64 = 80_000;

/// Sends request `n` at `offsets[n]`, `n` as its id.
pub(crate) fn send(port: u16, offsets: &[i64]) -> io::Result<()> {
    tighten_timer_slack();
    let connect = |_| {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    };
    let mut connections = (0..CONNECTIONS).map(connect).collect::<io::Result<Vec<_>>>()?;
    let requests: Vec<Vec<u8>> = (0..offsets.len()).map(crate::request).collect();
    let clock = RunClock::start();
    let start = clock.now().plus(50_000_000);
    let mut waste = vec![0; 64 << 10];
    for (number, (offset, request)) in offsets.iter().zip(&requests).enumerate() {
        let connection = &mut connections[number % CONNECTIONS];
        // The answer before must be out of the way; it came long ago, unless there is a jam.
        while !matches!(connection.read(&mut waste), Err(error) if error.kind() == ErrorKind::WouldBlock) {}
        let at = start.plus(*offset);
        blocking::sleep(at.since(clock.now()) - SPIN_NS);
        while clock.now() < at {
            std::hint::spin_loop();
        }
        connection.write_all(request)?;
    }
    blocking::sleep(100_000_000);
    Ok(())
}
