//! A JSON text a line: bytes in, lines out.
//!
//! Lines end in LF; a CR before it is white space. The Unicode line separators are no line ends, and a character may
//! straddle reads. A leading byte order mark is skipped once. A line larger than [`MAX_EVENT_BYTES`] ends the decoding.
//! Blank lines are handed out as empty: they show that the server lives.

use memchr::memchr;

use crate::sse::{Frame, MAX_EVENT_BYTES, append};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Cuts a stream into lines.
#[derive(Debug)]
pub(crate) struct LineFramer {
    limit: u64,
    /// Bytes fed before the current read.
    offset: u64,
    /// Where the current line began.
    start: u64,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    first_line: bool,
    stopped: bool,
}

impl LineFramer {
    /// A framer at the start of a stream.
    pub(crate) fn new() -> Self {
        LineFramer {
            limit: MAX_EVENT_BYTES,
            offset: 0,
            start: 0,
            line: Vec::new(),
            first_line: true,
            stopped: false,
        }
    }

    /// Takes the next read and gives every line that it completes to `sink`.
    pub(crate) fn feed(&mut self, read: &[u8], mut sink: impl FnMut(Frame<'_>)) {
        let mut at = 0;
        while !self.stopped
            && let Some(length) = memchr(b'\n', &read[at..])
        {
            let end_offset = self.offset + (at + length) as u64 + 1;
            if end_offset - self.start > self.limit {
                break;
            }
            let piece = &read[at..at + length];
            if self.line.is_empty() {
                sink(Frame::Event { name: b"", data: unmarked(piece, self.first_line), end_offset });
            } else {
                append(&mut self.line, piece);
                sink(Frame::Event { name: b"", data: unmarked(&self.line, self.first_line), end_offset });
                self.line.clear();
            }
            self.first_line = false;
            self.start = end_offset;
            at += length + 1;
        }
        self.offset += read.len() as u64;
        if !self.stopped && self.offset - self.start > self.limit {
            self.stopped = true;
            self.line = Vec::new();
            sink(Frame::Oversize { end_offset: self.start + self.limit + 1 });
        }
        if !self.stopped {
            append(&mut self.line, &read[at..]);
        }
    }

    /// What lies behind the last line end, without white space, and where it ends; `None` if nothing does.
    pub(crate) fn rest(&self) -> Option<(&[u8], u64)> {
        let rest = unmarked(&self.line, self.first_line).trim_ascii();
        (!rest.is_empty()).then_some((rest, self.offset))
    }

    /// Bytes that the buffer has room for.
    pub(crate) fn held_bytes(&self) -> usize {
        self.line.capacity()
    }
}

fn unmarked(line: &[u8], first: bool) -> &[u8] {
    if first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line and where it ends.
    type Line = (Vec<u8>, u64);

    fn lines(reads: &[&[u8]], limit: u64) -> (Vec<Line>, Option<Line>, bool) {
        let mut framer = LineFramer { limit, ..LineFramer::new() };
        let (mut found, mut oversize) = (Vec::new(), false);
        for read in reads {
            framer.feed(read, |frame| match frame {
                Frame::Event { data, end_offset, .. } => found.push((data.to_vec(), end_offset)),
                Frame::Oversize { .. } => oversize = true,
                Frame::Comment { .. } => unreachable!("lines have no comments"),
            });
        }
        (found, framer.rest().map(|(rest, end)| (rest.to_vec(), end)), oversize)
    }

    #[test]
    fn lines_are_the_same_under_every_cut_and_the_rest_is_what_has_no_end() {
        let body = "\u{feff}{\"a\":1}\r\n\n{\"b\":\"\u{2028}\u{e9}\"}\n  {\"c\"".as_bytes();
        let whole = lines(&[body], 1000);
        let of = |text: &str, end| (text.as_bytes().to_vec(), end);
        assert_eq!(whole.0, [of("{\"a\":1}\r", 12), of("", 13), of("{\"b\":\"\u{2028}\u{e9}\"}", 27)]);
        assert_eq!(whole.1, Some(of("{\"c\"", 33)));
        for cut in 0..body.len() {
            assert_eq!(lines(&[&body[..cut], &body[cut..]], 1000), whole, "cut at {cut}");
        }
    }

    #[test]
    fn a_line_beyond_the_bound_ends_the_decoding_wherever_it_is_cut() {
        let body = b"12345\n123456789\nab\n";
        for cut in 0..body.len() {
            let (found, rest, oversize) = lines(&[&body[..cut], &body[cut..]], 8);
            assert_eq!((found.len(), rest, oversize), (1, None, true), "cut at {cut}");
        }
    }
}
