//! Thinning keeps sessions whole, takes its share, and moves nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::Share;

fn share(text: &str) -> Share {
    text.parse().unwrap()
}

fn thinned(seed: u64, text: &str) -> PlanOptions {
    PlanOptions { seed, thin: Some(share(text)), ..PlanOptions::default() }
}

/// 600 rows of sessions of one to six turns that overlap, and every seventh row without one.
fn rows() -> Vec<RequestRow> {
    let mut rows = Vec::new();
    for number in 0..600_u64 {
        let session = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 170;
        rows.push(RequestRow {
            session_hash: (number % 7 != 0).then_some(session),
            input_tokens: Some(50 + (session as u32 * 37) % 900),
            output_tokens: Some(1 + (number as u32 * 13) % 300),
            ..row(number as i64 * SECOND / 10)
        });
    }
    rows
}

#[test]
fn sessions_stay_whole_arrivals_stay_put_and_the_achieved_shares_are_told() {
    let rows = rows();
    let (header, requests) = planned(&rows, thinned(3, "0.4"));
    let (_, all) = planned(&rows, PlanOptions { seed: 3, ..PlanOptions::default() });
    let by_row: HashMap<u64, &PlannedRequest> = all.iter().map(|request| (request.row, request)).collect();
    let kept: BTreeSet<u64> = requests.iter().map(|request| request.row).collect();
    let mut sessions: BTreeMap<u64, BTreeSet<bool>> = BTreeMap::new();
    for (row, number) in rows.iter().zip(0..) {
        if let Some(session) = row.session_hash {
            sessions.entry(session).or_default().insert(kept.contains(&number));
        }
    }
    assert!(sessions.values().all(|whole| whole.len() == 1), "no session is cut");
    for request in &requests {
        let whole = by_row[&request.row];
        assert_eq!((request, request.planned_ns), (whole, whole.planned_ns), "nothing moves or changes");
    }
    let stats = header.thinned.unwrap();
    let sum = |of: &[PlannedRequest], tokens: fn(&PlannedRequest) -> u32| -> f64 {
        of.iter().map(|request| f64::from(tokens(request))).sum()
    };
    let part = |tokens| sum(&requests, tokens) / sum(&all, tokens);
    assert_eq!(stats.requests_dropped, 600 - header.requests);
    assert_eq!(stats.requests_share, header.requests as f64 / 600.0);
    assert_eq!(stats.input_tokens_share, Some(part(|request| request.input_tokens)));
    assert_eq!(stats.output_tokens_share, Some(part(|request| request.output_tokens)));
    assert_eq!(stats.sessions, Some(sessions.len() as u64));
    let whole = sessions.values().filter(|whole| whole.contains(&true)).count() as u64;
    assert_eq!(stats.sessions_kept, Some(whole));
    assert_eq!(stats.requests_without_session, 86);
}

#[test]
fn over_many_seeds_the_shares_of_requests_sessions_and_tokens_are_the_one_asked_for() {
    let rows = rows();
    let (_folder, timeline) = timeline(&rows);
    let seeds = 400;
    let mut means = [0.0; 4];
    for seed in 0..seeds {
        let stats = Plan::build(&timeline, thinned(seed, "0.3")).unwrap().header().thinned.clone().unwrap();
        let sessions = stats.sessions_kept.unwrap() as f64 / stats.sessions.unwrap() as f64;
        let shares = [
            stats.requests_share,
            sessions,
            stats.input_tokens_share.unwrap(),
            stats.output_tokens_share.unwrap(),
        ];
        for (mean, share) in means.iter_mut().zip(shares) {
            *mean += share / seeds as f64;
        }
    }
    // About 250 independent draws a seed: the standard error of a mean is 0.0015 for sessions; tokens, in fewer and
    // heavier lumps, have less than twice that. Five of them; the draws are fixed, so this cannot fail by chance.
    for mean in means {
        assert!((mean - 0.3).abs() < 0.012, "{means:?}");
    }
}

#[test]
fn rows_without_a_session_are_drawn_for_one_by_one() {
    let rows: Vec<RequestRow> =
        (0..2_000).map(|number| RequestRow { user_hash: Some(1), ..row(number) }).collect();
    let (header, _) = planned(&rows, thinned(1, "0.5"));
    assert!((900..1_100).contains(&header.requests), "{}", header.requests);
    let stats = header.thinned.unwrap();
    assert_eq!((stats.sessions, stats.requests_without_session), (Some(0), 2_000));
}

#[test]
fn a_smaller_share_of_the_same_seed_is_a_part_of_a_larger_one() {
    let rows = rows();
    let kept = |text: &str| -> BTreeSet<u64> {
        planned(&rows, thinned(9, text)).1.iter().map(|request| request.row).collect()
    };
    let (small, large) = (kept("0.2"), kept("0.6"));
    assert!(small.is_subset(&large) && small.len() < large.len());
    assert_eq!(kept("1").len(), 600);
}

#[test]
fn a_logged_retry_goes_the_way_of_its_request() {
    let refused =
        |number: i64| RequestRow { output_tokens: None, session_hash: Some(number as u64), ..row(number) };
    let served = |number: i64| RequestRow { retry_of_row: Some(number as u64), ..row(1_000 + number) };
    let rows: Vec<RequestRow> = (0..100).map(refused).chain((0..100).map(served)).collect();
    let (header, requests) = planned(&rows, thinned(4, "0.5"));
    assert_eq!(header.rows_retries, 100, "they are never planned");
    assert!(requests.len() < 100 && requests.iter().all(|request| request.output_tokens == 10));
    let stats = header.thinned.unwrap();
    assert_eq!(stats.requests_dropped + header.requests, 100);
}

#[test]
fn a_dropped_row_is_neither_refused_for_its_counts_nor_in_the_limit() {
    let rows: Vec<RequestRow> =
        (0..50).map(|number| RequestRow { session_hash: Some(number), ..row(number as i64) }).collect();
    let (_, kept) = planned(&rows, thinned(2, "0.5"));
    let kept: BTreeSet<u64> = kept.iter().map(|request| request.row).collect();
    let lacking: Vec<RequestRow> = rows
        .iter()
        .zip(0..)
        .map(|(row, number)| RequestRow { input_tokens: kept.contains(&number).then_some(5), ..row.clone() })
        .collect();
    let (header, _) = planned(&lacking, thinned(2, "0.5"));
    assert_eq!(header.requests, kept.len() as u64);
    let (header, limited) = planned(&rows, PlanOptions { limit: Some(5), ..thinned(2, "0.5") });
    assert_eq!(
        limited.iter().map(|request| request.row).collect::<Vec<_>>(),
        kept.into_iter().take(5).collect::<Vec<_>>()
    );
    let last = limited[4].row;
    assert_eq!(header.thinned.unwrap().requests_dropped, last - 4, "up to the limit");
}

#[test]
fn predictions_rest_on_what_is_sent() {
    let rows: Vec<RequestRow> = (0..40)
        .map(|number| RequestRow {
            session_hash: Some(number),
            prefix_hashes: Some(vec![1, 2, 3]),
            ..row(number as i64)
        })
        .collect();
    let (_, requests) = planned(&rows, thinned(5, "0.3"));
    assert!(requests[0].row > 0, "row 0 is dropped at this seed");
    assert_eq!(requests[0].predicted_cached_tokens, Some(0));
    assert_eq!(requests[1].predicted_cached_tokens, Some(96));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn any_timeline_keeps_its_sessions_whole_and_its_plan_depends_on_timeline_and_seed_alone(
        sessions in prop::collection::vec(prop::option::of(0..12_u64), 1..60),
        gaps in prop::collection::vec(0..5_i64, 60),
        seed in any::<u64>(),
        ppm in 1..1_000_000_u32,
    ) {
        let mut at = 0;
        let rows: Vec<RequestRow> = sessions
            .iter()
            .zip(gaps)
            .map(|(session, gap)| {
                at += gap;
                RequestRow { session_hash: *session, ..row(at) }
            })
            .collect();
        let (_folder, timeline) = timeline(&rows);
        let options = thinned(seed, &format!("0.{ppm:06}"));
        let Ok(plan) = Plan::build(&timeline, options.clone()) else { return Ok(()) };
        let again = Plan::build(&timeline, options).unwrap();
        prop_assert_eq!(plan.digest().unwrap(), again.digest().unwrap());
        let kept: BTreeSet<u64> = requests(&plan).iter().map(|request| request.row).collect();
        let mut fate: HashMap<u64, bool> = HashMap::new();
        for (session, row) in sessions.iter().zip(0..) {
            if let Some(session) = session {
                prop_assert_eq!(*fate.entry(*session).or_insert(kept.contains(&row)), kept.contains(&row));
            }
        }
        let stats = plan.header().thinned.clone().unwrap();
        prop_assert_eq!(plan.header().requests + stats.requests_dropped, rows.len() as u64);
    }
}
