//! The verdict on the sending, from whole runs.

use std::path::Path;

use tempfile::tempdir;
use tracewheel_analysis::comparison::{Fidelity, FidelityBounds, FidelityVerdict};
use tracewheel_analysis::{ReplaySummary, SummaryOptions, summarise};
use tracewheel_record::manifest::EndedBy;
use tracewheel_record::{AttemptRecord, HealthRecord, Manifest, RequestRecord, Run};
use tracewheel_timeline::vocab::{AttemptStatus, Phase, Reason, RequestStatus};

use crate::fixture::{
    MS, answered, attempt, manifest, produced, rejected, request, run_with, timeline, unsent,
};

type Exchange = (RequestRecord, Vec<AttemptRecord>);

/// A request due at `due_ms` whose first byte was written `late_ns` later.
fn late_by(row: u64, due_ms: i64, late_ns: i64) -> Exchange {
    let (record, mut attempts) = answered(row, due_ms, &[due_ms + 50]);
    attempts[0].first_write_ns = Some(due_ms * MS + late_ns);
    attempts[0].last_write_ns = Some(due_ms * MS + late_ns + 7_000);
    (record, attempts)
}

fn a_run(
    dir: &Path,
    change: impl FnOnce(&mut Manifest),
    exchanges: &[Exchange],
    health: &[HealthRecord],
) -> Run {
    let mut m = manifest(&timeline(dir, "t.parquet", &[produced(0, 50, 90)]));
    change(&mut m);
    run_with(dir, "sample", m, exchanges, health)
}

fn summary(run: &Run) -> ReplaySummary {
    summarise(run, &SummaryOptions::default()).unwrap()
}

fn fidelity(exchanges: &[Exchange]) -> Fidelity {
    let dir = tempdir().unwrap();
    summary(&a_run(dir.path(), |_| (), exchanges, &[])).fidelity
}

#[test]
fn the_figures_and_bounds_are_those_of_the_page() {
    // Due every 60 ms, the first of 200 late by 3 ms, the second by 2 ms, the others by 0.1 ms.
    let late = |row: u64| match row {
        0 => 3 * MS,
        1 => 2 * MS,
        _ => 100_000,
    };
    let f = fidelity(&(0..200).map(|row| late_by(row, row as i64 * 60, late(row))).collect::<Vec<_>>());
    // The p99 of 200 is the 198th, and 5 % of 60 ms are 3 ms.
    let lateness = f.criteria.lateness_p99_ns;
    assert_eq!(
        (lateness.value, lateness.degraded_above, lateness.unfaithful_above),
        (Some(100_000), 3 * MS, 9 * MS)
    );
    // Sorted, 199 gaps of 60 ms became 58.1, 59 and 197 of 60 ms: (1.9 + 1) / 199.
    let gaps = f.gaps;
    assert_eq!((gaps.n, gaps.median_ns, gaps.compared), (199, Some(60 * MS), 199));
    assert_eq!(
        (gaps.distance_ns, f.criteria.gap_distance_ns.degraded_above),
        (Some(2_900_000 / 199), 3 * MS)
    );
    assert_eq!((f.criteria.unsent_share.value, f.unsent), (Some(0.0), 0));
    assert_eq!((f.verdict, f.write_time.max_ns), (Some(FidelityVerdict::Faithful), Some(7_000)));
    // A run that says nothing of bounds, as an older one, is judged by the usual ones.
    assert_eq!(f.bounds, FidelityBounds::default());
}

#[test]
fn a_run_is_judged_by_its_own_bounds_unless_others_are_given() {
    let dir = tempdir().unwrap();
    let strict = FidelityBounds { lateness_ceiling_ns: MS, ..FidelityBounds::default() };
    let exchanges: Vec<_> = (0..20).map(|row| late_by(row, row as i64 * 1000, 5 * MS)).collect();
    let run = a_run(dir.path(), |m| m.fidelity = Some(strict), &exchanges, &[]);
    assert_eq!(summary(&run).fidelity.verdict, Some(FidelityVerdict::Unfaithful));
    let usual = SummaryOptions { fidelity: Some(FidelityBounds::default()), ..SummaryOptions::default() };
    assert_eq!(summarise(&run, &usual).unwrap().fidelity.verdict, Some(FidelityVerdict::Faithful));
    let broken = FidelityBounds { unfaithful_factor: 0.0, ..FidelityBounds::default() };
    let broken = SummaryOptions { fidelity: Some(broken), ..SummaryOptions::default() };
    assert!(summarise(&run, &broken).unwrap_err().to_string().contains("unfaithful_factor"));
}

#[test]
fn what_a_stop_left_unsent_is_not_the_generators_fault_and_the_rest_is() {
    let mut exchanges: Vec<_> = (0..50).map(|row| late_by(row, row as i64 * 10, 0)).collect();
    exchanges.push((unsent(50, 500, Reason::StoppedByUser), vec![]));
    let dir = tempdir().unwrap();
    let stop = |m: &mut Manifest| {
        let outcome = m.outcome.as_mut().unwrap();
        (outcome.ended_by, outcome.ended_ns) = (EndedBy::Drained, Some(495 * MS));
    };
    let f = summary(&a_run(dir.path(), stop, &exchanges, &[])).fidelity;
    assert_eq!((f.verdict, f.planned, f.unsent), (Some(FidelityVerdict::Faithful), 50, 0));
    exchanges[50] = (unsent(50, 500, Reason::RunAborted), vec![]);
    let f = fidelity(&exchanges);
    assert_eq!((f.verdict, f.planned, f.unsent), (Some(FidelityVerdict::Unfaithful), 51, 1));
    // A turn has no due time when the one before it failed: that follows from an answer.
    exchanges[50] = (unsent(50, 500, Reason::PreviousTurnFailed), vec![]);
    let f = fidelity(&exchanges);
    assert_eq!((f.verdict, f.planned, f.unsent), (Some(FidelityVerdict::Faithful), 51, 0));
}

#[test]
fn a_request_without_a_descriptor_is_unsent_and_one_that_the_target_refused_is_not() {
    let without = |row: u64, reason| {
        let mut only = rejected(row, 1, row as i64 * 10, 503);
        (only.first_write_ns, only.last_write_ns, only.http_status) = (None, None, None);
        only.reason = Some(reason);
        (request(&only, RequestStatus::Failed), vec![only])
    };
    let mut exchanges: Vec<_> = (0..200).map(|row| late_by(row, row as i64 * 10, 0)).collect();
    exchanges.push(without(200, Reason::ConnectRefused));
    let f = fidelity(&exchanges);
    assert_eq!((f.verdict, f.sent, f.unsent), (Some(FidelityVerdict::Faithful), 200, 0));
    for reason in [Reason::LocalDescriptors, Reason::LocalResources, Reason::ConnectionLimit] {
        exchanges[200] = without(200, reason);
        let f = fidelity(&exchanges);
        assert_eq!((f.verdict, f.sent, f.unsent), (Some(FidelityVerdict::Degraded), 200, 1), "{reason}");
    }
}

#[test]
fn warm_up_and_retries_are_in_no_criterion_and_a_gated_turn_counts_from_its_due_time() {
    let mut warm = late_by(0, 0, 500 * MS);
    warm.0.phase = Phase::Warmup;
    let mut gated = late_by(1, 100, MS);
    (gated.0.gated, gated.0.planned_ns) = (true, 20 * MS);
    let mut second = attempt(2, 2, 1000, &[1200]);
    second.first_write_ns = Some(1000 * MS + 90 * MS);
    let record =
        RequestRecord { planned_ns: 150 * MS, due_ns: 150 * MS, ..request(&second, RequestStatus::Ok) };
    let f = fidelity(&[warm, gated, (record, vec![rejected(2, 1, 150, 429), second])]);
    assert_eq!((f.lateness.n, f.lateness.max_ns, f.retry_lateness.max_ns), (2, Some(MS), Some(90 * MS)));
    assert_eq!((f.gate_drift.max_ns, f.gaps.median_ns), (Some(80 * MS), Some(50 * MS)));
    assert_eq!(f.verdict, Some(FidelityVerdict::Faithful));
}

#[test]
fn a_closed_loop_is_not_judged() {
    let dir = tempdir().unwrap();
    let exchanges = [late_by(0, 0, 500 * MS), late_by(1, 600, 500 * MS)];
    let run = a_run(dir.path(), |m| m.plan.mode = Some("closed:4".to_owned()), &exchanges, &[]);
    let f = summary(&run).fidelity;
    assert_eq!((f.verdict, f.lateness.p99_ns), (None, Some(500 * MS)));
    assert!(f.reason.contains("closed loop"), "{}", f.reason);
}

#[test]
fn requests_that_were_cut_are_judged_by_when_they_left() {
    let mut cut = late_by(0, 0, 31 * MS);
    (cut.0.status, cut.0.reason) = (RequestStatus::Interrupted, Some(Reason::InterruptedByUser));
    (cut.1[0].status, cut.1[0].reason) = (AttemptStatus::Interrupted, Some(Reason::InterruptedByUser));
    assert_eq!(fidelity(&[cut]).verdict, Some(FidelityVerdict::Unfaithful));
}

#[test]
fn the_uncertainty_of_kernel_stamps_is_half_of_the_widest_bracket() {
    let dir = tempdir().unwrap();
    let row =
        |second: u32, bracket| HealthRecord { second, clock_bracket_ns: bracket, ..HealthRecord::default() };
    let health = [row(0, Some(80)), row(1, None), row(2, Some(901))];
    let run = a_run(dir.path(), |_| (), &[late_by(0, 0, 0)], &health);
    assert_eq!(summary(&run).fidelity.stamp_uncertainty_ns, Some(451));
    assert_eq!(fidelity(&[late_by(0, 0, 0)]).stamp_uncertainty_ns, None);
}
