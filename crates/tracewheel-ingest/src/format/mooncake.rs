//! The Mooncake traces: a JSON object a line with `timestamp` (ms from the trace's start), `input_length`,
//! `output_length` and `hash_ids`, the ids of the prompt's blocks of 512 tokens.
//!
//! In the published traces an id stands for its block and everything before it. Look-alikes from other tools give one
//! id to one text wherever it stands. Ids are chained here, which is right for both.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::binding::{block_id, set_prefix};
use crate::cells::Cell;
use crate::column_map::{Scale, Unit};
use crate::draft::{Draft, Place};
use crate::error::IngestError;
use crate::format::jsonl_rows::{Lines, NextText, next_text, open_lines};
use crate::format::{Format, RowReader};
use crate::reading::{CellProblem, Reading, Rejection, Step};
use crate::report::RejectReason;
use crate::source::Source;
use crate::stamps::ColumnUnit;

/// Tokens a block in the published traces.
const BLOCK_TOKENS: u32 = 512;
const TIMESTAMP: &str = "timestamp";

/// The keys of the published traces in their order, as they are written behind a brace or a comma.
const PUBLISHED: [(&str, &str); 4] = [
    (TIMESTAMP, "\"timestamp\": "),
    ("input_length", " \"input_length\": "),
    ("output_length", " \"output_length\": "),
    ("hash_ids", " \"hash_ids\": "),
];

pub(crate) struct Mooncake;

/// One line, as far as it is read.
#[derive(Deserialize)]
struct Record<'a> {
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    input_length: Option<&'a RawValue>,
    #[serde(borrow)]
    output_length: Option<&'a RawValue>,
    hash_ids: Option<Vec<BlockId>>,
}

/// A block's id: a number of up to 64 bits, or a text.
struct BlockId(u64);

struct MooncakeRows {
    lines: Lines,
    unit: ColumnUnit,
    /// The block ids of a line that was read the short way.
    ids: Vec<u64>,
}

/// The texts of one line's numbers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Numbers<'a> {
    timestamp: Option<&'a str>,
    input_length: Option<&'a str>,
    output_length: Option<&'a str>,
    has_ids: bool,
}

impl Format for Mooncake {
    fn name(&self) -> &'static str {
        "mooncake"
    }

    fn about(&self) -> &'static str {
        "Mooncake traces (JSON lines: timestamp in ms, input_length, output_length, hash_ids)"
    }

    fn sniff(&self, lines: &[&[u8]]) -> bool {
        lines.iter().filter_map(|line| std::str::from_utf8(line).ok()).any(|line| {
            serde_json::from_str::<Record<'_>>(line).is_ok_and(|record| {
                let is_number = |raw: &RawValue| matches!(raw.get().as_bytes(), [b'-' | b'0'..=b'9', ..]);
                [record.timestamp, record.input_length, record.output_length]
                    .iter()
                    .all(|value| value.is_some_and(is_number))
            })
        })
    }

    fn block_tokens(&self) -> Option<u32> {
        Some(BLOCK_TOKENS)
    }

    fn open(&self, source: Source, reading: &mut Reading<'_>) -> Result<Box<dyn RowReader>, IngestError> {
        let lines = open_lines(source, reading);
        Ok(Box::new(MooncakeRows { lines, unit: ColumnUnit::default(), ids: Vec::new() }))
    }
}

impl RowReader for MooncakeRows {
    fn next(&mut self, reading: &mut Reading<'_>) -> Result<Step, IngestError> {
        let (place, text) = match next_text(&mut self.lines, reading)? {
            NextText::Text(place, text) => (place, text),
            NextText::Rejected(rejection) => return Ok(Step::Rejected(rejection)),
            NextText::End => return Ok(Step::End),
        };
        let numbers = match short_read(text, &mut self.ids) {
            Some(numbers) => numbers,
            None => match long_read(text, &mut self.ids) {
                Ok(numbers) => numbers,
                Err(reason) => return Ok(Step::Rejected(Rejection::new(place, reason))),
            },
        };
        match row(place, numbers, &self.ids, &mut self.unit, reading) {
            Ok(draft) => Ok(Step::Row(draft)),
            Err((CellProblem::Import(error), _)) => Err(*error),
            Err((CellProblem::Reject(reason), column)) => {
                Ok(Step::Rejected(Rejection::in_column(place, reason, column)))
            }
        }
    }

    fn consumed(&self) -> (u64, u64) {
        (self.lines.lines(), self.lines.offset())
    }
}

fn row(
    place: Place,
    numbers: Numbers<'_>,
    ids: &[u64],
    unit: &mut ColumnUnit,
    reading: &mut Reading<'_>,
) -> Result<Box<Draft>, (CellProblem, &'static str)> {
    let mut draft = reading.spare.draft(place);
    let timestamp = numbers.timestamp.ok_or((CellProblem::Reject(RejectReason::MissingValue), TIMESTAMP))?;
    let timestamp = Cell::from_json(timestamp).map_err(|reason| (CellProblem::Reject(reason), TIMESTAMP))?;
    let milliseconds = Unit { scale: Scale::Ms, unix: false };
    let stamp = reading.clock.stamp(&timestamp, Some(milliseconds), unit);
    draft.arrival =
        Some(stamp.map_err(|problem| (reading.problem(problem, "arrival", TIMESTAMP, place), TIMESTAMP))?);
    for (raw, column, count) in [
        (numbers.input_length, "input_length", &mut draft.row.input_tokens),
        (numbers.output_length, "output_length", &mut draft.row.output_tokens),
    ] {
        if let Some(raw) = raw {
            *count = count_of(raw).map_err(|reason| (CellProblem::Reject(reason), column))?;
        }
    }
    if numbers.has_ids {
        set_prefix(ids.iter().copied(), &mut draft, reading);
    }
    Ok(draft)
}

/// Reads any line.
fn long_read<'a>(text: &'a str, ids: &mut Vec<u64>) -> Result<Numbers<'a>, RejectReason> {
    let record: Record<'a> = serde_json::from_str(text).map_err(|error| {
        let is_object = error.classify() == Category::Data && text.trim_start().starts_with('{');
        if is_object { RejectReason::BadValue } else { RejectReason::NotJson }
    })?;
    ids.clear();
    ids.extend(record.hash_ids.iter().flatten().map(|id| id.0));
    Ok(Numbers {
        timestamp: record.timestamp.map(RawValue::get),
        input_length: record.input_length.map(RawValue::get),
        output_length: record.output_length.map(RawValue::get),
        has_ids: record.hash_ids.is_some(),
    })
}

/// Reads a line as the published traces write it: the known keys, each at most once, with plain numbers and whole ids.
/// `None` says nothing of the line: [`long_read`] has to judge it.
fn short_read<'a>(text: &'a str, ids: &mut Vec<u64>) -> Option<Numbers<'a>> {
    let mut scan = Scan { text, at: 0 };
    let mut numbers = Numbers::default();
    let mut number = 0;
    scan.expect(b'{')?;
    loop {
        // The published traces have their keys in one order.
        let expected = PUBLISHED.get(number).filter(|(_, text)| scan.text[scan.at..].starts_with(text));
        number += 1;
        let key = match expected {
            Some((key, text)) => {
                scan.at += text.len();
                key
            }
            None => scan.key()?,
        };
        let place = match key {
            TIMESTAMP => &mut numbers.timestamp,
            "input_length" => &mut numbers.input_length,
            "output_length" => &mut numbers.output_length,
            "hash_ids" if !numbers.has_ids => {
                scan.whole_numbers(ids)?;
                numbers.has_ids = true;
                if scan.another(b'}')? { continue } else { break }
            }
            _ => return None,
        };
        if place.replace(scan.number()?).is_some() {
            return None;
        }
        if !scan.another(b'}')? {
            break;
        }
    }
    scan.space();
    (scan.at == text.len()).then_some(numbers)
}

/// A place in a line.
struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// A key without escapes, and the colon behind it.
    fn key(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let rest = &self.text[self.at..];
        let length = memchr::memchr2(b'"', b'\\', rest.as_bytes())?;
        let key = &rest[..length];
        self.at += length;
        self.expect(b'"')?;
        self.expect(b':')?;
        Some(key)
    }

    /// Whether a comma comes; false where `end` does.
    fn another(&mut self, end: u8) -> Option<bool> {
        self.space();
        let byte = self.peek()?;
        self.at += 1;
        if byte == b',' { Some(true) } else { (byte == end).then_some(false) }
    }

    fn digits(&mut self) -> usize {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    /// A number without sign and exponent.
    fn number(&mut self) -> Option<&'a str> {
        self.space();
        let (start, zero) = (self.at, self.peek()? == b'0');
        let whole = self.digits();
        if whole == 0 || (zero && whole > 1) {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return None;
            }
        }
        Some(&self.text[start..self.at])
    }

    /// A list of whole numbers of at most 18 digits.
    fn whole_numbers(&mut self, into: &mut Vec<u64>) -> Option<()> {
        into.clear();
        self.expect(b'[')?;
        self.space();
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        let bytes = self.text.as_bytes();
        let mut at = self.at;
        loop {
            at += published_numbers(&bytes[at..], into);
            while matches!(bytes.get(at), Some(b' ' | b'\t')) {
                at += 1;
            }
            let (value, count) = leading_number(&bytes[at..]);
            if !(1..=18).contains(&count) || (count > 1 && bytes[at] == b'0') {
                return None;
            }
            into.push(value);
            self.at = at + count;
            if !self.another(b']')? {
                return Some(());
            }
            at = self.at;
        }
    }
}

/// Takes numbers of at most eight digits that are each followed by a comma and a space, as the published traces write
/// all but the last of a list; says how many bytes they are.
fn published_numbers(bytes: &[u8], into: &mut Vec<u64>) -> usize {
    let mut rest = bytes;
    while let Some(chunk) = rest.first_chunk::<16>() {
        let word = chunk.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let count = digits_in(word);
        // A zero before other digits is no JSON.
        let begins_well = (word as u8) != b'0' || count == 1;
        if count == 0 || !begins_well || chunk[count..count + 2] != *b", " {
            break;
        }
        into.push(eight_digits((word ^ ZEROS) << (64 - 8 * count)));
        rest = &rest[count + 2..];
    }
    bytes.len() - rest.len()
}

/// The number that the digits at the start make, and how many there are. The number is right for up to 19 digits.
fn leading_number(bytes: &[u8]) -> (u64, usize) {
    if let Some(word) = bytes.first_chunk().map(|word| u64::from_le_bytes(*word)) {
        let count = digits_in(word);
        if count < 8 {
            // Digits to the top, zeros before them.
            let digits = if count == 0 { 0 } else { (word ^ ZEROS) << (64 - 8 * count) };
            return (eight_digits(digits), count);
        }
    }
    let count = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let add = |value: u64, byte: &u8| value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
    (bytes[..count].iter().fold(0, add), count)
}

/// How many of eight bytes are digits before another one comes.
fn digits_in(word: u64) -> usize {
    // A byte is a digit exactly if its high half is 3, and still is after 6 was added.
    let other = ((word & HIGH_HALVES) ^ ZEROS) | ((word.wrapping_add(SIXES) & HIGH_HALVES) ^ ZEROS);
    other.trailing_zeros() as usize / 8
}

const ZEROS: u64 = 0x3030_3030_3030_3030;
const SIXES: u64 = 0x0606_0606_0606_0606;
const HIGH_HALVES: u64 = 0xf0f0_f0f0_f0f0_f0f0;

/// The number of eight digits, one a byte, the first in the lowest: neighbours are joined to pairs, pairs to fours,
/// fours to the whole.
fn eight_digits(digits: u64) -> u64 {
    let pairs = (digits.wrapping_mul(10) + (digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(100) + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    (fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff
}

/// A token count; `null` and its like are unknown.
fn count_of(raw: &str) -> Result<Option<u32>, RejectReason> {
    match Cell::from_json(raw)? {
        Cell::Missing => Ok(None),
        cell => cell.count(u32::MAX).map(Some),
    }
}

impl<'de> Deserialize<'de> for BlockId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Id;

        impl Visitor<'_> for Id {
            type Value = BlockId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a block id: a whole number or a text")
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<BlockId, E> {
                Ok(BlockId(id))
            }

            fn visit_i64<E: Error>(self, id: i64) -> Result<BlockId, E> {
                Ok(BlockId(id.cast_unsigned()))
            }

            fn visit_str<E: Error>(self, id: &str) -> Result<BlockId, E> {
                Ok(BlockId(block_id(id)))
            }
        }

        deserializer.deserialize_any(Id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A line's numbers and block ids, where it could be read.
    type Read<'a> = Option<(Numbers<'a>, Vec<u64>)>;

    fn both(text: &str) -> (Read<'_>, Read<'_>) {
        let (mut short, mut long) = (vec![7], vec![7]);
        let (short_numbers, long_numbers) = (short_read(text, &mut short), long_read(text, &mut long).ok());
        // Ids mean nothing where the line has none.
        fn pair(numbers: Option<Numbers<'_>>, ids: Vec<u64>) -> Read<'_> {
            numbers.map(|numbers| (numbers, if numbers.has_ids { ids } else { Vec::new() }))
        }
        (pair(short_numbers, short), pair(long_numbers, long))
    }

    #[test]
    fn a_line_of_the_published_traces_is_read_the_short_way() {
        for line in [
            r#"{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2353]}"#,
            r#"{"timestamp":0.25,"hash_ids":[ ],"output_length":1 } "#,
            r#"{"input_length":0}"#,
        ] {
            let (short, long) = both(line);
            assert!(short.is_some(), "{line}");
            assert_eq!(short, long, "{line}");
        }
    }

    #[test]
    fn what_the_short_way_does_not_know_is_left_to_the_long_one() {
        for line in [
            r#"{"timestamp": 1, "timestamp": 2}"#,
            r#"{"timestamp": -1}"#,
            r#"{"timestamp": 1e3}"#,
            r#"{"timestamp": 01}"#,
            r#"{"timestamp": 1.}"#,
            r#"{"timestamp": "1"}"#,
            r#"{"timestamp": null}"#,
            r#"{"chat_id": 3}"#,
            r#"{"hash_ids": [1, "a"]}"#,
            r#"{"hash_ids": [007]}"#,
            r#"{"hash_ids": [18446744073709551615]}"#,
            r#"{"hash_ids": [1,]}"#,
            r#"{"hash_ids": [1.0]}"#,
            r#"{"timestamp": 1} x"#,
            r#"{"timestamp": 1"#,
            "{}",
            "",
        ] {
            assert_eq!(both(line).0, None, "{line}");
        }
    }

    #[test]
    fn the_digits_at_a_start_make_a_number_whatever_follows() {
        for text in ["", "7", "0", "90", "1234567", "12345678", "123456789012345678", "5000009"] {
            for rest in ["", ",", ", 5", "]}", "/0000000000", ":9999999999", "x2345678", "\u{e9}12345678"] {
                let line = format!("{text}{rest}");
                let expected = (text.parse().unwrap_or(0), text.len());
                assert_eq!(leading_number(line.as_bytes()), expected, "{line}");
            }
        }
    }

    proptest! {
        #[test]
        fn both_ways_agree_on_any_line(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("\"timestamp\"".to_owned()), Just("\"input_length\"".to_owned()), Just("\"hash_ids\"".to_owned()),
                    "[{}\\[\\],:. \\-\\\\e\"]", "[0-9]{1,20}", "[0-9]{1,3}\\.[0-9]{0,3}",
                    Just(": ".to_owned()), Just(", ".to_owned()), Just("[1, 2]".to_owned()),
                ],
                0..14,
            ),
            wrapped in any::<bool>(),
        ) {
            let text = parts.concat();
            let text = if wrapped { format!("{{{text}}}") } else { text };
            let (short, long) = both(&text);
            if short.is_some() {
                prop_assert_eq!(short, long);
            }
        }

        #[test]
        fn lists_of_ids_are_read_alike_whatever_their_lengths_and_separators(
            parts in proptest::collection::vec(
                (prop_oneof![4 => "[1-9][0-9]{0,8}", 1 => "0{1,2}[0-9]{0,7}", 1 => "[0-9]{9,19}"], prop_oneof![8 => Just(", "), 1 => Just(","), 1 => Just(" ,  ")]),
                1..12,
            ),
            end in prop_oneof![4 => Just("]}"), 1 => Just("]"), 1 => Just(", ]}"), 1 => Just("")],
        ) {
            let ids: Vec<&str> = parts.iter().map(|(id, _)| id.as_str()).collect();
            let mut text = "{\"hash_ids\": [".to_owned();
            for (number, (id, separator)) in parts.iter().enumerate() {
                text += id;
                if number + 1 < parts.len() {
                    text += separator;
                }
            }
            text += end;
            let (short, long) = both(&text);
            let plain = |id: &&str| id.len() <= 18 && (id.len() == 1 || !id.starts_with('0'));
            prop_assert_eq!(short.is_some(), end == "]}" && ids.iter().all(plain));
            if let Some((_, read)) = &short {
                prop_assert_eq!(read, &ids.iter().map(|id| id.parse().unwrap()).collect::<Vec<u64>>());
                prop_assert_eq!(short, long);
            }
        }
    }
}
