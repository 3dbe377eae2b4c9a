//! A run by itself, and a run against a run.

use tempfile::tempdir;
use tracewheel_analysis::comparison::{BoundIs, Counts, FidelityBounds, FidelityVerdict, Matching};
use tracewheel_analysis::metric::{Metric, Population, Verdict};
use tracewheel_analysis::quantile::Percentile;
use tracewheel_analysis::{
    AnalysisError, Baseline, CompareOptions, ReplaySummary, SummaryOptions, compare, inspect_run, summarise,
};
use tracewheel_clock::VirtualClock;
use tracewheel_record::manifest::EndedBy;
use tracewheel_record::{AttemptRecord, ReleaseRecord, RequestRecord, Run, RunWriter};
use tracewheel_timeline::vocab::{AttemptStatus, EventKind, Phase, Reason, RequestStatus};

use crate::fixture::{MS, answered, attempt, manifest, produced, rejected, request, run, timeline, unsent};

fn summary(run: &Run) -> ReplaySummary {
    summarise(run, &SummaryOptions::default()).unwrap()
}

/// The p50 and p99 of a metric in milliseconds; `None` for +∞.
fn p50_p99(summary: &ReplaySummary, metric: Metric, population: Population) -> (Option<f64>, Option<f64>) {
    let row = summary.metric(metric, population).unwrap();
    let at = |p: Percentile| {
        let entry = row.percentiles.iter().find(|e| e.percentile == p).unwrap();
        entry.estimate.unwrap().value_ns.map(|ns| ns as f64 / 1e6)
    };
    (at(Percentile::P50), at(Percentile::P99))
}

/// One run over a three-row timeline with the given exchanges.
fn one_run(dir: &std::path::Path, exchanges: &[(RequestRecord, Vec<AttemptRecord>)]) -> Run {
    let rows: Vec<_> = (0..4).map(|i| produced(i * 100, 50, 90)).collect();
    let timeline = timeline(dir, "t.parquet", &rows);
    run(dir, manifest(&timeline), exchanges)
}

#[test]
fn a_single_stream_gives_the_times_that_were_written_into_it() {
    let dir = tempdir().unwrap();
    let run = one_run(dir.path(), &[answered(0, 1000, &[1040, 1050, 1090])]);
    let s = summary(&run);
    // Kernel stamps count, so the user stamps 1 ms later do not.
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::User), (Some(40.0), Some(40.0)));
    assert_eq!(p50_p99(&s, Metric::Ttfv, Population::Success), (Some(40.0), Some(40.0)));
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::Service), (Some(39.98), Some(39.98)));
    // The last output event, not `[DONE]` 1 ms later and not the end of the exchange.
    assert_eq!(p50_p99(&s, Metric::E2e, Population::User), (Some(90.0), Some(90.0)));
    assert_eq!(p50_p99(&s, Metric::Gap, Population::Success), (Some(10.0), Some(40.0)));
    assert_eq!(p50_p99(&s, Metric::Itl, Population::Success), (Some(10.0), Some(40.0)));
    // 50 ms over the two tokens after the first event.
    assert_eq!(p50_p99(&s, Metric::Tpot, Population::Success), (Some(25.0), Some(25.0)));
    assert_eq!((s.run.stamps.kernel, s.run.stamps.user), (3, 0));
    assert_eq!(s.run.streams.tokens.usage, 1);
    assert_eq!(s.fidelity.lateness.max_ns, Some(10_000));
}

#[test]
fn reasoning_counts_for_ttft_and_only_text_for_ttfv() {
    let dir = tempdir().unwrap();
    let mut only = attempt(0, 1, 0, &[10, 20, 30]);
    only.events[1].kind = EventKind::Reasoning;
    only.events[2].kind = EventKind::ToolArgs;
    let run = one_run(dir.path(), &[(request(&only, RequestStatus::Ok), vec![only])]);
    let s = summary(&run);
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::User).0, Some(10.0));
    assert_eq!(p50_p99(&s, Metric::Ttfv, Population::User).0, Some(30.0));
}

#[test]
fn waiting_for_a_retry_is_inside_the_users_latency_and_outside_the_services() {
    let dir = tempdir().unwrap();
    // Refused at 0, due again at 1,000 after 997 ms of back-off, first output at 1,200.
    let last = attempt(0, 2, 1000, &[1200, 1300]);
    let mut record = request(&last, RequestStatus::Ok);
    (record.planned_ns, record.due_ns, record.backoff_ns) = (0, 0, 997 * MS);
    let run = one_run(dir.path(), &[(record, vec![rejected(0, 1, 0, 429), last])]);
    let s = summary(&run);
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::User).0, Some(1200.0));
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::Service).0, Some(199.98));
    assert_eq!(p50_p99(&s, Metric::E2e, Population::Success).0, Some(1300.0));
    let retries = &s.run.retries;
    assert_eq!((retries.attempts, retries.retried, retries.throttled), (2, 1, 1));
    assert_eq!((retries.throttled_share, retries.backoff.max_ns), (Some(1.0), Some(997 * MS)));
    // Only the first attempt's lateness is the generator's.
    assert_eq!((s.fidelity.lateness.n, s.fidelity.attempts_sent, s.fidelity.sent), (1, 2, 1));
}

#[test]
fn an_answer_that_began_before_its_request_was_whole_is_none_of_the_services() {
    let dir = tempdir().unwrap();
    let mut early = attempt(0, 1, 0, &[10, 20]);
    // The answer's first byte came at 2 ms, the request's last left at 3 ms.
    early.last_write_ns = Some(3 * MS);
    let mut late = attempt(1, 1, 100, &[110, 120]);
    late.last_write_ns = late.first_byte_ns;
    let all = [early, late].map(|one| (request(&one, RequestStatus::Ok), vec![one]));
    let s = summary(&one_run(dir.path(), &all));
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::Service), (Some(8.0), Some(8.0)));
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::User), (Some(10.0), Some(10.0)));
}

#[test]
fn what_was_never_answered_is_infinite_for_the_user_only() {
    let dir = tempdir().unwrap();
    let failed = rejected(1, 1, 100, 500);
    let run = one_run(
        dir.path(),
        &[
            answered(0, 0, &[10, 20]),
            (request(&failed, RequestStatus::Failed), vec![failed]),
            (unsent(2, 200, Reason::BudgetExceeded), vec![]),
        ],
    );
    let s = summary(&run);
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::User), (None, None));
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::Success), (Some(10.0), Some(10.0)));
    let sample = s.metric(Metric::Ttft, Population::User).unwrap().sample;
    assert_eq!((sample.n, sample.infinite, sample.without_value), (3, 2, 0));
    assert_eq!(s.run.counts.reasons["http_5xx"], 1);
    let json = serde_json::to_value(&s).unwrap();
    let first = &json["metrics"][0]["percentiles"][3]["estimate"];
    assert_eq!((first["infinite"].as_bool(), first["value_ns"].is_null()), (Some(true), true));
}

#[test]
fn cancelled_and_cut_requests_are_in_no_population_and_are_counted() {
    let dir = tempdir().unwrap();
    let ended = |row, status, attempt_status, reason| {
        let mut last = attempt(row, 1, 100 * row as i64, &[100 * row as i64 + 30]);
        (last.status, last.reason) = (attempt_status, Some(reason));
        let record = RequestRecord { reason: Some(reason), ..request(&last, status) };
        (record, vec![last])
    };
    let run = one_run(
        dir.path(),
        &[
            answered(0, 0, &[10, 20]),
            ended(1, RequestStatus::Cancelled, AttemptStatus::Cancelled, Reason::CancelledAsRecorded),
            ended(2, RequestStatus::Interrupted, AttemptStatus::Interrupted, Reason::InterruptedByAbort),
        ],
    );
    let s = summary(&run);
    assert_eq!(s.metric(Metric::E2e, Population::User).unwrap().sample.n, 1);
    let Counts { planned, ok, cancelled, interrupted, .. } = s.run.counts;
    assert_eq!((planned, ok, cancelled, interrupted), (3, 1, 1, 1));
    assert!(s.warnings.iter().any(|w| w.code == "interrupted"));
}

#[test]
fn a_stream_without_output_has_no_ttft_and_no_end() {
    let dir = tempdir().unwrap();
    let run = one_run(dir.path(), &[answered(0, 0, &[]), answered(1, 100, &[140, 150])]);
    let s = summary(&run);
    let sample = s.metric(Metric::Ttft, Population::User).unwrap().sample;
    assert_eq!((sample.n, sample.without_value), (1, 1));
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::User), (Some(40.0), Some(40.0)));
    assert_eq!(s.metric(Metric::E2e, Population::User).unwrap().sample.n, 1);
    assert_eq!(s.run.streams.without_output, 1);
    assert!(s.warnings.iter().any(|w| w.code == "without_output"));
}

#[test]
fn an_answer_that_is_not_streamed_ends_with_its_body() {
    let dir = tempdir().unwrap();
    let only = attempt(0, 1, 0, &[70]);
    let mut record = request(&only, RequestStatus::Ok);
    record.strata.stream = Some(false);
    let run = one_run(dir.path(), &[(record, vec![only])]);
    let s = summary(&run);
    assert_eq!(p50_p99(&s, Metric::E2e, Population::User).0, Some(71.0));
    assert_eq!(s.metric(Metric::Tpot, Population::Success).unwrap().sample.n, 0);
    assert_eq!(s.metric(Metric::Gap, Population::Success).unwrap().sample.n, 0);
}

#[test]
fn only_the_phase_measure_enters() {
    let dir = tempdir().unwrap();
    let mut warmup = answered(0, 0, &[500, 600]);
    warmup.0.phase = Phase::Warmup;
    let run = one_run(dir.path(), &[warmup, answered(1, 100, &[110, 120])]);
    let s = summary(&run);
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::User), (Some(10.0), Some(10.0)));
    assert_eq!((s.run.counts.planned, s.run.counts.other_phases), (1, 1));
    assert_eq!(s.fidelity.lateness.n, 1);
    let inspected = inspect_run(&run).unwrap();
    assert_eq!(inspected.phases.iter().map(|p| p.requests).sum::<u64>(), 2);
}

#[test]
fn without_a_kernel_stamp_the_user_stamp_counts_and_the_share_is_stated() {
    let dir = tempdir().unwrap();
    let (record, mut attempts) = answered(0, 0, &[10, 20]);
    attempts[0].reads[1].kernel_ns = None;
    let run = one_run(dir.path(), &[(record, attempts)]);
    let s = summary(&run);
    assert_eq!(p50_p99(&s, Metric::Ttft, Population::User).0, Some(11.0));
    assert_eq!((s.run.stamps.kernel, s.run.stamps.user), (1, 1));
    assert!(s.warnings.iter().any(|w| w.code == "user_stamps"));
}

#[test]
fn the_window_ends_at_a_persons_signal() {
    let dir = tempdir().unwrap();
    let t = timeline(
        dir.path(),
        "t.parquet",
        &[produced(0, 50, 90), produced(100, 50, 90), produced(200, 50, 90)],
    );
    let mut m = manifest(&t);
    let outcome = m.outcome.as_mut().unwrap();
    (outcome.ended_by, outcome.ended_ns) = (EndedBy::Drained, Some(150 * MS));
    let exchanges =
        [answered(0, 0, &[10]), answered(1, 100, &[130]), (unsent(2, 200, Reason::StoppedByUser), vec![])];
    let s = summary(&run(dir.path(), m, &exchanges));
    let sample = s.metric(Metric::Ttft, Population::User).unwrap().sample;
    assert_eq!((sample.n, sample.infinite), (2, 0));
    assert_eq!((s.run.counts.planned, s.run.counts.after_window), (2, 1));
    assert_eq!((s.run.window.to_ns, s.run.window.ended_early), (Some(150 * MS), true));
    assert!(s.warnings.iter().any(|w| w.code == "ended_early"));
}

#[test]
fn a_run_without_measured_requests_has_counts_and_no_latency() {
    let dir = tempdir().unwrap();
    let run = one_run(dir.path(), &[]);
    let empty = summary(&run);
    assert_eq!((empty.run.counts.planned, empty.run.window.from_ns), (0, None));
    assert!(
        empty.metrics.iter().all(|m| m.sample.n == 0 && m.percentiles.iter().all(|p| p.estimate.is_none()))
    );
    assert!(inspect_run(&run).unwrap().summary.is_none());
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let dir = tempdir().unwrap();
    let run = one_run(dir.path(), &[answered(0, 0, &[10])]);
    for options in [
        CompareOptions { level: 1.0, ..CompareOptions::default() },
        CompareOptions { tolerance: f64::NAN, ..CompareOptions::default() },
        CompareOptions { floor_ns: -1, ..CompareOptions::default() },
        CompareOptions { stall_ns: 0, ..CompareOptions::default() },
    ] {
        assert!(matches!(compare(&run, Baseline::Run(&run), &options), Err(AnalysisError::Option { .. })));
    }
}

/// A run of 400 requests whose latencies wander; `factor` slows every answer.
fn wandering(dir: &std::path::Path, factor: i64) -> Run {
    let rows: Vec<_> = (0..400).map(|i| produced(i * 100, 50, 90)).collect();
    let t = timeline(dir, &format!("t{factor}.parquet"), &rows);
    let exchanges: Vec<_> = (0..400u64)
        .map(|row| {
            let due = row as i64 * 100;
            let first = due + (20 + (row as i64 * 7919) % 31) * factor / 10;
            answered(row, due, &[first, first + 2 * factor / 10, first + 5 * factor / 10])
        })
        .collect();
    run(dir, manifest(&t), &exchanges)
}

#[test]
fn a_run_agrees_with_itself_and_a_slowed_one_is_slower() {
    let dir = tempdir().unwrap();
    let (base, slow) = (wandering(dir.path(), 10), wandering(dir.path(), 20));
    let options = CompareOptions::default();
    let same = compare(&base, Baseline::Run(&base), &options).unwrap();
    assert_eq!(
        (same.verdict, same.methods.matching),
        (Verdict::Agree, Matching::ByRow),
        "{}",
        same.verdict_reason
    );
    assert!(same.environment.differences.is_empty());
    let slower = compare(&slow, Baseline::Run(&base), &options).unwrap();
    assert!(slower.regressed());
    let p50 = slower.metric(Metric::Ttft, Population::User).unwrap().percentile(Percentile::P50).unwrap();
    assert_eq!(p50.ratio.unwrap().value, Some(2.0));
    let faster = compare(&base, Baseline::Run(&slow), &options).unwrap();
    assert_eq!(faster.verdict, Verdict::Faster);
}

#[test]
fn a_small_run_cannot_tell_and_says_that_its_tail_is_open() {
    let dir = tempdir().unwrap();
    let run = one_run(dir.path(), &[answered(0, 0, &[10, 30]), answered(1, 100, &[120, 140])]);
    let c = compare(&run, Baseline::Run(&run), &CompareOptions::default()).unwrap();
    assert_eq!(c.verdict, Verdict::CannotTell);
    let p99 = c.metric(Metric::Ttft, Population::User).unwrap().percentile(Percentile::P99).unwrap();
    assert_eq!(p99.replay.unwrap().interval.hi_is, BoundIs::Unbounded);
    assert!(c.warnings.iter().any(|w| w.code == "thin_sample"));
}

#[test]
fn a_generator_that_was_late_proves_nothing() {
    let dir = tempdir().unwrap();
    let base = wandering(dir.path(), 10);
    let t = timeline(dir.path(), "late.parquet", &[produced(0, 50, 90)]);
    let (record, mut attempts) = answered(0, 0, &[900]);
    // A single request may be 10 ms late, and 30 ms before nothing can be said.
    attempts[0].first_write_ns = Some(30 * MS + 1);
    let late = run(dir.path(), manifest(&t), &[(record, attempts)]);
    let options = CompareOptions::default();
    let c = compare(&late, Baseline::Run(&base), &options).unwrap();
    assert_eq!((c.fidelity.verdict, c.verdict), (Some(FidelityVerdict::Unfaithful), Verdict::CannotTell));
    assert!(c.notice.unwrap().starts_with("the replay is unfaithful"));
    assert!(c.verdict_reason.contains("schedule"));
    assert!(c.warnings.iter().any(|w| w.code == "not_faithful"));
    let base_too =
        compare(&base, Baseline::Run(&late), &CompareOptions { match_rows: false, ..options.clone() });
    let base_too = base_too.unwrap();
    assert_eq!(base_too.verdict, Verdict::CannotTell);
    assert!(base_too.notice.unwrap().starts_with("the baseline is unfaithful"));
    let wide = FidelityBounds { unfaithful_factor: 4.0, ..FidelityBounds::default() };
    let c =
        compare(&late, Baseline::Run(&base), &CompareOptions { fidelity: Some(wide), ..options }).unwrap();
    assert_eq!((c.fidelity.verdict, c.notice), (Some(FidelityVerdict::Degraded), None));
    assert!(c.warnings.iter().any(|w| w.code == "degraded"));
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let dir = tempdir().unwrap();
    let base = wandering(dir.path(), 10);
    let json = || {
        let c = compare(&base, Baseline::Run(&base), &CompareOptions::default()).unwrap();
        serde_json::to_string(&c).unwrap()
    };
    assert_eq!(json(), json());
}

#[test]
fn an_open_run_counts_what_was_in_flight_and_what_had_not_left_when_its_writer_died() {
    let dir = tempdir().unwrap();
    let rows: Vec<_> = (0..10).map(|i| produced(i * 100, 50, 90)).collect();
    let mut manifest = manifest(&timeline(dir.path(), "t.parquet", &rows));
    (manifest.plan.requests, manifest.outcome) = (10, None);
    let clock = VirtualClock::new();
    let mut writer = RunWriter::create(&dir.path().join("runs"), "killed", &manifest, &clock).unwrap();
    for row in 0..4 {
        let due_ns = row as i64 * 100 * MS;
        let release =
            ReleaseRecord { row, attempt: 1, planned_ns: due_ns, due_ns, ..ReleaseRecord::default() };
        writer.released(&ReleaseRecord { phase: Phase::Measure, ..release }).unwrap();
    }
    let (record, attempts) = answered(0, 0, &[40, 50]);
    attempts.iter().for_each(|attempt| writer.attempt(attempt).unwrap());
    writer.request(&record).unwrap();
    writer.flush().unwrap();
    let folder = writer.dir().to_owned();
    drop(writer);
    let s = summary(&Run::open(&folder).unwrap());
    let counts = &s.run.counts;
    assert_eq!((counts.planned, counts.ok, counts.interrupted, counts.after_window), (4, 1, 3, 6));
    let warning = s.warnings.iter().find(|warning| warning.code == "ended_early").unwrap();
    assert!(warning.text.contains("6 requests") && warning.text.contains("3 in flight"), "{}", warning.text);
}

#[test]
fn warm_up_and_draining_are_counted_and_enter_no_other_number() {
    let dirs = [tempdir().unwrap(), tempdir().unwrap()];
    let of_phase = |row: u64, phase: Phase| {
        let due = row as i64 * 100;
        // Ten times slower than what is measured, and one of them fails.
        let (mut record, attempts) = answered(row, due, &[due + 500, due + 900]);
        record.phase = phase;
        (record, attempts)
    };
    let mut refused_warm_up = rejected(3, 1, 300, 503);
    refused_warm_up.row = 3;
    let mut failed = request(&refused_warm_up, RequestStatus::Failed);
    failed.phase = Phase::Warmup;
    let measured: Vec<_> =
        (4..8u64).map(|row| answered(row, row as i64 * 100, &[row as i64 * 100 + 50])).collect();
    let others = vec![
        of_phase(0, Phase::Warmup),
        of_phase(1, Phase::Warmup),
        of_phase(2, Phase::Drain),
        (failed, vec![refused_warm_up]),
    ];
    let with = one_run(dirs[0].path(), &[others.clone(), measured.clone()].concat());
    let without = one_run(dirs[1].path(), &measured);
    let (with, without) = (summary(&with), summary(&without));
    assert_eq!((with.run.counts.planned, with.run.counts.other_phases), (4, 4));
    assert_eq!(with.metrics, without.metrics);
    assert_eq!(with.fidelity, without.fidelity);
    assert_eq!((&with.run.window, &with.run.concurrency), (&without.run.window, &without.run.concurrency));
    assert_eq!((&with.run.retries, &with.run.streams), (&without.run.retries, &without.run.streams));
    assert_eq!(with.cache, without.cache);
    assert_eq!(with.run.window.from_ns, Some(400 * MS));
}

#[test]
fn a_comparison_leaves_out_the_rows_that_only_warmed_up() {
    let dir = tempdir().unwrap();
    let rows: Vec<_> = (0..4).map(|i| produced(i * 100, if i == 0 { 9000 } else { 50 }, 9500)).collect();
    let t = timeline(dir.path(), "t.parquet", &rows);
    let mut exchanges: Vec<_> =
        (0..4u64).map(|row| answered(row, row as i64 * 100, &[row as i64 * 100 + 50])).collect();
    exchanges[0].0.phase = Phase::Warmup;
    let c = compare(
        &run(dir.path(), manifest(&t), &exchanges),
        Baseline::Timeline(&t),
        &CompareOptions::default(),
    )
    .unwrap();
    let ttft = c.metric(Metric::Ttft, Population::User).unwrap();
    assert_eq!((ttft.replay.n, ttft.baseline.unwrap().n), (3, 3));
    assert_eq!(ttft.percentile(Percentile::P99).unwrap().baseline.unwrap().value_ns, Some(50 * MS));
    assert_eq!((c.baseline.counts.planned, c.replay.counts.other_phases), (3, 1));
}
