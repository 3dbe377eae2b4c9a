//! What the pages say is there: files, links, flags, exit codes.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every Markdown page of the project.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir()
                && !name.starts_with('.')
                && name != "target"
                && name != "runs"
                && name != "demo-out"
            {
                folders.push(path);
            } else if name.ends_with(".md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() >= 10, "the pages were not found");
    pages
}

/// A page without its fenced blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// What a heading is called in a link.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let slug = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        words
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect()
    };
    headings.map(slug).collect()
}

#[test]
fn links_between_the_pages_lead_somewhere() {
    let mut links = 0;
    for path in pages() {
        let text = prose(&fs::read_to_string(&path).unwrap());
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link} leads nowhere", path.display());
            if !anchor.is_empty() {
                let there = anchors(&fs::read_to_string(&target).unwrap());
                assert!(there.contains(anchor), "{}: {link} has no such heading", path.display());
            }
        }
    }
    assert!(links > 0, "the pages have links");
}

#[test]
fn files_that_the_pages_name_exist() {
    let roots = ["docs/", "crates/", "examples/", "fixtures/", "scripts/", "benches/", ".ci/"];
    let mut named = 0;
    for path in pages() {
        for name in prose(&fs::read_to_string(&path).unwrap()).split('`').skip(1).step_by(2) {
            let file = name.split([' ', ':']).next().unwrap();
            if roots.iter().any(|root| file.starts_with(root)) && !file.contains(['*', '<', '{']) {
                named += 1;
                assert!(root().join(file).exists(), "{} names {file}, which is not there", path.display());
            }
        }
    }
    assert!(named > 20, "the pages name files");
}

#[test]
fn the_architecture_page_says_which_file_holds_each_invariant() {
    let page = page("docs/architecture.md");
    let table = page.split("## Invariants").nth(1).unwrap();
    let rows: Vec<&str> =
        table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")).collect();
    assert!(rows.len() >= 8, "{rows:?}");
    for row in rows {
        let files: Vec<&str> = row.split('`').skip(1).step_by(2).filter(|name| name.contains('/')).collect();
        assert!(!files.is_empty(), "no file is named: {row}");
        for file in files {
            assert!(root().join(file).is_file(), "{file} is not there: {row}");
        }
    }
}

#[test]
fn the_command_line_reference_is_what_the_program_says() {
    let output = Command::new(env!("CARGO_BIN_EXE_tracewheel")).args(["man", "--markdown"]).output().unwrap();
    let fresh = String::from_utf8(output.stdout).unwrap();
    let stands = page("docs/reference/cli.md");
    let stale = fresh.lines().zip(stands.lines()).find(|(fresh, stands)| fresh != stands);
    assert!(
        fresh == stands,
        "docs/reference/cli.md is stale ({stale:?}): tracewheel man --markdown > docs/reference/cli.md"
    );
}

#[test]
fn the_exit_codes_on_the_page_are_those_of_the_program_and_the_reserved_ones() {
    let page = page("docs/reference/exit-codes.md");
    let documented: BTreeSet<u8> =
        page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()?.parse().ok()).collect();
    let source = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/exit.rs")).unwrap();
    let body = source.split("enum Exit {").nth(1).unwrap().split('}').next().unwrap();
    let returned: BTreeSet<u8> = body
        .lines()
        .filter_map(|line| line.split(" = ").nth(1)?.trim_end_matches(',').parse().ok())
        .collect();
    let reserved: BTreeSet<u8> = page
        .lines()
        .filter(|line| line.contains("reserved"))
        .flat_map(|line| line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()))
        .collect();
    assert!(returned.is_disjoint(&reserved), "{reserved:?} are said to be reserved");
    assert_eq!(documented, returned.union(&reserved).copied().collect());
}
