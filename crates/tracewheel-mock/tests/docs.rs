//! What `docs/mock.md` and `examples/` show is what the code does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tracewheel_mock::{FaultKind, FaultRule, MockConfig};

const PAGE: &str = include_str!("../../../docs/mock.md");

/// The texts of all fenced blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let start = format!("```{language}\n");
    PAGE.split(&start).skip(1).map(|rest| rest.split_once("```").expect("the block ends").0).collect()
}

/// First and second cell of the rows of the table under a heading, without their backticks.
fn table(heading: &str) -> BTreeMap<String, String> {
    let (_, rest) =
        PAGE.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let rest = rest.split("\n#").next().expect("a split has a first part");
    rows(rest)
}

fn rows(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| line.starts_with("| `"));
    lines
        .map(|line| {
            let mut cells = line.split('|').skip(1).map(|cell| cell.trim().replace('`', ""));
            (cells.next().expect("a first cell"), cells.next().expect("a second cell"))
        })
        .collect()
}

/// Keys and defaults as the page writes them.
fn fields(value: &Value) -> BTreeMap<String, String> {
    let written = |value: &Value| if value.is_null() { "–".to_owned() } else { value.to_string() };
    value.as_object().expect("a table").iter().map(|(key, value)| (key.clone(), written(value))).collect()
}

fn default() -> Value {
    serde_json::to_value(MockConfig::default()).expect("a configuration is JSON")
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files =
        std::fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("an entry").path());
    let of_mock = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("mock"))
    };
    let mut paths: Vec<PathBuf> = files.filter(of_mock).collect();
    paths.sort();
    paths
}

fn load(path: &Path) -> MockConfig {
    let text = std::fs::read_to_string(path).expect("the file can be read");
    MockConfig::from_toml(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"))
}

/// Each description that is kept as a file: the examples', the demo's and the default's.
fn described() -> Vec<(String, String)> {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/demo/production.toml");
    let mut all: Vec<(String, String)> = examples()
        .iter()
        .chain([&demo])
        .map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), load(path).describe()))
        .collect();
    all.push(("default".to_owned(), MockConfig::default().describe()));
    all
}

#[test]
fn every_key_of_every_section_is_in_its_table_with_its_default() {
    let default = default();
    let mut top = fields(&default);
    for section in ["engine", "cache", "flush", "limits", "tenants", "http"] {
        top.remove(section);
        assert_eq!(table(&format!("### `[{section}]`")), fields(&default[section]), "{section}");
    }
    assert_eq!(table("### Top level"), top);
}

#[test]
fn every_key_of_a_fault_rule_is_in_its_table() {
    let rule = serde_json::to_value(FaultRule::new("x", FaultKind::Reset)).expect("a rule is JSON");
    let mut expected = fields(&rule);
    for key in ["name", "kind"] {
        expected.insert(key.to_owned(), "needed".to_owned());
    }
    assert_eq!(table("### `[[fault]]`"), expected);
}

#[test]
fn every_kind_of_fault_is_in_the_table_with_what_it_takes() {
    let expected: BTreeMap<String, String> =
        FaultKind::ALL.iter().map(|kind| (kind.name(), kind.takes().join(", "))).collect();
    assert_eq!(table("## Faults"), expected);
}

#[test]
fn every_configuration_on_the_page_is_one() {
    let blocks = blocks("toml");
    assert!(blocks.len() >= 3);
    for block in blocks {
        MockConfig::from_toml(block).unwrap_or_else(|error| panic!("{error} in\n{block}"));
    }
}

#[test]
fn every_example_loads_and_is_told_of_on_the_page() {
    let examples = examples();
    assert!(examples.len() >= 4);
    for path in examples {
        load(&path);
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(PAGE.contains(&name), "{name} is not on the page");
    }
}

#[test]
fn the_description_on_the_page_is_what_describe_says() {
    let blocks = blocks("console");
    let console = blocks.first().expect("the page has such a block");
    for line in MockConfig::default().describe().lines() {
        assert!(console.lines().any(|shown| shown == line), "{line:?} is not in\n{console}");
    }
}

#[test]
fn descriptions_are_as_they_were() {
    for (name, text) in described() {
        let kept = std::fs::read_to_string(golden(&name)).unwrap_or_default();
        assert_eq!(
            text, kept,
            "{name}: if that is meant, run `write_the_descriptions` (ignored) and look at the change"
        );
    }
}

#[test]
#[ignore = "writes the descriptions that the tests compare with"]
fn write_the_descriptions() {
    for (name, text) in described() {
        std::fs::write(golden(&name), text).expect("the file can be written");
    }
}
