//! Signals: the first drains, the second cuts, and the run is closed and readable however early they come.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracewheel_record::Run;
use tracewheel_record::manifest::EndedBy;

use crate::harness::{Place, QUICK, text};

/// A server that accepts everything and answers nothing.
fn hanging() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            kept.push(stream.try_clone().unwrap());
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|read| read > 0) {}
            });
        }
    });
    url
}

fn start(place: &Place, target: &str, more: &[&str]) -> Child {
    let base = ["replay", "t.parquet", "--target", target, "--protocol", "openai-chat", "--model", "m"];
    let mut command = place.command(&[&base[..], more].concat());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// The only run of a place.
fn run_dir(place: &Place) -> Option<PathBuf> {
    Some(std::fs::read_dir(place.path("runs")).ok()?.next()?.unwrap().path())
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}

/// Waits until so many requests have left.
fn wait_for_departures(place: &Place, requests: u64) {
    let left = || {
        let log = run_dir(place)?.join("journal/0.departures-0");
        Some(std::fs::metadata(log).ok()?.len() / 64)
    };
    wait_until("a request leaves", || left().is_some_and(|left| left >= requests));
}

/// The closed run that an interrupted replay left, its identity checked.
fn closed(place: &Place, output: &Output) -> Run {
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(32), "stdout: {}\nstderr: {err}", text(&output.stdout));
    let run = Run::open(&run_dir(place).unwrap()).unwrap();
    assert!(run.is_closed() && !run.dir().join("journal").exists());
    assert_eq!(run.manifest().outcome.as_ref().unwrap().counts.total(), run.manifest().plan.requests);
    assert!(err.contains(run.dir().file_name().unwrap().to_str().unwrap()), "{err}");
    place.expect(2, &["recover", "nowhere"]);
    place.expect(0, &["recover", run.dir().to_str().unwrap()]);
    run
}

#[test]
fn the_first_signal_drains_whichever_it_is_and_the_window_ends_there() {
    for first in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let place = Place::new();
        place.small_timeline(60);
        let mock = place.mock(QUICK);
        let child = start(&place, &mock.url, &[]);
        wait_for_departures(&place, 3);
        signal(&child, first);
        let output = child.wait_with_output().unwrap();
        let err = text(&output.stderr);
        assert!(err.contains("stopping") && err.contains("again to cut them off"), "{first}: {err}");
        assert!(err.contains("where its window ends"), "{first}: {err}");
        let run = closed(&place, &output);
        let outcome = run.manifest().outcome.clone().unwrap();
        assert_eq!((outcome.ended_by, outcome.counts.interrupted), (EndedBy::Drained, 0), "{first}");
        assert!(outcome.counts.ok >= 3 && outcome.counts.unsent > 0, "{first}: {:?}", outcome.counts);
        assert!(text(&output.stdout).contains("Latency"), "the summary of what there is");
        let ended = outcome.ended_ns.unwrap();
        for request in run.requests().unwrap().map(Result::unwrap) {
            let left = request.attempts > 0;
            assert_eq!(left, request.status.as_str() != "unsent");
            assert!(!left || request.due_ns <= ended, "nothing leaves after the signal");
        }
        assert!(run.manifest().warnings.iter().any(|warning| warning.contains("its window ends there")));
        mock.stop();
    }
}

#[test]
fn the_second_signal_cuts_at_once_although_the_target_hangs() {
    let place = Place::new();
    place.small_timeline(60);
    let child = start(&place, &hanging(), &["--drain", "1h"]);
    wait_for_departures(&place, 2);
    signal(&child, Signal::SIGINT);
    // Two signals that come together count as one.
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("cutting off"), "{}", text(&output.stderr));
    let outcome = closed(&place, &output).manifest().outcome.clone().unwrap();
    assert_eq!(outcome.ended_by, EndedBy::Cut);
    assert_eq!(outcome.reasons["interrupted_by_user"], outcome.counts.interrupted);
    assert!(outcome.counts.interrupted >= 2 && outcome.counts.ok == 0);
}

#[test]
fn a_target_that_hangs_holds_a_drain_up_no_longer_than_its_limit() {
    let place = Place::new();
    place.small_timeline(60);
    let child = start(&place, &hanging(), &["--drain", "200ms"]);
    wait_for_departures(&place, 2);
    signal(&child, Signal::SIGTERM);
    let output = child.wait_with_output().unwrap();
    let outcome = closed(&place, &output).manifest().outcome.clone().unwrap();
    assert_eq!(outcome.ended_by, EndedBy::Drained);
    assert_eq!(outcome.reasons["interrupted_by_drain_limit"], outcome.counts.interrupted);
    assert!(outcome.counts.interrupted >= 2, "{:?}", outcome.counts);
}

#[test]
fn a_signal_while_the_cache_is_primed_ends_the_run_before_its_first_request() {
    let place = Place::new();
    place.small_timeline(20);
    let child = start(&place, &hanging(), &["--cache", "warm", "--drain", "200ms", "--json"]);
    wait_for_departures(&place, 1);
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stderr).contains("before its first measured request"), "{}", text(&output.stderr));
    let run = closed(&place, &output);
    let outcome = run.manifest().outcome.clone().unwrap();
    assert_eq!((outcome.counts.unsent, outcome.counts.total()), (20, 20));
    assert!(outcome.extra.interrupted > 0, "what was primed is counted apart");
}

#[test]
fn a_signal_while_the_plan_is_made_ends_the_replay_at_once_and_no_run_is_made() {
    let place = Place::new();
    // Whoever opens a pipe waits for its other end: a timeline that takes for ever.
    nix::unistd::mkfifo(&place.path("t.parquet"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let child = start(&place, "http://127.0.0.1:9", &[]);
    let waiting = format!("/proc/{}/task", child.id());
    // The signal handlers stand before the planning thread does.
    wait_until("the planning thread runs", || {
        std::fs::read_dir(&waiting).is_ok_and(|tasks| tasks.count() >= 3)
    });
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(32), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no run was made"), "{}", text(&output.stderr));
    assert!(run_dir(&place).is_none());
}

#[test]
fn a_run_that_is_being_written_is_neither_recovered_nor_read() {
    let place = Place::new();
    place.small_timeline(20);
    let mut child = start(&place, &hanging(), &["--drain", "1h"]);
    wait_for_departures(&place, 1);
    let run = run_dir(&place).unwrap();
    let run: &Path = &run;
    let path = run.to_str().unwrap();
    let process = format!("process {}", child.id());
    for args in [vec!["recover", path], vec!["inspect", path], vec!["compare", path, "--with", "t.parquet"]] {
        let err = place.fails(2, &args);
        assert!(err.contains("still being written") && err.contains(&process), "{err}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let command = format!("tracewheel recover {path}");
    for args in [vec!["inspect", path], vec!["compare", path, "--with", "t.parquet"]] {
        assert!(place.fails(2, &args).contains(&command));
    }
    // The lock file of the dead process stays behind; its lock does not.
    assert!(run.join("journal/0.lock").exists());
    let told = place.json(0, &["recover", path, "--json"]);
    assert_eq!((told["state"].as_str(), told["planned"].as_u64()), (Some("recovered"), Some(20)), "{told}");
    assert_eq!(
        told["interrupted"].as_array().unwrap().len() as u64,
        told["counts"]["interrupted"].as_u64().unwrap()
    );
    let request = Run::open(run).unwrap().requests().unwrap().map(Result::unwrap).next().unwrap();
    assert!(request.strata.operation.is_some(), "the strata come from the timeline, which still lies there");
    assert_eq!(place.json(0, &["recover", path, "--json"])["state"], "closed");
    place.expect(0, &["inspect", path, "--json"]);
    // Without its manifest it is no empty run, and a folder that is no run is none either.
    std::fs::remove_file(run.join("manifest.json")).unwrap();
    assert!(place.fails(2, &["recover", path]).contains("recorded parts or a journal but no manifest"));
    assert!(place.fails(2, &["recover", "."]).contains("is no run directory"));
}

#[test]
fn an_import_that_is_interrupted_says_so_and_leaves_everything_as_it_was() {
    for which in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let place = Place::new();
        place.small_timeline(2);
        let before = std::fs::read(place.path("t.parquet")).unwrap();
        let old = "{\"file\":\"a\",\"line\":3,\"offset\":41,\"reason\":\"bad_time\"}\n";
        place.write("rejects.jsonl", old);
        let args = ["ingest", "-", "-o", "t.parquet", "--rejects", "rejects.jsonl", "--log", "info"];
        let mut command = place.command(&args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The input stays open and brings nothing more; that the log was opened shows that handlers are installed.
        let mut to = child.stdin.take().unwrap();
        let log = std::fs::read_to_string(place.path("trace.csv")).unwrap();
        let rows = log.lines().nth(1).unwrap();
        let head = format!("{}\n{}", log.lines().next().unwrap(), format!("{rows}\n").repeat(4_000));
        std::io::Write::write_all(&mut to, head.as_bytes()).unwrap();
        signal(&child, which);
        let output = child.wait_with_output().unwrap();
        drop(to);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(32), "{which}: {err}");
        assert!(err.contains("interrupted: nothing was written"), "{which}: {err}");
        assert_eq!(std::fs::read(place.path("t.parquet")).unwrap(), before);
        assert_eq!(std::fs::read_to_string(place.path("rejects.jsonl")).unwrap(), old);
        let files = std::fs::read_dir(place.path("")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(!files.into_iter().any(|name| name.to_string_lossy().starts_with('.')));
    }
}

#[test]
fn an_import_that_fails_leaves_the_older_list_of_rejected_rows() {
    let place = Place::new();
    place.write("log.csv", "a,b\n1,2\n");
    let old = "{\"file\":\"a\",\"line\":3,\"offset\":41,\"reason\":\"bad_time\"}\n";
    place.write("old.jsonl", old);
    for list in ["old.jsonl", "new.jsonl"] {
        place.fails(2, &["ingest", "log.csv", "-o", "t.parquet", "--rejects", list]);
    }
    assert_eq!(std::fs::read_to_string(place.path("old.jsonl")).unwrap(), old);
    assert!(!place.path("new.jsonl").exists());
}
