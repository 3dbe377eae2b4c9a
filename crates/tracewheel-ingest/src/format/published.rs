//! What the published CSV traces share: a header that is known beforehand, each of whose columns has one meaning.

use crate::column_map::ColumnMap;
use crate::error::IngestError;
use crate::format::csv_rows::{self, CsvRows};
use crate::reading::Reading;
use crate::source::Source;

/// The columns of a published trace.
pub(crate) struct Header {
    /// Columns that must be there: their names, and the field (with a unit) that each is.
    pub(crate) needed: &'static [(&'static str, &'static str)],
    /// Columns that may be there.
    pub(crate) optional: &'static [(&'static str, &'static str)],
    /// Columns that may be there and say nothing that the others do not.
    pub(crate) passed_over: &'static [&'static str],
}

impl Header {
    /// Whether these first lines begin with this header: all that is needed, and nothing unknown.
    pub(crate) fn begins(&self, lines: &[&[u8]]) -> bool {
        self.map(&columns(lines)).is_some()
    }

    /// The rows behind the header.
    pub(crate) fn open(
        &self,
        format: &'static str,
        source: Source,
        reading: &mut Reading<'_>,
    ) -> Result<CsvRows, IngestError> {
        let columns = columns(&source.head_lines());
        let map = self.map(&columns).ok_or_else(|| {
            let needed: Vec<&str> = self.needed.iter().map(|(column, _)| *column).collect();
            IngestError::WrongFormat {
                file: source.name.clone(),
                format,
                problem: format!("its first line is not {} but {}", needed.join(","), columns.join(",")),
            }
        })?;
        CsvRows::open(source, map, reading)
    }

    fn map(&self, columns: &[String]) -> Option<ColumnMap> {
        let has = |name: &str| columns.iter().any(|column| column == name);
        let known = |name: &str| {
            let mut mapped = self.needed.iter().chain(self.optional);
            mapped.any(|(column, _)| *column == name) || self.passed_over.contains(&name)
        };
        if !columns.iter().all(|column| known(column)) || !self.needed.iter().all(|(column, _)| has(column)) {
            return None;
        }
        let present = self.needed.iter().chain(self.optional).filter(|(column, _)| has(column));
        let entries: Vec<String> = present.map(|(column, field)| entry(column, field)).collect();
        entries.join(",").parse().ok()
    }
}

/// `arrival:s` of the column `Timestamp` is `arrival=Timestamp:s`.
fn entry(column: &str, field: &str) -> String {
    match field.split_once(':') {
        Some((field, unit)) => format!("{field}={column}:{unit}"),
        None => format!("{field}={column}"),
    }
}

fn columns(lines: &[&[u8]]) -> Vec<String> {
    lines.first().map(|header| csv_rows::columns(header)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        needed: &[("At", "arrival:s"), ("In", "input_tokens")],
        optional: &[("Kind", "tags.kind")],
        passed_over: &["Sum"],
    };

    #[test]
    fn a_header_needs_its_columns_in_any_order_and_knows_all_of_them() {
        for (header, begins) in [
            ("At,In", true),
            ("In,At,Sum", true),
            ("\"At\";\"In\";\"Kind\"", true),
            ("At", false),
            ("At,In,Other", false),
            ("", false),
        ] {
            assert_eq!(HEADER.begins(&[header.as_bytes()]), begins, "{header}");
        }
        let map = HEADER.map(&["Kind".to_owned(), "In".to_owned(), "At".to_owned()]).unwrap();
        assert_eq!(map.to_string(), "arrival=At:s,input_tokens=In,tags.kind=Kind");
    }
}
