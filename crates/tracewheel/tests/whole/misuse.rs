//! Wrong files, wrong flags, wrong order: the exit code that the table promises, a remedy, and nothing destroyed.

use std::fs;

use crate::harness::{Place, QUICK};

/// A replay of nothing at an address where nobody listens; the flags decide before anything is sent.
fn replay<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let base = [
        "replay",
        "t.parquet",
        "--target",
        "http://127.0.0.1:9",
        "--protocol",
        "openai-chat",
        "--model",
        "m",
    ];
    [&base[..], more].concat()
}

#[test]
fn an_import_never_replaces_a_log_or_a_folder() {
    let place = Place::new();
    place.small_timeline(3);
    let log = fs::read(place.path("trace.csv")).unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    place.write("other.log", "something else\n");
    for output in ["trace.csv", "./trace.csv", "other.log", "folder"] {
        place.fails(2, &["ingest", "trace.csv", "-o", output]);
    }
    assert_eq!(fs::read(place.path("trace.csv")).unwrap(), log);
    assert_eq!(fs::read_to_string(place.path("other.log")).unwrap(), "something else\n");
    place.expect(0, &["ingest", "trace.csv", "-o", "t.parquet"]);
    assert!(place.fails(40, &["ingest", "trace.csv", "-o", "nowhere/t.parquet"]).contains("nowhere"));
}

#[test]
fn the_causes_of_an_error_are_told_once() {
    let place = Place::new();
    fs::create_dir(place.path("folder")).unwrap();
    for args in [
        &["ingest", "folder", "-o", "x.parquet"][..],
        &["ingest", "missing.csv", "-o", "x.parquet"],
        &["inspect", "folder"],
        &["inspect", "missing.parquet"],
    ] {
        let told = place.fails(2, args);
        assert!(told.matches("os error").count() <= 1 && told.matches("irectory").count() <= 1, "{told}");
    }
}

#[test]
fn a_negative_value_is_refused_by_name_and_a_negative_zone_is_taken() {
    let place = Place::new();
    place.small_timeline(2);
    for (flag, value, part) in [
        ("--from", "-5s", "negative"),
        ("--to", "-5s", "negative"),
        ("--timeout", "-1s", "negative"),
        ("--speed", "-1", "no speed"),
        ("--limit", "-1", "--limit"),
        ("--workers", "-1", "--workers"),
    ] {
        let told = place.fails(2, &replay(&[flag, value]));
        assert!(told.contains(part) && !told.contains("unexpected argument"), "{flag} {value}: {told}");
    }
    place.write("naive.csv", "ts,in,out\n2026-01-01 00:00:00,10,5\n");
    let map = "arrival=ts,input_tokens=in,output_tokens=out";
    let told = place.expect(0, &["ingest", "naive.csv", "-o", "n.parquet", "--map", map, "--zone", "-05:00"]);
    assert!(told.contains("2026-01-01T05:00:00"), "{told}");
}

#[test]
fn a_target_that_is_none_is_a_usage_error_and_its_secrets_are_not_repeated() {
    let place = Place::new();
    place.small_timeline(2);
    let base = ["replay", "t.parquet", "--protocol", "openai-chat", "--model", "m", "--target"];
    for (url, part) in [
        ("ftp://127.0.0.1:9", "http and https are spoken"),
        ("https://me:hunter2@127.0.0.1:9", "user information"),
        ("http://me:hunter2@127.0.0.1:9", "user information"),
        ("me:hunter2@127.0.0.1:9", "http://HOST:PORT"),
        ("http://127.0.0.1:9/?key=hunter2", "query"),
        ("http://127.0.0.1:99999", "port"),
        ("http://", "http://HOST:PORT"),
    ] {
        let told = place.fails(2, &[&base[..], &[url]].concat());
        assert!(told.contains(part) && !told.contains("hunter2"), "{url}: {told}");
    }
    assert!(place.fails(2, &replay(&["--workers", "65535"])).contains("workers"));
    assert!(!place.path("runs").exists());
}

#[test]
fn runs_that_cannot_be_written_end_with_the_code_for_output() {
    let place = Place::new();
    place.small_timeline(2);
    place.write("taken", "a file");
    assert!(place.fails(40, &replay(&["-o", "taken"])).contains("taken"));
    place.fails(40, &["mock", "--listen", "127.0.0.1:0", "--witness-log", "nowhere/w.jsonl"]);
}

#[test]
fn an_address_in_use_is_told_with_the_remedy() {
    let place = Place::new();
    let mock = place.mock(QUICK);
    let address = mock.url.trim_start_matches("http://").to_owned();
    let told = place.fails(2, &["mock", "--listen", &address, "--witness-log", "witness.jsonl"]);
    assert!(told.contains("port 0") && told.contains(&address), "{told}");
}

#[test]
fn a_broken_run_is_a_bad_input_and_no_internal_error() {
    let place = Place::new();
    place.small_timeline(2);
    let mock = place.mock(QUICK);
    let target = ["--target", &mock.url, "--protocol", "openai-chat", "--model", "m", "--json"];
    let report = place.json(0, &[&["replay", "t.parquet", "--speed", "100"][..], &target].concat());
    let run = report["run_dir"].as_str().unwrap();
    assert!(place.fails(2, &[&["replay", run][..], &target].concat()).contains("`compare`"));
    place.fails(2, &["compare", "t.parquet", "--with", run]);
    for table in ["requests", "attempts", "health"] {
        let part = place.path(run).join(table).join("part-0-0.parquet");
        let whole = fs::read(&part).unwrap();
        fs::write(&part, &whole[..whole.len() / 2]).unwrap();
        let told = place.fails(2, &["compare", run, "--with", "t.parquet"]);
        assert!(told.contains("part-0-0.parquet") && told.matches("broken part").count() == 1, "{told}");
        fs::write(&part, &whole).unwrap();
    }
    place.expect(0, &["compare", run, "--with", "t.parquet"]);
}

#[test]
fn the_mocks_logs_replace_nothing_but_older_logs_of_their_kind() {
    let place = Place::new();
    place.mock(QUICK).stop();
    let mock = ["mock", "--listen", "127.0.0.1:0", "--config", "mock.toml"];
    place.write("precious.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n");
    for (more, part) in [
        (&["--gateway-log", "precious.csv"][..], "is not replaced"),
        (&["--witness-log", "precious.csv"], "is not replaced"),
        (&["--witness-log", "mock.toml"], "would replace the configuration"),
        (&["--witness-log", "w.jsonl", "--gateway-log", "./w.jsonl"], "are both to be"),
    ] {
        let told = place.fails(2, &[&mock[..], more].concat());
        assert!(told.contains(part) && told.contains("another name"), "{more:?}: {told}");
    }
    assert!(fs::read_to_string(place.path("precious.csv")).unwrap().starts_with("TIMESTAMP"));
    assert_eq!(fs::read_to_string(place.path("mock.toml")).unwrap(), QUICK);
    assert!(!place.path("w.jsonl").exists());
    // Its own older log is replaced.
    place.small_timeline(2);
    let mock = place.mock(QUICK);
    let to_mock = ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
    place.expect(0, &to_mock);
    mock.stop();
    assert!(fs::metadata(place.path("witness.jsonl")).unwrap().len() > 0);
    place.mock(QUICK).stop();
    assert_eq!(fs::metadata(place.path("witness.jsonl")).unwrap().len(), 0);
}

#[test]
fn a_log_file_is_appended_to_logs_only() {
    let place = Place::new();
    let timeline = place.small_timeline(3);
    let (before, trace) = (fs::read(&timeline).unwrap(), fs::read(place.path("trace.csv")).unwrap());
    let ingest = |log| ["ingest", "trace.csv", "-o", "new.parquet", "--log", "info", "--log-file", log];
    assert!(place.fails(2, &ingest("t.parquet")).contains("no log of tracewheel"));
    for own in ["trace.csv", "./new.parquet"] {
        assert!(place.fails(2, &ingest(own)).contains("reads or writes itself"), "{own}");
    }
    assert_eq!(fs::read(&timeline).unwrap(), before);
    assert_eq!(fs::read(place.path("trace.csv")).unwrap(), trace);
    for _ in 0..2 {
        place.expect(0, &ingest("log.txt"));
        place.expect(0, &[&ingest("log.json")[..], &["--log-format", "json"]].concat());
    }
    for log in ["log.txt", "log.json"] {
        let text = fs::read_to_string(place.path(log)).unwrap();
        assert_eq!(text.matches("timeline written").count(), 2, "{log}");
    }
}

#[test]
fn keys_scenarios_and_configurations_are_read_from_files_of_a_sensible_size() {
    let place = Place::new();
    place.small_timeline(2);
    nix::unistd::mkfifo(&place.path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::File::create(place.path("huge")).unwrap().set_len(1 << 33).unwrap();
    for (path, part) in [("fifo", "a named pipe"), ("/dev/zero", "a device"), ("huge", "larger than")] {
        for args in [
            &["ingest", "trace.csv", "-o", "x.parquet", "--key-file", path][..],
            &["mock", "--check", "--config", path],
            &["replay", "--scenario", path],
            &replay(&["--api-key-file", path]),
        ] {
            let told = place.fails(2, args);
            assert!(told.contains(part) && told.contains(path), "{args:?}: {told}");
        }
    }
}
