//! One input's bytes, unpacked: the first of them to tell the format from, and then all of them, once.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::sync::Arc;

use crate::error::IngestError;
use crate::gauge::{Counted, ImportGauge};
use crate::options::{From, Input};
use crate::source::unpack::{MAGIC_BYTES, Packing, Unpacker, Unpacking};

mod gzip;
pub(crate) mod unpack;
mod zst;

const HEAD_BYTES: usize = 64 << 10;
/// Lines that a format is told from.
const HEAD_LINES: usize = 20;
const BOM: &[u8] = b"\xef\xbb\xbf";
/// Where a tar archive says that it is one.
const TAR_MAGIC_AT: usize = 257;

type Bytes = Box<dyn Read + Send>;

/// An opened input.
pub(crate) struct Source {
    /// As the caller named it, for errors.
    pub(crate) name: String,
    head: Vec<u8>,
    /// The head is all there is.
    ended: bool,
    rest: Bytes,
    /// Where the head starts in the input's text: behind a byte order mark.
    pub(crate) offset: u64,
    /// How far the archive was read, where the input is one.
    unpacking: Option<Unpacking>,
}

/// First bytes of files that are not read directly: what they say, what that is, what to do.
const NOT_TEXT: [(&[u8], &str, &str); 10] = [
    (b"\x1f\x8b", "packed twice (gzip inside)", "unpack it on the way: gzip -dc FILE | tracewheel ingest -"),
    (
        b"\x28\xb5\x2f\xfd",
        "packed twice (zstd inside)",
        "unpack it on the way: zstd -dc FILE | tracewheel ingest -",
    ),
    (b"\xfd7zXZ", "xz-compressed", "unpack it on the way: xz -dc FILE | tracewheel ingest -"),
    (b"BZh", "bzip2-compressed", "unpack it on the way: bzip2 -dc FILE | tracewheel ingest -"),
    (b"\x04\x22\x4d\x18", "lz4-compressed", "unpack it on the way: lz4 -dc FILE | tracewheel ingest -"),
    (b"PK\x03\x04", "a zip archive", "unpack it on the way: unzip -p FILE | tracewheel ingest -"),
    (b"PK\x05\x06", "an empty zip archive", "name another file"),
    (b"PAR1", "a Parquet file", "a timeline needs no import; another table goes in as CSV or JSON lines"),
    (b"\xff\xfe", "UTF-16 text", "turn it into UTF-8: iconv -f UTF-16 -t UTF-8 FILE | tracewheel ingest -"),
    (b"\xfe\xff", "UTF-16 text", "turn it into UTF-8: iconv -f UTF-16 -t UTF-8 FILE | tracewheel ingest -"),
];

impl Source {
    /// Opens an input and reads its head: at least one whole line, unless that is longer than `max_row_bytes` or the
    /// input is damaged before its end.
    pub(crate) fn open(
        input: Input,
        max_row_bytes: usize,
        gauge: &Arc<ImportGauge>,
    ) -> Result<Self, IngestError> {
        let Input { name, from } = input;
        let opened: io::Result<Bytes> = match from {
            From::Path(path) => File::open(path).map(|file| Box::new(file) as _),
            From::Stdin => Ok(Box::new(io::stdin())),
            From::Reader(reader) => Ok(reader),
        };
        let opened = opened.map(|from| Box::new(Counted { from, gauge: Arc::clone(gauge) }) as Bytes);
        let read_error = |source| IngestError::Read { file: name.clone(), source };
        let (mut rest, unpacking) = opened.and_then(unpacked).map_err(read_error)?;
        let mut head = Vec::new();
        let ended = match read_head(&mut rest, &mut head, max_row_bytes) {
            Ok(ended) => ended,
            Err(source) => {
                damaged_before_a_line(&name, &head, unpacking.as_ref())?;
                if !damaged(unpacking.as_ref()) {
                    return Err(read_error(source));
                }
                // What was read is good; the next read tells the damage again.
                false
            }
        };
        if let Some((what, remedy)) = not_text(&head) {
            return Err(IngestError::NotText { file: name, what, remedy });
        }
        let mut offset = 0;
        if head.starts_with(BOM) {
            head.drain(..BOM.len());
            offset = BOM.len() as u64;
        }
        Ok(Self { name, head, ended, rest, offset, unpacking })
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

    /// Whether no line ended within so many bytes.
    pub(crate) fn begins_with_a_line_longer_than(&self, bytes: usize) -> bool {
        !self.ended && self.head.len() >= bytes && !self.head.contains(&b'\n')
    }

    /// Everything from the head on.
    pub(crate) fn into_reader(self) -> impl Read + Send + 'static {
        Cursor::new(self.head).chain(self.rest)
    }

    /// Tells how far the archive was read, while and after its text is; `None` where the input is no archive.
    pub(crate) fn unpacking(&self) -> Option<Unpacking> {
        self.unpacking.clone()
    }
}

/// The input's text, whatever packs it.
fn unpacked(mut from: Bytes) -> io::Result<(Bytes, Option<Unpacking>)> {
    let mut first = Vec::new();
    from.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut first)?;
    let packing = Packing::of(&first);
    let whole = Cursor::new(first).chain(from);
    Ok(match packing {
        Some(packing) => {
            let unpacker = Unpacker::new(whole, packing)?;
            let unpacking = unpacker.unpacking();
            (Box::new(unpacker), Some(unpacking))
        }
        None => (Box::new(whole), None),
    })
}

/// Reads until there is a good piece with a whole line in it, or what may be one row; says whether that is all.
fn read_head(from: &mut Bytes, head: &mut Vec<u8>, max_row_bytes: usize) -> io::Result<bool> {
    let mut any_line = false;
    while head.len() < HEAD_BYTES || (!any_line && head.len() < max_row_bytes) {
        let before = head.len();
        let read = from.by_ref().take(HEAD_BYTES as u64).read_to_end(head)?;
        any_line |= memchr::memchr(b'\n', &head[before..]).is_some();
        if read < HEAD_BYTES {
            return Ok(true);
        }
    }
    Ok(false)
}

fn damaged(unpacking: Option<&Unpacking>) -> bool {
    unpacking.is_some_and(|unpacking| unpacking.progress().damage.is_some())
}

/// An archive that is damaged before its first line has ended holds nothing to keep.
fn damaged_before_a_line(name: &str, head: &[u8], unpacking: Option<&Unpacking>) -> Result<(), IngestError> {
    let Some(unpacking) = unpacking.filter(|_| !head.contains(&b'\n')) else { return Ok(()) };
    let progress = unpacking.progress();
    match progress.damage {
        Some(problem) => Err(IngestError::DamagedArchive {
            file: name.to_owned(),
            packing: unpacking.packing.name(),
            offset: progress.packed_bytes,
            problem,
        }),
        None => Ok(()),
    }
}

fn not_text(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if head.get(TAR_MAGIC_AT..TAR_MAGIC_AT + 5) == Some(b"ustar") {
        return Some(("a tar archive", "take the logs out first: tar -xf FILE"));
    }
    let found = NOT_TEXT.iter().find(|(magic, ..)| head.starts_with(magic))?;
    Some((found.1, found.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(bytes: &'static [u8]) -> Result<Source, IngestError> {
        Source::open(Input::reader("log", bytes), 1000, &Arc::default())
    }

    #[test]
    fn packed_files_are_refused_with_the_way_to_unpack_them() {
        for (magic, remedy) in [
            (&b"\xfd7zXZ\0"[..], "xz -dc"),
            (b"PK\x03\x04", "unzip -p"),
            (b"PAR1", "CSV"),
            (b"\xff\xfea", "iconv"),
        ] {
            let error = open(magic).map(|_| ()).unwrap_err().to_string();
            assert!(error.starts_with("log is") && error.contains(remedy), "{error}");
        }
    }

    #[test]
    fn an_archive_that_is_cut_before_its_first_line_is_refused_with_its_place() {
        for magic in [&b"\x1f\x8b\x08"[..], b"\x28\xb5\x2f\xfd\0"] {
            let error = open(magic).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("archive") && error.contains("byte") && error.contains("cut"), "{error}");
        }
    }

    #[test]
    fn a_tar_archive_is_told_by_its_own_mark() {
        let mut tar = vec![b'a'; 512];
        tar[TAR_MAGIC_AT..TAR_MAGIC_AT + 5].copy_from_slice(b"ustar");
        let error = Source::open(Input::reader("log", Cursor::new(tar)), 1000, &Arc::default())
            .map(|_| ())
            .unwrap_err();
        assert!(error.to_string().contains("tar -xf"), "{error}");
    }

    #[test]
    fn a_byte_order_mark_is_skipped_and_offsets_still_count_it() {
        let source = open(b"\xef\xbb\xbfa,b\r\n\r\n1,2").unwrap();
        assert_eq!(source.offset, 3);
        assert_eq!(source.head_lines(), [b"a,b", b"1,2"]);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error =
            Source::open(Input::path("/no/such/log.csv"), 1000, &Arc::default()).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("/no/such/log.csv"), "{error}");
    }
}
