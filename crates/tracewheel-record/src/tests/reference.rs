//! Holds `docs/reference/run.md` against the schemas.

use std::fs;

use arrow_schema::DataType;

use super::*;
use crate::columns::Table;

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/run.md")).unwrap()
}

/// A type as the page writes it.
fn written(data_type: &DataType, nullable: bool) -> String {
    let name = match data_type {
        DataType::Int64 => "i64".to_owned(),
        DataType::UInt64 => "u64".to_owned(),
        DataType::UInt32 => "u32".to_owned(),
        DataType::UInt16 => "u16".to_owned(),
        DataType::UInt8 => "u8".to_owned(),
        DataType::Float64 => "f64".to_owned(),
        DataType::Boolean => "bool".to_owned(),
        DataType::Utf8 => "utf8".to_owned(),
        DataType::Dictionary(key, value) if **key == DataType::Int32 && **value == DataType::Utf8 => {
            "dict".to_owned()
        }
        DataType::Map(..) => "map<utf8, utf8>".to_owned(),
        DataType::List(element) => format!("list<{}>", written(element.data_type(), element.is_nullable())),
        DataType::Struct(fields) => {
            let fields =
                fields.iter().map(|f| format!("{} {}", f.name(), written(f.data_type(), f.is_nullable())));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        other => panic!("no name for {other}"),
    };
    if nullable { name + "?" } else { name }
}

/// The `| name | type | ...` rows below a heading.
fn documented(page: &str, heading: &str) -> Vec<(String, String)> {
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(heading));
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let mut cells = line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        cells.next();
        (cells.next().unwrap(), cells.next().unwrap())
    })
    .collect()
}

fn hold<T: Table>(page: &str) {
    let schema: Vec<_> = T::fields()
        .iter()
        .map(|field| (field.name().clone(), written(field.data_type(), field.is_nullable())))
        .collect();
    assert_eq!(documented(page, T::NAME), schema, "table {}", T::NAME);
}

#[test]
fn the_reference_names_every_column_with_its_type_in_order() {
    let page = page();
    hold::<RequestRecord>(&page);
    hold::<AttemptRecord>(&page);
    hold::<HealthRecord>(&page);
    hold::<ServerRecord>(&page);
    hold::<ReleaseRecord>(&page);
}

#[test]
fn the_reference_names_every_field_of_the_manifest() {
    let page = page();
    let documented: Vec<String> =
        documented(&page, "manifest.json").into_iter().map(|(name, _)| name).collect();
    let mut fields = Vec::new();
    paths("", &serde_json::to_value(golden::manifest()).unwrap(), &mut fields);
    let missing: Vec<_> = fields.iter().filter(|field| !documented.contains(field)).collect();
    let unknown: Vec<_> = documented.iter().filter(|field| !fields.contains(field)).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:#?}, unknown {unknown:#?}");
}

/// `a.b` for every field; lists by their first element as `a[].b`.
fn paths(prefix: &str, value: &serde_json::Value, out: &mut Vec<String>) {
    let serde_json::Value::Object(fields) = value else { return };
    for (name, value) in fields {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            // A map of free names, and JSON of others' making, are one field.
            serde_json::Value::Object(_)
                if !["reasons", "parts", "retry_resolved", "as_planned"].contains(&name.as_str()) =>
            {
                paths(&path, value, out);
            }
            serde_json::Value::Array(values) if values.first().is_some_and(serde_json::Value::is_object) => {
                paths(&format!("{path}[]"), &values[0], out);
            }
            _ => out.push(path),
        }
    }
}
