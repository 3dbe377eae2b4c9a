//! How far an import is, in words.

use std::path::PathBuf;

use tracewheel_ingest::ImportGauge;
use tracewheel_live::{Part, amount, bar, clock};

/// Bytes of all inputs; `None` where one of them is no file.
pub(super) fn whole_bytes(inputs: &[PathBuf]) -> Option<u64> {
    let size =
        |path: &PathBuf| path.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
    inputs.iter().map(size).sum()
}

/// What was read after so many nanoseconds: the share of the files, rows, bytes, speed, time left.
pub(super) fn parts(gauge: &ImportGauge, whole_bytes: Option<u64>, ns: i64) -> Vec<Part> {
    let (bytes, rows) = (gauge.bytes(), gauge.rows());
    let seconds = ns as f64 / 1e9;
    let mut parts = Vec::new();
    if let Some(whole) = whole_bytes.filter(|whole| *whole > 0) {
        parts.push(Part::new(6, bar(bytes, whole)));
        parts.push(Part::new(1, format!("{} %", bytes.min(whole) * 100 / whole)));
    }
    parts.push(Part::new(0, format!("{} rows", amount(rows))));
    parts.push(Part::new(3, format!("{:.1} MB", bytes as f64 / 1e6)));
    parts.push(Part::new(2, format!("{} rows/s", amount((rows as f64 / seconds) as u64))));
    if whole_bytes.is_some_and(|whole| bytes >= whole) && gauge.written() < rows {
        parts.push(Part::new(4, format!("{} written", amount(gauge.written()))));
    }
    parts.push(Part::new(5, clock(ns)));
    parts
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::sync::Arc;

    use tracewheel_ingest::{IngestOptions, Input, ingest};
    use tracewheel_live::fitted;

    use super::*;

    #[test]
    fn an_import_tells_its_share_rows_and_speed() {
        let log = "arrival_unix_ms,input_tokens,output_tokens\n1795536000123,812,64\n1795536000124,77,8\n";
        let folder = tempfile::tempdir().unwrap();
        let options = IngestOptions::new("a secret of the test");
        let gauge = Arc::clone(&options.gauge);
        ingest(vec![Input::reader("log", Cursor::new(log))], options, &folder.path().join("t.parquet"))
            .unwrap();
        assert_eq!((gauge.bytes(), gauge.rows(), gauge.written()), (log.len() as u64, 2, 2));
        let half = Some(log.len() as u64 * 2);
        let text = fitted(&parts(&gauge, half, 2_000_000_000), 200);
        assert_eq!(text, "[########........]  50 %  2 rows  0.0 MB  1 rows/s  2 s");
        assert!(fitted(&parts(&gauge, None, 2_000_000_000), 200).starts_with("2 rows  0.0 MB"));
    }
}
