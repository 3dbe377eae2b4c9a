//! The connections to one target, and what a worker knows of making them. A run has a pool for each of its targets, and
//! most runs have one.
//!
//! Pools share the limits on connections. At the limit a pool that is in need takes an idle connection from another one,
//! and whoever has waited longest is served first, whatever its target.

use std::collections::VecDeque;
use std::sync::Arc;

use super::forecast::Forecast;
use super::reconnect::Backoff;
use super::slots::Slots;
use super::tend::Peak;
use super::{ConnectFailure, Target, Worker};

/// A connection is reserved and the request encoded at least this long before it is due.
const MIN_LEAD_NS: i64 = 3_000_000;
/// And at most this long.
pub(super) const MAX_LEAD_NS: i64 = 2_000_000_000;

/// The connections to one target.
pub(super) struct Pool {
    pub(super) target: Arc<Target>,
    pub(super) slots: Slots,
    /// Connections being made.
    pub(super) connecting: usize,
    /// Flights that found no connection free.
    pub(super) starving: VecDeque<u32>,
    /// When those are due that have no connection yet.
    pub(super) forecast: Forecast,
    pub(super) backoff: Backoff,
    /// A long handshake seen lately: connections are begun this much ahead, at least.
    pub(super) handshake_ns: i64,
    /// The most connections in use at once lately.
    pub(super) peak: Peak,
    /// When connections that carry many requests were last pinged.
    pub(super) pinged_ns: i64,
    pub(super) connect_failure: Option<ConnectFailure>,
}

impl Pool {
    pub(super) fn new(target: Arc<Target>, slots: Slots) -> Self {
        Pool {
            target,
            slots,
            connecting: 0,
            starving: VecDeque::new(),
            forecast: Forecast::default(),
            backoff: Backoff::default(),
            handshake_ns: 0,
            peak: Peak::default(),
            pinged_ns: 0,
            connect_failure: None,
        }
    }

    /// How long ahead of its due time a request is put onto its connection.
    pub(super) fn lead_ns(&self) -> i64 {
        (2 * self.handshake_ns + 1_000_000).clamp(MIN_LEAD_NS, MAX_LEAD_NS)
    }

    /// Whether connections that are being made will carry one more than whom they are made for and so many who wait.
    pub(super) fn lanes_are_coming(&self, waiting: usize) -> bool {
        self.connecting * (self.slots.lanes_each() - 1) > waiting
    }
}

impl Worker {
    /// The pool whose target a flight goes to.
    pub(super) fn pool_of(&mut self, number: u32) -> &mut Pool {
        let pool = self.flights.get(number).pool;
        &mut self.pools[pool]
    }

    /// The numbers of all pools.
    pub(super) fn each_pool(&self) -> std::ops::Range<usize> {
        0..self.pools.len()
    }

    /// Connections that exist or are being made.
    pub(super) fn open(&self) -> usize {
        self.pools.iter().map(|pool| pool.slots.open()).sum()
    }

    /// Connections being made.
    pub(super) fn connecting(&self) -> usize {
        self.pools.iter().map(|pool| pool.connecting).sum()
    }

    /// Closes a connection, so that `pool` may make one for what is due at `at_ns`: one of its own that will be too old,
    /// else one that lies idle for another target. False if there is none.
    pub(super) fn give_way(&mut self, pool: usize, at_ns: i64) -> bool {
        self.pools[pool].slots.give_way(at_ns) || self.take_idle_from_others(pool)
    }

    /// Whether an idle connection to another target can be closed for one to this.
    pub(super) fn others_have_idle(&self, pool: usize) -> bool {
        self.each_pool().any(|other| other != pool && self.pools[other].slots.idle_connections() > 0)
    }

    fn take_idle_from_others(&mut self, pool: usize) -> bool {
        let others = self.each_pool().filter(|other| *other != pool);
        let idlest = others.max_by_key(|other| self.pools[*other].slots.idle_connections());
        let taken = idlest.is_some_and(|other| self.pools[other].slots.close_one_idle());
        self.tending.counts.retired += u64::from(taken);
        taken
    }
}
