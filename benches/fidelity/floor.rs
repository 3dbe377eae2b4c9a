//! The floor: a bare loop that sleeps, spins and writes ready bytes onto kept connections, in a process of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use tracewheel_clock::{Clock, RunClock, blocking, tighten_timer_slack};

const CONNECTIONS: usize = 64;
/// How long it waits for the last answers: a client that leaves takes unread requests with it.
const PATIENCE_NS: i64 = 5_000_000_000;
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
    let (mut waste, mut heard) = (vec![0; 64 << 10], 0);
    for (number, (offset, request)) in offsets.iter().zip(&requests).enumerate() {
        let connection = &mut connections[number % CONNECTIONS];
        // The answer before must be out of the way; it came long ago, unless there is a jam.
        heard += drain(connection, &mut waste)?;
        let at = start.plus(*offset);
        blocking::sleep(at.since(clock.now()) - SPIN_NS);
        while clock.now() < at {
            std::hint::spin_loop();
        }
        connection.write_all(request)?;
    }
    let (whole, patience) =
        (offsets.len() * crate::answer::Answer::at_once().writes[0].len(), clock.now().plus(PATIENCE_NS));
    while heard < whole && clock.now() < patience {
        blocking::sleep(10_000_000);
        for connection in &mut connections {
            heard += drain(connection, &mut waste)?;
        }
    }
    Ok(())
}

/// Reads what lies there; how many bytes that was.
fn drain(connection: &mut TcpStream, waste: &mut [u8]) -> io::Result<usize> {
    let mut heard = 0;
    loop {
        match connection.read(waste) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => heard += bytes,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(heard),
            Err(error) => return Err(error),
        }
    }
}
