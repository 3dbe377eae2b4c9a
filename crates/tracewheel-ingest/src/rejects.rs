//! Every rejected row as a line of JSON, for the one who wants to see them all: its place and what is wrong, never its
//! content.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::IngestError;
use crate::report::RejectedRow;

/// Longest first line of a list that this crate wrote.
const LONGEST_LINE: u64 = 64 << 10;

/// The list while it is written.
#[derive(Debug)]
pub(crate) struct RejectList {
    path: PathBuf,
    to: BufWriter<File>,
}

/// What tells a list from any other file.
#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "file")]
    _file: String,
    #[serde(rename = "line")]
    _line: u64,
    #[serde(rename = "offset")]
    _offset: u64,
    #[serde(rename = "reason")]
    _reason: String,
}

impl RejectList {
    /// An empty list at `path`, in place of an older one.
    pub(crate) fn create(path: &Path) -> Result<Self, IngestError> {
        let failed = |source| IngestError::Rejects { path: path.to_owned(), source };
        if !may_replace(path).map_err(failed)? {
            return Err(IngestError::RejectsOccupied { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), to: BufWriter::new(File::create(path).map_err(failed)?) })
    }

    pub(crate) fn push(&mut self, row: &RejectedRow) -> Result<(), IngestError> {
        let written = serde_json::to_writer(&mut self.to, row).map_err(io::Error::from);
        written.and_then(|()| self.to.write_all(b"\n")).map_err(|source| self.failed(source))
    }

    pub(crate) fn finish(mut self) -> Result<(), IngestError> {
        self.to.flush().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> IngestError {
        IngestError::Rejects { path: self.path.clone(), source }
    }
}

/// Whether nothing, an empty file or an older list stands there.
fn may_replace(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        // A pipe or a device takes what is written; a folder refuses by itself.
        return Ok(true);
    }
    let mut line = Vec::new();
    BufReader::new(file.take(LONGEST_LINE)).read_until(b'\n', &mut line)?;
    Ok(line.is_empty() || serde_json::from_slice::<Listed>(&line).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::RejectReason;

    #[test]
    fn a_list_replaces_an_older_one_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rejects.jsonl");
        let row = RejectedRow {
            file: "a \"log\".csv".to_owned(),
            line: 3,
            offset: 41,
            reason: RejectReason::BadTime,
            column: Some("ts".to_owned()),
        };
        for rows in [2, 1, 0, 1] {
            let mut list = RejectList::create(&path).unwrap();
            (0..rows).for_each(|_| list.push(&row).unwrap());
            list.finish().unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(text.lines().count(), rows);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let line = "{\"file\":\"a \\\"log\\\".csv\",\"line\":3,\"offset\":41,\"reason\":\"bad_time\",\"column\":\"ts\"}\n";
        assert_eq!(text, line);
        std::fs::write(&path, "{\"ts\":1,\"line\":5}\n").unwrap();
        let error = RejectList::create(&path).unwrap_err().to_string();
        assert!(error.contains("rejects.jsonl") && error.contains("another name"), "{error}");
        let error = RejectList::create(&folder.path().join("no/such")).unwrap_err().to_string();
        assert!(error.contains("no/such"), "{error}");
    }
}
