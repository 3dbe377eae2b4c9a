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
        Ok(Box::new(MooncakeRows { lines: open_lines(source, reading), unit: ColumnUnit::default() }))
    }
}

impl RowReader for MooncakeRows {
    fn next(&mut self, reading: &mut Reading<'_>) -> Result<Step, IngestError> {
        let (place, text) = match next_text(&mut self.lines, reading)? {
            NextText::Text(place, text) => (place, text),
            NextText::Rejected(rejection) => return Ok(Step::Rejected(rejection)),
            NextText::End => return Ok(Step::End),
        };
        let record: Record<'_> = match serde_json::from_str(text) {
            Ok(record) => record,
            Err(error) => {
                let is_object = error.classify() == Category::Data && text.trim_start().starts_with('{');
                let reason = if is_object { RejectReason::BadValue } else { RejectReason::NotJson };
                return Ok(Step::Rejected(Rejection::new(place, reason)));
            }
        };
        match row(place, &record, &mut self.unit, reading) {
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
    record: &Record<'_>,
    unit: &mut ColumnUnit,
    reading: &mut Reading<'_>,
) -> Result<Box<Draft>, (CellProblem, &'static str)> {
    let mut draft = Box::new(Draft::at(place));
    let timestamp = record.timestamp.ok_or((CellProblem::Reject(RejectReason::MissingValue), TIMESTAMP))?;
    let timestamp =
        Cell::from_json(timestamp.get()).map_err(|reason| (CellProblem::Reject(reason), TIMESTAMP))?;
    let milliseconds = Unit { scale: Scale::Ms, unix: false };
    let stamp = reading.clock.stamp(&timestamp, Some(milliseconds), unit);
    draft.arrival =
        Some(stamp.map_err(|problem| (reading.problem(problem, "arrival", TIMESTAMP, place), TIMESTAMP))?);
    for (raw, column, count) in [
        (record.input_length, "input_length", &mut draft.row.input_tokens),
        (record.output_length, "output_length", &mut draft.row.output_tokens),
    ] {
        if let Some(raw) = raw {
            *count = count_of(raw).map_err(|reason| (CellProblem::Reject(reason), column))?;
        }
    }
    if let Some(ids) = &record.hash_ids {
        set_prefix(ids.iter().map(|id| id.0), &mut draft, reading);
    }
    Ok(draft)
}

/// A token count; `null` and its like are unknown.
fn count_of(raw: &RawValue) -> Result<Option<u32>, RejectReason> {
    match Cell::from_json(raw.get())? {
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
