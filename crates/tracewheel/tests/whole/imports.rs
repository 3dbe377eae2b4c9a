//! Imports as a person does them: packed logs, damage, rejected rows, the exit codes that tell.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::harness::{Place, fixture};

const CUT: &str = "traces/azure2023_conv_20s.csv";

fn packed(ending: &str) -> Vec<u8> {
    fs::read(fixture(&format!("{CUT}.{ending}"))).unwrap()
}

#[test]
fn packed_logs_are_read_from_files_and_from_standard_input() {
    let place = Place::new();
    let plain = fixture(CUT);
    let plain = place.json(0, &["ingest", plain.to_str().unwrap(), "-o", "plain.parquet", "--json"]);
    for ending in ["gz", "zst"] {
        // The name says nothing.
        fs::write(place.path("yesterday.log"), packed(ending)).unwrap();
        let report = place.json(0, &["ingest", "yesterday.log", "-o", "packed.parquet", "--json"]);
        assert_eq!(report["timeline_digest"], plain["timeline_digest"]);
        assert_eq!(report["files"][0]["file"], "yesterday.log");
        let mut child = place
            .command(&["ingest", "-", "-o", "stdin.parquet", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&packed(ending)).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["timeline_digest"], plain["timeline_digest"]);
        let text = place.expect(0, &["ingest", "yesterday.log", "-o", "packed.parquet"]);
        let packing = if ending == "gz" { "gzip" } else { "zstd" };
        assert!(text.contains(&format!("{packing}, 1 member")), "{text}");
    }
}

#[test]
fn a_cut_archive_ends_with_the_code_for_lost_rows_whatever_the_limit() {
    let place = Place::new();
    let gzip = packed("gz");
    fs::write(place.path("cut.csv.gz"), &gzip[..gzip.len() / 2]).unwrap();
    let args = ["ingest", "cut.csv.gz", "-o", "t.parquet", "--max-rejects", "1000"];
    let told = place.fails(20, &args);
    assert!(told.contains("cut.csv.gz") && told.contains("damaged") && told.contains("t.parquet"), "{told}");
    let text = place.expect(20, &args);
    assert!(
        text.contains(&format!("damaged at byte {}", gzip.len() / 2)) && text.contains("cut_off"),
        "{text}"
    );
    let kept = place.json(0, &["inspect", "t.parquet", "--json"]);
    assert!(kept["requests"].as_u64().unwrap() > 40);
    fs::write(place.path("stub.csv.gz"), &gzip[..20]).unwrap();
    assert!(place.fails(2, &["ingest", "stub.csv.gz", "-o", "u.parquet"]).contains("byte 20"));
}

#[test]
fn rejected_rows_past_the_limit_end_with_their_code_and_can_all_be_found() {
    let place = Place::new();
    let rows: String =
        (0..40).map(|n| format!("1795536000{n:03},{}\n", if n % 2 == 0 { "oops" } else { "7" })).collect();
    let log = format!("arrival_unix_ms,input_tokens\n{rows}");
    place.write("log.csv", &log);
    let base = ["ingest", "log.csv", "-o", "t.parquet", "--rejects", "rejects.jsonl", "--max-rejects"];
    let text = place.expect(20, &[&base[..], &["19"]].concat());
    assert!(text.contains("line 2 (byte 29)") && text.contains("and 10 more"), "{text}");
    place.expect(0, &[&base[..], &["20"]].concat());
    let list = fs::read_to_string(place.path("rejects.jsonl")).unwrap();
    let places: Vec<serde_json::Value> =
        list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(places.len(), 20);
    for row in &places {
        let at = usize::try_from(row["offset"].as_u64().unwrap()).unwrap();
        assert!(log[at..].lines().next().unwrap().ends_with("oops"));
        assert_eq!((&row["reason"], &row["column"]), (&"bad_number".into(), &"input_tokens".into()));
    }
    assert!(!list.contains("oops"));
    let told = place.fails(2, &["ingest", "log.csv", "-o", "t.parquet", "--rejects", "log.csv"]);
    assert!(told.contains("another name"), "{told}");
    assert_eq!(fs::read_to_string(place.path("log.csv")).unwrap(), log);
}

#[test]
fn wrong_flags_of_an_import_are_refused_with_the_remedy() {
    let place = Place::new();
    place.small_timeline(3);
    for (args, part) in [
        (&["-o", "-"][..], "./-"),
        (&["-o", "x.parquet", "--block-tokens", "0"], "1 or more"),
        (&["-o", "x.parquet", "--restarts", "maybe"], "join"),
    ] {
        let told = place.fails(2, &[&["ingest", "trace.csv"][..], args].concat());
        assert!(told.contains(part), "{args:?}: {told}");
    }
    assert!(!place.path("-").exists() && !place.path("x.parquet").exists());
}

#[test]
fn a_timeline_without_an_epoch_names_no_day() {
    let place = Place::new();
    let log = fixture("traces/mooncake_conversation_first200.jsonl");
    place.expect(0, &["ingest", log.to_str().unwrap(), "-o", "t.parquet"]);
    let stats = place.json(0, &["inspect", "t.parquet", "--json"]);
    assert_eq!(
        (&stats["has_epoch"], &stats["first_arrival_unix_ns"]),
        (&false.into(), &serde_json::Value::Null)
    );
    assert_eq!(
        (&stats["last_arrival_unix_ns"], &stats["span_seconds"]),
        (&serde_json::Value::Null, &72.0.into())
    );
    let text = place.expect(0, &["inspect", "t.parquet"]);
    assert!(text.contains("own start") && !text.contains("1970"), "{text}");
}

#[test]
fn a_row_of_two_gigabytes_is_passed_over_in_bounded_memory() {
    let place = Place::new();
    let csv = "printf 'arrival_unix_ms,input_tokens\\n1795536000001,1\\n'; head -c 2147483648 /dev/zero; \
               printf '\\n1795536000002,2\\n'";
    let json = "printf '{\"arrival_unix_ms\":1795536000001}\\n'; head -c 2147483648 /dev/zero; \
                printf '\\n{\"arrival_unix_ms\":1795536000002}\\n'";
    for log in [csv, json] {
        let script = format!(
            "{{ {log}; }} | {{ ulimit -v 1000000; exec \"$0\" ingest - -o t.parquet --json --max-rejects 1; }}"
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_tracewheel")])
            .current_dir(place.path("."))
            .env("XDG_CONFIG_HOME", place.path("config"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let reason = &report["rejects"][0]["reason"];
        assert_eq!((&report["rows_kept"], reason), (&2.into(), &"row_too_long".into()));
    }
}
