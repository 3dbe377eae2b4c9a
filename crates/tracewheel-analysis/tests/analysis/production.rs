//! A run against what production recorded.

use std::path::Path;

use tempfile::tempdir;
use tracewheel_analysis::comparison::{CacheBin, Matching, MetricComparison};
use tracewheel_analysis::metric::{Metric, Population, Verdict};
use tracewheel_analysis::quantile::Percentile;
use tracewheel_analysis::{AnalysisError, Baseline, CompareOptions, Comparison, compare};
use tracewheel_record::{AttemptRecord, RequestRecord};
use tracewheel_timeline::RequestRow;
use tracewheel_timeline::vocab::{RequestStatus, Source, TtftKind};

use crate::fixture::{MS, answered, manifest, produced, refused, rejected, request, run, timeline};

type Exchange = (RequestRecord, Vec<AttemptRecord>);

fn compared(dir: &Path, rows: &[RequestRow], exchanges: &[Exchange]) -> Comparison {
    let t = timeline(dir, "t.parquet", rows);
    let r = run(dir, manifest(&t), exchanges);
    compare(&r, Baseline::Timeline(&t), &CompareOptions::default()).unwrap()
}

/// The medians of both sides in milliseconds.
fn medians(c: &Comparison, metric: Metric, population: Population) -> (Option<f64>, Option<f64>) {
    let p = c.metric(metric, population).unwrap().percentile(Percentile::P50).unwrap();
    let ms = |e: Option<tracewheel_analysis::comparison::Estimate>| {
        e.and_then(|e| e.value_ns).map(|ns| ns as f64 / 1e6)
    };
    (ms(p.replay), ms(p.baseline))
}

fn sizes(row: &MetricComparison) -> (u64, Option<u64>) {
    (row.replay.n, row.baseline.map(|b| b.n))
}

#[test]
fn the_same_rows_meet_and_the_ratio_is_theirs() {
    let dir = tempdir().unwrap();
    let rows: Vec<_> = (0..3).map(|i| produced(i * 100, 50 + 10 * i, 90)).collect();
    let exchanges: Vec<_> =
        (0..2u64).map(|i| answered(i, i as i64 * 100, &[i as i64 * 100 + 25, i as i64 * 100 + 45])).collect();
    let c = compared(dir.path(), &rows, &exchanges);
    assert_eq!(c.methods.matching, Matching::ByRow);
    // Row 2 was not replayed: production's median is over rows 0 and 1.
    assert_eq!(medians(&c, Metric::Ttft, Population::User), (Some(25.0), Some(50.0)));
    let ttft = c.metric(Metric::Ttft, Population::User).unwrap();
    assert_eq!((sizes(ttft), ttft.stamp.as_deref()), ((2, Some(2)), Some("first_chunk")));
    assert_eq!(ttft.percentiles[0].ratio.unwrap().value, Some(0.5));
    assert_eq!(c.baseline.window.trace_to_unix_ns, Some(100 * MS));
    // (90 − 50) / 3 tokens, to the last byte.
    assert_eq!(medians(&c, Metric::Tpot, Population::Success), (Some(20.0), Some(10.0)));
    assert!(c.warnings.iter().any(|w| w.code == "tpot_to_last_byte"));
}

#[test]
fn the_replays_stamp_is_the_one_that_production_recorded() {
    let dir = tempdir().unwrap();
    for (kind, expected) in [
        (TtftKind::Headers, 1.0),
        (TtftKind::UpstreamHeaders, 1.0),
        (TtftKind::FirstByte, 2.0),
        (TtftKind::FirstChunk, 25.0),
        (TtftKind::Token, 25.0),
    ] {
        let row = RequestRow { prod_ttft_kind: Some(kind), ..produced(0, 50, 90) };
        let c = compared(dir.path(), &[row], &[answered(0, 0, &[25, 45])]);
        assert_eq!(medians(&c, Metric::Ttft, Population::User).0, Some(expected), "{kind}");
        assert_eq!(c.metric(Metric::Ttft, Population::User).unwrap().stamp.as_deref(), Some(kind.as_str()));
    }
}

#[test]
fn logged_retries_fold_into_the_request_that_the_user_made() {
    let dir = tempdir().unwrap();
    // Refused at 0 (5 ms), tried again at 1,000: first output 50 ms and end 90 ms after that.
    let retry = RequestRow { retry_of_row: Some(0), ..produced(1000, 50, 90) };
    let rows = [refused(0, 429), produced(500, 60, 70), retry];
    let c = compared(dir.path(), &rows, &[answered(0, 0, &[25, 45]), answered(1, 500, &[525, 545])]);
    let user = c.metric(Metric::Ttft, Population::User).unwrap();
    assert_eq!(sizes(user), (2, Some(2)));
    let p99 = user.percentile(Percentile::P99).unwrap().baseline.unwrap();
    assert_eq!(p99.value_ns, Some(1050 * MS));
    let e2e = c.metric(Metric::E2e, Population::Success).unwrap().percentile(Percentile::P99).unwrap();
    assert_eq!(e2e.baseline.unwrap().value_ns, Some(1090 * MS));
    assert_eq!(medians(&c, Metric::Ttft, Population::Service).1, Some(50.0));
    let (counts, retries) = (&c.baseline.counts, &c.baseline.retries);
    assert_eq!((counts.planned, counts.ok, counts.retries_folded), (2, 2, 1));
    assert_eq!((retries.attempts, retries.retried, retries.throttled), (3, 1, 1));
    assert_eq!(retries.backoff.max_ns, Some(995 * MS));
}

#[test]
fn a_request_whose_last_logged_attempt_failed_was_never_answered() {
    let dir = tempdir().unwrap();
    let retry = RequestRow { retry_of_row: Some(0), ..refused(1000, 503) };
    let again = RequestRow { retry_of_row: Some(1), ..refused(2000, 503) };
    let rows = [refused(0, 429), retry, again, produced(2500, 60, 70)];
    let c = compared(dir.path(), &rows, &[answered(0, 0, &[25, 45]), answered(3, 2500, &[2525])]);
    let user = c.metric(Metric::Ttft, Population::User).unwrap();
    assert_eq!(user.baseline.unwrap().infinite, 1);
    assert_eq!(c.metric(Metric::Ttft, Population::Success).unwrap().baseline.unwrap().n, 1);
    assert_eq!((c.baseline.counts.failed, c.baseline.counts.reasons["http_503"]), (1, 1));
    assert!(user.percentile(Percentile::P99).unwrap().baseline.unwrap().infinite);
    assert!(c.warnings.iter().any(|w| w.code == "failures_differ"));
}

#[test]
fn rows_that_production_did_not_time_leave_both_sides() {
    let dir = tempdir().unwrap();
    let untimed = RequestRow { prod_ttft_ns: None, prod_ttft_kind: None, ..produced(100, 0, 80) };
    let rows = [produced(0, 50, 90), untimed];
    let c = compared(dir.path(), &rows, &[answered(0, 0, &[25, 45]), answered(1, 100, &[1100])]);
    assert_eq!(sizes(c.metric(Metric::Ttft, Population::User).unwrap()), (1, Some(1)));
    assert_eq!(sizes(c.metric(Metric::E2e, Population::User).unwrap()), (2, Some(2)));
    // What production knows of no request is shown for the replay alone.
    let ttfv = c.metric(Metric::Ttfv, Population::User).unwrap();
    assert_eq!((sizes(ttfv), ttfv.percentiles[0].verdict), ((2, None), None));
    assert!(c.missing.iter().any(|m| m.what == "ttfv") && c.missing.iter().any(|m| m.what == "gap"));
}

#[test]
fn requests_that_were_cancelled_in_production_leave_both_sides() {
    let dir = tempdir().unwrap();
    let left = RequestRow { client_gone: Some(true), ..produced(100, 50, 80) };
    let rows = [produced(0, 50, 90), left];
    let c = compared(dir.path(), &rows, &[answered(0, 0, &[25, 45]), answered(1, 100, &[1100])]);
    assert_eq!(sizes(c.metric(Metric::Ttft, Population::User).unwrap()), (1, Some(1)));
    assert_eq!((c.baseline.counts.cancelled, c.baseline.counts.planned), (1, 2));
}

#[test]
fn failures_of_the_replay_are_infinite_beside_productions_answer() {
    let dir = tempdir().unwrap();
    let rows = [produced(0, 50, 90), produced(100, 50, 80)];
    let failed = rejected(1, 1, 100, 500);
    let c = compared(
        dir.path(),
        &rows,
        &[answered(0, 0, &[25, 45]), (request(&failed, RequestStatus::Failed), vec![failed])],
    );
    let p99 = *c.metric(Metric::E2e, Population::User).unwrap().percentile(Percentile::P99).unwrap();
    assert!(p99.replay.unwrap().infinite);
    let ratio = p99.ratio.unwrap();
    assert_eq!((ratio.value, ratio.hi), (None, None));
    assert_eq!(sizes(c.metric(Metric::E2e, Population::Success).unwrap()), (1, Some(2)));
}

#[test]
fn gaps_are_compared_where_production_recorded_its_events() {
    let dir = tempdir().unwrap();
    let events = |at: &[i64]| Some(at.iter().map(|ms| ms * MS).collect());
    let rows =
        [RequestRow { prod_event_ns: events(&[50, 60, 90]), ..produced(0, 50, 95) }, produced(100, 50, 80)];
    let c = compared(dir.path(), &rows, &[answered(0, 0, &[25, 45]), answered(1, 100, &[140, 900])]);
    // Only row 0: 20 ms against 10 and 30 ms.
    assert_eq!(medians(&c, Metric::Gap, Population::Success), (Some(20.0), Some(10.0)));
    assert_eq!(sizes(c.metric(Metric::Gap, Population::Success).unwrap()), (1, Some(2)));
    assert_eq!(c.baseline.stamps.logged, 3);
    // How many tokens each of production's events carried is not known: no ITL.
    assert_eq!(c.metric(Metric::Itl, Population::Success).unwrap().baseline, None);
    assert!(c.missing.iter().any(|m| m.what == "itl"));
    // (90 − 50) / 3 tokens after the first for row 0, (80 − 50) / 3 to the last byte for row 1.
    let tpot = c.metric(Metric::Tpot, Population::Success).unwrap();
    assert_eq!(tpot.percentile(Percentile::P99).unwrap().baseline.unwrap().value_ns, Some(40 * MS / 3));
    assert_eq!((c.baseline.streams.tokens.usage, c.baseline.streams.tokens.to_last_byte), (1, 1));
}

#[test]
fn another_timeline_is_compared_as_a_whole_and_said_to_be_other() {
    let dir = tempdir().unwrap();
    let mine = timeline(dir.path(), "a.parquet", &[produced(0, 50, 90)]);
    let other =
        timeline(dir.path(), "b.parquet", &[produced(0, 30, 90), produced(10, 40, 90), produced(20, 60, 90)]);
    let r = run(dir.path(), manifest(&mine), &[answered(0, 0, &[25, 45])]);
    let c = compare(&r, Baseline::Timeline(&other), &CompareOptions::default()).unwrap();
    assert_eq!(c.methods.matching, Matching::None);
    assert_eq!(medians(&c, Metric::Ttft, Population::User), (Some(25.0), Some(40.0)));
    assert!(c.warnings.iter().any(|w| w.code == "different_timeline"));
    assert_eq!(c.environment.differences[0].key, "plan.timeline_digest");
}

#[test]
fn a_bench_is_compared_with_the_whole_production_when_asked() {
    let dir = tempdir().unwrap();
    let t =
        timeline(dir.path(), "t.parquet", &[produced(0, 30, 90), produced(10, 40, 90), produced(20, 60, 90)]);
    let r = run(dir.path(), manifest(&t), &[answered(0, 0, &[25, 45])]);
    let options = CompareOptions { match_rows: false, ..CompareOptions::default() };
    let c = compare(&r, Baseline::Timeline(&t), &options).unwrap();
    assert_eq!(c.methods.matching, Matching::None);
    assert_eq!(medians(&c, Metric::Ttft, Population::User), (Some(25.0), Some(40.0)));
    assert!(c.warnings.iter().any(|w| w.code == "not_matched"));
}

#[test]
fn nothing_in_common_is_an_error_with_a_remedy() {
    let dir = tempdir().unwrap();
    let t = timeline(dir.path(), "a.parquet", &[produced(0, 50, 90)]);
    let r = run(dir.path(), manifest(&t), &[answered(7, 0, &[25, 45])]);
    let error = compare(&r, Baseline::Timeline(&t), &CompareOptions::default()).unwrap_err();
    assert!(matches!(error, AnalysisError::NothingMatches { .. }));
}

#[test]
fn speed_is_named_before_any_number() {
    let dir = tempdir().unwrap();
    let t = timeline(dir.path(), "a.parquet", &[produced(0, 50, 90)]);
    let mut m = manifest(&t);
    m.plan.speed = Some(4.0);
    let r = run(dir.path(), m, &[answered(0, 0, &[25, 45])]);
    let c = compare(&r, Baseline::Timeline(&t), &CompareOptions::default()).unwrap();
    assert!(c.environment.differences.iter().any(|d| d.key == "plan.speed"));
    assert!(c.warnings.iter().any(|w| w.code == "speed"));
}

/// 100 requests, `warm` of them served from the cache in 20 ms and the others cold in 80 ms.
fn cached_run(dir: &Path, warm: u64, rows: &[RequestRow]) -> Comparison {
    let exchanges: Vec<_> = (0..100u64)
        .map(|row| {
            let due = row as i64 * 100;
            let (ttft, cached) = if row < warm { (20, 90) } else { (80, 0) };
            let (mut record, attempts) = answered(row, due, &[due + ttft, due + ttft + 5]);
            (record.cached_tokens, record.cached_tokens_source) = (Some(cached), Some(Source::Reported));
            (record, attempts)
        })
        .collect();
    compared(dir, rows, &exchanges)
}

#[test]
fn the_cache_table_splits_by_share_and_the_weighted_percentile_takes_productions_shares() {
    let dir = tempdir().unwrap();
    // Production: 96 of 100 requests warm.
    let rows: Vec<_> = (0..100i64)
        .map(|i| RequestRow {
            cached_tokens: Some(if i < 96 { 90 } else { 0 }),
            cached_tokens_source: Some(Source::Reported),
            ..produced(i * 100, if i < 96 { 20 } else { 80 }, 90)
        })
        .collect();
    let c = cached_run(dir.path(), 60, &rows);
    let bin = |bin: CacheBin| c.cache.bins.iter().find(|b| b.bin == bin).unwrap();
    let warm = bin(CacheBin::UpTo100);
    assert_eq!((warm.replay.n, warm.baseline.unwrap().n), (60, 96));
    assert_eq!(warm.replay.ttft_p50.unwrap().value_ns, Some(20 * MS));
    assert_eq!(bin(CacheBin::Zero).replay.ttft_p95.unwrap().value_ns, Some(80 * MS));
    // Four rows of production are below the bound of a bin, but not without a share.
    assert_eq!(bin(CacheBin::Zero).baseline.unwrap().ttft_p50, None);
    let plain = c.metric(Metric::Ttft, Population::Success).unwrap().percentile(Percentile::P95).unwrap();
    assert_eq!(plain.replay.unwrap().value_ns, Some(80 * MS));
    let weighted = &c.cache.weighted[0];
    assert_eq!((weighted.metric, &weighted.withheld), (Metric::Ttft, &None));
    assert_eq!(weighted.replay.unwrap().value_ns, Some(20 * MS));
    assert_eq!(weighted.ratio.unwrap().value, Some(1.0));
}

#[test]
fn the_weighted_percentile_is_withheld_where_production_does_not_report_its_cache() {
    let dir = tempdir().unwrap();
    let rows: Vec<_> = (0..100i64).map(|i| produced(i * 100, 20, 90)).collect();
    let c = cached_run(dir.path(), 60, &rows);
    assert!(c.cache.weighted.iter().all(|w| w.replay.is_none() && w.withheld.is_some()));
    assert!(c.missing.iter().any(|m| m.what == "cache"));
}

#[test]
fn a_gate_without_a_baseline_cannot_tell() {
    let dir = tempdir().unwrap();
    let rows: Vec<_> = (0..50i64)
        .map(|i| RequestRow { prod_ttft_ns: None, prod_ttft_kind: None, ..produced(i * 100, 0, 80) })
        .collect();
    let exchanges: Vec<_> = (0..50u64)
        .map(|i| answered(i, i as i64 * 100, &[i as i64 * 100 + 30, i as i64 * 100 + 80]))
        .collect();
    let c = compared(dir.path(), &rows, &exchanges);
    let gate = |metric| c.gates.iter().find(|g| g.metric == metric).unwrap().verdict;
    assert_eq!((gate(Metric::Ttft), gate(Metric::E2e)), (Verdict::CannotTell, Verdict::Agree));
    assert_eq!(c.verdict, Verdict::CannotTell);
}
