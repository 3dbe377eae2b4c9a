//! A folder, the binary, and the mock as a process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// The repository's fixtures.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name)
}

/// A folder of its own for one test, and the binary run in it.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary with these arguments. A replay is judged by bounds that a busy machine keeps too, unless `--fidelity` says
    /// by which: how exactly this machine sends decides no test.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tracewheel"));
        command.current_dir(self.folder.path()).env("XDG_CONFIG_HOME", self.path("config")).args(args);
        if args.contains(&"replay")
            && !args.contains(&"--fidelity")
            && !args.iter().any(|arg| arg.ends_with("help"))
        {
            command.args(["--fidelity", WIDE]);
        }
        command
    }

    /// Runs the binary to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs the binary, expects `code`, and gives its stdout.
    pub(crate) fn expect(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}\nstdout: {out}\nstderr: {err}");
        out
    }

    /// Runs the binary, expects `code` and JSON.
    pub(crate) fn json(&self, code: i32, args: &[&str]) -> Value {
        serde_json::from_str(&self.expect(code, args)).unwrap()
    }

    /// Runs the binary, expects `code`, and gives its stderr.
    pub(crate) fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let err = text(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}\nstdout: {}\nstderr: {err}",
            text(&output.stdout)
        );
        err
    }

    /// Starts a mock endpoint with this configuration.
    pub(crate) fn mock(&self, config: &str) -> MockProcess {
        self.mock_with_log(config, "witness.jsonl")
    }

    /// As [`mock`](Self::mock), with a witness log of this name.
    pub(crate) fn mock_with_log(&self, config: &str, log: &str) -> MockProcess {
        self.write("mock.toml", config);
        let args = ["mock", "--listen", "127.0.0.1:0", "--config", "mock.toml", "--witness-log", log];
        let mut child = self
            .command(&args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.split_whitespace().find(|word| word.starts_with("http"));
        let url = url.unwrap_or_else(|| panic!("the mock says no address: {line}")).to_owned();
        MockProcess { child, url }
    }

    /// Ingests the shipped twenty seconds of a real trace, cut to its first requests.
    pub(crate) fn small_timeline(&self, requests: usize) -> PathBuf {
        let trace = std::fs::read_to_string(fixture("traces/azure2023_conv_20s.csv")).unwrap();
        let head: Vec<&str> = trace.lines().take(requests + 1).collect();
        self.write("trace.csv", &format!("{}\n", head.join("\n")));
        self.expect(0, &["ingest", "trace.csv", "-o", "t.parquet"]);
        self.path("t.parquet")
    }
}

/// A mock endpoint in a process of its own; stopped when dropped.
pub(crate) struct MockProcess {
    child: Child,
    pub(crate) url: String,
}

impl MockProcess {
    /// Ends it as Ctrl-C does; its logs are complete afterwards.
    pub(crate) fn stop(mut self) {
        self.interrupt();
    }

    fn interrupt(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT);
        let _ = self.child.wait();
    }
}

impl Drop for MockProcess {
    fn drop(&mut self) {
        self.interrupt();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Bounds of the fidelity verdict that every machine keeps.
pub(crate) const WIDE: &str =
    "lateness_ceiling=1h,lateness_floor=1h,gap_distance_ceiling=1h,gap_distance_floor=1h";

/// The same as a scenario.
pub(crate) const WIDE_SCENARIO: &str = "version = 1\n[fidelity]\nlateness_ceiling = \"1h\"\nlateness_floor = \"1h\"\n\
    gap_distance_ceiling = \"1h\"\ngap_distance_floor = \"1h\"\n";

/// An endpoint so quick that tests are short: 2 ms a step, 2 µs a prompt token.
pub(crate) const QUICK: &str =
    "[engine]\nstep_base_us = 2000\ndecode_us_per_sequence = 10\nprefill_us_per_token = 2\n";
