//! Server-sent events: bytes in, frames out. Knows nothing of JSON or providers.
//!
//! - Lines end in LF, CR or CR LF; a pair that is cut between two reads is still one line end. Lines are found in
//!   bytes: the Unicode line separators inside of JSON text are not line ends, and a character may straddle reads.
//! - After a field's colon at most one space is dropped. Several `data` lines are joined with LF. Unknown fields
//!   are skipped. A leading byte order mark is skipped once.
//! - A line that begins with a colon is a comment: a frame of its own, for it shows that the server lives.
//! - A blank line completes an event, but only if there was a `data` line; else it forgets the event's name.
//! - An event larger than [`MAX_EVENT_BYTES`] ends the decoding.
//!
//! A frame's end is the byte after its line end, where the CR of a pair is the line end: the event is complete
//! there, whether or not an LF follows, and offsets are the same however the bytes were cut.
//!
//! An event that lies within one read, with one `data` line, is handed out as a slice of that read. Everything else
//! is gathered in buffers that are kept for the next event; each byte is looked at once.

use std::ops::Range;

use memchr::{memchr, memchr2};

/// The largest event: 32 MiB from its first byte to its last. Responses of some protocols repeat the whole answer in
/// their last event, so the bound is generous.
pub const MAX_EVENT_BYTES: u64 = 32 << 20;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One thing that a stream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// An event, complete. `name` is empty where none was given, `data` may be empty.
    Event {
        /// Value of the `event` field.
        name: &'a [u8],
        /// The `data` lines, joined with LF.
        data: &'a [u8],
        /// Offset just past the end of the event.
        end_offset: u64,
    },
    /// A comment line, without its colon.
    Comment {
        /// What follows the colon.
        text: &'a [u8],
        /// Offset just past the end of the line.
        end_offset: u64,
    },
    /// An event grew beyond [`MAX_EVENT_BYTES`]. Nothing follows.
    Oversize {
        /// Offset just past the first byte too many.
        end_offset: u64,
    },
}

/// What is left when a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Nothing.
    Clean,
    /// A line without its end, or data without its blank line.
    Unterminated,
}

/// Cuts a stream into frames. See the [module's page](self) for the rules.
#[derive(Debug)]
pub struct Framer {
    limit: u64,
    /// Bytes fed before the current read.
    offset: u64,
    /// Where the current event began.
    event_start: u64,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// Data of the current event, where it is no slice of the current read.
    data: Vec<u8>,
    name: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    first_line: bool,
    stopped: bool,
}

impl Default for Framer {
    fn default() -> Self {
        Self::new()
    }
}

impl Framer {
    /// A framer at the start of a stream.
    pub fn new() -> Framer {
        Framer::with_limit(MAX_EVENT_BYTES)
    }

    fn with_limit(limit: u64) -> Framer {
        Framer {
            limit,
            offset: 0,
            event_start: 0,
            line: Vec::new(),
            data: Vec::new(),
            name: Vec::new(),
            has_data: false,
            after_cr: false,
            first_line: true,
            stopped: false,
        }
    }

    /// Takes the next read and gives every frame that it completes to `sink`.
    pub fn feed(&mut self, read: &[u8], mut sink: impl FnMut(Frame<'_>)) {
        if self.stopped || read.is_empty() {
            return;
        }
        let mut at = usize::from(self.after_cr && read[0] == b'\n');
        self.after_cr = false;
        // Data of the current event, as long as it is one slice of this read.
        let mut slice: Option<Range<usize>> = None;
        while let Some(length) = memchr2(b'\n', b'\r', &read[at..]) {
            let end = at + length;
            let end_offset = self.offset + end as u64 + 1;
            if end_offset - self.event_start > self.limit {
                break;
            }
            if self.line.is_empty() {
                self.line_in_read(read, at..end, end_offset, &mut slice, &mut sink);
            } else {
                self.line_over_reads(read, at..end, end_offset, &mut slice, &mut sink);
            }
            at = end + 1;
            if read[end] == b'\r' {
                match read.get(at) {
                    Some(b'\n') => at += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
        }
        self.offset += read.len() as u64;
        if self.offset - self.event_start > self.limit {
            self.stopped = true;
            (self.line, self.data, self.name) = (Vec::new(), Vec::new(), Vec::new());
            sink(Frame::Oversize { end_offset: self.event_start + self.limit + 1 });
            return;
        }
        append(&mut self.line, &read[at..]);
        if let Some(range) = slice {
            append(&mut self.data, &read[range]);
        }
    }

    /// The stream has ended: is anything left that no blank line completed?
    pub fn finish(&self) -> Tail {
        let line = if self.first_line { without_mark(&self.line) } else { &self.line };
        let open_line = !line.is_empty() && line[0] != b':';
        if !self.stopped && (self.has_data || open_line) { Tail::Unterminated } else { Tail::Clean }
    }

    /// Bytes that the buffers have room for: twice [`MAX_EVENT_BYTES`] at most, for the line under way and the data before.
    pub fn held_bytes(&self) -> usize {
        self.line.capacity() + self.data.capacity() + self.name.capacity()
    }

    /// A whole line that lies within the read.
    fn line_in_read(
        &mut self,
        read: &[u8],
        mut line: Range<usize>,
        end_offset: u64,
        slice: &mut Option<Range<usize>>,
        sink: &mut impl FnMut(Frame<'_>),
    ) {
        if self.first_line {
            self.first_line = false;
            line.start = line.end - without_mark(&read[line.clone()]).len();
        }
        if line.is_empty() {
            let whole = slice.take();
            let data = whole.map_or(&self.data[..], |range| &read[range]);
            if self.has_data {
                sink(Frame::Event { name: &self.name, data, end_offset });
            }
            self.begin_event(end_offset);
            return;
        }
        let bytes = &read[line.clone()];
        match Field::of(bytes) {
            Field::Data(value) => {
                if self.has_data {
                    self.unslice(read, slice);
                    self.data.push(b'\n');
                    append(&mut self.data, value);
                } else {
                    *slice = Some(line.end - value.len()..line.end);
                }
                self.has_data = true;
            }
            other => self.other_field(other, end_offset, sink),
        }
    }

    /// A line that began in an earlier read and ends in this one.
    fn line_over_reads(
        &mut self,
        read: &[u8],
        rest: Range<usize>,
        end_offset: u64,
        slice: &mut Option<Range<usize>>,
        sink: &mut impl FnMut(Frame<'_>),
    ) {
        let mut buffer = std::mem::take(&mut self.line);
        append(&mut buffer, &read[rest]);
        let line = if std::mem::take(&mut self.first_line) { without_mark(&buffer) } else { &buffer[..] };
        if !line.is_empty() {
            match Field::of(line) {
                Field::Data(value) => {
                    self.unslice(read, slice);
                    if self.has_data {
                        self.data.push(b'\n');
                    }
                    append(&mut self.data, value);
                    self.has_data = true;
                }
                other => self.other_field(other, end_offset, sink),
            }
        } else {
            // Nothing but a byte order mark: a blank line before any event.
            self.begin_event(end_offset);
        }
        buffer.clear();
        self.line = buffer;
    }

    fn other_field(&mut self, field: Field<'_>, end_offset: u64, sink: &mut impl FnMut(Frame<'_>)) {
        match field {
            Field::Comment(text) => {
                sink(Frame::Comment { text, end_offset });
                if !self.has_data && self.name.is_empty() {
                    self.event_start = end_offset;
                }
            }
            Field::Name(value) => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            Field::Data(_) | Field::Other => {}
        }
    }

    /// Moves data that is still a slice of the read into the buffer.
    fn unslice(&mut self, read: &[u8], slice: &mut Option<Range<usize>>) {
        if let Some(range) = slice.take() {
            append(&mut self.data, &read[range]);
        }
    }

    fn begin_event(&mut self, start: u64) {
        self.event_start = start;
        self.has_data = false;
        self.data.clear();
        self.name.clear();
    }
}

enum Field<'a> {
    Data(&'a [u8]),
    Name(&'a [u8]),
    Comment(&'a [u8]),
    /// `id`, `retry`, and whatever a server makes up.
    Other,
}

impl<'a> Field<'a> {
    fn of(line: &'a [u8]) -> Field<'a> {
        if let Some(value) = line.strip_prefix(b"data:") {
            return Field::Data(value.strip_prefix(b" ").unwrap_or(value));
        }
        let (name, value) = match memchr(b':', line) {
            Some(0) => return Field::Comment(&line[1..]),
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &line[line.len()..]),
        };
        match name {
            b"data" => Field::Data(value),
            b"event" => Field::Name(value.strip_prefix(b" ").unwrap_or(value)),
            _ => Field::Other,
        }
    }
}

/// Appends to a buffer that never has room for more than the largest event.
pub(crate) fn append(buffer: &mut Vec<u8>, bytes: &[u8]) {
    let wanted = buffer.len() + bytes.len();
    if wanted > buffer.capacity() {
        let doubled = buffer.capacity().saturating_mul(2).min(MAX_EVENT_BYTES as usize);
        buffer.reserve_exact(doubled.max(wanted).max(64) - buffer.len());
    }
    buffer.extend_from_slice(bytes);
}

fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
}

#[cfg(test)]
mod tests;
