//! Every rejected row as a line of JSON, for the one who wants to see them all: its place and what is wrong, never its
//! content. It comes to its place together with the timeline: an import that fails leaves an older list as it is.

use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tempfile::NamedTempFile;

use crate::error::IngestError;
use crate::report::RejectedRow;

/// Longest first line of a list that this crate wrote.
const LONGEST_LINE: u64 = 64 << 10;

/// The list while it is written, in a file that has no name: however the process ends, nothing of it stays.
#[derive(Debug)]
pub(crate) struct RejectList {
    path: PathBuf,
    to: BufWriter<File>,
}

/// The list when it is written.
#[derive(Debug)]
pub(crate) struct WholeList {
    path: PathBuf,
    /// What takes its place; `None` where a pipe or a device has taken the rows.
    file: Option<NamedTempFile>,
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
        if is_stream(path) {
            let to = File::create(path).map_err(failed)?;
            return Ok(Self { path: path.to_owned(), to: BufWriter::new(to) });
        }
        if path.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        // What a link leads to is replaced, not the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let to = tempfile::tempfile_in(folder_of(&path)).map_err(failed)?;
        Ok(Self { path, to: BufWriter::new(to) })
    }

    pub(crate) fn push(&mut self, row: &RejectedRow) -> Result<(), IngestError> {
        let written = serde_json::to_writer(&mut self.to, row).map_err(io::Error::from);
        written.and_then(|()| self.to.write_all(b"\n")).map_err(|source| self.failed(source))
    }

    /// Makes the list whole, beside its place.
    pub(crate) fn finish(mut self) -> Result<WholeList, IngestError> {
        let file = self.named().map_err(|source| self.failed(source))?;
        Ok(WholeList { path: self.path, file })
    }

    fn named(&mut self) -> io::Result<Option<NamedTempFile>> {
        self.to.flush()?;
        if is_stream(&self.path) {
            return Ok(None);
        }
        let mut named = tempfile::Builder::new()
            .prefix(".rejects.")
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder_of(&self.path))?;
        let written = self.to.get_mut();
        written.rewind()?;
        io::copy(written, named.as_file_mut())?;
        Ok(Some(named))
    }

    fn failed(&self, source: io::Error) -> IngestError {
        IngestError::Rejects { path: self.path.clone(), source }
    }
}

impl WholeList {
    /// Puts the list in the place of an older one.
    pub(crate) fn publish(self) -> Result<(), IngestError> {
        let Self { path, file } = self;
        match file.map(|file| file.persist(&path)) {
            Some(Err(error)) => Err(IngestError::Rejects { path, source: error.error }),
            Some(Ok(_)) | None => Ok(()),
        }
    }
}

/// A pipe or a device takes what is written as it comes.
fn is_stream(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// The folder that a file stands in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether nothing, an empty file or an older list stands there.
fn may_replace(path: &Path) -> io::Result<bool> {
    if is_stream(path) {
        return Ok(true);
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        // A folder is refused by itself.
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
            let before = std::fs::read_to_string(&path).ok();
            let list = list.finish().unwrap();
            assert_eq!(std::fs::read_to_string(&path).ok(), before, "an older list stays until then");
            list.publish().unwrap();
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
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
