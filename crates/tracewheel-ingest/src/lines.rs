//! A line reader of bounded memory.

use std::io::{self, BufRead};

use crate::draft::Place;

/// Reads lines of any length and keeps at most a set number of bytes of one.
pub(crate) struct LineReader<R> {
    from: R,
    max_bytes: usize,
    line: Vec<u8>,
    place: Place,
    too_long: bool,
    lines: u64,
    offset: u64,
}

/// One line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// Its place and its bytes, without the line end (`\n` or `\r\n`).
    Whole(Place, &'a [u8]),
    /// Longer than the limit; its bytes are gone.
    TooLong(Place),
}

impl<R: BufRead> LineReader<R> {
    /// `offset` is where `from` starts in its file.
    pub(crate) fn new(from: R, offset: u64, max_bytes: usize) -> Self {
        Self { from, max_bytes, line: Vec::new(), place: Place::default(), too_long: false, lines: 0, offset }
    }

    /// Goes to the next line; false at the end. A last line needs no line end.
    pub(crate) fn advance(&mut self) -> io::Result<bool> {
        self.place = Place { line: self.lines + 1, offset: self.offset };
        self.line.clear();
        self.too_long = false;
        let mut read = 0_u64;
        loop {
            let available = match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                available => available?,
            };
            let end = memchr::memchr(b'\n', available);
            let content = &available[..end.unwrap_or(available.len())];
            self.too_long |= self.line.len() + content.len() > self.max_bytes;
            if self.too_long {
                self.line.clear();
            } else {
                self.line.extend_from_slice(content);
            }
            let used = content.len() + usize::from(end.is_some());
            self.from.consume(used);
            read += used as u64;
            if end.is_some() || used == 0 {
                break;
            }
        }
        self.lines += u64::from(read > 0);
        self.offset += read;
        Ok(read > 0)
    }

    /// The line that the last [`advance`](Self::advance) went to.
    pub(crate) fn current(&self) -> Line<'_> {
        if self.too_long {
            Line::TooLong(self.place)
        } else {
            Line::Whole(self.place, self.line.strip_suffix(b"\r").unwrap_or(&self.line))
        }
    }

    /// Whether that line has no content.
    pub(crate) fn is_blank(&self) -> bool {
        !self.too_long && self.line.trim_ascii().is_empty()
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    fn all(bytes: &[u8], max: usize, buffer: usize) -> Vec<(u64, u64, Option<Vec<u8>>)> {
        let mut reader = LineReader::new(BufReader::with_capacity(buffer, bytes), 0, max);
        let mut lines = Vec::new();
        while reader.advance().unwrap() {
            lines.push(match reader.current() {
                Line::Whole(place, bytes) => (place.line, place.offset, Some(bytes.to_vec())),
                Line::TooLong(place) => (place.line, place.offset, None),
            });
        }
        assert_eq!(reader.offset(), bytes.len() as u64);
        lines
    }

    #[test]
    fn crlf_and_a_missing_last_line_end_are_no_content() {
        let some = |text: &str| Some(text.as_bytes().to_vec());
        assert_eq!(all(b"a\r\n\nbc", 10, 2), [(1, 0, some("a")), (2, 3, some("")), (3, 4, some("bc"))]);
        assert!(all(b"", 10, 2).is_empty());
    }

    #[test]
    fn a_line_over_the_limit_is_told_with_its_place_and_the_next_one_is_whole() {
        let mut text = vec![b'x'; 100_000];
        text.extend_from_slice(b"\nok\n");
        assert_eq!(all(&text, 1000, 64), [(1, 0, None), (2, 100_001, Some(b"ok".to_vec()))]);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_the_buffer(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200), buffer in 1_usize..40, max in 0_usize..30) {
            prop_assert_eq!(all(&bytes, max, buffer), all(&bytes, max, 1 << 16));
        }
    }
}
