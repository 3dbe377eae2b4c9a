//! No secret and no prompt or answer text in any output by default: every column decoded, then searched.

use std::fs;
use std::path::Path;

use tracewheel_record::Run;
use tracewheel_tokens::WORDS;

use crate::harness::{Place, QUICK, text};

const KEY: &str = "sk-test-3f9c1d7e5b2a4860";

/// Every string in every column of a run, as text.
fn decoded(run: &Path) -> String {
    let run = Run::open(run).unwrap();
    let requests = run.requests().unwrap().map(|row| format!("{:?}\n", row.unwrap()));
    let attempts = run.attempts().unwrap().map(|row| format!("{:?}\n", row.unwrap()));
    let health = run.health().unwrap().map(|row| format!("{:?}\n", row.unwrap()));
    requests.chain(attempts).chain(health).collect()
}

/// Bytes of every file below a folder.
fn raw(folder: &Path, into: &mut Vec<u8>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { raw(&path, into) } else { into.extend(fs::read(path).unwrap()) }
    }
}

/// Words of the prompts' list in a row that our own messages, plain English like the list, never reach.
const PROSE_WORDS: usize = 10;

/// Whether so many words of the prompts' word list stand in a row that they are a prompt's or an answer's.
fn holds_prose(text: &str) -> bool {
    let words: std::collections::HashSet<&str> = WORDS.iter().copied().collect();
    let mut in_a_row = 0;
    text.split_ascii_whitespace().any(|word| {
        in_a_row = if words.contains(word) { in_a_row + 1 } else { 0 };
        in_a_row >= PROSE_WORDS
    })
}

#[test]
fn neither_the_key_nor_a_prompt_nor_an_answer_is_in_anything_that_a_replay_leaves() {
    let place = Place::new();
    place.small_timeline(8);
    place.write("key", KEY);
    let limits =
        "[limits]\nrequests_per_minute = 60\nrequest_burst = 2\n[http]\nrequire_authorization = true\n";
    let mock = place.mock(&format!("{QUICK}{limits}"));
    let url = mock.url.replace("http://", "http://user:pass-7d1f@");
    let base =
        ["--log", "trace", "replay", "t.parquet", "--protocol", "openai-chat", "--model", "m", "--json"];
    let with_userinfo = place.run(&[&base[..], &["--api-key-file", "key", "--target", &url]].concat());
    let plain = place.run(&[&base[..], &["--api-key-file", "key", "--target", &mock.url]].concat());
    mock.stop();
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain.stderr));
    let mut all = Vec::new();
    raw(&place.path("runs"), &mut all);
    for output in [&with_userinfo, &plain] {
        all.extend(&output.stdout);
        all.extend(&output.stderr);
    }
    let mut all = String::from_utf8_lossy(&all).into_owned();
    for run in fs::read_dir(place.path("runs")).unwrap() {
        all.push_str(&decoded(&run.unwrap().path()));
    }
    assert!(!all.contains(KEY), "the API key is in an output");
    assert!(!all.contains("pass-7d1f"), "the target's password is in an output");
    assert!(!holds_prose(&all), "prompt or answer text is in an output");
    assert!(holds_prose(&format!("x {}", WORDS[..PROSE_WORDS].join(" "))), "the search finds nothing");
}

#[test]
fn no_key_of_a_pool_no_secret_header_and_no_tenants_name_is_in_anything_that_routes_leave() {
    let place = Place::new();
    let rows = (0..8).map(|n| format!("2026-01-01T00:00:00.{n}Z,20,5,tenant-zebra,m{}\n", n % 2));
    place.write("log.csv", &format!("ts,in,out,who,model\n{}", rows.collect::<String>()));
    let map = "arrival=ts,input_tokens=in,output_tokens=out,tenant=who,model=model";
    place.expect(0, &["ingest", "log.csv", "-o", "t.parquet", "--map", map]);
    let other = KEY.replace("sk-test", "sk-pool");
    place.write("one", KEY);
    place.write("two", &other);
    // Some answers are refusals, and bodies of errors are recorded.
    let mock = place.mock(&format!("{QUICK}[limits]\nrequests_per_minute = 60\nrequest_burst = 6\n"));
    let url = &mock.url;
    place.write(
        "s.toml",
        &format!(
            "version = 1\n[target]\nurl = \"{url}\"\nprotocol = \"openai-chat\"\n\
             [[routes]]\nname = \"pool\"\ntenants = [\"tenant-zebra\"]\nmodels = [\"m0\"]\napi_key_files = [\"one\", \"two\"]\n\
             headers_env = {{ x-pass = \"SECRET_PASS\" }}\n[[routes]]\nurl = \"{url}\"\n"
        ),
    );
    let mut command =
        place.command(&["--log", "trace", "replay", "t.parquet", "--scenario", "s.toml", "--json"]);
    let output = command.env("SECRET_PASS", "pass-of-a-header-5c2e").output().unwrap();
    mock.stop();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut all = Vec::new();
    raw(&place.path("runs"), &mut all);
    let mut all = text(&all) + &text(&output.stdout) + &text(&output.stderr);
    for run in fs::read_dir(place.path("runs")).unwrap() {
        all.push_str(&decoded(&run.unwrap().path()));
    }
    assert!(all.contains("file:one, file:two"), "the search covers the manifest");
    for secret in [KEY, other.as_str(), "pass-of-a-header-5c2e", "tenant-zebra"] {
        assert!(!all.contains(secret), "{secret} is in an output");
    }
}

#[test]
fn ids_of_a_log_leave_an_import_only_as_keyed_hashes() {
    let place = Place::new();
    place.write(
        "log.csv",
        "ts,in,out,who,conv\n2026-01-01T00:00:00Z,10,5,alice@example.org,conversation-77\n",
    );
    let map = "arrival=ts,input_tokens=in,output_tokens=out,user=who,session=conv";
    let output = place.run(&["ingest", "log.csv", "-o", "t.parquet", "--map", map, "--log", "trace"]);
    assert!(text(&output.stderr).contains("log opened"), "the search covers the logs");
    let told = text(&output.stdout) + &text(&output.stderr);
    place.expect(0, &["ingest", "log.csv", "-o", "u.parquet", "--map", map, "--key-file", "other"]);
    let bytes = fs::read(place.path("t.parquet")).unwrap();
    let timeline = tracewheel_timeline::Timeline::open(place.path("t.parquet")).unwrap();
    let (_, row) = timeline.rows().next().unwrap().unwrap();
    let all = format!("{told}{}{row:?}", String::from_utf8_lossy(&bytes));
    assert!(!all.contains("alice") && !all.contains("conversation-77"));
    let other = tracewheel_timeline::Timeline::open(place.path("u.parquet")).unwrap();
    let (_, other) = other.rows().next().unwrap().unwrap();
    assert!(row.user_hash.is_some() && row.user_hash != other.user_hash, "another key gives other hashes");
}
