//! The commands in the order in which a newcomer types them.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Place, QUICK, fixture, text};

#[test]
fn a_trace_is_ingested_inspected_replayed_and_compared() {
    let place = Place::new();
    place.small_timeline(25);
    let stats = place.json(0, &["inspect", "t.parquet", "--json"]);
    assert_eq!(stats["requests"], 25);
    let mock = place.mock(QUICK);
    let replay =
        ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m", "--json"];
    let first = place.json(0, &replay);
    assert_eq!(first["run"]["counts"]["ok"], 25);
    let second = place.json(0, &[&replay[..], &["--speed", "2", "-o", "others"]].concat());
    assert!(second["process"]["measured_ns"].as_i64() < first["process"]["measured_ns"].as_i64());
    let (first, second) = (first["run_dir"].as_str().unwrap(), second["run_dir"].as_str().unwrap());
    // The trace has no latencies: this is said, and no number stands in for them.
    let comparison = place.json(0, &["compare", first, "--with", "t.parquet", "--json"]);
    assert_eq!(comparison["verdict"], "cannot_tell");
    assert!(!comparison["missing"].as_array().unwrap().is_empty());
    place.expect(12, &["compare", first, "--with", "t.parquet", "--require-verdict"]);
    let runs = place.json(0, &["compare", first, "--with", second, "--json"]);
    let ttft = &runs["metrics"].as_array().unwrap()[0]["percentiles"][0];
    assert!(ttft["ratio"]["value"].as_f64().unwrap() > 0.0, "{ttft}");
    assert!(place.expect(0, &["compare", first, "--with", second]).contains("ttft"));
}

#[test]
fn a_window_and_a_limit_choose_the_requests_that_are_sent() {
    let place = Place::new();
    place.small_timeline(60);
    let mock = place.mock(QUICK);
    let replay =
        ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m", "--json"];
    let windowed = place.json(0, &[&replay[..], &["--from", "1s", "--to", "3s", "--speed", "4"]].concat());
    let planned = windowed["run"]["counts"]["planned"].as_u64().unwrap();
    assert!(planned > 0 && planned < 60, "{planned}");
    let limited = place.json(0, &[&replay[..], &["--limit", "3"]].concat());
    assert_eq!(limited["run"]["counts"]["planned"], 3);
    let looped =
        place.json(0, &[&replay[..], &["--limit", "5", "--closed-loop", "1", "--cache", "warm"]].concat());
    assert_eq!(
        (looped["run"]["counts"]["ok"].as_u64(), looped["process"]["primed"].as_u64()),
        (Some(5), Some(5))
    );
}

#[test]
fn standard_input_is_read_and_what_is_wrong_in_it_is_told_by_position() {
    let place = Place::new();
    let rows = "ts,prompt_len,out\n2026-01-01T00:00:00Z,10,5\nyesterday,10,5\n2026-01-01T00:00:01Z,11,6\n";
    place.write("log.csv", rows);
    let map = "arrival=ts,input_tokens=prompt_len,output_tokens=out";
    let args = ["ingest", "-", "-o", "t.parquet", "--map", map];
    let mut command = place.command(&args);
    command.stdin(std::fs::File::open(place.path("log.csv")).unwrap());
    let output = command.output().unwrap();
    let told = text(&output.stdout);
    assert_eq!(output.status.code(), Some(20), "{told}{}", text(&output.stderr));
    assert!(told.contains("line 3") && told.contains("ts"), "{told}");
    assert_eq!(place.json(0, &["inspect", "t.parquet", "--json"])["requests"], 2);
    place.expect(0, &["ingest", "log.csv", "-o", "u.parquet", "--map", map, "--max-rejects", "1"]);
}

#[test]
fn rows_without_token_counts_are_refused_or_left_out_and_then_every_summary_says_so() {
    let place = Place::new();
    let rows = "ts,in,out\n2026-01-01T00:00:00Z,10,5\n2026-01-01T00:00:01Z,10,\n2026-01-01T00:00:02Z,11,6\n";
    place.write("log.csv", rows);
    let map = "arrival=ts,input_tokens=in,output_tokens=out";
    place.expect(0, &["ingest", "log.csv", "-o", "t.parquet", "--map", map]);
    let mock = place.mock(QUICK);
    let base = [
        "replay",
        "t.parquet",
        "--target",
        &mock.url,
        "--protocol",
        "openai-chat",
        "--model",
        "m",
        "--speed",
        "10",
    ];
    assert!(place.fails(2, &base).contains("--unknown-tokens skip"));
    let told = place.expect(0, &[&base[..], &["--unknown-tokens", "skip"]].concat());
    assert!(told.contains("rows_left_out"), "{told}");
    let run = std::fs::read_dir(place.path("runs")).unwrap().next().unwrap().unwrap().path();
    let again = place.expect(0, &["inspect", run.to_str().unwrap()]);
    assert_eq!(again, told, "a run can be summed up again");
    let warnings = &place.json(0, &["inspect", run.to_str().unwrap(), "--json"])["warnings"];
    assert_eq!(warnings[0]["code"], "rows_left_out");
}

#[test]
fn the_scenario_file_replaces_the_flags() {
    let place = Place::new();
    place.small_timeline(4);
    let mock = place.mock(QUICK);
    let target = format!("[target]\nurl = \"{}\"\nprotocol = \"openai-chat\"\nmodel = \"m\"\n", mock.url);
    place.write("tracewheel.toml", &format!("version = 1\ntimeline = \"t.parquet\"\nruns = \"r\"\n{target}"));
    let report = place.json(0, &["replay", "--json"]);
    assert_eq!(report["run"]["counts"]["ok"], 4);
    place.write("tracewheel.toml", "version = 1\n[target]\nadress = \"x\"\n");
    assert!(place.fails(2, &["replay"]).contains("adress"));
}

#[test]
fn what_is_missing_or_wrong_is_told_with_the_remedy_and_nothing_is_sent() {
    let place = Place::new();
    place.small_timeline(2);
    assert!(place.fails(2, &["replay", "t.parquet"]).contains("--target"));
    assert!(
        place.fails(2, &["replay", "t.parquet", "--target", "http://127.0.0.1:9"]).contains("--protocol")
    );
    let base = ["replay", "t.parquet", "--target", "http://127.0.0.1:9", "--model", "m", "--protocol"];
    assert!(place.fails(2, &[&base[..], &["openai"]].concat()).contains("openai-chat"));
    let chat = [&base[..], &["openai-chat"]].concat();
    assert!(place.fails(2, &[&chat[..], &["--speed", "0"]].concat()).contains("speed"));
    assert!(place.fails(2, &[&chat[..], &["--retry", "twice"]].concat()).contains("openai-sdk"));
    assert!(
        place.fails(2, &[&chat[..], &["--api-key-env", "NOT_SET_HERE"]].concat()).contains("NOT_SET_HERE")
    );
    assert!(place.fails(2, &["inspect", "nowhere.parquet"]).contains("nowhere.parquet"));
    place.write("no.parquet", "this is no Parquet file");
    assert!(place.fails(2, &["inspect", "no.parquet"]).contains("no.parquet"));
    assert!(place.fails(2, &["ingest", "no.parquet", "-o", "x.parquet"]).contains("no.parquet"));
    assert!(!place.path("runs").exists());
}

#[test]
fn the_mock_describes_itself_and_refuses_a_configuration_that_it_does_not_know() {
    let place = Place::new();
    assert!(place.expect(0, &["mock", "--describe"]).contains("prompt token"));
    place.write("mock.toml", "[engine]\nspeed = 9\n");
    let told = place.fails(2, &["mock", "--config", "mock.toml", "--check"]);
    assert!(told.contains("mock.toml") && told.contains("line 2: unknown field `speed`"), "{told}");
    place.write("mock.toml", "[cache]\nblock_token = 9\n");
    let told = place.fails(2, &["mock", "--config", "mock.toml", "--describe"]);
    assert!(told.contains("did you mean `block_tokens`?"), "{told}");
    place.write("mock.toml", &place.expect(0, &["mock", "--print-config"]));
    assert_eq!(place.expect(0, &["mock", "--config", "mock.toml", "--check"]), "");
    let described = place.json(0, &["mock", "--config", "mock.toml", "--describe", "--json"]);
    assert_eq!((&described["config"]["seed"], &described["places"]), (&1.into(), &64.into()));
    let demo = fixture("demo/production.toml");
    place.expect(0, &["mock", "--describe", "--config", demo.to_str().unwrap()]);
}

#[test]
fn tables_carry_no_colour_codes_unless_asked_to() {
    let place = Place::new();
    place.small_timeline(5);
    assert!(!place.expect(0, &["inspect", "t.parquet"]).contains('\u{1b}'));
}

#[test]
fn a_mock_tells_scripts_its_address_and_sums_up_what_it_did_when_it_is_stopped() {
    let place = Place::new();
    place.write(
        "mock.toml",
        "[[fault]]\nname = \"down\"\nkind = \"status\"\nstatus = 503\npath = \"/health\"\n",
    );
    let args = ["mock", "--listen", "127.0.0.1:0", "--config", "mock.toml", "--witness-log", "w.jsonl"];
    let mut command = place.command(&args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("http://").expect("nothing but the address");
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: m\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let told = text(&output.stderr);
    assert!(
        told.contains("served 1 requests on 1 connections: 1 × 503") && told.contains("faults: down 1"),
        "{told}"
    );
    assert!(std::fs::read_to_string(place.path("w.jsonl")).unwrap().contains("\"fault\":\"down\""));
}

#[test]
fn a_warm_up_is_sent_and_counted_and_every_report_leaves_it_out() {
    let place = Place::new();
    place.small_timeline(60);
    let mock = place.mock(QUICK);
    let replay =
        ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m", "--json"];
    let report = place.json(0, &[&replay[..], &["--speed", "4", "--warmup", "1s"]].concat());
    let warm = report["process"]["warmup"].as_u64().unwrap();
    assert!(warm > 0 && warm < 60, "{warm}");
    let counts = &report["run"]["counts"];
    assert_eq!((&counts["planned"], &counts["ok"]), (&(60 - warm).into(), &(60 - warm).into()));
    let run = report["run_dir"].as_str().unwrap();
    let inspected = place.json(0, &["inspect", run, "--json"]);
    let counts = &inspected["run"]["counts"];
    assert_eq!((&counts["other_phases"], &counts["planned"]), (&warm.into(), &(60 - warm).into()));
    let comparison = place.json(0, &["compare", run, "--with", run, "--json"]);
    for side in ["replay", "baseline"] {
        let side = &comparison[side];
        assert_eq!(side["counts"]["planned"], 60 - warm);
        assert_eq!(side["counts"]["other_phases"], warm);
    }
    // The window that is told begins behind the warm-up.
    let manifest = std::fs::read_to_string(place.path(run).join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let told = &comparison["replay"]["window"]["trace_from_unix_ns"];
    assert_eq!(told, &manifest["plan"]["window"]["from_unix_ns"]);
    assert_eq!(
        (&manifest["plan"]["requests"], &manifest["outcome"]["counts"]["ok"]),
        (&60.into(), &60.into())
    );
}

#[test]
fn a_thinned_replay_tells_the_share_that_it_achieved() {
    let place = Place::new();
    place.small_timeline(60);
    let mock = place.mock(QUICK);
    let replay = ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
    let thinned = [&replay[..], &["--speed", "8", "--thin", "50%", "--json"]].concat();
    let (first, second) = (place.json(0, &thinned), place.json(0, &thinned));
    let thinned = &first["process"]["thinned"];
    assert_eq!(thinned, &second["process"]["thinned"], "the seed decides");
    let kept = first["run"]["counts"]["planned"].as_u64().unwrap();
    assert_eq!(thinned["requests_dropped"], 60 - kept);
    assert_eq!(thinned["share"], "0.5");
    assert!((thinned["requests_share"].as_f64().unwrap() - kept as f64 / 60.0).abs() < 1e-12);
    let told = place.run(&[&replay[..], &["--speed", "8", "--thin", "0.5"]].concat());
    assert!(text(&told.stderr).contains("(asked for 0.5)"), "{}", text(&told.stderr));
    let wrong = place.fails(2, &[&replay[..], &["--thin", "1.5"]].concat());
    assert!(wrong.contains("--thin") && wrong.contains("0.25"), "{wrong}");
}
