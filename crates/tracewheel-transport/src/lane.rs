//! One exchange at a time, whichever HTTP carries it: the callers' view of connections.

use std::future::poll_fn;
use std::task::{Context, Poll};

use tracewheel_clock::RunNs;
use tracewheel_net::WriteMarks;

use crate::connection::{ConnectStamps, H1Connection};
use crate::exchange::{ExchangeLimits, ExchangeOutcome, H1Exchange};
use crate::h2::{H2Exchange, H2Lane};
use crate::request::PreparedRequest;

/// What carries one exchange at a time: a whole HTTP/1.1 connection, or one lane of an HTTP/2 connection.
#[derive(Debug)]
pub enum Lane {
    /// The connection itself.
    H1(Box<H1Connection>),
    /// A lane; its connection is driven by its owner.
    H2(H2Lane),
}

impl Lane {
    /// Watches an idle lane. `Ready` means that it is of no use any more and must be dropped.
    pub fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Lane::H1(connection) => connection.poll_idle(cx),
            Lane::H2(lane) => lane.poll_idle(cx),
        }
    }

    /// Makes all ready that can be done before the request leaves. Not a byte leaves before [`Exchange::release`].
    pub fn arm(self, request: PreparedRequest, limits: ExchangeLimits) -> Exchange {
        match self {
            Lane::H1(connection) => Exchange::H1(Box::new(connection.arm(request, limits))),
            Lane::H2(lane) => Exchange::H2(Box::new(lane.arm(request, limits))),
        }
    }

    /// When its connection was made.
    pub fn connect_stamps(&self) -> ConnectStamps {
        match self {
            Lane::H1(connection) => connection.connect_stamps(),
            Lane::H2(lane) => lane.connect_stamps(),
        }
    }

    /// Whether its connection has carried an exchange.
    pub fn used(&self) -> bool {
        match self {
            Lane::H1(connection) => connection.exchanges() > 0,
            Lane::H2(lane) => lane.used(),
        }
    }
}

/// One request and its answer on a lane. Dropping it closes the connection (HTTP/1.1) or resets the stream (HTTP/2).
#[derive(Debug)]
pub enum Exchange {
    /// On a whole connection.
    H1(Box<H1Exchange>),
    /// On a stream of an HTTP/2 connection.
    H2(Box<H2Exchange>),
}

impl Exchange {
    /// Drives an armed exchange. `Ready` means that the lane is of no use any more and that nothing was written; take the
    /// request back with [`Self::into_request`].
    pub fn poll_armed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Exchange::H1(exchange) => exchange.poll_armed(cx),
            Exchange::H2(exchange) => exchange.poll_armed(cx),
        }
    }

    /// From now on bytes may leave: the next [`Self::poll`] writes.
    pub fn release(&mut self) {
        match self {
            Exchange::H1(exchange) => exchange.release(),
            Exchange::H2(exchange) => exchange.release(),
        }
    }

    /// Drives a released exchange to its end. After `Ready`, take the result with [`Self::finish`].
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Exchange::H1(exchange) => exchange.poll(cx),
            Exchange::H2(exchange) => exchange.poll(cx),
        }
    }

    /// Exchanges begun on its connection, itself among them.
    pub fn exchanges(&self) -> u32 {
        match self {
            Exchange::H1(exchange) => exchange.connection().exchanges(),
            Exchange::H2(exchange) => exchange.lane().exchanges(),
        }
    }

    /// When the request left, so far.
    pub fn writes(&self) -> WriteMarks {
        match self {
            Exchange::H1(exchange) => exchange.writes(),
            Exchange::H2(exchange) => exchange.writes(),
        }
    }

    /// The request, to be sent on another lane.
    pub fn into_request(self) -> PreparedRequest {
        match self {
            Exchange::H1(exchange) => exchange.into_request(),
            Exchange::H2(exchange) => exchange.into_request(),
        }
    }

    /// Gives the exchange up at `now`. What came so far is kept.
    pub fn abort(&mut self, now: RunNs, detail: &str) {
        match self {
            Exchange::H1(exchange) => exchange.abort(now, detail),
            Exchange::H2(exchange) => exchange.abort(now, detail),
        }
    }

    /// What happened, and the lane if it can be used again.
    pub fn finish(self) -> (ExchangeOutcome, Option<Lane>) {
        match self {
            Exchange::H1(exchange) => {
                let (outcome, connection) = exchange.finish();
                (outcome, connection.map(|connection| Lane::H1(Box::new(connection))))
            }
            Exchange::H2(exchange) => {
                let (outcome, lane) = exchange.finish();
                (outcome, lane.map(Lane::H2))
            }
        }
    }

    /// Releases at once and runs to the end: for callers without a schedule. The owner of an HTTP/2 connection must drive
    /// it meanwhile.
    pub async fn run(mut self) -> (ExchangeOutcome, Option<Lane>) {
        self.release();
        poll_fn(|cx| self.poll(cx)).await;
        self.finish()
    }
}
