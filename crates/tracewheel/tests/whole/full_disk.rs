//! Outputs that cannot be written: full, read-only, removed under way, limited; and readers that go away.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tracewheel_record::Run;

use crate::harness::{MockProcess, Place, QUICK, text};

/// A small file system of its own; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    /// `None` where mounting is not allowed, which is told.
    fn new(at: PathBuf, size: &str) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&at)
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(at));
        }
        println!("skipped: mounting a small file system is not allowed here");
        None
    }

    /// Takes what room is left.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        while file.write_all(&[1; 512]).is_ok() {}
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mocked(requests: usize) -> (Place, MockProcess) {
    let place = Place::new();
    place.small_timeline(requests);
    let mock = place.mock(QUICK);
    (place, mock)
}

fn replay<'a>(url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let base = ["replay", "t.parquet", "--target", url, "--protocol", "openai-chat", "--model", "m"];
    [&base[..], more].concat()
}

fn only_run(runs: &Path) -> PathBuf {
    std::fs::read_dir(runs).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn a_full_disk_ends_the_run_with_its_path_and_remedy_and_loses_nothing_that_was_recorded() {
    let (place, mock) = mocked(100);
    let Some(disk) = Mounted::new(place.path("small"), "192k") else { return };
    let err = place.fails(40, &replay(&mock.url, &["-o", "small/runs", "--speed", "4"]));
    assert!(err.contains("no space left to write") && err.contains("small/runs/"), "{err}");
    assert!(err.contains("tracewheel recover small/runs/"), "{err}");
    mock.stop();
    let dir = only_run(&place.path("small/runs"));
    let run = Run::open(&dir).unwrap();
    let recorded: Vec<_> = run.requests().unwrap().map(Result::unwrap).collect();
    assert!(!run.is_closed() && !recorded.is_empty());
    // Closing needs room of its own; without, everything stays as it is.
    let filler = disk.fill();
    let path = dir.to_str().unwrap();
    let err = place.fails(40, &["ingest", "trace.csv", "-o", "small/again.parquet"]);
    assert!(err.contains("small/again.parquet") && !err.contains("panicked"), "{err}");
    let err = place.fails(40, &["recover", path]);
    assert!(err.contains("nothing is lost") && err.contains("no space left to write"), "{err}");
    assert!(!Run::open(&dir).unwrap().is_closed());
    std::fs::remove_file(filler).unwrap();
    Command::new("mount").args(["-o", "remount,size=8m"]).arg(&disk.0).status().unwrap();
    let told = place.json(0, &["recover", path, "--json"]);
    let closed: Vec<_> = Run::open(&dir).unwrap().requests().unwrap().map(Result::unwrap).collect();
    assert!(closed.starts_with(&recorded), "every row that was recorded is in the closed run");
    let counts = &told["counts"];
    assert_eq!(
        counts["ok"].as_u64(),
        Some(recorded.iter().filter(|r| r.status.as_str() == "ok").count() as u64)
    );
    place.expect(0, &["inspect", path]);
}

#[test]
fn an_output_that_is_read_only_or_no_folder_is_refused_before_anything_is_sent() {
    let (place, mock) = mocked(3);
    place.write("file", "");
    let err = place.fails(40, &replay(&mock.url, &["-o", "file/runs"]));
    assert!(err.contains("cannot create file/runs"), "{err}");
    if let Some(disk) = Mounted::new(place.path("fixed"), "1m") {
        Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0).status().unwrap();
        let err = place.fails(40, &replay(&mock.url, &["-o", "fixed/runs"]));
        assert!(
            err.contains("cannot create fixed/runs") && err.to_lowercase().contains("read-only"),
            "{err}"
        );
    }
    mock.stop();
    assert_eq!(std::fs::read_to_string(place.path("witness.jsonl")).unwrap(), "", "nothing was sent");
}

#[test]
fn an_output_folder_that_is_removed_under_way_ends_the_run_with_its_path() {
    let (place, mock) = mocked(100);
    let child = place
        .command(&replay(&mock.url, &[]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !std::fs::read_dir(place.path("runs")).is_ok_and(|mut runs| {
        runs.next().is_some_and(|run| run.unwrap().path().join("journal/0.requests-0.arrows").exists())
    }) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::rename(place.path("runs"), place.path("gone")).unwrap();
    std::fs::remove_dir_all(place.path("gone")).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(40), "{err}");
    assert!(err.contains("cannot") && err.contains("runs/") && !err.contains("panicked"), "{err}");
    mock.stop();
}

/// Runs a line of shell with `$TW` as the binary.
fn shell(place: &Place, line: &str) -> (Option<i32>, String) {
    let mut command = Command::new("bash");
    command.current_dir(place.path("")).env("XDG_CONFIG_HOME", place.path("config"));
    let output = command
        .env("TW", env!("CARGO_BIN_EXE_tracewheel"))
        .args(["-c", line])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.code(), text(&output.stderr))
}

#[test]
fn limits_of_the_process_are_told_as_what_they_are() {
    let (place, mock) = mocked(60);
    let args = replay(&mock.url, &["--speed", "8"]).join(" ");
    // Blocks of 1024 bytes: the limit is met inside the journal of the attempts.
    let (code, err) = shell(&place, &format!("ulimit -f 40; exec $TW {args}"));
    assert_eq!(code, Some(40), "{err}");
    assert!(err.contains("no space left to write") && err.to_lowercase().contains("file too large"), "{err}");
    let (code, err) = shell(&place, &format!("ulimit -n 9; exec $TW {args}"));
    assert!(code.is_some_and(|code| [1, 2, 40].contains(&code)), "{code:?} {err}");
    assert!(err.contains("ulimit -n") || err.to_lowercase().contains("too many open files"), "{err}");
    assert!(!err.contains("free the disk"), "{err}");
    assert!(!err.contains("panicked"), "{err}");
    mock.stop();
}

#[test]
fn a_standard_output_that_is_full_is_an_error_and_one_that_was_closed_is_not() {
    let (place, mock) = mocked(10);
    let told = place.json(0, &replay(&mock.url, &["--speed", "8", "--json"]));
    mock.stop();
    let run = told["run_dir"].as_str().unwrap();
    let commands = [
        "ingest trace.csv -o again.parquet --json".to_owned(),
        "inspect t.parquet".to_owned(),
        format!("inspect {run} --json"),
        format!("compare {run} --with t.parquet --json"),
        format!("recover {run} --json"),
    ];
    for command in commands {
        let (code, err) = shell(&place, &format!("$TW {command} > /dev/full"));
        assert_eq!(code, Some(40), "{command}: {err}");
        assert!(err.contains("cannot write to stdout") && !err.contains("panicked"), "{command}: {err}");
        let (code, err) = shell(&place, &format!("set -o pipefail; $TW {command} | true"));
        assert_eq!(code, Some(0), "{command}: {err}");
        assert!(!err.contains("stdout") && !err.contains("panicked"), "{command}: {err}");
    }
}
