mod history;
mod thinning;
mod warmup;

use std::path::Path;

use tempfile::TempDir;
use tracewheel_timeline::vocab::{BodyState, Operation};
use tracewheel_timeline::{BlockBasis, TimelineMeta, TimelineWriter};

use super::*;
use crate::{BlockSpec, PRIMING_COPY, Speed, UnknownTokens, Window};

const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_790_000_000 * SECOND;

/// A row at `offset_ns` with usable token counts.
fn row(offset_ns: i64) -> RequestRow {
    RequestRow {
        arrival_unix_ns: Some(START + offset_ns),
        input_tokens: Some(100),
        output_tokens: Some(10),
        ..RequestRow::default()
    }
}

fn write(path: &Path, meta: TimelineMeta, rows: &[RequestRow]) -> Timeline {
    let mut writer = TimelineWriter::create(path, meta).unwrap();
    for row in rows {
        writer.push(row).unwrap();
    }
    writer.finish().unwrap();
    Timeline::open(path).unwrap()
}

fn timeline(rows: &[RequestRow]) -> (TempDir, Timeline) {
    let folder = tempfile::tempdir().unwrap();
    let meta = TimelineMeta {
        block_tokens: Some(32),
        block_basis: Some(BlockBasis::Tokens),
        ..TimelineMeta::default()
    };
    let timeline = write(&folder.path().join("t.parquet"), meta, rows);
    (folder, timeline)
}

fn requests(plan: &Plan) -> Vec<PlannedRequest> {
    plan.requests().collect::<Result<_, _>>().unwrap()
}

fn planned(rows: &[RequestRow], options: PlanOptions) -> (PlanHeader, Vec<PlannedRequest>) {
    let (_folder, timeline) = timeline(rows);
    let plan = Plan::build(&timeline, options).unwrap();
    (plan.header().clone(), requests(&plan))
}

fn refused(rows: &[RequestRow], options: PlanOptions) -> String {
    let (_folder, timeline) = timeline(rows);
    Plan::build(&timeline, options).unwrap_err().to_string()
}

#[test]
fn every_column_that_tells_requests_apart_is_carried() {
    let row = RequestRow {
        session_hash: Some(1),
        tenant_hash: Some(2),
        user_hash: Some(3),
        turn: Some(4),
        think_ns: Some(-5),
        operation: Operation::Completion,
        endpoint: Some("e".into()),
        model: Some("m".into()),
        provider: Some("p".into()),
        route: Some("r".into()),
        stream: Some(false),
        params: Some("{}".into()),
        body: Some(b"{}".as_slice().into()),
        body_state: BodyState::Full,
        cancel_after_ns: Some(6),
        tags: Some([("k".into(), "v".into())].into()),
        ..row(7)
    };
    let (header, requests) = planned(std::slice::from_ref(&row), PlanOptions::default());
    let [request] = &requests[..] else { panic!("one request") };
    assert_eq!((request.row, request.copy, request.planned_ns), (0, 0, 0));
    assert_eq!(request.request_id, request_id(&header.timeline_digest, 0, 0));
    assert_eq!(request.trace_unix_ns, row.arrival_unix_ns);
    assert_eq!((request.operation, request.stream), (Operation::Completion, false));
    assert_eq!((&request.model, &request.route), (&row.model, &row.route));
    assert_eq!((&request.endpoint, &request.provider), (&row.endpoint, &row.provider));
    assert_eq!((request.session_hash, request.tenant_hash, request.user_hash), (Some(1), Some(2), Some(3)));
    assert_eq!((request.turn, request.think_ns, request.cancel_after_ns), (Some(4), Some(-5), Some(6)));
    assert_eq!((&request.tags, &request.params, &request.body), (&row.tags, &row.params, &row.body));
    assert_eq!(request.body_state, BodyState::Full);
    assert_eq!((request.input_tokens, request.output_tokens, request.tokens_filled), (100, 10, false));
    assert_eq!(request.prompt.tokens(), 100);
    assert_eq!(request.predicted_cached_tokens, None, "without hashes nothing is known");
}

#[test]
fn offsets_are_divided_by_the_speed_and_rounded_down() {
    let rows = [row(0), row(1), row(10), row(10), row(3 * SECOND + 2)];
    let offsets = |speed: &str| -> Vec<i64> {
        let options = PlanOptions { speed: speed.parse().unwrap(), ..PlanOptions::default() };
        let (header, requests) = planned(&rows, options);
        let offsets: Vec<i64> = requests.iter().map(|request| request.planned_ns).collect();
        assert_eq!(header.span_ns, offsets[4]);
        offsets
    };
    assert_eq!(offsets("1"), [0, 1, 10, 10, 3 * SECOND + 2]);
    assert_eq!(offsets("3"), [0, 0, 3, 3, SECOND]);
    assert_eq!(offsets("0.25"), [0, 4, 40, 40, 12 * SECOND + 8]);
}

#[test]
fn a_window_is_half_open_and_counts_from_the_first_arrival() {
    let rows = [row(0), row(4), row(5), row(9), row(10), row(11)];
    let window =
        |from_ns, to_ns| PlanOptions { window: Some(Window { from_ns, to_ns }), ..PlanOptions::default() };
    let (header, requests) = planned(&rows, window(5, Some(10)));
    let seen: Vec<(u64, i64)> = requests.iter().map(|request| (request.row, request.planned_ns)).collect();
    assert_eq!(seen, [(2, 0), (3, 4)]);
    assert_eq!((header.rows, header.rows_before_window, header.rows_after_window), (6, 2, 2));
    assert_eq!((header.requests, header.span_ns, header.origin_unix_ns), (2, 4, START + 5));
    let (header, requests) = planned(&rows, window(3, None));
    assert_eq!(
        (requests[0].row, requests[0].planned_ns, header.requests),
        (1, 1, 5),
        "time zero is the window's start"
    );
}

#[test]
fn a_window_without_rows_is_refused_in_times_that_people_read() {
    let rows = [row(0), row(SECOND), row(3_723 * SECOND)];
    let refused = |from, to: Option<i64>| {
        let window = Some(Window { from_ns: from * SECOND, to_ns: to.map(|to| to * SECOND) });
        refused(&rows, PlanOptions { window, ..PlanOptions::default() })
    };
    let empty = refused(300, Some(90));
    assert!(empty.contains("it goes from 5m 00s to 1m 30s, counted from the first request"), "{empty}");
    let beyond = refused(7_200, None);
    assert_eq!(
        beyond,
        "the window begins 2h 00m 00s after the first request, and the timeline ends 1h 02m 03s after it"
    );
    let hole = refused(60, Some(120));
    assert_eq!(hole, "nothing to plan: the timeline has 3 rows over 1h 02m 03s; 3 lie outside the window");
}

#[test]
fn retries_are_never_planned_and_counted() {
    let rows = [row(0), RequestRow { retry_of_row: Some(0), ..row(1) }, row(2)];
    let (header, requests) = planned(&rows, PlanOptions::default());
    assert_eq!(requests.iter().map(|request| request.row).collect::<Vec<_>>(), [0, 2]);
    assert_eq!((header.requests, header.rows_retries), (2, 1));
    let useless = [row(0), RequestRow { retry_of_row: Some(0), input_tokens: None, ..row(1) }];
    assert_eq!(
        planned(&useless, PlanOptions::default()).0.requests,
        1,
        "a retry's token counts do not matter"
    );
}

#[test]
fn a_limit_keeps_the_first_requests_and_counts_the_rest() {
    let rows = [row(0), RequestRow { retry_of_row: Some(0), ..row(1) }, row(2), row(3), row(4)];
    let (header, requests) = planned(&rows, PlanOptions { limit: Some(2), ..PlanOptions::default() });
    assert_eq!(requests.iter().map(|request| request.row).collect::<Vec<_>>(), [0, 2]);
    assert_eq!((header.requests, header.rows_beyond_limit, header.span_ns), (2, 2, 2));
    assert_eq!((header.prompts.input_tokens, header.prompts.max_output_tokens), (200, 10));
}

/// Rows 1 to 3 lack a count.
fn rows_with_gaps() -> [RequestRow; 5] {
    [
        row(0),
        RequestRow { input_tokens: None, ..row(1) },
        RequestRow { output_tokens: Some(0), ..row(2) },
        RequestRow { input_tokens: Some(0), output_tokens: None, ..row(3) },
        row(4),
    ]
}

#[test]
fn unknown_token_counts_are_refused_with_count_rows_and_remedy() {
    let text = refused(&rows_with_gaps(), PlanOptions::default());
    assert!(text.contains("3 of 5 rows to plan") && text.contains("row 1, row 2, row 3"), "{text}");
    assert!(text.contains("skip") && text.contains("fill"), "{text}");
    let many: Vec<RequestRow> =
        (0..50).map(|offset| RequestRow { input_tokens: None, ..row(offset) }).collect();
    let text = refused(&many, PlanOptions::default());
    assert!(text.contains("50 of 50 rows to plan"), "{text}");
    assert!(text.contains("(first: row 0, row 1, row 2, row 3, row 4)"), "{text}");
}

#[test]
fn a_refusal_says_where_in_the_log_the_rows_stand() {
    let rows = [
        row(0),
        RequestRow {
            input_tokens: None,
            source_file: "gateway.jsonl".into(),
            source_offset: 4_711,
            ..row(1)
        },
    ];
    let text = refused(&rows, PlanOptions::default());
    assert!(text.contains("(first: row 1 from gateway.jsonl at byte 4711)"), "{text}");
}

#[test]
fn only_rows_that_would_be_planned_are_refused_for_their_counts() {
    let rows = rows_with_gaps();
    let build = |options| {
        let (_folder, timeline) = timeline(&rows);
        Plan::build(&timeline, options).map(|plan| plan.header().requests).map_err(|error| error.to_string())
    };
    assert_eq!(build(PlanOptions { limit: Some(1), ..PlanOptions::default() }), Ok(1));
    let two = build(PlanOptions { limit: Some(2), ..PlanOptions::default() }).unwrap_err();
    assert!(two.contains("1 of 2 rows to plan") && two.contains("(first: row 1)"), "{two}");
    let window = Some(Window { from_ns: 4, to_ns: None });
    assert_eq!(build(PlanOptions { window, ..PlanOptions::default() }), Ok(1));
    // Skipped rows take no place within the limit.
    let skip = UnknownTokens::Skip;
    assert_eq!(build(PlanOptions { limit: Some(2), unknown_tokens: skip, ..PlanOptions::default() }), Ok(2));
}

#[test]
fn operations_are_left_out_when_asked_and_counted() {
    let rows = [
        row(0),
        RequestRow { operation: Operation::Http, ..row(1) },
        RequestRow { operation: Operation::Embeddings, ..row(2) },
    ];
    let (_folder, timeline) = timeline(&rows);
    let all = Plan::build(&timeline, PlanOptions::default()).unwrap();
    let found: Vec<(Operation, u64, u64)> =
        all.survey().operations.iter().map(|o| (o.operation, o.first_row, o.requests)).collect();
    assert_eq!(found, [(Operation::Chat, 0, 1), (Operation::Http, 1, 1), (Operation::Embeddings, 2, 1)]);
    let leave_out = vec![Operation::Http, Operation::Embeddings];
    let plan = Plan::build(&timeline, PlanOptions { leave_out, ..PlanOptions::default() }).unwrap();
    assert_eq!((plan.header().requests, plan.header().rows_left_out), (1, 2));
}

#[test]
fn the_survey_tells_models_sizes_bodies_and_times() {
    let named = |offset, model: &str| RequestRow { model: Some(model.into()), ..row(offset) };
    let rows = [
        named(0, "b"),
        named(1, "a"),
        named(2, "a"),
        row(3),
        RequestRow { body: Some(b"{}".as_slice().into()), body_state: BodyState::Full, ..row(4) },
    ];
    let (_folder, timeline) = timeline(&rows);
    let plan = Plan::build(&timeline, PlanOptions::default()).unwrap();
    let survey = plan.survey();
    assert_eq!(survey.models.iter().collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((survey.without_model, survey.recorded_bodies), (Some((3, 2)), 1));
    assert_eq!((survey.input_tokens.sum, survey.output_tokens.histogram.max()), (500, Some(10)));
    assert_eq!(survey.trace_unix_ns, Some((START, START + 4)));
    let mut sizes = Vec::new();
    for _ in 0..5 {
        sizes.extend(100_u32.to_le_bytes());
        sizes.extend(10_u32.to_le_bytes());
    }
    assert_eq!(survey.sizes_digest, blake3::hash(&sizes).to_hex().to_string());
    let own = PlanOptions { model: Some("own".into()), ..PlanOptions::default() };
    let own = Plan::build(&timeline, own).unwrap();
    assert_eq!((own.survey().models.len(), own.survey().without_model), (0, None));
}

#[test]
fn unknown_token_counts_are_skipped_when_asked() {
    let options = PlanOptions { unknown_tokens: UnknownTokens::Skip, ..PlanOptions::default() };
    let (header, requests) = planned(&rows_with_gaps(), options);
    assert_eq!(requests.iter().map(|request| request.row).collect::<Vec<_>>(), [0, 4]);
    assert_eq!((header.requests, header.rows_unknown_tokens, header.requests_filled), (2, 3, 0));
}

#[test]
fn unknown_token_counts_are_filled_when_asked_and_known_ones_stay() {
    let fill = UnknownTokens::Fill { input: 7, output: 3 };
    let (header, requests) =
        planned(&rows_with_gaps(), PlanOptions { unknown_tokens: fill, ..PlanOptions::default() });
    let seen: Vec<(u32, u32, bool)> = requests
        .iter()
        .map(|request| (request.input_tokens, request.output_tokens, request.tokens_filled))
        .collect();
    assert_eq!(seen, [(100, 10, false), (7, 10, true), (100, 3, true), (7, 3, true), (100, 10, false)]);
    assert!(requests.iter().all(|request| request.prompt.tokens() == request.input_tokens));
    assert_eq!((header.requests, header.rows_unknown_tokens, header.requests_filled), (5, 0, 3));
    let zero = UnknownTokens::Fill { input: 7, output: 0 };
    assert!(
        refused(&rows_with_gaps(), PlanOptions { unknown_tokens: zero, ..PlanOptions::default() })
            .contains("output")
    );
}

#[test]
fn operations_without_output_need_no_output_count() {
    let embeddings = RequestRow { operation: Operation::Embeddings, output_tokens: None, ..row(0) };
    let http = RequestRow { operation: Operation::Http, input_tokens: None, output_tokens: None, ..row(1) };
    let (_, requests) = planned(&[embeddings, http], PlanOptions::default());
    assert_eq!((requests[0].input_tokens, requests[0].output_tokens), (100, 0));
    assert_eq!((requests[1].input_tokens, requests[1].prompt.tokens()), (0, 0));
}

#[test]
fn a_baseline_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let meta = TimelineMeta { baseline: true, ..TimelineMeta::default() };
    let baseline = write(&folder.path().join("b.parquet"), meta, &[row(0)]);
    assert!(matches!(Plan::build(&baseline, PlanOptions::default()), Err(WorkloadError::Baseline)));
}

#[test]
fn a_timeline_without_rows_is_refused() {
    assert!(refused(&[], PlanOptions::default()).contains("nothing to plan"));
}

#[test]
fn arrivals_beyond_the_range_of_time_are_refused() {
    let options = PlanOptions { speed: Speed::new(1, 1_000_000_000).unwrap(), ..PlanOptions::default() };
    assert!(refused(&[row(0), row(20 * SECOND)], options).contains("row 1"));
}

#[test]
fn a_plan_may_name_the_model_and_the_stream_of_requests_that_do_not_say() {
    let rows = [row(0), RequestRow { stream: Some(true), model: Some("old".into()), ..row(1) }];
    let options =
        PlanOptions { model: Some("new".into()), stream_if_unknown: Some(false), ..PlanOptions::default() };
    let (_, requests) = planned(&rows, options);
    assert!(requests.iter().all(|request| request.model.as_deref() == Some("new")));
    assert_eq!((requests[0].stream, requests[1].stream), (false, true));
    let (_, requests) = planned(&rows, PlanOptions::default());
    assert_eq!((requests[0].stream, requests[1].model.as_deref()), (true, Some("old")));
}

/// Rows that share prefixes.
fn rows_with_prefixes() -> Vec<RequestRow> {
    [&[1_u64, 2, 3, 4][..], &[1, 2, 3, 5], &[1, 2], &[9, 2, 3], &[1, 2, 3, 5]]
        .iter()
        .zip(0..)
        .map(|(hashes, offset)| RequestRow { prefix_hashes: Some(hashes.to_vec()), ..row(offset) })
        .collect()
}

#[test]
fn predicted_cached_tokens_are_what_an_endless_prefix_cache_holds() {
    let mut rows = rows_with_prefixes();
    rows.push(row(9));
    let (_, requests) = planned(&rows, PlanOptions::default());
    let predicted: Vec<Option<u32>> =
        requests.iter().map(|request| request.predicted_cached_tokens).collect();
    assert_eq!(predicted, [Some(0), Some(96), Some(64), Some(0), Some(100), None]);
    assert_eq!(requests[0].prompt.blocks.last(), Some(&BlockSpec { hash: 4, tokens: 4 }));
    assert_eq!((requests[2].prompt.tail.unwrap().tokens, requests[0].prompt.tail), (36, None));
}

#[test]
fn predictions_add_up_as_they_are_streamed_and_cost_nothing_where_they_are_not_wanted() {
    let (_folder, timeline) = timeline(&rows_with_prefixes());
    let plan = Plan::build(&timeline, PlanOptions::default()).unwrap();
    let mut requests = plan.requests();
    assert!(requests.by_ref().all(|request| request.unwrap().predicted_cached_tokens.is_some()));
    let prediction = requests.prediction();
    assert_eq!((prediction.cached_tokens, prediction.of_tokens), (96 + 64 + 100, 500));
    assert_eq!(prediction.forgets_from_row, None);
    assert!(plan.requests().unpredicted().all(|request| request.unwrap().predicted_cached_tokens.is_none()));
}

#[test]
fn a_cache_mode_changes_what_is_predicted() {
    let (_, requests) = planned(&rows_with_prefixes(), PlanOptions::default());
    let predicted = |mode: &str| mode.parse::<CacheMode>().unwrap().predicted_cached_tokens(&requests[1]);
    assert_eq!([predicted("natural"), predicted("cold"), predicted("warm")], [Some(96), Some(0), Some(100)]);
    assert_eq!([predicted("mix:0"), predicted("mix:1")], [Some(0), Some(100)]);
}

#[test]
fn a_window_starts_with_an_empty_cache() {
    let options = PlanOptions { window: Some(Window { from_ns: 1, to_ns: None }), ..PlanOptions::default() };
    let (_, requests) = planned(&rows_with_prefixes(), options);
    assert_eq!(requests[0].predicted_cached_tokens, Some(0));
}

#[test]
fn the_same_timeline_and_seed_give_the_same_plan_byte_for_byte() {
    let rows = rows_with_prefixes();
    let digest = |rows: &[RequestRow], seed| {
        let (_folder, timeline) = timeline(rows);
        let plan = Plan::build(&timeline, PlanOptions { seed, ..PlanOptions::default() }).unwrap();
        let digest = plan.digest().unwrap();
        assert_eq!(plan.digest().unwrap(), digest, "a plan can be read again");
        assert_eq!(plan.clone().digest().unwrap(), digest);
        (digest.to_string(), format!("{:?}", requests(&plan)))
    };
    let first = digest(&rows, 7);
    assert_eq!(digest(&rows, 7), first);
    assert_eq!(first.0.len(), 64);
    assert_ne!(digest(&rows, 8).0, first.0, "another seed");
    let mut other = rows.clone();
    other[4].output_tokens = Some(11);
    assert_ne!(digest(&other, 7).0, first.0, "another timeline");
}

#[test]
fn options_change_the_digest_exactly_when_they_change_a_request() {
    let (_folder, timeline) = timeline(&rows_with_prefixes());
    let digest = |options| Plan::build(&timeline, options).unwrap().digest().unwrap();
    let plain = digest(PlanOptions::default());
    assert_eq!(digest(PlanOptions { limit: Some(5), ..PlanOptions::default() }), plain);
    assert_ne!(digest(PlanOptions { limit: Some(4), ..PlanOptions::default() }), plain);
    assert_ne!(digest(PlanOptions { speed: "2".parse().unwrap(), ..PlanOptions::default() }), plain);
    assert_ne!(digest(PlanOptions { model: Some("x".into()), ..PlanOptions::default() }), plain);
}

#[test]
fn priming_sends_each_distinct_prompt_once_and_asks_for_one_token() {
    let (_folder, timeline) = timeline(&rows_with_prefixes());
    let plan = Plan::build(&timeline, PlanOptions::default()).unwrap();
    let primed = |mode: &str| -> Vec<PlannedRequest> {
        plan.priming(mode.parse().unwrap()).collect::<Result<_, _>>().unwrap()
    };
    let planned = requests(&plan);
    let warm = primed("warm");
    assert_eq!(
        warm.iter().map(|request| request.row).collect::<Vec<_>>(),
        [0, 1, 2, 3],
        "row 4 is row 1 again"
    );
    for (request, planned) in warm.iter().zip(&planned) {
        assert_eq!(request.prompt, planned.prompt);
        assert_eq!((request.output_tokens, request.stream, request.copy), (1, false, PRIMING_COPY));
        assert_ne!(request.request_id, planned.request_id);
    }
    assert_eq!(primed("mix:1"), warm);
    assert!(primed("natural").is_empty() && primed("cold").is_empty() && primed("mix:0").is_empty());
}

#[test]
fn options_and_header_survive_the_way_through_json() {
    let options = PlanOptions {
        window: Some(Window { from_ns: 1, to_ns: None }),
        speed: "1.5".parse().unwrap(),
        unknown_tokens: UnknownTokens::Fill { input: 1, output: 2 },
        ..PlanOptions::default()
    };
    let (header, _) = planned(&rows_with_prefixes(), options);
    let text = serde_json::to_string(&header).unwrap();
    assert!(text.contains(r#""speed":"1.5""#) && text.contains(r#""fill:1,2""#), "{text}");
    assert_eq!(serde_json::from_str::<PlanHeader>(&text).unwrap(), header);
    assert_eq!(serde_json::from_str::<PlanOptions>("{}").unwrap(), PlanOptions::default());
}

#[test]
fn a_plan_and_its_requests_can_move_to_another_thread() {
    fn movable<T: Send + 'static>(_: &T) {}
    let (_folder, timeline) = timeline(&[row(0)]);
    let plan = Plan::build(&timeline, PlanOptions::default()).unwrap();
    movable(&plan);
    movable(&plan.requests());
    movable(&plan.priming(CacheMode::Warm));
}

#[test]
fn a_request_refused_at_first_is_planned_with_the_counts_of_its_served_attempt() {
    let refused = RequestRow { output_tokens: None, ..row(0) };
    let retry = |offset, of_row, output_tokens| RequestRow {
        retry_of_row: Some(of_row),
        output_tokens,
        input_tokens: Some(120),
        ..row(offset)
    };
    let rows = [refused, row(SECOND), retry(2 * SECOND, 0, None), retry(3 * SECOND, 0, Some(77))];
    // The served attempt lies behind the window's end; its counts are the request's all the same.
    let window = Some(Window { from_ns: 0, to_ns: Some(2 * SECOND) });
    let (header, requests) = planned(&rows, PlanOptions { window, ..PlanOptions::default() });
    assert_eq!((header.requests, header.rows_unknown_tokens), (2, 0));
    // A count that the first row knows stays.
    assert_eq!(
        (requests[0].input_tokens, requests[0].output_tokens, requests[0].tokens_filled),
        (100, 77, false)
    );
    assert_eq!(requests[1].output_tokens, 10);
}
