//! What the machine is found to keep.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::Place;

const PAGE: &str = include_str!("../../../../docs/doctor.md");

/// Every key of a document, wherever it stands.
fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            into.insert(key.clone());
            // Causes and the manifest's own keys stand on pages of their own.
            if !["causes", "machine"].contains(&key.as_str()) {
                keys(value, into);
            }
        }),
        Value::Array(all) => all.iter().for_each(|value| keys(value, into)),
        _ => {}
    }
}

#[test]
fn a_machine_is_measured_and_nothing_is_left_behind() {
    let place = Place::new();
    let found =
        place.json(0, &["doctor", "--rates", "40,20,40", "--seconds", "1", "--dir", "runs", "--json"]);
    let rates: Vec<_> = found["rates"].as_array().unwrap().iter().map(|rate| &rate["per_second"]).collect();
    assert_eq!(rates, [20, 40]);
    for rate in found["rates"].as_array().unwrap() {
        assert_eq!(rate["lateness"]["n"], rate["requests"]);
        assert_eq!(rate["kept"], rate["verdict"] == "faithful");
    }
    assert_eq!(std::fs::read_dir(place.path("runs")).unwrap().count(), 0);
    let mut told = BTreeSet::new();
    keys(&found, &mut told);
    let missing: Vec<_> = told.iter().filter(|key| !PAGE.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/doctor.md does not name {missing:?}");
}

#[test]
fn findings_for_a_person_end_with_what_the_machine_keeps() {
    let place = Place::new();
    let text = place.expect(0, &["doctor", "--rates", "10", "--seconds", "1"]);
    assert!(
        text.contains("This machine keeps 10 requests") || text.contains("did not keep 10 requests"),
        "{text}"
    );
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(110), "{text}");
}

#[test]
fn a_folder_that_cannot_be_written_is_an_output_error_with_its_remedy() {
    let place = Place::new();
    place.write("file", "x");
    let error = place.fails(40, &["doctor", "--rates", "10", "--dir", "file"]);
    assert!(error.contains("file") && error.contains("--dir"), "{error}");
    place.fails(2, &["doctor", "--rates", "0"]);
}

#[test]
fn a_rate_that_is_required_and_not_kept_has_its_exit_code() {
    let place = Place::new();
    let output = place.run(&["doctor", "--rates", "10", "--require", "20", "--seconds", "1", "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["rates"][1]["per_second"], 20);
    let kept = found["keeps_per_second"] == 20;
    assert_eq!(output.status.code(), Some(if kept { 0 } else { 31 }));
}
