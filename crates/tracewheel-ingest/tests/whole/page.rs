//! `docs/formats.md` says what the code does.

use tracewheel_ingest::{RejectReason, formats, mappable_fields};

fn has(line: &str) {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.lines().any(|other| other == line), "docs/formats.md lacks: {line}");
}

#[test]
fn every_format_is_described() {
    for (name, about) in formats() {
        has(&format!("| `{name}` | {about} |"));
    }
}

#[test]
fn every_field_is_described() {
    for (name, about) in mappable_fields() {
        has(&format!("| `{name}` | {about} |"));
    }
}

#[test]
fn every_reason_is_described() {
    for reason in RejectReason::ALL {
        has(&format!("| `{reason}` | {} |", reason.meaning()));
        assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
    }
}
