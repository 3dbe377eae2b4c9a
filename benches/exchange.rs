//! What lies between "now" and the write call, for four ways to send one ready request over a kept connection.
//!
//! * armed: the request was encoded behind the valve ahead of time; the dispatching task opens it and polls.
//! * unarmed: the dispatching task hands the request to hyper and polls: headers are encoded now.
//! * task: armed, but another task of the same runtime is woken to open the valve.
//! * thread: armed, but a task of another thread's runtime is woken to do it.
//!
//! Printed: time from "now" to the stamp right before the write call and right after it, in nanoseconds. The ways take
//! turns. `cargo bench -p benches --bench exchange`; without `--bench` (under `cargo test`) a few exchanges only.
#![allow(clippy::print_stdout, missing_docs)]

#[path = "exchange/server.rs"]
mod server;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::HeaderValue;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tracewheel_clock::{Clock, RunClock, RunNs, blocking};
use tracewheel_transport::{Endpoint, ExchangeLimits, H1Connection, H1Exchange, PreparedRequest};

const WAYS: [&str; 4] = ["armed", "unarmed", "task", "thread"];

/// Before and after the write call, from "now".
type Delays = (i64, i64);

fn main() {
    let turns = if std::env::args().any(|argument| argument == "--bench") { 3_000 } else { 10 };
    let addr = server::start();
    let clock = RunClock::start();
    let away = Elsewhere::start(addr, &clock, |driver| {
        std::thread::spawn(move || runtime().block_on(driver));
    });
    let mut delays: [Vec<Delays>; 4] = Default::default();
    runtime().block_on(async {
        let near = Elsewhere::start(addr, &clock, |driver| {
            tokio::spawn(driver);
        });
        let mut kept = Some(open(addr, &clock).await);
        for _ in 0..turns {
            for (way, delays) in delays.iter_mut().enumerate() {
                blocking::sleep(150_000);
                let delay = match way {
                    0 | 1 => own(&mut kept, addr, &clock, way == 0).await,
                    2 => near.send(&clock).await,
                    _ => away.send(&clock).await,
                };
                delays.push(delay);
            }
        }
    });
    println!("ns from \"now\" to           before the write call      after it");
    println!("                            p50      p99          p50      p99");
    for (name, delays) in WAYS.iter().zip(delays) {
        let (before, after): (Vec<i64>, Vec<i64>) = delays.into_iter().unzip();
        let (before, after) = (quantiles(before), quantiles(after));
        println!("{name:<20} {:>10} {:>8}   {:>10} {:>8}", before.0, before.1, after.0, after.1);
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_io().event_interval(1).build().expect("a runtime")
}

async fn open(addr: SocketAddr, clock: &Arc<RunClock>) -> H1Connection {
    H1Connection::open(addr, Arc::clone(clock)).await.expect("the witness listens")
}

fn request(addr: SocketAddr) -> PreparedRequest {
    let endpoint = Endpoint::parse(&format!("http://{addr}")).expect("an address is a URL's host");
    let uri = endpoint.uri("/v1/chat/completions").expect("a path");
    let mut request = PreparedRequest::post(uri, endpoint.host_header(), Bytes::from(vec![b'x'; 1_200]));
    request.headers.insert("x-request-id", HeaderValue::from_static("00000000000000ff"));
    request.headers.insert("user-agent", HeaderValue::from_static("tracewheel-bench"));
    request.headers.insert("content-type", HeaderValue::from_static("application/json"));
    request
}

async fn own(
    kept: &mut Option<H1Connection>,
    addr: SocketAddr,
    clock: &Arc<RunClock>,
    armed_ahead: bool,
) -> Delays {
    let connection = match kept.take() {
        Some(connection) => connection,
        None => open(addr, clock).await,
    };
    let request = request(addr);
    let mut now = clock.now();
    let mut exchange = connection.arm(request, ExchangeLimits::default());
    if armed_ahead {
        let _waiting = poll_fn(|cx| Poll::Ready(exchange.poll_armed(cx))).await;
        now = clock.now();
    }
    let (delays, connection) = finish(exchange, now).await;
    *kept = connection;
    delays
}

async fn finish(exchange: H1Exchange, now: RunNs) -> (Delays, Option<H1Connection>) {
    let (outcome, connection) = exchange.run().await;
    let at = |stamp: Option<RunNs>| stamp.expect("the request was written").since(now);
    ((at(outcome.writes.first_call_ns), at(outcome.writes.first_ns)), connection)
}

/// A connection that another task owns; each message is the "now" at which it shall send.
struct Elsewhere {
    nows: mpsc::Sender<RunNs>,
    delays: tokio::sync::Mutex<mpsc::Receiver<Delays>>,
}

impl Elsewhere {
    fn start(
        addr: SocketAddr,
        clock: &Arc<RunClock>,
        spawn: impl FnOnce(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
    ) -> Self {
        let (nows, mut inbox) = mpsc::channel::<RunNs>(1);
        let (done, delays) = mpsc::channel(1);
        let clock = Arc::clone(clock);
        spawn(Box::pin(async move {
            let mut kept = Some(open(addr, &clock).await);
            loop {
                let connection = match kept.take() {
                    Some(connection) => connection,
                    None => open(addr, &clock).await,
                };
                let mut exchange = connection.arm(request(addr), ExchangeLimits::default());
                let _waiting = poll_fn(|cx| Poll::Ready(exchange.poll_armed(cx))).await;
                let Some(now) = inbox.recv().await else { return };
                let (delays, connection) = finish(exchange, now).await;
                kept = connection;
                if done.send(delays).await.is_err() {
                    return;
                }
            }
        }));
        Elsewhere { nows, delays: tokio::sync::Mutex::new(delays) }
    }

    async fn send(&self, clock: &RunClock) -> Delays {
        self.nows.send(clock.now()).await.expect("the other task listens");
        self.delays.lock().await.recv().await.expect("the other task answers")
    }
}

/// Median and 99th percentile.
fn quantiles(mut values: Vec<i64>) -> (i64, i64) {
    values.sort_unstable();
    let at = |q: f64| values[((q * values.len() as f64).ceil() as usize).clamp(1, values.len()) - 1];
    (at(0.5), at(0.99))
}
