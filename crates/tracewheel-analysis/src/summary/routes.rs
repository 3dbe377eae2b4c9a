//! A run by the routes that its requests took.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::comparison::{Metric, Percentile, Population};
use crate::quantile::nearest_rank;
use crate::side::observed::{FirstStamp, Observed};

/// Measured requests that took one route of the scenario: other targets and models are other distributions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RouteClass {
    /// Its name; null for requests of which the run does not say.
    pub route: Option<String>,
    /// How many.
    pub requests: u64,
    /// How many of them were successful.
    pub ok: u64,
    /// Median time to the first token of these (`ttft`, population `success`), in nanoseconds; null where none has one.
    pub ttft_p50_ns: Option<i64>,
    /// The same at 95 %.
    pub ttft_p95_ns: Option<i64>,
    /// Median end-to-end latency of these (`e2e`, population `success`), in nanoseconds; null where none has one.
    pub e2e_p50_ns: Option<i64>,
    /// The same at 95 %.
    pub e2e_p95_ns: Option<i64>,
    /// Cached share of the input tokens, over the successful requests that report both; null where none does.
    pub cached_share: Option<f64>,
}

#[derive(Default)]
struct Sums {
    requests: u64,
    ok: u64,
    ttft_ns: Vec<i64>,
    e2e_ns: Vec<i64>,
    cached_tokens: u64,
    of_tokens: u64,
}

/// By the routes' names, requests of unknown route last; empty where no request names one.
pub(super) fn route_classes(requests: &[Observed]) -> Vec<RouteClass> {
    if requests.iter().all(|request| request.sent_route.is_none()) {
        return Vec::new();
    }
    let mut classes: BTreeMap<(bool, &str), Sums> = BTreeMap::new();
    for request in requests {
        let route = request.sent_route.as_deref();
        let sums = classes.entry((route.is_none(), route.unwrap_or_default())).or_default();
        sums.requests += 1;
        if !request.is_ok() {
            continue;
        }
        sums.ok += 1;
        let latency = |metric| request.latency(metric, Population::Success, FirstStamp::Output);
        sums.ttft_ns.extend(latency(Metric::Ttft));
        sums.e2e_ns.extend(latency(Metric::E2e));
        if let Some((cached, input)) = request.cached_tokens.zip(request.input_tokens) {
            sums.cached_tokens += u64::from(cached);
            sums.of_tokens += u64::from(input);
        }
    }
    let class = |((unknown, route), mut sums): ((bool, &str), Sums)| {
        sums.ttft_ns.sort_unstable();
        sums.e2e_ns.sort_unstable();
        RouteClass {
            route: (!unknown).then(|| route.to_owned()),
            requests: sums.requests,
            ok: sums.ok,
            ttft_p50_ns: nearest_rank(&sums.ttft_ns, Percentile::P50),
            ttft_p95_ns: nearest_rank(&sums.ttft_ns, Percentile::P95),
            e2e_p50_ns: nearest_rank(&sums.e2e_ns, Percentile::P50),
            e2e_p95_ns: nearest_rank(&sums.e2e_ns, Percentile::P95),
            cached_share: (sums.of_tokens > 0).then(|| sums.cached_tokens as f64 / sums.of_tokens as f64),
        }
    };
    classes.into_iter().map(class).collect()
}

#[cfg(test)]
mod tests {
    use tracewheel_timeline::vocab::RequestStatus;

    use super::*;
    use crate::side::observed::Ended;

    fn request(route: Option<&str>, status: RequestStatus, ttft_ns: i64, cached: Option<u32>) -> Observed {
        Observed {
            sent_route: route.map(Into::into),
            status: Ended(status),
            start_ns: 100,
            first_output_ns: Some(100 + ttft_ns),
            last_ns: Some(100 + 2 * ttft_ns),
            input_tokens: Some(10),
            cached_tokens: cached,
            ..Observed::default()
        }
    }

    #[test]
    fn each_route_has_its_own_latencies_and_shares_and_failures_count_without_one() {
        let requests = [
            request(Some("b"), RequestStatus::Ok, 7, None),
            request(Some("a"), RequestStatus::Ok, 1, Some(5)),
            request(Some("a"), RequestStatus::Ok, 3, Some(0)),
            request(Some("a"), RequestStatus::Failed, 1_000, Some(10)),
            request(None, RequestStatus::Unsent, 1_000, None),
        ];
        let a = RouteClass {
            route: Some("a".to_owned()),
            requests: 3,
            ok: 2,
            ttft_p50_ns: Some(1),
            ttft_p95_ns: Some(3),
            e2e_p50_ns: Some(2),
            e2e_p95_ns: Some(6),
            cached_share: Some(0.25),
        };
        let b = RouteClass {
            route: Some("b".to_owned()),
            requests: 1,
            ok: 1,
            ttft_p50_ns: Some(7),
            ttft_p95_ns: Some(7),
            e2e_p50_ns: Some(14),
            e2e_p95_ns: Some(14),
            cached_share: None,
        };
        assert_eq!(route_classes(&requests), [a, b, RouteClass { requests: 1, ..RouteClass::default() }]);
    }

    #[test]
    fn a_run_without_routes_has_no_table_of_them() {
        assert!(route_classes(&[request(None, RequestStatus::Ok, 1, None)]).is_empty());
    }
}
