//! Timelines made for a test, and runs of them.

#![allow(dead_code)] // Each test file uses a part.

use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

use tracewheel_record::{AttemptRecord, RequestRecord, Run};
use tracewheel_replay::{ReplayConfig, ReplayError, ReplayEvent, RunReport, StopSignal};
use tracewheel_timeline::{RequestRow, Timeline, TimelineMeta, TimelineWriter};
use tracewheel_workload::{Plan, PlanOptions};

/// A millisecond in nanoseconds.
pub(crate) const MS: i64 = 1_000_000;

/// A folder with a plan in it.
pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) plan: Plan,
}

/// A finished run, read back.
pub(crate) struct Finished {
    pub(crate) report: RunReport,
    pub(crate) requests: Vec<RequestRecord>,
    pub(crate) attempts: Vec<AttemptRecord>,
    pub(crate) run: Run,
    pub(crate) events: Vec<ReplayEvent>,
}

impl Bench {
    /// Requests that arrive at these offsets, each with nine tokens in and four out, changed by `change`.
    pub(crate) fn new(offsets_ns: &[i64], change: impl Fn(usize, &mut RequestRow)) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.parquet");
        let meta = TimelineMeta { has_epoch: true, ..TimelineMeta::default() };
        let mut writer = TimelineWriter::create(&path, meta).unwrap();
        for (number, offset) in offsets_ns.iter().enumerate() {
            let mut row = RequestRow {
                arrival_unix_ns: Some(1_700_000_000_000_000_000 + offset),
                model: Some("asked".into()),
                stream: Some(true),
                input_tokens: Some(9),
                output_tokens: Some(4),
                ..RequestRow::default()
            };
            change(number, &mut row);
            writer.push(&row).unwrap();
        }
        writer.finish().unwrap();
        let plan = Plan::build(&Timeline::open(&path).unwrap(), PlanOptions::default()).unwrap();
        Bench { dir, plan }
    }

    /// The same timeline, planned by other options.
    pub(crate) fn planned(mut self, options: PlanOptions) -> Bench {
        let timeline = Timeline::open(self.dir.path().join("trace.parquet")).unwrap();
        self.plan = Plan::build(&timeline, options).unwrap();
        self
    }

    /// Evenly spaced requests.
    pub(crate) fn even(count: usize, gap_ns: i64) -> Bench {
        let offsets: Vec<i64> = (0..count as i64).map(|number| number * gap_ns).collect();
        Bench::new(&offsets, |_, _| {})
    }

    pub(crate) fn runs(&self) -> PathBuf {
        self.dir.path().join("runs")
    }

    pub(crate) fn try_run(&self, config: &ReplayConfig, stop: &StopSignal) -> Result<Finished, ReplayError> {
        let (sender, receiver) = sync_channel(10_000);
        let report = tracewheel_replay::run(&self.plan, config, &self.runs(), stop, sender)?;
        let run = Run::open(&report.run_dir).unwrap();
        let requests: Vec<_> = run.requests().unwrap().collect::<Result<_, _>>().unwrap();
        let attempts: Vec<_> = run.attempts().unwrap().collect::<Result<_, _>>().unwrap();
        let finished = Finished { report, requests, attempts, run, events: receiver.iter().collect() };
        finished.check();
        Ok(finished)
    }

    pub(crate) fn run(&self, config: &ReplayConfig) -> Finished {
        self.try_run(config, &StopSignal::new()).unwrap()
    }
}

impl Finished {
    /// What holds for every run, however it went.
    fn check(&self) {
        let counts = &self.report.counts;
        assert!(counts.conserved(), "{counts:?}");
        assert!(self.run.is_closed());
        let measured = self.requests.iter().filter(|request| request.copy == 0).count() as u64;
        let outcome = self.run.manifest().outcome.as_ref().unwrap();
        assert_eq!(measured + outcome.counts.unsent_without_row, counts.planned);
        assert_eq!(outcome.counts.total(), counts.planned);
        for request in &self.requests {
            assert_eq!(
                request.reason.is_none(),
                request.status == tracewheel_timeline::RequestStatus::Ok,
                "{request:?}"
            );
            let made = self.attempts_of(request).len();
            assert_eq!(made, usize::from(request.attempts), "{request:?}");
        }
        for attempt in &self.attempts {
            let steps = [
                Some(attempt.due_ns),
                attempt.released_ns,
                attempt.first_write_ns,
                attempt.last_write_ns,
                attempt.headers_ns,
                attempt.first_byte_ns,
                attempt.end_ns,
            ];
            let known: Vec<i64> = steps.into_iter().flatten().collect();
            assert!(known.windows(2).all(|pair| pair[0] <= pair[1]), "{attempt:?}");
            assert!(attempt.events.iter().all(|event| (event.read as usize) < attempt.reads.len()));
        }
    }

    pub(crate) fn attempts_of(&self, request: &RequestRecord) -> Vec<&AttemptRecord> {
        let mut all: Vec<_> = self
            .attempts
            .iter()
            .filter(|attempt| (attempt.row, attempt.copy) == (request.row, request.copy))
            .collect();
        all.sort_by_key(|attempt| attempt.attempt);
        all
    }

    pub(crate) fn request(&self, row: u64) -> &RequestRecord {
        self.requests.iter().find(|request| request.row == row && request.copy == 0).unwrap()
    }

    /// The id that the server was told.
    pub(crate) fn id(&self, bench: &Bench, row: u64) -> String {
        let id = tracewheel_workload::request_id(&bench.plan.header().timeline_digest, row, 0);
        format!("{id:016x}")
    }
}
