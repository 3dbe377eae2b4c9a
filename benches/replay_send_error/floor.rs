//! The floor: a bare loop that sleeps, spins and writes ready bytes onto kept connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use tracewheel_clock::{Clock, RunClock, RunNs, blocking, tighten_timer_slack};

const CONNECTIONS: usize = 64;
/// Left to spin after the sleep.
const SPIN_NS: i64 = 80_000;

/// Sends request `n` at `offsets[n]` and returns the time zero of the offsets, in nanoseconds since 1970.
pub(crate) fn send(addr: SocketAddr, offsets: &[i64]) -> i64 {
    let offsets = offsets.to_vec();
    std::thread::spawn(move || {
        tighten_timer_slack();
        let mut connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(addr)).collect();
        let requests: Vec<Vec<u8>> = (0..offsets.len()).map(request).collect();
        let clock = RunClock::start();
        clock.sample_offset();
        let start = clock.now().plus(50_000_000);
        let mut waste = vec![0; 64 << 10];
        for (number, (offset, request)) in offsets.iter().zip(&requests).enumerate() {
            let connection = &mut connections[number % CONNECTIONS];
            // The answer before must be out of the way; it came long ago, unless there is a jam.
            while !matches!(connection.read(&mut waste), Err(error) if error.kind() == ErrorKind::WouldBlock)
            {
            }
            let at = start.plus(*offset);
            blocking::sleep(at.since(clock.now()) - SPIN_NS);
            while clock.now() < at {
                std::hint::spin_loop();
            }
            connection.write_all(request).expect("a kept connection takes a request");
        }
        blocking::sleep(100_000_000);
        clock.wall(RunNs(start.0))
    })
    .join()
    .expect("the floor's thread")
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("the witness listens");
    stream.set_nodelay(true).expect("a socket option");
    stream.set_nonblocking(true).expect("a socket option");
    stream
}

/// About what a replay sends for 200 tokens.
fn request(number: usize) -> Vec<u8> {
    let body = " word".repeat(220);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: witness\r\nx-request-id: {number:x}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}
