//! kill -9 at a hundred moments, judged by what the endpoint itself saw.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;
use tracewheel_record::Run;
use tracewheel_record::manifest::{EndedBy, RunState};

use crate::harness::{Place, QUICK};

/// Killed side by side, each against an endpoint of its own.
const LANES: u64 = 5;
const KILLS: u64 = 20;
const REQUESTS: usize = 60;
/// How long a sending thread of a busy machine may take to see an answer that the endpoint has written, at most.
const SEEN_WITHIN_NS: i64 = 1_000_000_000;

type Key = (u64, u32);

/// xorshift64*: the moments are the same in every run of the test, what happens at them is not.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// What all lanes know.
struct Stage {
    place: Place,
    /// The requests behind each id that the endpoint logs.
    keys: BTreeMap<String, BTreeSet<Key>>,
    /// From the start of the process to its end, of a replay that is left alone.
    whole: Duration,
}

/// One killed process and the run that it left, if any.
struct Killed {
    from_unix_ns: i64,
    at_unix_ns: i64,
    run: Option<PathBuf>,
}

fn unix_ns() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

fn replay(stage: &Place, url: &str, runs: &str, cache: &str) -> Child {
    let args = [
        "replay",
        "t.parquet",
        "--target",
        url,
        "--protocol",
        "openai-chat",
        "--model",
        "m",
        "--speed",
        "5",
        "--scenario",
        "small-parts.toml",
        "-o",
        runs,
        "--cache",
        cache,
    ];
    let mut command = stage.command(&args);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn runs_in(folder: &Path) -> BTreeSet<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
}

impl Stage {
    fn new() -> Self {
        let place = Place::new();
        place.small_timeline(REQUESTS);
        // Parts so small that each flush rolls some.
        place.write("small-parts.toml", "version = 1\n[record]\npart_rows = 7\n");
        let mock = place.mock(QUICK);
        let began = Instant::now();
        assert!(replay(&place, &mock.url, "whole", "natural").wait().unwrap().success());
        let whole = began.elapsed();
        assert!(replay(&place, &mock.url, "whole", "warm").wait().unwrap().success());
        mock.stop();
        let mut keys: BTreeMap<String, BTreeSet<Key>> = BTreeMap::new();
        for run in runs_in(&place.path("whole")) {
            for attempt in Run::open(&run).unwrap().attempts().unwrap().map(Result::unwrap) {
                let id = attempt.request_id.as_deref().unwrap().to_owned();
                keys.entry(id).or_default().insert((attempt.row, attempt.copy));
            }
        }
        Self { place, keys, whole }
    }

    /// Starts a replay and kills it at a moment of the dice's choice.
    fn kill_one(&self, url: &str, runs: &str, number: u64, dice: &mut Dice) -> Killed {
        let folder = self.place.path(runs);
        let before = runs_in(&folder);
        let from_unix_ns = unix_ns();
        let mut child =
            replay(&self.place, url, runs, if number.is_multiple_of(2) { "warm" } else { "natural" });
        let whole_ms = self.whole.as_millis() as u64;
        match number % 5 {
            // While it starts: folders, manifest, first connections, priming.
            0 => nap(dice.below(500)),
            // While it closes, give or take.
            1 => nap(whole_ms.saturating_sub(300) + dice.below(500)),
            // Just when a part is being rolled.
            2 => {
                let wanted = 1 + dice.below(6) as usize;
                let began = Instant::now();
                while began.elapsed() < 2 * self.whole && parts(&folder, &before) < wanted {
                    nap(1);
                }
                nap(dice.below(12));
            }
            // Anywhere.
            _ => nap(dice.below(whole_ms)),
        }
        let _ = child.kill();
        let at_unix_ns = unix_ns();
        child.wait().unwrap();
        let run = runs_in(&folder).difference(&before).next().cloned();
        Killed { from_unix_ns, at_unix_ns, run }
    }

    /// Closes a killed run, in some cases after having killed that as well.
    fn recover(&self, run: &Path, number: u64, dice: &mut Dice) -> Value {
        let path = run.to_str().unwrap();
        for _ in 0..number % 3 {
            let mut child = self
                .place
                .command(&["recover", path])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            nap(dice.below(120));
            let _ = child.kill();
            child.wait().unwrap();
        }
        self.place.json(0, &["recover", path, "--json"])
    }
}

fn nap(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Finished parts of the runs that were not there before.
fn parts(folder: &Path, before: &BTreeSet<PathBuf>) -> usize {
    let new = runs_in(folder);
    let new = new
        .difference(before)
        .flat_map(|run| ["requests", "attempts", "health"].map(|table| run.join(table)));
    new.map(|table| runs_in(&table).len()).sum()
}

/// What one lane found.
#[derive(Default)]
struct Found {
    recovered: usize,
    closed: usize,
    empty: usize,
    rolled: usize,
    interrupted: u64,
    arrived: usize,
    completed: usize,
    /// From the last flush to the kill.
    unflushed_ns: Vec<i64>,
}

fn lane(stage: &Stage, lane: u64) -> Found {
    let mut dice = Dice(0x5eed_0000 + lane * 7919 + 1);
    let (log, runs) = (format!("witness-{lane}.jsonl"), format!("lane-{lane}"));
    let mock = stage.place.mock_with_log(QUICK, &log);
    let mut found = Found::default();
    let mut killed = Vec::new();
    for number in 0..KILLS {
        let one = stage.kill_one(&mock.url, &runs, number, &mut dice);
        if let Some(run) = &one.run {
            let told = stage.recover(run, number, &mut dice);
            check_closed(run, &told, &mut found);
        }
        killed.push(one);
    }
    mock.stop();
    let witness = std::fs::read_to_string(stage.place.path(&log)).unwrap();
    let lines: Vec<Value> = witness.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (number, one) in killed.iter().enumerate() {
        let until = killed.get(number + 1).map_or(i64::MAX, |next| next.from_unix_ns);
        let seen = lines.iter().filter(|line| line["path"] == "/v1/chat/completions").filter(|line| {
            let at = line["arrival_user_unix_ns"].as_i64().unwrap();
            (one.from_unix_ns..until).contains(&at)
        });
        check_against_witness(stage, one, &seen.collect::<Vec<_>>(), &mut found);
    }
    found
}

/// The run is closed, adds up, and says what is missing.
fn check_closed(run: &Path, told: &Value, found: &mut Found) {
    match told["state"].as_str().unwrap() {
        "empty" => {
            found.empty += 1;
            return;
        }
        "closed" => found.closed += 1,
        _ => found.recovered += 1,
    }
    let opened = Run::open(run).unwrap();
    let manifest = opened.manifest();
    assert!(opened.is_closed() && !run.join("journal").exists(), "{told}");
    let outcome = manifest.outcome.as_ref().unwrap();
    assert_eq!((manifest.plan.requests, outcome.counts.total()), (REQUESTS as u64, REQUESTS as u64));
    if manifest.state == RunState::Recovered {
        assert_eq!(outcome.ended_by, EndedBy::Killed);
    }
    let mut rows = BTreeSet::new();
    for request in opened.requests().unwrap().map(Result::unwrap) {
        assert!(rows.insert((request.row, request.copy)), "a request has one row");
    }
    let attempts: Vec<_> = opened.attempts().unwrap().map(Result::unwrap).collect();
    let keys: BTreeSet<_> =
        attempts.iter().map(|attempt| (attempt.row, attempt.copy, attempt.attempt)).collect();
    assert_eq!(keys.len(), attempts.len(), "an attempt has one row");
    if told["state"] == "recovered" {
        let named = told["interrupted"].as_array().unwrap().len() as u64;
        let extra = told["extra"]["interrupted"].as_u64().unwrap();
        assert_eq!(named, told["counts"]["interrupted"].as_u64().unwrap() + extra, "{told}");
        assert_eq!(told["damage"].as_array().unwrap().len(), 0, "{told}");
    }
    found.interrupted += outcome.counts.interrupted;
    found.rolled += usize::from(outcome.parts.values().any(|parts| *parts > 1));
}

/// Nothing reached the endpoint that the run does not know of, and what had ended before the last flush is recorded.
fn check_against_witness(stage: &Stage, one: &Killed, seen: &[&Value], found: &mut Found) {
    let Some(run) = one.run.as_deref().filter(|run| run.join("manifest.json").exists()) else {
        assert!(seen.is_empty(), "requests left before there was a run: {seen:?}");
        return;
    };
    let run = Run::open(run).unwrap();
    let status: BTreeMap<Key, _> = run
        .requests()
        .unwrap()
        .map(Result::unwrap)
        .map(|r| ((r.row, r.copy), (r.status, r.attempts)))
        .collect();
    let last_flush = run.health().unwrap().map(|row| row.unwrap().at_ns).max();
    let flushed_unix_ns = last_flush.map(|at| run.manifest().clock.start_unix_ns + at);
    for line in seen {
        found.arrived += 1;
        let keys = &stage.keys[line["request_id"].as_str().unwrap()];
        let known: Vec<_> = keys.iter().filter_map(|key| status.get(key)).collect();
        assert!(known.iter().any(|(_, attempts)| *attempts > 0), "it left and the run does not know: {line}");
        let whole = line["status"] == 200 && line["client_gone"] == false && line["server_stopped"] == false;
        let ended = line["end_unix_ns"].as_i64().unwrap();
        if whole && flushed_unix_ns.is_some_and(|flushed| ended < flushed - SEEN_WITHIN_NS) {
            found.completed += 1;
            assert!(known.iter().any(|(status, _)| status.as_str() == "ok"), "it ended and was lost: {line}");
        }
    }
    if let (RunState::Recovered, Some(flushed)) = (run.manifest().state, flushed_unix_ns) {
        found.unflushed_ns.push(one.at_unix_ns - flushed);
    }
}

#[test]
fn a_replay_that_is_killed_at_any_moment_loses_at_most_its_last_second_and_knows_every_request_that_left() {
    let stage = Stage::new();
    let found: Vec<Found> = std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|number| {
                scope.spawn({
                    let stage = &stage;
                    move || lane(stage, number)
                })
            })
            .collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    let sum = |of: fn(&Found) -> usize| found.iter().map(of).sum::<usize>();
    let (recovered, closed, empty) = (sum(|f| f.recovered), sum(|f| f.closed), sum(|f| f.empty));
    let interrupted: u64 = found.iter().map(|f| f.interrupted).sum();
    let (rolled, arrived, completed) = (sum(|f| f.rolled), sum(|f| f.arrived), sum(|f| f.completed));
    let mut unflushed: Vec<i64> = found.iter().flat_map(|f| f.unflushed_ns.clone()).collect();
    unflushed.sort_unstable();
    let middle = unflushed[unflushed.len() / 2];
    println!(
        "recovered {recovered}, closed {closed}, empty {empty}, with several parts {rolled}; \
         {arrived} requests arrived, {completed} ended before the last flush, {interrupted} interrupted; \
         from flush to kill: median {} ms, longest {} ms",
        middle / 1_000_000,
        unflushed.last().unwrap() / 1_000_000
    );
    // The moments reach every part of a run; most of them must have left something to recover.
    assert!(recovered >= 40 && rolled >= 10 && completed >= 100 && interrupted >= 50);
    assert!(middle < 3_000_000_000, "flushes are a second apart where the machine lets them");
}
