//! One log with several models, operations and tenants, replayed by a table of routes against several endpoints.

use std::collections::BTreeMap;

use serde_json::Value;
use tracewheel_record::{RequestRecord, Run};

use crate::harness::{Place, QUICK, text};
use crate::pki::{self, Authority};

const KEYS: [(&str, &str); 3] =
    [("BIG_1", "sk-big-one-4f1d7c"), ("BIG_2", "sk-big-two-9a0b3e"), ("CLAUDE", "sk-claude-77e1c2")];

/// Chats with two models, of which some are of the tenant acme, and embeddings; sessions among them.
fn mixed_log(place: &Place, rows: usize) {
    let line = |n: usize| {
        let (model, operation) =
            [("gpt-4o", "chat"), ("claude-x", "chat"), ("gpt-4o-mini", "chat"), ("ada", "embeddings")][n % 4];
        let (second, ms) = (n * 25 / 1_000, n * 25 % 1_000);
        format!(
            r#"{{"at":"2026-01-01T00:00:{second:02}.{ms:03}Z","in":{},"out":6,"model":"{model}","op":"{operation}","who":"{}","conv":"c{}","stream":{}}}"#,
            40 + n,
            if n % 8 < 4 { "acme" } else { "other" },
            n % 12,
            operation == "chat",
        ) + "\n"
    };
    place.write("log.jsonl", &(0..rows).map(line).collect::<String>());
    let map = "arrival=at,input_tokens=in,output_tokens=out,model=model,operation=op,tenant=who,session=conv,stream=stream";
    place.expect(0, &["ingest", "log.jsonl", "-o", "t.parquet", "--map", map]);
}

fn scenario(big: &str, claude: &str, small: &str) -> String {
    format!(
        r#"version = 1
timeline = "t.parquet"

[target]
protocol = "openai-chat"

[[routes]]
name = "acme"
tenants = ["acme"]
operations = ["chat"]
models = ["gpt-4o"]
url = "{small}"
model = "acme-model"

[[routes]]
name = "big"
models = ["gpt-4o"]
url = "{big}"
model = "llama-70b"
api_keys_env = ["BIG_1", "BIG_2"]
headers = {{ x-load = "yes" }}

[[routes]]
name = "claude"
models = ["claude-*"]
url = "{claude}"
protocol = "anthropic-messages"
api_key_env = "CLAUDE"

[[routes]]
name = "embeddings"
operations = ["embeddings"]
url = "{small}"
protocol = "openai-embeddings"
model = "bge"

[[routes]]
name = "rest"
url = "{small}"

[replay]
speed = 2
"#
    )
}

/// The witness log of a mock, by request id.
fn witness(place: &Place, name: &str) -> BTreeMap<String, Value> {
    let log = std::fs::read_to_string(place.path(name)).unwrap();
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|line| (line["request_id"].as_str().unwrap().to_owned(), line))
        .collect()
}

fn replay(place: &Place, args: &[&str]) -> std::process::Output {
    let mut command = place.command(&[&["replay"], args].concat());
    command.envs(KEYS).output().unwrap()
}

#[test]
fn a_mixed_log_goes_to_three_endpoints_by_its_routes_and_the_run_says_by_which() {
    let place = Place::new();
    mixed_log(&place, 48);
    let with_keys = format!("{QUICK}[http]\nrequire_authorization = true\n");
    let big = place.mock_with_log(&with_keys, "big.jsonl");
    let claude = place.mock_with_log(&with_keys, "claude.jsonl");
    let small = place.mock_with_log(QUICK, "small.jsonl");
    place.write("s.toml", &scenario(&big.url, &claude.url, &small.url));
    let output = replay(&place, &["--scenario", "s.toml", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for mock in [big, claude, small] {
        mock.stop();
    }
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["run"]["counts"]["ok"], 48, "{report}");
    let dir = place.path(report["run_dir"].as_str().unwrap());
    let run = Run::open(&dir).unwrap();
    let requests: Vec<RequestRecord> = run.requests().unwrap().map(Result::unwrap).collect();
    let attempts: BTreeMap<u64, String> = run
        .attempts()
        .unwrap()
        .map(Result::unwrap)
        .map(|attempt| (attempt.row, attempt.request_id.unwrap().to_string()))
        .collect();
    let seen = ["big", "claude", "small"].map(|name| (name, witness(&place, &format!("{name}.jsonl"))));
    let mut taken: BTreeMap<&str, u64> = BTreeMap::new();
    for request in &requests {
        let n = request.row as usize;
        let (route, server, model, path) = match (n % 4, n % 8 < 4) {
            (0, true) => ("acme", "small", "acme-model", "/v1/chat/completions"),
            (0, false) => ("big", "big", "llama-70b", "/v1/chat/completions"),
            (1, _) => ("claude", "claude", "claude-x", "/v1/messages"),
            (2, _) => ("rest", "small", "gpt-4o-mini", "/v1/chat/completions"),
            _ => ("embeddings", "small", "bge", "/v1/embeddings"),
        };
        assert_eq!(request.sent_route.as_deref(), Some(route), "row {n}");
        let id = &attempts[&request.row];
        for (name, log) in &seen {
            let line = log.get(id);
            assert_eq!(line.is_some(), *name == server, "row {n} at {name}");
            if let Some(line) = line {
                assert_eq!(
                    (line["path"].as_str(), line["model"].as_str()),
                    (Some(path), Some(model)),
                    "row {n}"
                );
            }
        }
        *taken.entry(route).or_default() += 1;
    }
    let summed = report["routes"].as_array().unwrap().iter();
    let summed: BTreeMap<&str, u64> =
        summed.map(|class| (class["route"].as_str().unwrap(), class["ok"].as_u64().unwrap())).collect();
    assert_eq!(summed, taken);
    let manifest = run.manifest();
    let told: BTreeMap<&str, u64> =
        manifest.target.routes.iter().map(|r| (r.name.as_deref().unwrap(), r.requests.unwrap())).collect();
    assert_eq!(told, taken);
    assert_eq!(manifest.target.routes[1].key_from.as_deref(), Some("env:BIG_1, env:BIG_2"));
    let shown = place.expect(0, &["inspect", report["run_dir"].as_str().unwrap()]);
    assert!(shown.contains("\nRoutes\nroute ") && shown.contains("\nembeddings "), "{shown}");
    // What the manifest holds is a scenario again, and names neither a key nor a tenant.
    let resolved = manifest.scenario.text.clone().unwrap();
    assert!(!resolved.contains("\"acme\"]") && !resolved.contains("sk-"), "{resolved}");
    place.write("again.toml", &resolved.replace("[[hooks]]", ""));
    let output = replay(&place, &["--scenario", "again.toml", "--json"]);
    assert_eq!(output.status.code(), Some(30), "the endpoints are gone: {}", text(&output.stderr));
    let all = format!("{}{}", text(&output.stderr), serde_json::to_string(manifest).unwrap());
    assert!(KEYS.iter().all(|(_, key)| !all.contains(key)));
}

#[test]
fn a_request_that_no_route_takes_ends_the_replay_before_anything_is_sent() {
    let place = Place::new();
    mixed_log(&place, 8);
    let mock = place.mock(QUICK);
    let whole = scenario(&mock.url, &mock.url, &mock.url);
    let without_rest = whole.replace(&format!("[[routes]]\nname = \"rest\"\nurl = \"{}\"\n", mock.url), "");
    place.write("s.toml", &without_rest);
    let output = replay(&place, &["--scenario", "s.toml"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("no route takes 2 requests (2 chat of the model \"gpt-4o-mini\")"), "{told}");
    assert!(
        told.contains("row 2")
            && told.contains("[[routes]] with operations = [\"chat\"], models = [\"gpt-4o-mini\"]"),
        "{told}"
    );
    // Another key hashes other tenants, which would find nobody.
    place.write("other-key", "another key, long enough for ids");
    place.write("s.toml", &whole.replace("timeline =", "id_key_file = \"other-key\"\ntimeline ="));
    let output = replay(&place, &["--scenario", "s.toml"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("hashed with another key") && told.contains("tenant_hashes"), "{told}");
    place.write("s.toml", &whole);
    let output = replay(&place, &["--scenario", "s.toml", "--model", "m"]);
    assert!(text(&output.stderr).contains("--model is for one target"), "{}", text(&output.stderr));
    mock.stop();
    assert!(witness(&place, "witness.jsonl").is_empty() && !place.path("runs").exists());
}

#[test]
fn each_route_has_its_own_authority_and_a_wrong_one_ends_the_run_before_anything_is_sent() {
    let place = Place::new();
    mixed_log(&place, 8);
    let mock = place.mock(QUICK);
    let authority = Authority::new();
    let address = mock.url.strip_prefix("http://").unwrap().parse().unwrap();
    let proxy = pki::proxy(authority.issue(&["127.0.0.1"]).server(), address);
    std::fs::create_dir(place.path("team")).unwrap();
    place.write("team/ca.pem", authority.pem());
    place.write("team/other.pem", Authority::new().pem());
    // The authority's file lies beside the scenario, wherever the command runs.
    let table = |file: &str| {
        format!(
            "version = 1\n[target]\nprotocol = \"openai-chat\"\nmodel = \"m\"\n\
             [[routes]]\nname = \"secure\"\noperations = [\"chat\"]\nurl = \"https://{proxy}\"\nca_file = \"{file}\"\n\
             [[routes]]\nname = \"plain\"\nurl = \"{}\"\n",
            mock.url
        )
    };
    place.write("team/s.toml", &table("ca.pem"));
    let report = place.json(0, &["replay", "t.parquet", "--scenario", "team/s.toml", "--json"]);
    assert_eq!(report["run"]["counts"]["ok"], 8, "{report}");
    let run = Run::open(&place.path(report["run_dir"].as_str().unwrap())).unwrap();
    let tls = run.manifest().tls.clone().unwrap();
    assert_eq!((tls.verified, tls.certificate_issuer.as_deref()), (Some(true), Some("CN=Test CA")));
    assert_eq!(run.manifest().target.resolved_addresses.len(), 2);
    place.write("team/s.toml", &table("other.pem"));
    let told = place.fails(30, &["replay", "t.parquet", "--scenario", "team/s.toml"]);
    assert!(
        told.contains(&format!("cannot connect to https://{proxy}")) && told.contains("run_aborted 8"),
        "{told}"
    );
    mock.stop();
}
