//! Texts of a sample comparison, a sample run and a sample timeline, held letter by letter.
//!
//! After a wanted change, `cargo test -p tracewheel-report -- --ignored` writes them anew: read the difference. The JSON
//! beside them is written by the example `sample_comparison` of `tracewheel-analysis`.

#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracewheel_analysis::{Comparison, RunInspection};
use tracewheel_report::{Style, comparison_text, demo_text, run_text, timeline_text};
use tracewheel_timeline::stats::StatsCollector;
use tracewheel_timeline::vocab::{ArrivalSource, Source, TtftKind};
use tracewheel_timeline::{RequestRow, TimelineMeta};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn comparison() -> Comparison {
    serde_json::from_str(&std::fs::read_to_string(data("compare.json")).unwrap()).unwrap()
}

fn inspection() -> RunInspection {
    serde_json::from_str(&std::fs::read_to_string(data("inspect.json")).unwrap()).unwrap()
}

/// Two minutes of an even stream with two sessions and one tie.
fn timeline(style: Style) -> String {
    let mut collector =
        StatsCollector::new(&TimelineMeta { block_tokens: Some(16), ..TimelineMeta::default() });
    for i in 0..240i64 {
        let at = 1_700_158_546_000_000_000 + i / 2 * 1_000_000_000;
        collector.push(
            i as u64,
            &RequestRow {
                arrival_unix_ns: Some(at),
                arrival_precision_ns: 1_000_000_000,
                arrival_source: ArrivalSource::Start,
                session_hash: Some((i % 2) as u64),
                input_tokens: Some(64 + (i % 7) as u32),
                input_tokens_source: Some(Source::Reported),
                output_tokens: Some(10 + (i % 5) as u32),
                output_tokens_source: Some(Source::Reported),
                prefix_hashes: Some(vec![1, 2, (i % 3) as u64, i as u64]),
                prod_status: Some(if i == 7 { 503 } else { 200 }),
                prod_ttft_ns: Some(40_000_000 + i * 1_000_000),
                prod_ttft_kind: Some(TtftKind::Token),
                prod_e2e_ns: Some(900_000_000 + i * 1_000_000),
                model: Some(Arc::from("m-a")),
                ..RequestRow::default()
            },
        );
    }
    timeline_text(&collector.finish(), style)
}

fn texts(style: Style) -> Vec<(&'static str, String)> {
    let (comparison, inspection) = (comparison(), inspection());
    vec![
        ("compare.txt", comparison_text(&comparison, style)),
        ("demo.txt", demo_text(&comparison, &comparison, style)),
        ("inspect.txt", run_text(&inspection, style)),
        ("timeline.txt", timeline(style)),
    ]
}

#[test]
fn texts_are_what_they_were() {
    for (name, text) in texts(Style::default()) {
        let golden = std::fs::read_to_string(data(name)).unwrap();
        assert!(text == golden, "{name} differs:\n{text}");
    }
}

#[test]
fn no_line_is_wider_than_the_terminal_or_ends_in_blanks() {
    for (name, text) in texts(Style::default()) {
        for line in text.lines() {
            assert_eq!(line, line.trim_end(), "{name}");
        }
        assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name}");
    }
    for width in [72, 80, 100, 160] {
        for (name, text) in texts(Style { width, ..Style::default() }) {
            // A word that is longer than the line stays whole: a digest, a run's id, an address.
            let long = |line: &&str| line.chars().count() > usize::from(width) && line.trim().contains(' ');
            let wide: Vec<&str> = text.lines().filter(long).filter(|line| !is_name(line)).collect();
            assert_eq!(wide, Vec::<&str>::new(), "{name} at {width}");
        }
    }
}

/// Whether a line only names a run or a timeline.
fn is_name(line: &str) -> bool {
    line.split_whitespace().count() <= 3 && line.split_whitespace().any(|word| word.len() > 40)
}

#[test]
fn narrow_tables_break_no_word() {
    let words =
        |text: &str| text.split_whitespace().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let wide = texts(Style { width: 400, ..Style::default() });
    for ((name, narrow), (_, wide)) in texts(Style { width: 72, ..Style::default() }).into_iter().zip(wide) {
        let rule = |word: &String| !word.starts_with('─');
        let broken: Vec<String> =
            words(&narrow).difference(&words(&wide)).filter(|w| rule(w)).cloned().collect();
        assert_eq!(broken, Vec::<String>::new(), "{name}:\n{narrow}");
    }
}

#[test]
fn a_terminal_that_shows_ascii_only_gets_nothing_else() {
    for (name, text) in texts(Style { ascii: true, ..Style::default() }) {
        assert!(text.is_ascii(), "{name}: {text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{name}");
    }
}

#[test]
fn colours_change_nothing_but_the_colours() {
    let plain = texts(Style::default());
    for ((name, text), (_, painted)) in
        plain.into_iter().zip(texts(Style { color: true, ..Style::default() }))
    {
        let mut bare = String::new();
        let mut rest = painted.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            bare += before;
            rest = after.split_once('m').unwrap().1;
        }
        bare += rest;
        assert!(painted.contains("\u{1b}["), "{name}");
        assert_eq!(bare, text, "{name}");
    }
}

#[test]
#[ignore = "writes the golden texts anew"]
fn write_the_texts() {
    for (name, text) in texts(Style::default()) {
        std::fs::write(data(name), text).unwrap();
    }
}
