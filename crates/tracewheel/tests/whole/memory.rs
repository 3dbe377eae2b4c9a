//! Imports in little memory: what is left when they end badly.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::Place;

const IMPORT: [&str; 8] = [
    "ingest",
    "-",
    "-o",
    "t.parquet",
    "--map",
    "arrival=ts_ms,request_id=id,input_tokens=in",
    "--memory",
    "64K",
];

/// Rows by descending arrival: none can go on before the last was read.
fn backwards(rows: u64) -> String {
    let mut log = "ts_ms,id,in\n".to_owned();
    (0..rows).for_each(|row| writeln!(log, "{},q-{row},{row}", 1_795_536_000_000 - row).unwrap());
    log
}

fn names(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(".")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_import_in_little_memory_gives_the_same_timeline() {
    let place = Place::new();
    place.write("log.csv", &backwards(5_000));
    let digest = |memory: &str| {
        let args = ["ingest", "log.csv", "-o", "t.parquet", "--json", "--memory", memory, "--map", IMPORT[5]];
        let report = place.json(0, &args);
        let way = report["sorting"]["way"].as_str().unwrap().to_owned();
        (way, report["timeline_digest"].clone())
    };
    let (way, much) = digest("1G");
    assert_eq!(way, "memory");
    assert_eq!(digest("64K"), ("spilled".to_owned(), much));
    assert!(place.fails(2, &["ingest", "log.csv", "-o", "t.parquet", "--memory", "lots"]).contains("512M"));
}

#[test]
fn a_temporary_file_that_cannot_grow_ends_the_import_with_code_40_and_leaves_nothing() {
    let place = Place::new();
    place.write("log.csv", &backwards(20_000));
    let before = names(&place);
    // A limit on the size of files stands for a full disk.
    let mut shell = Command::new("sh");
    let script = "trap '' XFSZ; ulimit -f 100; exec \"$@\" < log.csv";
    shell.args(["-c", script, "sh", env!("CARGO_BIN_EXE_tracewheel")]).args(IMPORT);
    let key = place.path("key");
    shell.arg("--key-file").arg(&key).current_dir(place.path("."));
    let output = shell.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(40), "{told}");
    assert!(told.contains("temporary file") && told.contains("--temp-dir"), "{told}");
    let mut after = names(&place);
    after.retain(|name| name != "key");
    assert_eq!(after, before);
}

#[test]
fn an_import_that_is_killed_leaves_nothing() {
    let place = Place::new();
    let mut import = place.command(&IMPORT).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = import.stdin.take().unwrap();
    stdin.write_all(backwards(20_000).as_bytes()).unwrap();
    stdin.flush().unwrap();
    // It holds a temporary file now, or soon, and waits for more rows.
    let files = format!("/proc/{}/fd", import.id());
    let holds_two = || {
        let links = std::fs::read_dir(&files).into_iter().flatten().flatten();
        let deleted = links.filter_map(|link| std::fs::read_link(link.path()).ok());
        deleted.filter(|target| target.to_string_lossy().ends_with("(deleted)")).count() >= 2
    };
    for _ in 0..600 {
        if holds_two() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(holds_two(), "the timeline and the temporary file are open and have no names");
    import.kill().unwrap();
    import.wait().unwrap();
    assert_eq!(names(&place), ["config"]);
}
