//! What the rows before a window left behind, and how it is brought back.

use tracewheel_timeline::vocab::Phase;

use super::*;
use crate::History;

fn shared(offset_ns: i64, hashes: &[u64]) -> RequestRow {
    RequestRow { prefix_hashes: Some(hashes.to_vec()), ..row(offset_ns) }
}

/// Four rows before a window of two. A prompt has 100 tokens: three blocks of 32 and 4 of the next.
fn rows() -> Vec<RequestRow> {
    vec![
        shared(0, &[1, 2, 3]),
        shared(10, &[1, 2]),
        shared(20, &[7, 8, 9]),
        row(30),
        shared(40, &[1, 2, 3]),
        shared(50, &[7, 6]),
    ]
}

fn after(from_ns: i64, history: History) -> PlanOptions {
    PlanOptions {
        window: Some(Window { from_ns, to_ns: None }),
        history: Some(history),
        ..PlanOptions::default()
    }
}

/// Row, blocks and tokens of what is sent ahead.
fn sent_ahead(plan: &Plan) -> Vec<(u64, Vec<u64>, u32)> {
    let requests: Vec<PlannedRequest> = plan.priming(CacheMode::Natural).collect::<Result<_, _>>().unwrap();
    for request in &requests {
        assert_eq!((request.phase, request.planned_ns, request.copy), (Phase::Prime, 0, PRIMING_COPY));
        assert_eq!((request.output_tokens, request.stream, &request.prompt.tail), (1, false, &None));
        assert_eq!(request.input_tokens, request.prompt.tokens());
    }
    let blocks = |request: &PlannedRequest| request.prompt.blocks.iter().map(|block| block.hash).collect();
    requests.iter().map(|request| (request.row, blocks(request), request.input_tokens)).collect()
}

#[test]
fn each_prefix_that_lived_is_sent_once_without_what_only_its_own_request_had() {
    let (_folder, timeline) = timeline(&rows());
    let plan = Plan::build(&timeline, after(40, History::default())).unwrap();
    assert_eq!(sent_ahead(&plan), [(0, vec![1, 2, 3], 96), (2, vec![7, 8, 9], 96)]);
    let survey = plan.header().history.unwrap();
    assert_eq!((survey.requests, survey.input_tokens), (2, 192));
    assert_eq!((survey.distinct_blocks, survey.distinct_tokens), (6, 192));
    assert_eq!((survey.rows, survey.rows_without_hashes, survey.look_back_ns), (4, 1, 40));
    let predicted: Vec<_> = requests(&plan).iter().map(|request| request.predicted_cached_tokens).collect();
    assert_eq!(predicted, [Some(96), Some(32)], "as in the whole trace");
}

#[test]
fn a_look_back_and_a_cache_size_bound_what_is_sent() {
    let (_folder, timeline) = timeline(&rows());
    let of = |history| sent_ahead(&Plan::build(&timeline, after(40, history)).unwrap());
    let back = |ns| History { look_back_ns: Some(ns), ..History::default() };
    assert_eq!(of(back(30)), [(1, vec![1, 2], 64), (2, vec![7, 8, 9], 96)]);
    assert_eq!(of(back(20)), [(2, vec![7, 8, 9], 96)]);
    assert_eq!(of(back(5)), []);
    let size = |tokens| History { cache_tokens: Some(tokens), ..History::default() };
    assert_eq!(of(size(96)), [(2, vec![7, 8, 9], 96)]);
    assert_eq!(of(size(95)), [(2, vec![7, 8], 64)], "whole blocks, from the beginning");
    assert_eq!(of(size(128)), [(1, vec![1], 32), (2, vec![7, 8, 9], 96)]);
    assert_eq!(of(size(0)), []);
}

#[test]
fn only_the_prefixes_that_the_window_finds_are_sent_where_that_is_asked_for() {
    let (_folder, timeline) = timeline(&rows());
    let history = History { reused_only: true, ..History::default() };
    let plan = Plan::build(&timeline, after(40, history)).unwrap();
    assert_eq!(sent_ahead(&plan), [(0, vec![1, 2, 3], 96), (2, vec![7], 32)]);
    let predicted: Vec<_> = requests(&plan).iter().map(|request| request.predicted_cached_tokens).collect();
    assert_eq!(predicted, [Some(96), Some(32)], "the window finds the same");
}

#[test]
fn rows_that_the_plan_would_not_have_sent_leave_nothing_behind() {
    let mut rows = rows();
    rows[0].retry_of_row = None;
    rows[0].operation = Operation::Embeddings;
    rows[2].body = Some(b"{}".as_slice().into());
    rows[2].body_state = BodyState::Full;
    rows[1].output_tokens = None;
    let (_folder, timeline) = timeline(&rows);
    let plan = Plan::build(&timeline, after(40, History::default())).unwrap();
    assert_eq!(sent_ahead(&plan), [(1, vec![1, 2], 64)], "what it put out does not matter");
    assert_eq!(plan.header().history.unwrap().rows_with_bodies, 1);
}

#[test]
fn a_history_where_nothing_lies_before_the_plan_is_refused() {
    let text = refused(&rows(), after(0, History::default()));
    assert!(text.contains("no row lies before the plan to prime the cache from"), "{text}");
}

#[test]
fn the_history_ends_where_a_warm_up_before_the_window_begins() {
    let (_folder, timeline) = timeline(&rows());
    let warmup = Some(crate::Warmup { length_ns: 20, before_window: true });
    let plan = Plan::build(&timeline, PlanOptions { warmup, ..after(40, History::default()) }).unwrap();
    assert_eq!(sent_ahead(&plan), [(0, vec![1, 2, 3], 96)]);
    assert_eq!(requests(&plan)[0].row, 2);
}
