//! Taking connections in, or not.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::sync::Notify;
use tracewheel_clock::{Clock, PreciseWaiter, RunNs};
use tracewheel_net::{NetError, StampedListener, StampedStream};

use crate::config::{FaultKind, FaultRule, OverLimit};
use crate::server::io::{Connection, ConnectionIo};
use crate::server::routes::Service;

/// Pause after an accept that failed, which mostly means that file descriptors ran out.
const ACCEPT_PAUSE_NS: i64 = 10_000_000;
/// hyper's write buffer for one connection, bytes: what a slow reader can make the server hold.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

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
    let connection = Connection::new(number, &stream, Arc::clone(&service.clock));
    let alarms = Rc::clone(service.hub.alarms());
    let io = ConnectionIo::new(stream, Rc::clone(&connection), Rc::clone(&alarms));
    let answer = service_fn(|request| Rc::clone(&service).answer(Rc::clone(&connection), request));
    let served = http1::Builder::new()
        .header_read_timeout(None)
        .writev(false)
        .max_buf_size(WRITE_BUFFER_BYTES)
        .serve_connection(io, answer);
    // A client that breaks off or talks nonsense is its own problem; the log has the exchange.
    match service.config.http.idle_close_ms {
        None => drop(served.await),
        Some(ms) => {
            let idle = connection.idle_for(&alarms, i64::from(ms.get()) * 1_000_000);
            tokio::select! {
                biased;
                _ = served => {}
                () = idle => {}
            }
        }
    }
}

fn listen_again(error: NetError) -> io::Error {
    io::Error::new(error.io().kind(), error)
}
