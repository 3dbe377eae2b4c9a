//! Taking connections in, or not.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use tokio::sync::Notify;
use tracewheel_clock::{Clock, PreciseWaiter, RunNs};
use tracewheel_net::tls::TlsStream;
use tracewheel_net::{NetError, StampedListener, StampedStream};

use crate::config::{FaultKind, FaultRule, OverLimit};
use crate::server::io::{Connection, ConnectionIo, Stream};
use crate::server::routes::Service;

/// Pause after an accept that failed, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE_NS: i64 = 10_000_000;
/// hyper's write buffer for one connection, bytes: what a slow reader can make the server hold.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// What one request may send ahead of being read: prompts are not to wait for windows.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// What all requests of a connection may.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;

/// Takes connections in.
pub(crate) struct Acceptor {
    service: Rc<Service>,
    local_addr: SocketAddr,
    accepted: Rc<Cell<u64>>,
    open: Rc<Places>,
    waiter: PreciseWaiter,
}

/// How many connections are open.
#[derive(Debug, Default)]
struct Places {
    taken: Cell<u32>,
    freed: Notify,
}

/// Counts a connection while it lives.
struct Open(Rc<Places>);

impl Open {
    fn new(places: &Rc<Places>) -> Self {
        places.taken.set(places.taken.get() + 1);
        Self(Rc::clone(places))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.taken.set(self.0.taken.get() - 1);
        self.0.freed.notify_one();
    }
}

/// Why nobody is accepted for a while.
struct Refusal {
    rule: FaultRule,
    from: RunNs,
    to: RunNs,
}

impl Acceptor {
    pub(crate) fn new(
        service: Rc<Service>,
        local_addr: SocketAddr,
        accepted: Rc<Cell<u64>>,
        waiter: PreciseWaiter,
    ) -> Self {
        Self { service, local_addr, accepted, open: Rc::default(), waiter }
    }

    /// Takes connections in, for ever.
    pub(crate) async fn run(mut self, listener: StampedListener) -> io::Result<()> {
        let mut listener = listener;
        for refusal in self.refusals() {
            tokio::select! {
                biased;
                woke = self.waiter.wait_until(refusal.from) => { woke?; }
                () = Self::accept(&self.service, &self.accepted, &self.open, &listener) => {}
            }
            if self.service.clock.now() < refusal.to {
                // Without a listener the kernel refuses by itself.
                drop(listener);
                self.service.note_connection_fault(&refusal.rule, 0);
                self.waiter.wait_until(refusal.to).await?;
                listener = StampedListener::bind(self.local_addr, Arc::clone(&self.service.clock))
                    .map_err(listen_again)?;
            }
        }
        Self::accept(&self.service, &self.accepted, &self.open, &listener).await;
        Ok(())
    }

    /// Windows in which nobody listens, by their beginning.
    fn refusals(&self) -> Vec<Refusal> {
        let at = |ms: Option<u64>| {
            let ns = i64::try_from(ms.unwrap_or(0)).unwrap_or(i64::MAX).saturating_mul(1_000_000);
            self.service.started().plus(ns)
        };
        let rules = self.service.config.fault.iter().filter(|rule| rule.kind == FaultKind::Refuse);
        let mut refusals: Vec<Refusal> = rules
            .map(|rule| Refusal { rule: rule.clone(), from: at(rule.from_ms), to: at(rule.to_ms) })
            .collect();
        refusals.sort_by_key(|refusal| refusal.from);
        refusals
    }

    /// Accepts for ever.
    async fn accept(
        service: &Rc<Service>,
        accepted: &Rc<Cell<u64>>,
        open: &Rc<Places>,
        listener: &StampedListener,
    ) {
        let http = &service.config.http;
        loop {
            let full = || open.taken.get() >= http.max_connections;
            while http.over_limit == OverLimit::Wait && full() {
                open.freed.notified().await;
            }
            match listener.accept().await {
                Ok((stream, _)) if full() => {
                    if http.over_limit == OverLimit::Reset {
                        let _ = stream.reset_on_close();
                    }
                }
                Ok((stream, _)) => {
                    accepted.set(accepted.get() + 1);
                    take(service, stream, accepted.get(), Open::new(open));
                }
                Err(_) => service.hub.alarms().after(ACCEPT_PAUSE_NS).await,
            }
        }
    }
}

/// Serves a connection on a task of its own.
fn take(service: &Rc<Service>, stream: StampedStream, number: u64, open: Open) {
    let mut wait_ns = 0;
    if let Some(rule) = service.pick_for_connection() {
        service.note_connection_fault(&rule, number);
        match rule.kind {
            FaultKind::AcceptReset => {
                let _ = stream.reset_on_close();
                return;
            }
            FaultKind::AcceptClose => return,
            _ => wait_ns = i64::from(rule.for_ms.unwrap_or(0)) * 1_000_000,
        }
    }
    let service = Rc::clone(service);
    tokio::task::spawn_local(async move {
        let _open = open;
        if wait_ns > 0 {
            service.hub.alarms().after(wait_ns).await;
        }
        serve(service, stream, number).await;
    });
}

async fn serve(service: Rc<Service>, stream: StampedStream, number: u64) {
    let connection = Connection::new(number, stream.stamps(), Arc::clone(&service.clock));
    let alarms = Rc::clone(service.hub.alarms());
    let idle_close_ms = service.config.http.idle_close_ms;
    let served = speak(service, stream, Rc::clone(&connection));
    // A client that breaks off or talks nonsense is its own problem; the log has the exchange.
    match idle_close_ms {
        None => served.await,
        Some(ms) => {
            let idle = connection.idle_for(&alarms, i64::from(ms.get()) * 1_000_000);
            tokio::select! {
                biased;
                () = served => {}
                () = idle => {}
            }
        }
    }
}

/// Speaks what the client speaks.
async fn speak(service: Rc<Service>, stream: StampedStream, connection: Rc<Connection>) {
    let (stream, alpn) = match &service.tls {
        None => (Stream::Plain(stream), None),
        Some(server) => {
            let Ok(tls) = TlsStream::accept(stream, server).await else { return };
            let alpn = tls.facts().alpn;
            (Stream::Tls(Box::new(tls)), alpn)
        }
    };
    let alarms = Rc::clone(service.hub.alarms());
    let mut io = ConnectionIo::new(stream, Rc::clone(&connection), alarms);
    let http2 = match alpn.as_deref() {
        Some(chosen) => chosen == "h2",
        None => io.begins_with_http2().await,
    };
    let of_requests = Rc::clone(&connection);
    let streams = service.config.http.max_concurrent_streams.get();
    let answer = service_fn(move |request| Rc::clone(&service).answer(Rc::clone(&of_requests), request));
    if !http2 {
        let _ended = http1::Builder::new()
            .header_read_timeout(None)
            .writev(false)
            .max_buf_size(WRITE_BUFFER_BYTES)
            .serve_connection(io, answer)
            .await;
        return;
    }
    connection.speak_http2();
    let served = http2::Builder::new(OnThisThread)
        .max_concurrent_streams(streams)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(WRITE_BUFFER_BYTES)
        .serve_connection(io, answer);
    let mut served = pin!(served);
    tokio::select! {
        biased;
        _ended = served.as_mut() => return,
        () = connection.goodbye() => served.as_mut().graceful_shutdown(),
    }
    let _ended = served.await;
}

/// Runs the streams of HTTP/2 connections where the connections run.
#[derive(Debug, Clone, Copy)]
struct OnThisThread;

impl<F> Executor<F> for OnThisThread
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, stream: F) {
        tokio::task::spawn_local(stream);
    }
}

fn listen_again(error: NetError) -> io::Error {
    io::Error::new(error.io().kind(), error)
}
