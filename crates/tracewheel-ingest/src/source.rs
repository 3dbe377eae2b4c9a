//! One input's bytes: the first of them to tell the format from, and then all of them, once.

use std::fs::File;
use std::io::{self, Cursor, Read};

use crate::error::IngestError;
use crate::options::{From, Input};

const HEAD_BYTES: usize = 64 << 10;
/// Lines that a format is told from.
const HEAD_LINES: usize = 20;
const BOM: &[u8] = b"\xef\xbb\xbf";

/// An opened input.
pub(crate) struct Source {
    /// As the caller named it, for errors.
    pub(crate) name: String,
    head: Vec<u8>,
    /// The head is all there is.
    ended: bool,
    rest: Box<dyn Read + Send>,
    /// Where the head starts in the input: behind a byte order mark.
    pub(crate) offset: u64,
}

/// First bytes of files that are not read directly: what they say, what that is, what to do.
const NOT_TEXT: [(&[u8], &str, &str); 8] = [
    (b"\x1f\x8b", "gzip-compressed", "unpack it on the way: gzip -dc FILE | tracewheel ingest -"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it on the way: zstd -dc FILE | tracewheel ingest -"),
    (b"\xfd7zXZ", "xz-compressed", "unpack it on the way: xz -dc FILE | tracewheel ingest -"),
    (b"BZh", "bzip2-compressed", "unpack it on the way: bzip2 -dc FILE | tracewheel ingest -"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"PAR1", "a Parquet file", "a timeline needs no import; another table goes in as CSV or JSON lines"),
    (b"\xff\xfe", "UTF-16 text", "turn it into UTF-8: iconv -f UTF-16 -t UTF-8 FILE | tracewheel ingest -"),
    (b"\xfe\xff", "UTF-16 text", "turn it into UTF-8: iconv -f UTF-16 -t UTF-8 FILE | tracewheel ingest -"),
];

impl Source {
    /// Opens an input and reads its head: at least one whole line, unless that is longer than `max_row_bytes`.
    pub(crate) fn open(input: Input, max_row_bytes: usize) -> Result<Self, IngestError> {
        let Input { name, from } = input;
        let rest: io::Result<Box<dyn Read + Send>> = match from {
            From::Path(path) => File::open(path).map(|file| Box::new(file) as _),
            From::Stdin => Ok(Box::new(io::stdin())),
            From::Reader(reader) => Ok(reader),
        };
        let read_error = |source| IngestError::Read { file: name.clone(), source };
        let mut rest = rest.map_err(read_error)?;
        let (mut head, mut ended) = (Vec::new(), false);
        while !ended && (head.len() < HEAD_BYTES || (!head.contains(&b'\n') && head.len() < max_row_bytes)) {
            ended = rest.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).map_err(read_error)?
                < HEAD_BYTES;
        }
        if let Some((_, what, remedy)) = NOT_TEXT.into_iter().find(|(magic, ..)| head.starts_with(magic)) {
            return Err(IngestError::NotText { file: name, what, remedy });
        }
        let mut offset = 0;
        if head.starts_with(BOM) {
            head.drain(..BOM.len());
            offset = BOM.len() as u64;
        }
        Ok(Self { name, head, ended, rest, offset })
    }

    /// The first whole lines that are not blank, without their ends.
    pub(crate) fn head_lines(&self) -> Vec<&[u8]> {
        let mut lines: Vec<&[u8]> = self.head.split(|byte| *byte == b'\n').collect();
        if !self.ended {
            // Cut off, most likely.
            lines.pop();
        }
        lines.into_iter().map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).take(HEAD_LINES).collect()
    }

    /// Everything from the head on.
    pub(crate) fn into_reader(self) -> impl Read + Send + 'static {
        Cursor::new(self.head).chain(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(bytes: &'static [u8]) -> Result<Source, IngestError> {
        Source::open(Input::reader("log", bytes), 1000)
    }

    #[test]
    fn packed_files_are_refused_with_the_way_to_unpack_them() {
        for (magic, remedy) in [(&b"\x1f\x8b\x08"[..], "gzip -dc"), (b"PAR1", "CSV"), (b"\xff\xfea", "iconv")]
        {
            let error = open(magic).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("log is") && error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_offsets_still_count_it() {
        let source = open(b"\xef\xbb\xbfa,b\r\n\r\n1,2").unwrap();
        assert_eq!(source.offset, 3);
        assert_eq!(source.head_lines(), [b"a,b", b"1,2"]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Source::open(Input::path("/no/such/log.csv"), 1000).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("/no/such/log.csv"), "{error}");
    }
}
