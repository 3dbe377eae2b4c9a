//! A CSV record reader of bounded memory: quoted cells, line breaks and all, and a stray quote that damages one row.
//!
//! The state machine is `csv-core`'s. The bytes of the record being read stay in a buffer, so that a record which turns
//! out to be broken (over the limit, or several lines long with the wrong number of cells: the mark of a quote that was
//! never closed) is given up at the end of its first line only, and reading goes on at the next.

use std::io::{self, Read};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder, Terminator};

use crate::draft::Place;

const READ_BYTES: usize = 64 << 10;

/// Reads records and keeps at most a set number of bytes of one.
pub(crate) struct RecordReader<R> {
    from: R,
    csv: Reader,
    max_bytes: usize,
    /// Bytes read and not yet given out; the current record starts at `start`.
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
    /// Cells of the current record, end to end, and where each ends.
    cells: Vec<u8>,
    ends: Vec<usize>,
    cell_count: usize,
    lines: u64,
    offset: u64,
}

/// One record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// Its place and its cells.
    Whole(Place, Cells<'a>),
    /// A line without content.
    Blank,
    /// More or fewer cells than expected; if it spanned several lines, only the first was given up.
    WrongCount(Place),
    /// A quote that nothing closes up to the end; its first line was given up.
    Unclosed(Place),
    /// Over the limit; its first line was given up.
    TooLong(Place),
}

/// The cells of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cells<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
}

/// How a record's reading ended.
enum Parsed {
    /// Its length in the buffer, line end included.
    Record(usize),
    Over,
    Unclosed,
    End,
}

impl<'a> Cells<'a> {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The cell at a position that is in range.
    pub(crate) fn get(&self, at: usize) -> &'a [u8] {
        let from = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.bytes[from..self.ends[at]]
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |at| self.get(at))
    }
}

impl<R: Read> RecordReader<R> {
    /// `offset` is where `from` starts in its file.
    pub(crate) fn new(from: R, delimiter: u8, offset: u64, max_bytes: usize) -> Self {
        let csv = ReaderBuilder::new().delimiter(delimiter).terminator(Terminator::Any(b'\n')).build();
        let mut reader = Self {
            from,
            csv,
            max_bytes,
            buffer: Vec::new(),
            start: 0,
            ended: false,
            cells: Vec::new(),
            ends: Vec::new(),
            cell_count: 0,
            lines: 0,
            offset,
        };
        reader.start_over();
        reader
    }

    /// The next record, which should have `expected` cells (any number for `None`); `None` at the end.
    pub(crate) fn next_record(&mut self, expected: Option<usize>) -> io::Result<Option<Record<'_>>> {
        let place = Place { line: self.lines + 1, offset: self.offset };
        if self.skip_blank_line()? {
            return Ok(Some(Record::Blank));
        }
        let length = match self.parse()? {
            Parsed::End => return Ok(None),
            Parsed::Over => {
                self.give_up_line()?;
                return Ok(Some(Record::TooLong(place)));
            }
            Parsed::Unclosed => {
                self.give_up_line()?;
                return Ok(Some(Record::Unclosed(place)));
            }
            Parsed::Record(length) => length,
        };
        if expected.is_some_and(|expected| expected != self.cell_count) {
            self.give_up_line()?;
            return Ok(Some(Record::WrongCount(place)));
        }
        self.consume(length);
        let ends = &self.ends[..self.cell_count];
        let bytes = &self.cells[..ends.last().copied().unwrap_or_default()];
        Ok(Some(Record::Whole(place, Cells { bytes, ends })))
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Forgets a record that was begun.
    fn start_over(&mut self) {
        self.csv.reset();
        // Past its first bytes, so that it takes no byte order mark out of what follows.
        self.csv.read_record(b"\n", &mut [0; 8], &mut [0; 8]);
    }

    /// Parses the record at `start`, reading more where it is not whole yet.
    fn parse(&mut self) -> io::Result<Parsed> {
        // A line end is no content.
        let longest = self.max_bytes + 2;
        let (mut at, mut cell_bytes) = (self.start, 0);
        self.cell_count = 0;
        loop {
            if at - self.start > longest {
                return Ok(Parsed::Over);
            }
            if at == self.buffer.len() && !self.ended {
                at -= self.fill()?;
                continue;
            }
            self.make_room(cell_bytes);
            let past_end = at == self.buffer.len();
            if past_end && at == self.start {
                return Ok(Parsed::End);
            }
            // A last line needs no line end: it is given one.
            let (result, used, wrote, ended) = self.csv.read_record(
                if past_end { b"\n" } else { &self.buffer[at..] },
                &mut self.cells[cell_bytes..],
                &mut self.ends[self.cell_count..],
            );
            at += if past_end { 0 } else { used };
            cell_bytes += wrote;
            self.cell_count += ended;
            match result {
                ReadRecordResult::InputEmpty if past_end => return Ok(Parsed::Unclosed),
                ReadRecordResult::InputEmpty
                | ReadRecordResult::OutputFull
                | ReadRecordResult::OutputEndsFull => {}
                ReadRecordResult::Record => {
                    let length = at - self.start;
                    self.drop_carriage_return();
                    return Ok(if length > longest { Parsed::Over } else { Parsed::Record(length) });
                }
                ReadRecordResult::End => return Ok(Parsed::End),
            }
        }
    }

    /// The `\r` of `\r\n` is no part of the last cell.
    fn drop_carriage_return(&mut self) {
        let from = if self.cell_count > 1 { self.ends[self.cell_count - 2] } else { 0 };
        let end = &mut self.ends[self.cell_count - 1];
        if *end > from && self.cells[*end - 1] == b'\r' {
            *end -= 1;
        }
    }

    /// Room for what comes next. What is parsed was read, and what is read is bounded: so is this.
    fn make_room(&mut self, cell_bytes: usize) {
        if self.cells.len() < cell_bytes + 256 {
            self.cells.resize(cell_bytes + cell_bytes.max(1024), 0);
        }
        if self.ends.len() < self.cell_count + 8 {
            self.ends.resize(self.cell_count + self.cell_count.max(64), 0);
        }
    }

    /// Drops what was given out and reads more; says by how much positions in the buffer moved.
    fn fill(&mut self) -> io::Result<usize> {
        let moved = self.start;
        self.buffer.drain(..moved);
        self.start = 0;
        let length = self.buffer.len();
        self.buffer.resize(length + READ_BYTES, 0);
        let read = loop {
            match self.from.read(&mut self.buffer[length..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.buffer.truncate(length + *read.as_ref().unwrap_or(&0));
        self.ended = read? == 0;
        Ok(moved)
    }

    fn skip_blank_line(&mut self) -> io::Result<bool> {
        while self.buffer.len() - self.start < 2 && !self.ended {
            self.fill()?;
        }
        let length = match &self.buffer[self.start..] {
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return Ok(false),
        };
        self.consume(length);
        Ok(true)
    }

    /// Drops the record's bytes up to the end of its first line, however far that is.
    fn give_up_line(&mut self) -> io::Result<()> {
        self.start_over();
        loop {
            let available = &self.buffer[self.start..];
            let end = memchr::memchr(b'\n', available);
            let length = end.map_or(available.len(), |at| at + 1);
            self.offset += length as u64;
            self.start += length;
            if end.is_some() || self.ended {
                self.lines += 1;
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn consume(&mut self, length: usize) {
        let consumed = &self.buffer[self.start..self.start + length];
        self.lines += line_count(consumed);
        self.offset += length as u64;
        self.start += length;
    }
}

/// Lines in a run of whole lines; a last one without an end counts.
fn line_count(bytes: &[u8]) -> u64 {
    let ends = memchr::memchr_iter(b'\n', bytes).count() as u64;
    ends + u64::from(!bytes.is_empty() && bytes.last() != Some(&b'\n'))
}

/// The delimiter of a header line: the commonest of comma, tab and semicolon.
pub(crate) fn delimiter_of(header: &[u8]) -> u8 {
    let count = |delimiter: u8| memchr::memchr_iter(delimiter, header).count();
    [b'\t', b';', b','].into_iter().max_by_key(|delimiter| count(*delimiter)).unwrap_or(b',')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Gives few bytes a read.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let length = self.1.min(self.0.len()).min(out.len());
            out[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    /// A record's line, offset and cells, or what became of it.
    type Seen = (u64, u64, Result<Vec<String>, &'static str>);

    fn all(bytes: &[u8], expected: Option<usize>, max: usize, step: usize) -> Vec<Seen> {
        let mut reader = RecordReader::new(Slow(bytes, step), b',', 0, max);
        let mut records = Vec::new();
        while let Some(record) = reader.next_record(expected).unwrap() {
            assert!(records.len() <= bytes.len(), "every record takes a byte at least");
            let (place, content) = match record {
                Record::Whole(place, cells) => {
                    let cells = cells.iter().map(|cell| String::from_utf8_lossy(cell).into_owned());
                    (place, Ok(cells.collect()))
                }
                Record::Blank => (Place::default(), Err("blank")),
                Record::WrongCount(place) => (place, Err("count")),
                Record::Unclosed(place) => (place, Err("unclosed")),
                Record::TooLong(place) => (place, Err("long")),
            };
            records.push((place.line, place.offset, content));
        }
        assert_eq!(reader.offset(), bytes.len() as u64);
        assert_eq!(reader.lines(), line_count(bytes));
        records
    }

    fn cells(cells: &[&str]) -> Result<Vec<String>, &'static str> {
        Ok(cells.iter().map(|cell| (*cell).to_owned()).collect())
    }

    #[test]
    fn quotes_line_breaks_and_crlf_inside_cells_belong_to_the_cell() {
        let text = b"a,b\r\n\"x\r\ny\",\"say \"\"hi\"\"\"\r\n1,5\" disk";
        let expected = [
            (1, 0, cells(&["a", "b"])),
            (2, 5, cells(&["x\r\ny", "say \"hi\""])),
            (4, 26, cells(&["1", "5\" disk"])),
        ];
        for step in [1, 2, 3, 1000] {
            assert_eq!(all(text, Some(2), 100, step), expected);
        }
    }

    #[test]
    fn a_quote_that_is_never_closed_damages_one_row() {
        let text = b"1,2\n\"3,4\n5,6\n7,8\n";
        let expected = [
            (1, 0, cells(&["1", "2"])),
            (2, 4, Err("unclosed")),
            (3, 9, cells(&["5", "6"])),
            (4, 13, cells(&["7", "8"])),
        ];
        assert_eq!(all(text, Some(2), 100, 1000), expected);
        assert_eq!(all(text, Some(2), 6, 3), {
            let mut expected = expected;
            expected[1].2 = Err("long");
            expected
        });
    }

    #[test]
    fn a_row_over_the_limit_is_told_with_its_place_and_the_next_one_is_whole() {
        let mut text = b"1,".to_vec();
        text.extend(std::iter::repeat_n(b'x', 300_000));
        text.extend_from_slice(b"\n3,4");
        assert_eq!(all(&text, Some(2), 1000, 4096), [(1, 0, Err("long")), (2, 300_003, cells(&["3", "4"]))]);
    }

    #[test]
    fn blank_lines_and_short_rows_are_told_apart() {
        let text = b"\n1\n\r\n2,3,4\n";
        assert_eq!(
            all(text, Some(2), 100, 1000).into_iter().map(|record| record.2).collect::<Vec<_>>(),
            [Err("blank"), Err("count"), Err("blank"), Err("count")]
        );
    }

    #[test]
    fn the_delimiter_is_the_commonest_in_the_header() {
        assert_eq!(delimiter_of(b"a,b,c"), b',');
        assert_eq!(delimiter_of(b"a;b;c,d"), b';');
        assert_eq!(delimiter_of(b"a\tb"), b'\t');
        assert_eq!(delimiter_of(b"a"), b',');
    }

    proptest! {
        #[test]
        fn records_do_not_depend_on_how_the_bytes_come(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'"'), Just(b','), any::<u8>()], 0..200),
            step in 1_usize..20,
            expected in proptest::option::of(1_usize..4),
        ) {
            prop_assert_eq!(all(&bytes, expected, 1000, step), all(&bytes, expected, 1000, 1000));
        }
    }
}
