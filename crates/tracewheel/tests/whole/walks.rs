//! The walk-throughs that a newcomer follows, executed: the example script and the getting-started page.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Place, WIDE_SCENARIO, fixture, text};

/// Runs a script of bash in the place, with the binary on its path; stdout and stderr.
fn bash(place: &Place, script: &[&str]) -> (String, String) {
    let binary = Path::new(env!("CARGO_BIN_EXE_tracewheel"));
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .current_dir(place.path(""))
        .env("PATH", format!("{}:{path}", binary.parent().unwrap().display()))
        .env("XDG_CONFIG_HOME", place.path("config"))
        .stdin(Stdio::null())
        .args(script)
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{script:?}\nstdout: {out}\nstderr: {err}");
    (out, err)
}

#[test]
fn the_first_replay_of_the_examples_runs_to_its_end() {
    let place = Place::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/first-replay.sh");
    std::fs::create_dir(place.path("walk")).unwrap();
    place.write("walk/tracewheel.toml", WIDE_SCENARIO);
    let (out, _) = bash(&place, &[script.to_str().unwrap(), place.path("walk").to_str().unwrap()]);
    for part in ["== 1.", "== 2.", "== 3.", "== 4.", "verdict", "ttft"] {
        assert!(out.contains(part), "{part} is missing: {out}");
    }
    for name in ["gateway.jsonl", "yesterday.parquet", "runs"] {
        assert!(place.path("walk").join(name).exists(), "{name}");
    }
}

/// The page's `sh` blocks as one script: at a free port, and with a wait for each mock, which a person does by reading.
fn page_as_script(page: &str, port: u16) -> String {
    let mut script = "set -euo pipefail\n".to_owned();
    for block in page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
        for line in block.replace(":8000", &format!(":{port}")).lines() {
            script.push_str(line);
            if line.starts_with("tracewheel compare") {
                // 11 says that the replay was slower, as it may be on a busy machine.
                script.push_str(" || [ $? -eq 11 ]");
            }
            script.push('\n');
            if line.starts_with("tracewheel mock") && line.ends_with('&') {
                script.push_str(&format!(
                    "until (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do kill -0 $!; sleep 0.1; done\n"
                ));
            }
        }
    }
    script
}

#[test]
fn the_commands_of_the_getting_started_page_work_as_they_stand() {
    let place = Place::new();
    symlink(fixture("").canonicalize().unwrap(), place.path("fixtures")).unwrap();
    place.write("tracewheel.toml", WIDE_SCENARIO);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let script = page_as_script(include_str!("../../../../docs/getting-started.md"), port);
    assert!(script.matches("\ntracewheel ").count() >= 9, "{script}");
    let (out, _) = bash(&place, &["-c", &script]);
    assert!(out.contains("verdict"), "{out}");
    let comparison = std::fs::read_to_string(place.path("target/first/comparison.json")).unwrap();
    let comparison: serde_json::Value = serde_json::from_str(&comparison).unwrap();
    assert!(comparison["verdict"].is_string());
}
