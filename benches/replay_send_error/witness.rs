//! A server that stamps each request with the kernel's receive time and answers at once; with TLS where it is given.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};

use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tracewheel_clock::{Clock, RunClock};
use tracewheel_net::{StampedListener, StampedStream};

/// Arrivals by request id, in nanoseconds since 1970.
type Arrivals = Arc<Mutex<HashMap<u64, i64>>>;

/// The running witness; its thread ends with the program.
pub(crate) struct Witness {
    addr: SocketAddr,
    arrivals: Arrivals,
}

impl Witness {
    pub(crate) fn start(tls: Option<Arc<ServerConfig>>) -> Witness {
        let arrivals = Arrivals::default();
        let shared = Arc::clone(&arrivals);
        let (told, addr) = sync_channel(1);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .event_interval(1)
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let clock = RunClock::start();
                let any = SocketAddr::from(([127, 0, 0, 1], 0));
                let listener = StampedListener::bind(any, Arc::clone(&clock)).expect("a free port");
                told.send(listener.local_addr().expect("an address")).expect("the starter waits");
                loop {
                    let (stream, _) = listener.accept().await.expect("connections are accepted");
                    let tls = tls.clone().map(|config| ServerConnection::new(config).expect("a good config"));
                    tokio::spawn(serve(Wire { stream, tls }, Arc::clone(&shared), Arc::clone(&clock)));
                }
            });
        });
        Witness { addr: addr.recv().expect("it says where it listens"), arrivals }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What arrived since the last call.
    pub(crate) fn take(&self) -> HashMap<u64, i64> {
        std::mem::take(&mut self.arrivals.lock().expect("no panic"))
    }
}

/// A connection, with or without TLS.
struct Wire {
    stream: StampedStream,
    tls: Option<ServerConnection>,
}

impl Wire {
    /// Adds what comes to `held`; `None` at the end.
    async fn read(&mut self, held: &mut Vec<u8>) -> Option<()> {
        let Some(tls) = &mut self.tls else {
            return self.stream.read_buf(held).await.ok().filter(|read| *read > 0).map(drop);
        };
        let mut bytes = Vec::with_capacity(64 << 10);
        self.stream.read_buf(&mut bytes).await.ok().filter(|read| *read > 0)?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            tls.read_tls(&mut rest).ok()?;
            tls.process_new_packets().ok()?;
            let _nothing_more = tls.reader().read_to_end(held);
        }
        self.flush().await
    }

    async fn write(&mut self, bytes: &[u8]) -> Option<()> {
        let Some(tls) = &mut self.tls else { return self.stream.write_all(bytes).await.ok() };
        tls.writer().write_all(bytes).ok()?;
        self.flush().await
    }

    async fn flush(&mut self) -> Option<()> {
        let mut bytes = Vec::new();
        while let Some(tls) = self.tls.as_mut().filter(|tls| tls.wants_write()) {
            tls.write_tls(&mut bytes).ok()?;
        }
        self.stream.write_all(&bytes).await.ok()
    }
}

async fn serve(mut wire: Wire, arrivals: Arrivals, clock: Arc<RunClock>) {
    let stamps = wire.stream.stamps();
    let answer = answer();
    let (mut held, mut reads) = (Vec::new(), Vec::new());
    loop {
        let Some((head, whole)) = whole_request(&held) else {
            let Some(()) = wire.read(&mut held).await else { return };
            if held.is_empty() {
                // A handshake's read: no request began with it.
                stamps.drain_reads(&mut reads);
                reads.clear();
            }
            continue;
        };
        // A request's time is that of its first bytes: the first read since the one before.
        stamps.drain_reads(&mut reads);
        let first = reads.first().copied().expect("bytes came by a read");
        reads.clear();
        let at = clock.wall(first.kernel_ns.unwrap_or(first.user_ns));
        let id = header(&held[..head], "x-request-id").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        arrivals.lock().expect("no panic").insert(id.expect("every request has an id"), at);
        held.drain(..whole);
        let Some(()) = wire.write(&answer).await else { return };
    }
}

/// Lengths of the head and of the whole request, once it is there.
fn whole_request(held: &[u8]) -> Option<(usize, usize)> {
    let head = held.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let body = header(&held[..head], "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    (held.len() >= head + body).then_some((head, head + body))
}

fn header<'a>(head: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(head).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn answer() -> Vec<u8> {
    let chunk = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n";
    let body = format!("{}data: [DONE]\n\n", chunk.repeat(16));
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}
