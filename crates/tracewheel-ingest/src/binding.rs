//! Takes a cell into a row, by the field that its column is mapped to.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use tracewheel_timeline::{HeaderClass, Operation};

use crate::cells::Cell;
use crate::column_map::{Binding, ColumnMap, Scale};
use crate::decimal;
use crate::draft::{Draft, LONGEST_NS};
use crate::fields::{Field, Kind, spec_of};
use crate::identity::IdKind;
use crate::reading::{CellProblem, Reading};
use crate::recorded_body;
use crate::report::RejectReason;
use crate::stamps::{self, ColumnUnit};

/// Longest text that is kept: a name or a code is shorter, prompt text is not wanted.
pub(crate) const LONGEST_TEXT: usize = 256;
/// Longest error class.
const LONGEST_CODE: usize = 64;
/// Most items of a list in one row.
const MOST_ITEMS: usize = 1 << 20;
/// Parameters that are kept from a JSON object: numbers that shape the answer, never text.
const KEPT_PARAMS: [&str; 14] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "min_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "ignore_eos",
    "stream",
];

/// A mapped column while its file is read.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) binding: Binding,
    unit: ColumnUnit,
}

impl Column {
    pub(crate) fn of(map: &ColumnMap) -> Vec<Self> {
        let column = |binding: &Binding| Self { binding: binding.clone(), unit: ColumnUnit::default() };
        map.bindings.iter().map(column).collect()
    }

    /// Takes one cell of this column into `draft`. A missing value stays unknown.
    pub(crate) fn take(
        &mut self,
        cell: &Cell<'_>,
        draft: &mut Draft,
        reading: &mut Reading<'_>,
    ) -> Result<(), CellProblem> {
        if *cell == Cell::Missing {
            return Ok(());
        }
        let field = self.binding.field;
        match spec_of(field).map_or(Kind::Plain, |spec| spec.kind) {
            Kind::Instant => self.take_instant(cell, draft, reading),
            Kind::Duration => {
                let scale = self.binding.unit.map_or(Scale::Ns, |unit| unit.scale);
                Ok(take_duration(field, scale, cell, draft, reading)?)
            }
            Kind::Plain => Ok(self.take_plain(cell, draft, reading)?),
        }
    }

    fn take_instant(
        &mut self,
        cell: &Cell<'_>,
        draft: &mut Draft,
        reading: &mut Reading<'_>,
    ) -> Result<(), CellProblem> {
        let name = spec_of(self.binding.field).map_or("arrival", |spec| spec.name);
        let stamp = reading.clock.stamp(cell, self.binding.unit, &mut self.unit);
        let stamp =
            stamp.map_err(|problem| reading.problem(problem, name, &self.binding.column, draft.place))?;
        match self.binding.field {
            Field::End => draft.end = Some(stamp),
            Field::LogWrite => draft.log_write = Some(stamp),
            _ => draft.arrival = Some(stamp),
        }
        Ok(())
    }

    fn take_plain(
        &self,
        cell: &Cell<'_>,
        draft: &mut Draft,
        reading: &mut Reading<'_>,
    ) -> Result<(), RejectReason> {
        match self.binding.field {
            Field::Status => take_status(cell, draft, reading),
            Field::Error => take_error(cell, draft, reading),
            Field::Operation => take_operation(cell, draft, reading),
            Field::SampleRate => take_sample_rate(cell, draft),
            Field::PrefixHashes => take_prefix_hashes(cell, draft, reading),
            Field::PrefixBlockTokens => take_block_tokens(cell, draft),
            Field::Params => take_params(cell, draft),
            Field::Headers => take_headers(cell, draft, reading),
            Field::Body => recorded_body::take(cell, draft, reading),
            Field::Param(key) => take_param(key, cell, draft),
            Field::Tag => self.take_tag(cell, draft, reading),
            field => take_count(field, cell, draft)
                .or_else(|| take_truth(field, cell, draft))
                .or_else(|| take_id(field, cell, draft, reading))
                .unwrap_or_else(|| take_text(field, cell, draft, reading)),
        }
    }

    fn take_tag(
        &self,
        cell: &Cell<'_>,
        draft: &mut Draft,
        reading: &mut Reading<'_>,
    ) -> Result<(), RejectReason> {
        let text = cell.as_text()?;
        if text.len() > LONGEST_TEXT {
            reading.tally.drop_value("tags", "too long");
            return Ok(());
        }
        if let Some(tag) = &self.binding.tag {
            let value = reading.tally.words.share(text);
            draft.row.tags.get_or_insert_with(BTreeMap::new).insert(tag.clone(), value);
        }
        Ok(())
    }
}

fn take_duration(
    field: Field,
    scale: Scale,
    cell: &Cell<'_>,
    draft: &mut Draft,
    reading: &mut Reading<'_>,
) -> Result<(), RejectReason> {
    if field == Field::Events {
        return take_events(scale, cell, draft, reading);
    }
    let length = stamps::duration(cell, scale)?;
    let ns = length.ns;
    let (name, least) = match field {
        Field::E2e => {
            // Judged with the arrival: a start may hang on it.
            draft.e2e = Some(length);
            return Ok(());
        }
        Field::Ttft => ("ttft", 1),
        Field::CancelAfter => ("cancel_after", 0),
        _ => ("think", -LONGEST_NS),
    };
    if !(least..=LONGEST_NS).contains(&ns) {
        reading.tally.drop_value(name, if ns < least { "not positive" } else { "too long" });
        return Ok(());
    }
    match field {
        Field::Ttft => {
            draft.row.prod_ttft_ns = Some(ns);
            draft.row.prod_ttft_kind = reading.options.ttft_kind;
        }
        Field::CancelAfter => draft.row.cancel_after_ns = Some(ns),
        _ => draft.row.think_ns = Some(ns),
    }
    Ok(())
}

fn take_events(
    scale: Scale,
    cell: &Cell<'_>,
    draft: &mut Draft,
    reading: &mut Reading<'_>,
) -> Result<(), RejectReason> {
    let items = items_of(cell)?;
    let offsets: Vec<i64> = items
        .iter()
        .map(|item| Ok(stamps::duration(item, scale)?.ns))
        .collect::<Result<_, RejectReason>>()?;
    if offsets.first().is_some_and(|first| *first < 0) || !offsets.is_sorted() {
        reading.tally.drop_value("events", "not in order");
    } else {
        draft.row.prod_event_ns = Some(offsets);
    }
    Ok(())
}

/// `None` where the field takes no count.
fn take_count(field: Field, cell: &Cell<'_>, draft: &mut Draft) -> Option<Result<(), RejectReason>> {
    let row = &mut draft.row;
    let wide = match field {
        Field::InputTokens => &mut row.input_tokens,
        Field::OutputTokens => &mut row.output_tokens,
        Field::CachedTokens => &mut row.cached_tokens,
        Field::CacheWriteTokens => &mut row.cache_write_tokens,
        Field::ReasoningTokens => &mut row.reasoning_tokens,
        Field::Turn => &mut row.turn,
        Field::Attempt => &mut draft.attempt,
        Field::Images => return Some(cell.small_count().map(|count| row.images = Some(count))),
        Field::Tools => return Some(cell.small_count().map(|count| row.tools = Some(count))),
        Field::Attempts => return Some(cell.small_count().map(|count| row.prod_attempts = Some(count))),
        _ => return None,
    };
    Some(cell.count(u32::MAX).map(|count| *wide = Some(count)))
}

/// `None` where the field takes no truth.
fn take_truth(field: Field, cell: &Cell<'_>, draft: &mut Draft) -> Option<Result<(), RejectReason>> {
    let place = match field {
        Field::Stream => &mut draft.row.stream,
        Field::ClientGone => &mut draft.row.client_gone,
        Field::GatewayCache => &mut draft.row.served_by_gateway_cache,
        _ => return None,
    };
    Some(cell.truth().map(|truth| *place = Some(truth)))
}

/// `None` where the field takes no id. The id itself goes no further.
fn take_id(
    field: Field,
    cell: &Cell<'_>,
    draft: &mut Draft,
    reading: &Reading<'_>,
) -> Option<Result<(), RejectReason>> {
    let row = &mut draft.row;
    let (kind, place) = match field {
        Field::RequestId => (IdKind::Request, &mut row.source_id_hash),
        Field::Session => (IdKind::Session, &mut row.session_hash),
        Field::Tenant => (IdKind::Tenant, &mut row.tenant_hash),
        Field::User => (IdKind::User, &mut row.user_hash),
        _ => return None,
    };
    Some(cell.as_text().map(|id| *place = Some(reading.key.hash(kind, id.as_bytes()))))
}

fn take_text(
    field: Field,
    cell: &Cell<'_>,
    draft: &mut Draft,
    reading: &mut Reading<'_>,
) -> Result<(), RejectReason> {
    let row = &mut draft.row;
    let (name, place) = match field {
        Field::Model => ("model", &mut row.model),
        Field::ModelServed => ("model_served", &mut row.model_served),
        Field::Provider => ("provider", &mut row.provider),
        Field::Route => ("route", &mut row.route),
        Field::Endpoint => ("endpoint", &mut row.endpoint),
        Field::Method => ("method", &mut row.method),
        Field::Path => ("path", &mut row.path),
        _ => return Err(RejectReason::BadValue),
    };
    let text = cell.as_text()?;
    // A query may carry keys and names.
    let text = match field {
        Field::Path | Field::Endpoint => text.split(['?', '#']).next().unwrap_or(text),
        _ => text,
    };
    if text.len() > LONGEST_TEXT {
        reading.tally.drop_value(name, "too long");
    } else if !text.is_empty() {
        *place = Some(reading.tally.words.share(text));
    }
    Ok(())
}

/// An HTTP status (`200`, `200 OK`), or one of the words by which logs say how a request ended.
fn take_status(cell: &Cell<'_>, draft: &mut Draft, reading: &mut Reading<'_>) -> Result<(), RejectReason> {
    let word = cell.as_text()?.to_ascii_lowercase();
    let number = word.split_whitespace().next().and_then(decimal::whole);
    if let Some(status) = number {
        let status = u16::try_from(status).ok().filter(|status| *status == 0 || (100..1000).contains(status));
        draft.row.prod_status = Some(status.ok_or(RejectReason::BadNumber)?);
        return Ok(());
    }
    match word.as_str() {
        "ok" | "success" | "succeeded" | "successful" | "complete" | "completed" | "true" => {}
        "error" | "fail" | "failed" | "failure" | "false" => set_error("error", draft, reading),
        "timeout" => set_error("timeout", draft, reading),
        "cancelled" | "canceled" | "aborted" => draft.row.client_gone = Some(true),
        _ => reading.tally.drop_value("status", "not a status or a known word"),
    }
    Ok(())
}

/// A logged class says more than a status: it stays.
fn set_error(class: &str, draft: &mut Draft, reading: &mut Reading<'_>) {
    draft.row.prod_error.get_or_insert_with(|| reading.tally.words.share(class));
}

/// An error class, or whether there was an error. Messages are not kept: they quote what was sent.
fn take_error(cell: &Cell<'_>, draft: &mut Draft, reading: &mut Reading<'_>) -> Result<(), RejectReason> {
    let class = match cell.truth() {
        Ok(false) => return Ok(()),
        Ok(true) => "error",
        Err(_) => match cell {
            Cell::Json("{}" | "[]") => return Ok(()),
            Cell::Json(_) => "error",
            _ => cell.as_text()?,
        },
    };
    let is_code = class.len() <= LONGEST_CODE && !class.contains(char::is_whitespace);
    if !is_code {
        reading.tally.drop_value("error", "a message, not a class");
    }
    draft.row.prod_error = Some(reading.tally.words.share(if is_code { class } else { "error" }));
    Ok(())
}

fn take_operation(cell: &Cell<'_>, draft: &mut Draft, reading: &mut Reading<'_>) -> Result<(), RejectReason> {
    let word = cell.as_text()?.to_ascii_lowercase();
    let operation = Operation::parse(&word).or(match word.as_str() {
        "chat.completion" | "chat.completions" | "chat_completion" | "chat_completions" => {
            Some(Operation::Chat)
        }
        "text_completion" | "completions" => Some(Operation::Completion),
        "embedding" => Some(Operation::Embeddings),
        _ => None,
    });
    match operation {
        Some(operation) => {
            draft.row.operation = operation;
            draft.operation_known = true;
        }
        None => reading.tally.drop_value("operation", "not a known word"),
    }
    Ok(())
}

fn take_sample_rate(cell: &Cell<'_>, draft: &mut Draft) -> Result<(), RejectReason> {
    let rate: f64 = cell.number().and_then(|text| text.parse().ok()).ok_or(RejectReason::BadNumber)?;
    if rate > 0.0 && rate <= 1.0 {
        draft.row.sample_rate = Some(rate);
        Ok(())
    } else {
        Err(RejectReason::BadNumber)
    }
}

fn items_of<'a>(cell: &'a Cell<'_>) -> Result<Vec<Cell<'a>>, RejectReason> {
    cell.items()
        .and_then(|items| if items.len() > MOST_ITEMS { Err(RejectReason::BadValue) } else { Ok(items) })
}

fn take_prefix_hashes(
    cell: &Cell<'_>,
    draft: &mut Draft,
    reading: &mut Reading<'_>,
) -> Result<(), RejectReason> {
    let ids = items_of(cell)?;
    let ids = ids.iter().map(|id| id.as_text().map(block_id)).collect::<Result<Vec<u64>, _>>()?;
    set_prefix(ids.into_iter(), draft, reading);
    Ok(())
}

/// Chains a prompt's block ids.
pub(crate) fn set_prefix(ids: impl Iterator<Item = u64>, draft: &mut Draft, reading: &mut Reading<'_>) {
    let mut chain = reading.key.chain();
    let mut hashes = reading.spare.hashes();
    hashes.extend(ids.map(|id| chain.next(id)));
    draft.row.prefix_hashes = Some(hashes);
}

/// A block's id as a number: its own, or the hash of its text.
pub(crate) fn block_id(text: &str) -> u64 {
    match text.parse() {
        Ok(number) => number,
        Err(_) => {
            let hash = blake3::hash(text.as_bytes());
            hash.as_bytes()[..8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
        }
    }
}

fn take_block_tokens(cell: &Cell<'_>, draft: &mut Draft) -> Result<(), RejectReason> {
    let lengths = items_of(cell)?;
    let lengths = lengths.iter().map(|length| length.count(u32::MAX)).collect::<Result<_, _>>()?;
    draft.row.prefix_block_tokens = Some(lengths);
    Ok(())
}

fn take_param(key: &str, cell: &Cell<'_>, draft: &mut Draft) -> Result<(), RejectReason> {
    let number: serde_json::Number =
        cell.number().and_then(|text| serde_json::from_str(text).ok()).ok_or(RejectReason::BadNumber)?;
    draft.params.insert(key.to_owned(), Value::Number(number));
    Ok(())
}

fn take_params(cell: &Cell<'_>, draft: &mut Draft) -> Result<(), RejectReason> {
    let text = match cell {
        Cell::Json(raw) => raw,
        other => other.as_text()?,
    };
    let Ok(Value::Object(object)) = serde_json::from_str(text) else { return Err(RejectReason::BadValue) };
    for (key, value) in object {
        let kept = match &value {
            Value::Number(_) | Value::Bool(_) if KEPT_PARAMS.contains(&key.as_str()) => Some(value),
            // Its kind shapes the answer; its schema may be anything.
            Value::Object(format) if key == "response_format" => format
                .get("type")
                .filter(|kind| is_format(kind))
                .map(|kind| serde_json::json!({ "type": kind })),
            _ => None,
        };
        if let Some(value) = kept {
            draft.params.entry(key).or_insert(value);
        }
    }
    Ok(())
}

/// Most headers of one request that are kept.
const MOST_HEADERS: usize = 64;

/// Takes the headers that may be sent again: an object of names and values, or a list of objects with `name` and `value`.
fn take_headers(cell: &Cell<'_>, draft: &mut Draft, reading: &mut Reading<'_>) -> Result<(), RejectReason> {
    let text = match cell {
        Cell::Json(raw) => raw,
        other => other.as_text()?,
    };
    let pairs: Vec<(String, Value)> = match serde_json::from_str(text) {
        Ok(Value::Object(object)) => object.into_iter().collect(),
        Ok(Value::Array(items)) => {
            items.iter().map(named).collect::<Option<_>>().ok_or(RejectReason::BadValue)?
        }
        _ => return Err(RejectReason::BadValue),
    };
    let mut kept: BTreeMap<Arc<str>, Arc<str>> = BTreeMap::new();
    for (name, value) in pairs {
        let Some(value) = value_of(&value) else {
            reading.tally.drop_value("headers", "no text");
            continue;
        };
        if let Some(why) = HeaderClass::of(&name, &value).why_left_out() {
            reading.tally.drop_value("headers", why);
        } else if kept.len() >= MOST_HEADERS {
            reading.tally.drop_value("headers", "too many");
        } else {
            let words = &mut reading.tally.words;
            kept.insert(words.share(&name.to_ascii_lowercase()), words.share(&value));
        }
    }
    if !kept.is_empty() {
        draft.row.request_headers = Some(kept);
    }
    Ok(())
}

/// A header of a list.
fn named(item: &Value) -> Option<(String, Value)> {
    Some((item.get("name")?.as_str()?.to_owned(), item.get("value")?.clone()))
}

/// A header's value as text; several values of one name are one, parted by commas.
fn value_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Array(values) => {
            let values: Vec<&str> = values.iter().map(Value::as_str).collect::<Option<_>>()?;
            Some(values.join(", "))
        }
        Value::Null | Value::Object(_) => None,
    }
}

fn is_format(kind: &Value) -> bool {
    matches!(kind.as_str(), Some("text" | "json_object" | "json_schema"))
}
