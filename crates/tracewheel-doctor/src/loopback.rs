//! The way to a server on this machine and back.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracewheel_clock::{Clock, RunClock};
use tracewheel_net::StampedStream;

use crate::{DoctorError, Spread};

/// Round trips made.
const TRIPS: usize = 500;
/// Left out in front: the kernel switches its stamps on with a short delay, and caches are cold.
const FIRST: usize = 20;
/// About a small request.
const REQUEST_BYTES: usize = 400;

/// The way to a server on this machine and back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loopback {
    /// From the write of a small request to the read of its answer, the peer answering at once.
    pub round_trip: Spread,
    /// The write call alone.
    pub write_call: Spread,
    /// Whether the kernel stamps what arrives.
    pub kernel_stamps: bool,
    /// User-space stamp − kernel stamp of the same read: how late a reader is that has nothing else to do.
    pub kernel_lag: Spread,
    /// Width of the bracket around the pair of readings by which kernel stamps come onto the run clock.
    pub clock_bracket_ns: i64,
    /// What reading the clock twice in a row shows at the least.
    pub clock_read_ns: i64,
}

/// Measures it against a thread that answers.
pub(crate) fn measure() -> Result<Loopback, DoctorError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(DoctorError::loopback("listen"))?;
    let addr = listener.local_addr().map_err(DoctorError::loopback("listen"))?;
    let answerer = thread::spawn(move || answer(&listener));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(DoctorError::loopback("start a runtime"))?;
    let clock = RunClock::start();
    let measured = runtime.block_on(async {
        let stream = StampedStream::connect(addr, Arc::clone(&clock))
            .await
            .map_err(|error| DoctorError::loopback("connect")(std::io::Error::other(error)))?;
        trips(stream, &clock).await.map_err(DoctorError::loopback("talk over a connection"))
    });
    // Its connection is closed by now, so it ends.
    let _answered = answerer.join();
    measured
}

fn answer(listener: &TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    echo(&mut stream)
}

fn echo(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut request = [0; REQUEST_BYTES];
    loop {
        stream.read_exact(&mut request)?;
        stream.write_all(&request[..1])?;
    }
}

async fn trips(mut stream: StampedStream, clock: &RunClock) -> std::io::Result<Loopback> {
    let stamps = stream.stamps();
    let (mut trips, mut calls, mut lags) = (Vec::new(), Vec::new(), Vec::new());
    let (request, mut byte, mut reads) = ([b'x'; REQUEST_BYTES], [0], Vec::new());
    for number in 0..FIRST + TRIPS {
        stamps.begin_exchange();
        let before = clock.now();
        stream.write_all(&request).await?;
        stream.read_exact(&mut byte).await?;
        let trip = clock.now().since(before);
        stamps.drain_reads(&mut reads);
        let marks = stamps.write_marks();
        if number >= FIRST {
            trips.push(trip);
            calls.extend(marks.first_call_ns.zip(marks.first_ns).map(|(call, done)| done.since(call)));
            lags.extend(reads.iter().filter_map(|read| Some(read.user_ns.since(read.kernel_ns?))));
        }
        reads.clear();
    }
    Ok(Loopback {
        round_trip: Spread::of(trips),
        write_call: Spread::of(calls),
        kernel_stamps: stream.kernel_stamps() && !lags.is_empty(),
        kernel_lag: Spread::of(lags),
        clock_bracket_ns: clock.sample_offset().bracket_ns,
        clock_read_ns: (0..1_000).map(|_| -clock.now().since(clock.now())).min().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_contains_its_write_call() {
        let loopback = measure().unwrap();
        assert_eq!((loopback.round_trip.n, loopback.write_call.n), (TRIPS as u64, TRIPS as u64));
        assert!(loopback.round_trip.p50_ns > loopback.write_call.p50_ns, "{loopback:?}");
        assert!(loopback.clock_read_ns >= 0 && loopback.clock_bracket_ns >= 0);
        assert_eq!(loopback.kernel_stamps, loopback.kernel_lag.n > 0);
    }
}
