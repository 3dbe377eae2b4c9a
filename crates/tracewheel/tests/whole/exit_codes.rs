//! Every exit code that the table promises, provoked; but for 1, which says that tracewheel has a fault.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Place, QUICK};

/// Codes that commands return today, by the page.
fn documented() -> BTreeSet<i32> {
    let page = include_str!("../../../../docs/reference/exit-codes.md");
    let code = |line: &str| line.strip_prefix("| ")?.split(" | ").next()?.parse::<i32>().ok();
    let all: BTreeSet<i32> = page.lines().filter_map(code).collect();
    let reserved = |code: &i32| {
        let word = code.to_string();
        let mut lines = page.lines().filter(|line| line.contains("reserved"));
        lines.any(|line| line.split(|c: char| !c.is_ascii_digit()).any(|other| other == word))
    };
    all.into_iter().filter(|code| !reserved(code)).collect()
}

/// Interrupts a replay that has begun; its code.
fn interrupted(place: &Place, target: &str) -> i32 {
    let args = ["--log", "info", "replay", "t.parquet", "--target", target, "--protocol", "openai-chat"];
    let slow = ["--model", "m", "--speed", "0.01"];
    let mut child = place
        .command(&[&args[..], &slow].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let told = BufReader::new(child.stderr.take().unwrap());
    for line in told.lines().map_while(Result::ok) {
        if line.contains("measured phase") {
            kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        }
    }
    child.wait().unwrap().code().unwrap()
}

#[test]
fn every_documented_exit_code_can_be_provoked() {
    let place = Place::new();
    place.small_timeline(20);
    place.write("taken", "a file, not a folder");
    place.write("bad.csv", "ts,in,out\n2026-01-01T00:00:00Z,10,5\nyesterday,10,5\n");
    // A production that was impossibly quick: no endpoint can keep up with it.
    let mut log = "ts,in,out,ttft_ms,e2e_ms\n".to_owned();
    for millis in 0..200 {
        writeln!(log, "2026-01-01T00:00:00.{millis:03}Z,10,5,0.01,0.02").unwrap();
    }
    place.write("quick.csv", &log);
    let map = "arrival=ts,input_tokens=in,output_tokens=out";
    place.expect(
        0,
        &[
            "ingest",
            "quick.csv",
            "-o",
            "quick.parquet",
            "--ttft-kind",
            "token",
            "--map",
            &format!("{map},ttft=ttft_ms,e2e=e2e_ms"),
        ],
    );
    let mock = place.mock(QUICK);
    let replay = |timeline, target| {
        ["replay", timeline, "--target", target, "--protocol", "openai-chat", "--model", "m", "--json"]
    };
    let run = |timeline| place.json(0, &replay(timeline, &mock.url))["run_dir"].as_str().unwrap().to_owned();
    let (blind, slow) = (run("t.parquet"), run("quick.parquet"));
    let mut seen = BTreeSet::new();
    for args in [
        &["inspect", "t.parquet"][..],
        &["inspect", "nowhere.parquet"],
        &["compare", &slow, "--with", "quick.parquet"],
        &["compare", &blind, "--with", "t.parquet", "--require-verdict"],
        &["ingest", "bad.csv", "-o", "b.parquet", "--map", map],
        &replay("t.parquet", "http://127.0.0.1:9"),
        &[&replay("t.parquet", &mock.url)[..], &["-o", "taken"]].concat(),
        // No first byte is written at the very instant at which it is due.
        &[&replay("t.parquet", &mock.url)[..], &["--fidelity", "lateness_floor=0s,lateness_ceiling=0s"]]
            .concat(),
    ] {
        seen.insert(place.run(args).status.code().unwrap());
    }
    seen.insert(interrupted(&place, &mock.url));
    let mut promised = documented();
    assert!(promised.remove(&1), "a fault of tracewheel itself has its code");
    assert_eq!(seen, promised);
}
