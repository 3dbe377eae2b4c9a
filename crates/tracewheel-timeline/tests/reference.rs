//! The reference pages say what the code says.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;

use arrow_schema::DataType;
use tracewheel_timeline::meta::keys;
use tracewheel_timeline::stats::ClockRule;
use tracewheel_timeline::{
    ArrivalSource, AttemptStatus, BlockBasis, BodyState, EventKind, OddityKind, Operation, Phase, Protocol,
    Reason, RequestStatus, Source, TtftKind, VERSION, schema,
};

fn page(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The cells of the table under a heading, without its two head lines; back-quotes around a whole cell are taken off.
fn table(page: &str, heading: &str) -> Vec<Vec<String>> {
    let section = page.split(&format!("\n## {heading}\n")).nth(1);
    let section = section.unwrap_or_else(|| panic!("the page has no section `{heading}`"));
    let section = section.split("\n## ").next().unwrap();
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cell = |text: &str| match text.strip_prefix('`').and_then(|text| text.strip_suffix('`')) {
        Some(inner) if !inner.contains('`') => inner.to_owned(),
        _ => text.to_owned(),
    };
    let cells =
        |line: &str| line.trim_matches('|').split(" | ").map(|text| cell(text.trim())).collect::<Vec<_>>();
    lines.map(cells).collect()
}

fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Dictionary(key, value) => format!("Dictionary({key}, {value})"),
        DataType::List(element) => format!("List({})", element.data_type()),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) => format!("Map({}, {})", pair[0].data_type(), pair[1].data_type()),
            other => panic!("a map of {other}"),
        },
        plain => plain.to_string(),
    }
}

#[test]
fn the_column_table_is_the_arrow_schema() {
    let (timeline, baseline) = (schema::arrow_schema(false), schema::arrow_schema(true));
    let expected: Vec<Vec<String>> = timeline
        .fields()
        .iter()
        .zip(baseline.fields())
        .map(|(field, in_baseline)| {
            let null = match (field.is_nullable(), in_baseline.is_nullable()) {
                (true, _) => "yes",
                (false, true) => "baseline",
                (false, false) => "no",
            };
            vec![field.name().clone(), type_name(field.data_type()), null.to_owned()]
        })
        .collect();
    let page = page("timeline.md");
    let rows = table(&page, "Columns");
    let found: Vec<Vec<String>> = rows.iter().map(|row| row[..3].to_vec()).collect();
    assert_eq!(found, expected);
    assert!(rows.iter().all(|row| row.len() == 4 && row[3].len() > 10), "every column has a meaning");
    assert!(page.starts_with(&format!("# Timeline: version {VERSION}\n")));
    assert_eq!(schema::column_names().len(), expected.len());
}

#[test]
fn the_metadata_table_names_every_key() {
    let page = page("timeline.md");
    let found: Vec<String> = table(&page, "Metadata").into_iter().map(|row| row[0].clone()).collect();
    assert_eq!(found, keys::ALL);
}

macro_rules! plain {
    ($page:expr, $($name:ident),+) => {$(
        let expected: Vec<Vec<String>> = $name::ALL
            .iter()
            .map(|word| vec![word.as_str().to_owned(), word.meaning().to_owned()])
            .collect();
        assert_eq!(table($page, $name::TITLE), expected, "{}", $name::TITLE);
        for word in $name::ALL {
            assert_eq!($name::parse(word.as_str()), Some(*word));
            let json = serde_json::to_string(word).unwrap();
            assert_eq!(json, format!("\"{word}\""));
            assert_eq!(serde_json::from_str::<$name>(&json).unwrap(), *word);
        }
        assert_eq!($name::parse(""), None);
        assert!("no such word".parse::<$name>().unwrap_err().to_string().contains($name::TITLE));
    )+};
}

#[test]
fn the_vocabulary_page_is_the_code() {
    let page = page("vocabulary.md");
    plain!(
        &page,
        Operation,
        ArrivalSource,
        Source,
        TtftKind,
        BodyState,
        BlockBasis,
        OddityKind,
        ClockRule,
        Phase,
        RequestStatus,
        AttemptStatus,
        Protocol
    );
    let text = |text: &str| text.to_owned();
    let reasons: Vec<Vec<String>> = Reason::ALL
        .iter()
        .map(|reason| vec![text(reason.as_str()), text(reason.status().as_str()), text(reason.meaning())])
        .collect();
    assert_eq!(table(&page, Reason::TITLE), reasons);
    let events: Vec<Vec<String>> = EventKind::ALL
        .iter()
        .map(|kind| {
            let output = if kind.is_output() { "yes" } else { "no" };
            vec![kind.code().to_string(), text(kind.as_str()), text(output), text(kind.meaning())]
        })
        .collect();
    assert_eq!(table(&page, EventKind::TITLE), events);
}
