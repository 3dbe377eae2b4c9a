//! Hooks: done when the answer says so, and nothing is sent when it does not.

use serde_json::Value;

use super::cache::{replay, timeline};
use super::harness::{Place, QUICK, WIDE_SCENARIO};

/// A mock whose first `busy` flushes do nothing.
fn mock_toml(busy: u32, tells: &str) -> String {
    format!("{QUICK}[flush]\nbusy_answers = {busy}\ntells = \"{tells}\"\n")
}

fn scenario(place: &Place, hooks: &str) {
    place.write("tracewheel.toml", &format!("{WIDE_SCENARIO}{hooks}"));
}

/// Outcome, tries and status of the only hook.
fn only(manifest: &Value) -> (&str, u64, i64) {
    let [hook] = &manifest["hooks"].as_array().unwrap()[..] else { panic!("one hook: {manifest}") };
    (hook["outcome"].as_str().unwrap(), hook["tries"].as_u64().unwrap(), hook["status"].as_i64().unwrap())
}

#[test]
fn each_engines_cache_is_emptied_as_soon_as_it_is_no_longer_busy() {
    for (engine, tries) in [("vllm", 2), ("sglang", 2), ("llamacpp", 2)] {
        let place = Place::new();
        timeline(&place);
        let mock = place.mock(&mock_toml(1, "result"));
        let (summary, manifest) = replay(&place, &mock.url, 0, &["--flush", engine]);
        assert_eq!(only(&manifest), ("done", tries, 200), "{engine}");
        assert_eq!(manifest["cache"]["hooks"][0], format!("before-prime {engine}"));
        assert_eq!(summary["run"]["counts"]["ok"], 8);
    }
}

#[test]
fn lmcache_is_asked_until_nothing_is_left_to_clear() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(&mock_toml(0, "result"));
    let (_, first) = replay(&place, &mock.url, 0, &["--limit", "1"]);
    assert_eq!(first["hooks"], Value::Array(Vec::new()));
    scenario(
        &place,
        &format!("[[hooks]]\npreset = \"lmcache\"\nurl = \"{}\"\ninstance = \"one\"\n", mock.url),
    );
    let (_, manifest) = replay(&place, &mock.url, 0, &[]);
    assert_eq!(only(&manifest), ("done", 2, 200), "scheduled, then done");
    assert!(manifest["hooks"][0]["answer"].as_str().unwrap().contains("\"num_tokens\":0"));
}

#[test]
fn a_hook_that_fails_ends_the_run_before_its_first_send_unless_that_is_ignored() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(&mock_toml(1_000, "result"));
    scenario(&place, "[[hooks]]\npreset = \"vllm\"\nwait = \"700ms\"\n");
    let base = ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
    let told = place.fails(30, &base);
    for part in [
        "the hook vllm (POST http://127.0.0.1",
        "/reset_prefix_cache)",
        "success: false",
        "--ignore-hook-failure",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let runs: Vec<_> = std::fs::read_dir(place.path("runs")).unwrap().collect();
    let run = runs[0].as_ref().unwrap().path();
    let manifest: Value = serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap();
    assert_eq!((only(&manifest).0, &manifest["outcome"]["counts"]["unsent"]), ("failed", &Value::from(8)));
    let (summary, manifest) = replay(&place, &mock.url, 0, &["--ignore-hook-failure"]);
    assert_eq!((only(&manifest).0, &summary["run"]["counts"]["ok"]), ("failed", &Value::from(8)));
    let warned = manifest["warnings"].to_string();
    assert!(warned.contains("the hook vllm before-prime failed"), "{warned}");
}

#[test]
fn an_answer_that_says_nothing_is_no_proof_and_the_run_says_so() {
    for engine in ["vllm", "sglang"] {
        let place = Place::new();
        timeline(&place);
        let mock = place.mock(&mock_toml(1_000, "nothing"));
        let (_, manifest) = replay(&place, &mock.url, 0, &["--flush", engine]);
        assert_eq!(only(&manifest), ("unproven", 1, 200), "{engine}");
        assert!(manifest["warnings"].to_string().contains("proves nothing"), "{manifest}");
    }
}

#[test]
fn calls_and_commands_of_ones_own_are_made_at_their_points_and_hold_no_secret() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(&mock_toml(0, "result"));
    let hooks = format!(
        "[[hooks]]\nname = \"models\"\nurl = \"{}/v1/models?key=sk-secret-in-a-query-1234\"\ncontains = \"mock\"\n\
         headers_env = {{ authorization = \"HOOK_KEY\" }}\njson = {{ object = \"list\" }}\n\
         [[hooks]]\nat = \"before-measure\"\ncommand = [\"sh\", \"-c\", \"echo said >> said.txt; echo fine\"]\ncontains = \"fine\"\n\
         [[hooks]]\nat = \"after-run\"\ncommand = [\"sh\", \"-c\", \"exit 3\"]\n",
        mock.url
    );
    scenario(&place, &hooks);
    let args =
        ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m", "--json"];
    let output = place.command(&args).env("HOOK_KEY", "Bearer sk-hook-secret-123456").output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "what fails after the run is a warning");
    let text =
        std::fs::read_to_string(place.path(summary["run_dir"].as_str().unwrap()).join("manifest.json"))
            .unwrap();
    assert!(!text.contains("sk-hook-secret") && !text.contains("sk-secret-in-a-query"), "{text}");
    let manifest: Value = serde_json::from_str(&text).unwrap();
    let hooks: Vec<(&str, &str, i64)> = manifest["hooks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|hook| {
            let word = |key: &str| hook[key].as_str().unwrap();
            (word("at"), word("outcome"), hook["status"].as_i64().unwrap())
        })
        .collect();
    assert_eq!(
        hooks,
        [("before-prime", "done", 200), ("before-measure", "done", 0), ("after-run", "failed", 3)]
    );
    assert_eq!(std::fs::read_to_string(place.path("said.txt")).unwrap(), "said\n");
}

#[test]
fn hooks_that_cannot_act_or_would_undo_the_priming_are_refused() {
    let place = Place::new();
    timeline(&place);
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
    for (hooks, more, said) in [
        ("[[hooks]]\npreset = \"lmcache\"\n", &[][..], "give its url and the instance"),
        ("[[hooks]]\nurl = \"ftp://x/y\"\n", &[], "ftp"),
        ("[[hooks]]\nurl = \"http://127.0.0.1:9/\"\nwait = \"0s\"\n", &[], "longer than 0"),
        ("[[hooks]]\npreset = \"vllm\"\nat = \"before-measure\"\n", &["--cache", "warm"], "has just filled"),
        ("[[hooks]]\npreset = \"vllm\"\ninstance = \"x\"\n", &[], "LMCache's"),
    ] {
        scenario(&place, hooks);
        let args: Vec<&str> = base.iter().chain(more).copied().collect();
        let told = place.fails(2, &args);
        assert!(told.contains(said), "{hooks}: {told}");
    }
}

#[test]
fn a_command_that_does_not_end_is_killed_with_what_it_started() {
    let place = Place::new();
    timeline(&place);
    let mock = place.mock(QUICK);
    scenario(&place, "[[hooks]]\ncommand = [\"sh\", \"-c\", \"sleep 600 & wait\"]\ntimeout = \"300ms\"\n");
    let args = ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m"];
    let told = place.fails(30, &args);
    assert!(told.contains("did not end in time and was killed"), "{told}");
}
