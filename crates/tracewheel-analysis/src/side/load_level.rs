//! When and how many at once: the window and the concurrency of a side.

use super::observed::Observed;
use super::report::{Concurrency, Window};
use crate::quantile::Percentile;

/// The span and rate of requests in arrival order.
pub(super) fn window(requests: &[Observed]) -> Window {
    let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return Window::default() };
    let span_ns = last.order_ns - first.order_ns;
    Window { span_ns, requests_per_second: per_second(requests.len(), span_ns), ..Window::default() }
}

/// Events per second over the span from the first to the last of them; `None` where there is no span.
pub(super) fn per_second(events: usize, span_ns: i64) -> Option<f64> {
    (events > 1 && span_ns > 0).then(|| (events - 1) as f64 * 1e9 / span_ns as f64)
}

/// Requests in flight over time, from the start of each to its end, between the first start and the last end.
pub(super) fn concurrency(requests: &[Observed]) -> Concurrency {
    let mut steps: Vec<(i64, i32)> = Vec::with_capacity(2 * requests.len());
    for request in requests {
        if let Some(end) = request.end_ns.filter(|end| *end > request.start_ns) {
            steps.push((request.start_ns, 1));
            steps.push((end, -1));
        }
    }
    // At one instant, ends come before starts: back to back is not at once.
    steps.sort_unstable();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return Concurrency::default() };
    let whole = (last.0 - first.0) as u64;
    let mut time_at = vec![0u64; 1];
    let (mut level, mut area, mut before) = (0usize, 0f64, first.0);
    for (at, step) in &steps {
        let time = (at - before) as u64;
        time_at[level] += time;
        area += level as f64 * time as f64;
        before = *at;
        level = if *step > 0 { level + 1 } else { level - 1 };
        if level == time_at.len() {
            time_at.push(0);
        }
    }
    Concurrency {
        known: steps.len() as u64 / 2,
        mean: area / whole as f64,
        p50: level_at(&time_at, whole, Percentile::P50),
        p95: level_at(&time_at, whole, Percentile::P95),
        max: time_at.len() as u64 - 1,
    }
}

/// The smallest level at or below which the share of the time is spent.
fn level_at(time_at: &[u64], whole: u64, p: Percentile) -> u64 {
    let wanted = p.rank(whole).unwrap_or(0);
    let mut spent = 0;
    let found = time_at.iter().position(|time| {
        spent += time;
        spent >= wanted
    });
    found.unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(start_ns: i64, end_ns: Option<i64>) -> Observed {
        Observed { order_ns: start_ns, start_ns, end_ns, ..Observed::default() }
    }

    #[test]
    fn concurrency_is_weighted_by_time() {
        // One in flight for 0..10, two for 10..20, one for 20..100.
        let c = concurrency(&[request(0, Some(20)), request(10, Some(100)), request(50, None)]);
        assert_eq!((c.known, c.p50, c.p95, c.max), (2, 1, 2, 2));
        assert!((c.mean - 1.1).abs() < 1e-12, "{}", c.mean);
    }

    #[test]
    fn back_to_back_is_one_at_a_time() {
        let c = concurrency(&[request(0, Some(10)), request(10, Some(20)), request(20, Some(30))]);
        assert_eq!((c.max, c.mean), (1, 1.0));
    }

    #[test]
    fn the_rate_counts_spaces_between_requests() {
        let w = window(&[request(0, None), request(500_000_000, None), request(1_000_000_000, None)]);
        assert_eq!((w.span_ns, w.requests_per_second), (1_000_000_000, Some(2.0)));
        assert_eq!(window(&[request(5, None)]).requests_per_second, None);
    }
}
