//! The table of routes as a run uses it: checked, and bound to targets and headers.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tracewheel_protocol::{ProtocolOptions, Provider, Settled};
use tracewheel_transport::Endpoint;
use tracewheel_workload::{Assign, CacheMode, Lane, Plan, PlannedRequest, PlannedRequests, PrimingRequests};

use crate::route::Criteria;
use crate::worker::Head;

/// Routes of a table, at most.
pub(crate) const MAX_ROUTES: usize = 1_024;
/// Keys of a route, at most.
pub(crate) const MAX_KEYS: usize = 1_024;
/// Bits of a lane's number that say which of its route's keys a request is sent with.
const KEY_BITS: u32 = 16;

/// A route whose options are whole and go together.
#[derive(Debug)]
pub(crate) struct BoundRoute {
    /// Its name; `None` where the configuration has no table.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) takes: Criteria,
    pub(crate) provider: &'static dyn Provider,
    pub(crate) settled: Settled,
    pub(crate) options: ProtocolOptions,
    pub(crate) model: Option<String>,
    pub(crate) endpoint: Endpoint,
    /// Which of the run's targets it leads to. One that takes nothing leads to the first.
    pub(crate) target: u16,
    /// The headers of its requests, once for each of its keys; never empty.
    pub(crate) heads: Vec<Arc<Head>>,
}

/// All routes of a run, in their order.
#[derive(Debug)]
pub(crate) struct Routing(Vec<BoundRoute>);

impl Routing {
    pub(crate) fn new(routes: Vec<BoundRoute>) -> Arc<Routing> {
        Arc::new(Routing(routes))
    }

    pub(crate) fn routes(&self) -> &[BoundRoute] {
        &self.0
    }

    /// The route of a request in this lane, with its place in the table, and the headers.
    pub(crate) fn lane(&self, lane: Lane) -> (usize, &BoundRoute, &Arc<Head>) {
        let at = (lane.number >> KEY_BITS) as usize;
        let key = lane.number & ((1 << KEY_BITS) - 1);
        (at, &self.0[at], &self.0[at].heads[key as usize])
    }

    /// The requests of a plan, each in its lane.
    pub(crate) fn assigned(self: &Arc<Self>, plan: &Plan) -> PlannedRequests {
        plan.requests().assigned(self.assign())
    }

    /// What is sent ahead of a plan, each in the lane of what it is sent for.
    pub(crate) fn primes(self: &Arc<Self>, plan: &Plan, mode: CacheMode) -> PrimingRequests {
        plan.priming(mode).assigned(self.assign())
    }

    /// Puts the requests of a plan, or those that go ahead of it, into lanes. A session keeps to one key, by its hash: what
    /// it left in a prompt cache belongs to an account. Requests without a session take the keys in turn.
    ///
    /// # Panics
    /// When no route takes a request: that was checked for every one of them.
    pub(crate) fn assign(self: &Arc<Self>) -> Assign {
        let routing = Arc::clone(self);
        let mut turns = vec![0_usize; routing.0.len()];
        Assign::new(move |request| {
            let at = first_taking(routing.0.iter().map(|route| &route.takes), request);
            let at = at.expect("requests that no route takes were refused");
            let route = &routing.0[at];
            let keys = route.heads.len();
            let key = match request.session_hash {
                Some(hash) => (hash % keys as u64) as usize,
                None => {
                    turns[at] = (turns[at] + 1) % keys;
                    (turns[at] + keys - 1) % keys
                }
            };
            Lane { number: ((at as u32) << KEY_BITS) | key as u32, cache: route.cache_of(key, request) }
        })
    }
}

impl BoundRoute {
    /// The model that a request asks for; empty where none is known.
    pub(crate) fn model<'a>(&'a self, request: &'a PlannedRequest) -> &'a str {
        self.model.as_deref().or(request.model.as_deref()).unwrap_or_default()
    }

    /// Requests share a prompt cache where target, model and account are the same. Without a table, as ever, all do.
    fn cache_of(&self, key: usize, request: &PlannedRequest) -> u64 {
        if self.name.is_none() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        self.target.hash(&mut hasher);
        self.model(request).hash(&mut hasher);
        let head = &self.heads[key].plain;
        for name in ["authorization", "x-api-key", "api-key", "x-goog-api-key"] {
            head.get(name).map(|value| value.as_bytes()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// The place of the first criteria that a request meets.
pub(crate) fn first_taking<'a>(
    mut criteria: impl Iterator<Item = &'a Criteria>,
    request: &PlannedRequest,
) -> Option<usize> {
    criteria.position(|criteria| criteria.take(request))
}
