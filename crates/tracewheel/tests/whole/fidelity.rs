//! The verdict on the sending: judged by the run's own bounds, told everywhere, refused by `compare`.

use serde_json::Value;

use crate::harness::{Place, QUICK, WIDE, text};

/// No first byte is written at the very instant at which it is due: every run is unfaithful by these bounds.
const IMPOSSIBLE: &str = "lateness_floor=0s,lateness_ceiling=0s";

fn replay<'a>(target: &'a str, bounds: &'a str) -> [&'a str; 10] {
    [
        "replay",
        "t.parquet",
        "--target",
        target,
        "--protocol",
        "openai-chat",
        "--model",
        "m",
        "--fidelity",
        bounds,
    ]
}

/// Replays with these bounds, expects `code`, and gives the JSON of the run and what stderr said.
fn replayed(place: &Place, target: &str, bounds: &str, code: i32) -> (Value, String) {
    let output = place.run(&[&replay(target, bounds)[..], &["--json"]].concat());
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{told}");
    (serde_json::from_slice(&output.stdout).unwrap(), told)
}

#[test]
fn an_unfaithful_run_has_its_exit_code_and_compare_refuses_it_unless_forced() {
    let place = Place::new();
    place.small_timeline(20);
    let mock = place.mock(QUICK);
    let (good, told) = replayed(&place, &mock.url, WIDE, 0);
    assert_eq!((good["fidelity"]["verdict"].as_str(), told.contains("schedule")), (Some("faithful"), false));
    let (late, told) = replayed(&place, &mock.url, IMPOSSIBLE, 31);
    assert_eq!(late["fidelity"]["verdict"], "unfaithful");
    assert_eq!(late["process"]["exit_code"], 31);
    assert!(told.contains("not faithful") && told.contains("p99 of lateness"), "{told}");
    let (good, late) = (good["run_dir"].as_str().unwrap(), late["run_dir"].as_str().unwrap());

    // The run is judged by its own bounds, or by those that are named.
    let inspected = place.json(0, &["inspect", late, "--json"]);
    assert_eq!(inspected["fidelity"]["verdict"], "unfaithful");
    assert_eq!(inspected["fidelity"]["bounds"]["lateness_ceiling_ns"], 0);
    let anew = place.json(0, &["inspect", late, "--json", "--fidelity", WIDE]);
    assert_eq!(anew["fidelity"]["verdict"], "faithful");
    let shown = place.expect(0, &["inspect", late]);
    assert!(shown.contains("unfaithful: beyond the bound") && shown.contains("lateness p99"), "{shown}");

    for sides in [[late, "--with", "t.parquet"], [late, "--with", good], [good, "--with", late]] {
        let output = place.run(&[&["compare"][..], &sides].concat());
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(31), 0), "{sides:?}: {told}");
        assert!(told.contains("--force") && told.contains("inspect") && told.contains(late), "{told}");
        place.expect(0, &[&["compare"][..], &sides, &["--fidelity", WIDE]].concat());
    }
    place.expect(12, &["compare", late, "--with", good, "--force", "--require-verdict"]);
    let forced = place.json(0, &["compare", late, "--with", good, "--force", "--json"]);
    assert_eq!(
        (forced["verdict"].as_str(), forced["warnings"][0]["code"].as_str()),
        (Some("cannot_tell"), Some("not_faithful"))
    );
    assert!(forced["notice"].as_str().unwrap().contains("the replay is unfaithful"));
    let table = place.expect(0, &["compare", late, "--with", good, "--force"]);
    for title in ["What differs", "Latency", "Window and load", "Streams", "Verdict"] {
        let line = table.lines().find(|line| line.starts_with(title)).unwrap();
        assert!(line.ends_with("[unfaithful, forced]"), "{line}");
    }
}

#[test]
fn a_degraded_run_is_warned_of_and_compared() {
    let place = Place::new();
    place.small_timeline(20);
    let mock = place.mock(QUICK);
    // Beyond a bound of a microsecond, which takes less than a write, and within a thousand million times it.
    let bounds = "lateness_floor=1us,lateness_ceiling=1us,unfaithful_factor=1000000000";
    let (run, told) = replayed(&place, &mock.url, bounds, 0);
    assert_eq!(run["fidelity"]["verdict"], "degraded");
    assert!(told.contains("warning") && told.contains("less exactly"), "{told}");
    let run = run["run_dir"].as_str().unwrap();
    let compared = place.json(0, &["compare", run, "--with", "t.parquet", "--json"]);
    assert_eq!(
        (compared["warnings"][0]["code"].as_str(), compared["notice"].is_null()),
        (Some("degraded"), true)
    );
}

#[test]
fn the_scenario_sets_the_bounds_and_a_bound_that_is_none_is_refused() {
    let place = Place::new();
    place.small_timeline(5);
    let mock = place.mock(QUICK);
    place.write("late.toml", "version = 1\n[fidelity]\nlateness_floor = \"0s\"\nlateness_ceiling = \"0s\"\n");
    let base =
        ["replay", "t.parquet", "--target", &mock.url, "--protocol", "openai-chat", "--model", "m", "--json"];
    // A flag goes before the file.
    let eased = [&base[..], &["--scenario", "late.toml", "--fidelity", WIDE]].concat();
    assert_eq!(place.json(0, &eased)["fidelity"]["verdict"], "faithful");
    let changed = [&base[..], &["--scenario", "late.toml", "--fidelity", "unsent_share=0.5"]].concat();
    let run = place.json(31, &changed);
    assert_eq!(run["fidelity"]["bounds"]["unsent_share"], 0.5);
    place.write("bad.toml", "version = 1\n[fidelity]\nlateness_floor = \"1h\"\n");
    let told = place.fails(2, &[&base[..], &["--scenario", "bad.toml"]].concat());
    assert!(told.contains("[fidelity]") && told.contains("lateness_ceiling"), "{told}");
    let told = place.fails(2, &[&base[..], &["--fidelity", "lateness=1ms"]].concat());
    assert!(told.contains("gap_distance_share"), "{told}");
}

#[test]
fn a_target_that_fails_explains_an_unsent_plan_before_the_verdict_does() {
    let place = Place::new();
    place.small_timeline(5);
    let (run, _) = replayed(&place, "http://127.0.0.1:9", IMPOSSIBLE, 30);
    assert_eq!(
        (run["fidelity"]["verdict"].as_str(), run["fidelity"]["unsent"].as_u64()),
        (Some("unfaithful"), Some(5))
    );
}

#[test]
fn a_sending_thread_that_is_held_up_makes_the_run_unfaithful_and_its_cause_is_named() {
    let place = Place::new();
    // A request every 2 ms for half a second; each release is held up for 5 ms, so that every request is at least as late.
    let mut log = "ts,in,out\n".to_owned();
    for n in 0..250 {
        log += &format!("2026-01-01T00:00:00.{:03}Z,10,2\n", 2 * n);
    }
    place.write("even.csv", &log);
    let map = "arrival=ts,input_tokens=in,output_tokens=out";
    place.expect(0, &["ingest", "even.csv", "-o", "t.parquet", "--map", map]);
    let mock = place.mock(QUICK);
    // By the usual bounds: less than 1 ms is asked of such a trace, and 3 ms make it unfaithful.
    let usual = "lateness_share=0.05";
    let stalled = [&replay(&mock.url, usual)[..], &["--test-stall-ms", "5", "--json"]].concat();
    let output = place.run(&stalled);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(31), "{told}");
    let run: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fidelity = &run["fidelity"];
    assert_eq!(fidelity["verdict"], "unfaithful");
    assert_eq!(fidelity["criteria"]["lateness_p99_ns"]["unfaithful_above"], 3_000_000);
    assert!(fidelity["lateness"]["p50_ns"].as_i64().unwrap() >= 5_000_000, "{fidelity}");
    assert_eq!((fidelity["late"].as_u64(), fidelity["sent"].as_u64()), (Some(250), Some(250)));
    let causes = fidelity["causes"].as_array().unwrap();
    let of_late = causes.iter().filter(|cause| cause["cause"] != "back_pressure");
    assert_eq!(of_late.map(|cause| cause["requests"].as_u64().unwrap()).sum::<u64>(), 250, "{causes:?}");
    let first = causes[0]["text"].as_str().unwrap();
    assert!(told.contains(first) && told.contains(causes[0]["remedy"].as_str().unwrap()), "{first}: {told}");
    // The run says itself that it was one for a test, and every report names cause and remedy.
    let warnings = run["warnings"].as_array().unwrap();
    assert!(
        warnings.iter().any(|w| w["code"] == "recorded" && w["text"].as_str().unwrap().contains("held up"))
    );
    let shown = place.expect(0, &["inspect", run["run_dir"].as_str().unwrap()]);
    assert!(
        shown.contains("unfaithful: beyond the bound of a degraded run") && shown.contains("held up"),
        "{shown}"
    );
    // The same replay without the stall, judged by bounds that every machine keeps: the control.
    let (control, _) = replayed(&place, &mock.url, WIDE, 0);
    assert_eq!(control["fidelity"]["verdict"], "faithful");
    // It is no option for people.
    assert!(!place.expect(0, &["replay", "--help"]).contains("stall"));
}
