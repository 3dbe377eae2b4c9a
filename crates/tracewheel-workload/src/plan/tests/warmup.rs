//! The warm-up: where it ends, what it counts, where it is taken from.

use proptest::prelude::*;
use tracewheel_timeline::vocab::Phase;

use super::*;
use crate::Warmup;

fn warmed(length_ns: i64, before_window: bool) -> PlanOptions {
    PlanOptions { warmup: Some(Warmup { length_ns, before_window }), ..PlanOptions::default() }
}

fn phases(requests: &[PlannedRequest]) -> Vec<(u64, i64, bool)> {
    requests.iter().map(|request| (request.row, request.planned_ns, request.phase == Phase::Warmup)).collect()
}

#[test]
fn the_first_part_by_planned_time_warms_up_and_the_boundary_is_measured() {
    let rows = [row(0), row(9), row(10), row(30)];
    let (header, requests) = planned(&rows, warmed(10, false));
    assert_eq!(phases(&requests), [(0, 0, true), (1, 9, true), (2, 10, false), (3, 30, false)]);
    assert_eq!((header.requests, header.requests_warmup, header.requests_measured()), (4, 2, 2));
    assert_eq!((header.warmup_ns, header.span_ns, header.measured_span_ns()), (10, 30, 20));
    // By the time of the replay, not of the trace.
    let (header, requests) = planned(&rows, PlanOptions { speed: "2".parse().unwrap(), ..warmed(10, false) });
    assert_eq!(phases(&requests), [(0, 0, true), (1, 4, true), (2, 5, true), (3, 15, false)]);
    assert_eq!(header.warmup_ns, 10);
}

#[test]
fn a_warm_up_before_the_window_leaves_the_window_whole() {
    let rows = [row(0), row(4), row(6), row(10), row(14), row(20)];
    let window = Some(Window { from_ns: 10, to_ns: Some(20) });
    let (header, requests) = planned(&rows, PlanOptions { window, ..warmed(5, true) });
    assert_eq!(phases(&requests), [(2, 1, true), (3, 5, false), (4, 9, false)]);
    assert_eq!((header.warmup_ns, header.origin_unix_ns - START, header.rows_before_window), (5, 5, 2));
    // At twice the speed, ten recorded nanoseconds fill five.
    let fast = PlanOptions { window, speed: "2".parse().unwrap(), ..warmed(5, true) };
    let (header, requests) = planned(&rows, fast);
    assert_eq!(phases(&requests), [(0, 0, true), (1, 2, true), (2, 3, true), (3, 5, false), (4, 7, false)]);
    assert_eq!(header.warmup_ns, 5);
    // Where there is less before the window, there is less warm-up.
    let (header, requests) = planned(&rows, PlanOptions { window, ..warmed(60, true) });
    assert_eq!((header.warmup_ns, header.requests_warmup), (10, 3));
    assert_eq!(requests[0].row, 0);
    assert_eq!(header.measured_span_ns(), 4);
}

#[test]
fn a_warm_up_that_leaves_nothing_or_has_nothing_is_refused() {
    let rows = [row(0), row(SECOND)];
    let text = refused(&rows, warmed(30 * SECOND, false));
    assert!(text.contains("warm-up of 30s takes all 2 requests, which end 1s after"), "{text}");
    let text = refused(&rows, warmed(30 * SECOND, true));
    assert!(text.contains("no row lies before the window"), "{text}");
    let (header, _) = planned(&rows, warmed(0, true));
    assert_eq!((header.requests_warmup, header.warmup_ns), (0, 0), "a warm-up of no length is none");
}

#[test]
fn the_warm_up_fills_the_cache_that_is_predicted_and_stays_out_of_the_window_that_is_told() {
    let (_folder, timeline) = timeline(&rows_with_prefixes());
    let plan = Plan::build(&timeline, warmed(1, false)).unwrap();
    let requests = requests(&plan);
    assert_eq!((requests[0].phase, requests[1].phase), (Phase::Warmup, Phase::Measure));
    assert_eq!(requests[1].predicted_cached_tokens, Some(96));
    assert_eq!(plan.survey().trace_unix_ns, Some((START + 1, START + 4)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn the_boundary_is_sharp_and_before_the_window_the_measured_requests_are_those_of_no_warm_up(
        gaps in prop::collection::vec(0..50_i64, 1..60),
        from_ns in 1..400_i64,
        length_ns in 1..400_i64,
        numerator in 1..7_u64,
    ) {
        let mut at = 0;
        let rows: Vec<RequestRow> = std::iter::once(0)
            .chain(gaps)
            .map(|gap| {
                at += gap;
                row(at)
            })
            .collect();
        let (_folder, timeline) = timeline(&rows);
        let speed = Speed::new(numerator, 3).unwrap();
        let plain = PlanOptions { window: Some(Window { from_ns, to_ns: None }), speed, ..PlanOptions::default() };
        for before_window in [false, true] {
            let options = PlanOptions { warmup: Some(Warmup { length_ns, before_window }), ..plain.clone() };
            let Ok(plan) = Plan::build(&timeline, options) else { continue };
            let (header, found) = (plan.header(), requests(&plan));
            let (warm, rest): (Vec<_>, Vec<_>) =
                found.iter().partition(|request| request.phase == Phase::Warmup);
            prop_assert_eq!(warm.len() as u64, header.requests_warmup);
            prop_assert_eq!(rest.len() as u64, header.requests_measured());
            prop_assert!(warm.iter().all(|request| request.planned_ns <= header.warmup_ns));
            prop_assert!(rest.iter().all(|request| request.planned_ns >= header.warmup_ns));
            prop_assert!(header.warmup_ns <= length_ns);
            if before_window {
                let window: Vec<u64> = requests(&Plan::build(&timeline, plain.clone()).unwrap())
                    .iter()
                    .map(|request| request.row)
                    .collect();
                prop_assert_eq!(rest.iter().map(|request| request.row).collect::<Vec<_>>(), window);
            } else {
                prop_assert!(warm.iter().all(|request| request.planned_ns < length_ns));
            }
        }
    }
}
