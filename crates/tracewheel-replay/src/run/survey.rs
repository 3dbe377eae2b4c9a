//! What each route takes of a plan, in one pass over it.

use std::collections::BTreeSet;

use tracewheel_timeline::vocab::Operation;
use tracewheel_workload::{OperationCount, Places, Plan, PlannedRequest};

use crate::route::{Criteria, Route};
use crate::routing::first_taking;
use crate::{ReplayConfig, ReplayError};

/// Different models of a route kept by name.
const MAX_MODELS: usize = 256;
/// Kinds of requests that no route takes, told one by one.
const MAX_KINDS: usize = 5;

/// What a route takes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken {
    /// Requests of the plan.
    pub(crate) requests: u64,
    /// Requests that go ahead of it, where they are not the plan's own.
    pub(crate) ahead: u64,
    pub(crate) operations: Vec<OperationCount>,
    /// Recorded models, at most 256 of them.
    pub(crate) models: BTreeSet<String>,
    /// Row of the first request without a recorded model, and how many there are.
    pub(crate) without_model: Option<(u64, u64)>,
    pub(crate) places: Places,
}

impl Taken {
    /// Whether anything is sent by the route.
    pub(crate) fn anything(&self) -> bool {
        self.requests + self.ahead > 0
    }

    fn of_plan(plan: &Plan) -> Taken {
        let survey = plan.survey();
        Taken {
            requests: plan.header().requests,
            ahead: 0,
            operations: survey.operations.clone(),
            models: survey.models.clone(),
            without_model: survey.without_model,
            places: survey.places.clone(),
        }
    }

    fn take(&mut self, request: &PlannedRequest) {
        self.requests += 1;
        match self.operations.iter_mut().find(|known| known.operation == request.operation) {
            Some(known) => known.requests += 1,
            None => self.operations.push(OperationCount {
                operation: request.operation,
                first_row: request.row,
                requests: 1,
            }),
        }
        match request.model.as_deref() {
            None => {
                let (first, count) = self.without_model.unwrap_or((request.row, 0));
                self.without_model = Some((first, count + 1));
            }
            Some(model) if self.models.len() < MAX_MODELS && !self.models.contains(model) => {
                self.models.insert(model.to_owned());
            }
            Some(_) => {}
        }
        let place = (request.method.as_deref(), request.path.as_deref());
        self.places.take(request.row, place, request.body_state);
    }
}

/// What the routes of these criteria take. Without a table the plan's own survey says it.
///
/// # Errors
/// Requests that no route takes, with a route that would; a plan that cannot be read.
pub(super) fn taken(
    plan: &Plan,
    config: &ReplayConfig,
    criteria: &[&Criteria],
    primes_history: bool,
) -> Result<Vec<Taken>, ReplayError> {
    if config.routes.is_empty() {
        return Ok(vec![Taken::of_plan(plan)]);
    }
    let unreadable = |source| ReplayError::Plan { source };
    let mut taken = vec![Taken::default(); criteria.len()];
    let mut nobodys = Nobodys::default();
    for request in plan.outlines() {
        let request = request.map_err(unreadable)?;
        match first_taking(criteria.iter().copied(), &request) {
            Some(at) => taken[at].take(&request),
            None => nobodys.take(&request),
        }
    }
    if primes_history {
        for request in plan.priming(config.cache) {
            let request = request.map_err(unreadable)?;
            match first_taking(criteria.iter().copied(), &request) {
                Some(at) => taken[at].ahead += 1,
                None => nobodys.take(&request),
            }
        }
    }
    nobodys.refused().map_or(Ok(taken), |problem| Err(ReplayError::Config { option: "routes", problem }))
}

/// Requests that no route takes.
#[derive(Debug, Default)]
struct Nobodys {
    requests: u64,
    first: Option<Box<PlannedRequest>>,
    /// By operation and model, as far as there is room; what finds none is in `others`.
    kinds: Vec<(Operation, Option<String>, u64)>,
    others: u64,
}

impl Nobodys {
    fn take(&mut self, request: &PlannedRequest) {
        self.requests += 1;
        if self.first.is_none() {
            self.first = Some(Box::new(request.clone()));
        }
        let (operation, model) = (request.operation, request.model.as_deref());
        let known = self.kinds.iter().position(|kind| (kind.0, kind.1.as_deref()) == (operation, model));
        match known {
            Some(at) => self.kinds[at].2 += 1,
            None if self.kinds.len() < MAX_KINDS => {
                self.kinds.push((operation, model.map(str::to_owned), 1));
            }
            None => self.others += 1,
        }
    }

    /// How many there are, what the first one is, and which route would take it.
    fn refused(&self) -> Option<String> {
        let first = self.first.as_deref()?;
        let quoted = |text: Option<&str>| text.map_or_else(|| "none".to_owned(), |text| format!("{text:?}"));
        let kinds = self.kinds.iter().map(|(operation, model, requests)| {
            format!("{requests} {operation} of the model {}", quoted(model.as_deref()))
        });
        let mut kinds: Vec<String> = kinds.collect();
        if self.others > 0 {
            kinds.push(format!("{} others", self.others));
        }
        let operation = first.operation.as_str();
        let mut would = vec![format!("operations = [{operation:?}]")];
        would.extend(first.model.as_deref().map(|model| format!("models = [{model:?}]")));
        Some(format!(
            "no route takes {} requests ({}); the first is row {}: operation {operation}, model {}, gateway route {}, endpoint {}, \
             tenant hash {}. Add [[routes]] with {} and its url, or one without criteria at the end that takes the rest, or leave \
             the operation out (`--leave-out {operation}`)",
            self.requests,
            kinds.join(", "),
            first.row,
            quoted(first.model.as_deref()),
            quoted(first.route.as_deref()),
            quoted(first.endpoint.as_deref()),
            first.tenant_hash.map_or("none".to_owned(), |hash| hash.to_string()),
            would.join(", "),
        ))
    }
}

/// Whether two routes have one name.
pub(super) fn doubled_name(routes: &[Route]) -> Option<&str> {
    let mut names = BTreeSet::new();
    routes.iter().map(|route| route.name.as_str()).find(|name| !names.insert(*name))
}
