use std::fs;

use serde_json::{Value, json};

use super::*;
use crate::RecordError;
use crate::manifest::{RunState, TargetSection};

fn written(manifest: &Manifest) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let writer = RunWriter::create(dir.path(), "t", manifest, &clock()).unwrap();
    let path = writer.dir().join("manifest.json");
    (dir, path)
}

fn edited(edit: impl FnOnce(&mut Value)) -> Result<Manifest> {
    let (_dir, path) = written(&Manifest::default());
    let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut value);
    fs::write(&path, value.to_string()).unwrap();
    Run::open(path.parent().unwrap()).map(|run| run.manifest().clone())
}

#[test]
fn the_manifest_is_there_before_the_first_row_and_says_that_the_run_is_open() {
    let mut given = Manifest::default();
    given.plan.requests = 3;
    given.plan.seed = u64::MAX;
    given.plan.nonce = Some(u64::MAX - 1);
    let (_dir, path) = written(&given);
    let run = Run::open(path.parent().unwrap()).unwrap();
    let manifest = run.manifest();
    assert_eq!((manifest.version.as_str(), manifest.state), ("1.0", RunState::Open));
    assert_eq!(manifest.created_unix_ns, 1_790_000_000_000_000_000);
    assert_eq!(manifest.clock.start_unix_ns, 1_790_000_000_000_000_000);
    assert_eq!(manifest.plan, given.plan);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"nonce\": \"fffffffffffffffe\""), "{text}");
}

#[test]
fn no_secret_gets_into_the_manifest() {
    let planted = "planted-SECRET-123456";
    let mut given = Manifest {
        target: TargetSection {
            url: format!("https://me:{planted}@api.example/v1?api-key={planted}"),
            ..TargetSection::default()
        },
        warnings: vec![format!("server said: Authorization: Bearer {planted}")],
        ..Manifest::default()
    };
    given.scenario.text =
        Some(format!("[target]\napi_key = \"{planted}\"\nheaders = {{ Cookie = '{planted}' }}\n"));
    given.policy.retry_resolved = Some(json!({"proxy": {"password": planted}}));
    given.other.insert("later_token".to_owned(), json!(planted));
    let (_dir, path) = written(&given);
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(planted), "{text}");
    assert!(text.contains("\"https://api.example/v1\""), "{text}");
}

#[test]
fn another_major_version_is_refused_with_both_versions_and_a_newer_minor_is_read_and_kept() {
    let error = edited(|value| value["version"] = json!("2.1")).unwrap_err();
    assert!(matches!(error, RecordError::Version { .. }));
    assert!(error.to_string().contains("format 2.1") && error.to_string().contains("reads 1.0"), "{error}");
    assert!(matches!(edited(|value| value["version"] = json!(7)), Err(RecordError::Version { .. })));

    let newer = edited(|value| {
        value["version"] = json!("1.9");
        value["state"] = json!("paused");
        value["novelty"] = json!({"x": 1});
        value["target"]["novelty"] = json!(1);
        value.as_object_mut().unwrap().remove("plan");
    });
    let newer = newer.unwrap();
    assert_eq!(newer.other["novelty"], json!({"x": 1}));
    assert_eq!((newer.state, newer.plan.requests), (RunState::Unknown, 0));
}

#[test]
fn what_is_no_run_or_no_manifest_is_named() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Run::open(dir.path()), Err(RecordError::NotARun { .. })));
    fs::write(dir.path().join("manifest.json"), "{\n\"version\": \"1.0\",\n\"plan\": 5}").unwrap();
    let error = Run::open(dir.path()).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(matches!(error, RecordError::Manifest { .. }) && source.contains("line 3"), "{source}");
}

#[test]
fn an_updated_manifest_keeps_what_is_the_writers() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = RunWriter::create(dir.path(), "t", &Manifest::default(), &clock()).unwrap();
    let mut changed = Manifest { id: "other".to_owned(), state: RunState::Closed, ..Manifest::default() };
    changed.target.resolved_addresses = vec!["127.0.0.1:80".to_owned()];
    writer.update_manifest(&changed).unwrap();
    let run = Run::open(writer.dir()).unwrap();
    assert_eq!((run.manifest().id.as_str(), run.manifest().state), (writer.id(), RunState::Open));
    assert_eq!(run.manifest().target.resolved_addresses, ["127.0.0.1:80"]);
    assert_ne!(run.manifest().clock.start_unix_ns, 0);
}
