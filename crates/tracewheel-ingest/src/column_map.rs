//! Which column of a generic log is which field of the timeline.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::fields::{self, Field, FieldSpec, Kind};

/// Columns of a log by the timeline's field, written `arrival=ts,input_tokens=prompt_len,ttft=first:ms,tags.team=team`.
///
/// In JSON a column is a dotted path (`usage.prompt_tokens`). Units follow from a column's suffix (`_s`, `_ms`, `_us`,
/// `_ns`, `_unix_ms` and so on) or stand after a colon.
///
/// ```
/// use tracewheel_ingest::ColumnMap;
///
/// let map: ColumnMap = "arrival=ts:unix_ms,input_tokens=usage.prompt_tokens".parse()?;
/// assert_eq!(map.to_string(), "arrival=ts:unix_ms,input_tokens=usage.prompt_tokens");
/// assert!("arival=ts".parse::<ColumnMap>().unwrap_err().to_string().contains("arrival"));
/// # Ok::<(), tracewheel_ingest::MapError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnMap {
    pub(crate) bindings: Vec<Binding>,
}

/// One field and its column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) field: Field,
    /// As the user writes it: `arrival`, `tags.team`.
    pub(crate) name: String,
    pub(crate) tag: Option<Arc<str>>,
    pub(crate) column: String,
    /// From the suffix or as given; `None` where text carries the time or where it must be told from the numbers.
    pub(crate) unit: Option<Unit>,
    /// The unit was written out.
    explicit: bool,
}

/// The unit of a number that is a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) scale: Scale,
    /// Counted from 1970 UTC, not from a start of the log's own.
    pub(crate) unix: bool,
}

/// A power of ten of a nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scale {
    Ns,
    Us,
    Ms,
    S,
}

/// What is wrong with a column map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// An entry is not `field=column`.
    #[error("`{entry}` is not `field=column`")]
    Shape {
        /// The entry.
        entry: String,
    },
    /// The timeline has no such field.
    #[error("the timeline has no field `{field}`; its fields: {fields}")]
    UnknownField {
        /// The name that was given.
        field: String,
        /// The fields that exist.
        fields: String,
    },
    /// A field was mapped twice.
    #[error("`{field}` is mapped twice")]
    Twice {
        /// The field.
        field: String,
    },
    /// A length of time has no unit.
    #[error("`{field}={column}` needs a unit: write `{field}={column}:ms` (or s, us, ns)")]
    NeedsUnit {
        /// The field.
        field: String,
        /// The column.
        column: String,
    },
    /// A unit stands where it means nothing.
    #[error("`{field}={column}` cannot have the unit `{unit}`")]
    UselessUnit {
        /// The field.
        field: String,
        /// The column.
        column: String,
        /// The unit.
        unit: String,
    },
    /// Nothing says when a request started.
    #[error(
        "nothing says when requests started: map `arrival`, or `end` together with `e2e`, or `log_write`"
    )]
    NoArrival,
}

impl Scale {
    /// Exponent of ten that makes nanoseconds of it.
    pub(crate) fn exponent(self) -> i32 {
        match self {
            Self::Ns => 0,
            Self::Us => 3,
            Self::Ms => 6,
            Self::S => 9,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S => "s",
        }
    }
}

impl Scale {
    /// The unit that the last word of a column's name tells.
    fn of_suffix(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "ns" | "nanos" | "nanoseconds" => Self::Ns,
            "us" | "micros" | "microseconds" => Self::Us,
            "ms" | "msec" | "msecs" | "millis" | "milliseconds" => Self::Ms,
            "s" | "sec" | "secs" | "seconds" => Self::S,
            _ => return None,
        })
    }
}

impl Unit {
    fn parse(text: &str) -> Option<Self> {
        let (unix, scale) = match text.strip_prefix("unix_") {
            Some(scale) => (true, scale),
            None => (false, text),
        };
        let scale = match scale {
            "ns" => Scale::Ns,
            "us" => Scale::Us,
            "ms" => Scale::Ms,
            "s" => Scale::S,
            _ => return None,
        };
        Some(Self { scale, unix })
    }

    /// The unit that a column's suffix tells, and the name before it.
    pub(crate) fn of_column(column: &str) -> (Option<Self>, &str) {
        let lower = column.to_ascii_lowercase();
        let found = lower.rsplit_once('_').and_then(|(stem, suffix)| Some((stem, Scale::of_suffix(suffix)?)));
        let Some((stem, scale)) = found else { return (None, column) };
        let (stem, unix) = match stem.strip_suffix("_unix") {
            Some(stem) => (stem, true),
            None => (stem, false),
        };
        (Some(Self { scale, unix }), &column[..stem.len()])
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.unix { "unix_" } else { "" }, self.scale.name())
    }
}

impl Binding {
    fn parse(entry: &str) -> Result<Self, MapError> {
        let shape = || MapError::Shape { entry: entry.to_owned() };
        let (name, column) = entry.split_once('=').ok_or_else(shape)?;
        let (name, column) = (name.trim(), column.trim());
        if name.is_empty() || column.is_empty() {
            return Err(shape());
        }
        let (column, explicit) = match column.rsplit_once(':') {
            Some((before, unit)) if !before.is_empty() && Unit::parse(unit).is_some() => {
                (before, Unit::parse(unit))
            }
            _ => (column, None),
        };
        if let Some(tag) = name.strip_prefix("tags.").filter(|tag| !tag.is_empty()) {
            return Self::new(Field::Tag, Kind::Plain, name, Some(tag), column, explicit);
        }
        let spec = fields::by_name(name)
            .ok_or_else(|| MapError::UnknownField { field: name.to_owned(), fields: fields::names() })?;
        Self::new(spec.field, spec.kind, name, None, column, explicit)
    }

    fn new(
        field: Field,
        kind: Kind,
        name: &str,
        tag: Option<&str>,
        column: &str,
        explicit: Option<Unit>,
    ) -> Result<Self, MapError> {
        let unit = explicit.or_else(|| Unit::of_column(column).0);
        let useless = |unit: Unit| MapError::UselessUnit {
            field: name.to_owned(),
            column: column.to_owned(),
            unit: unit.to_string(),
        };
        let unit = match (kind, unit) {
            (Kind::Instant, unit) => unit,
            (Kind::Duration, Some(unit)) if unit.unix => return Err(useless(unit)),
            (Kind::Duration, Some(unit)) => Some(unit),
            (Kind::Duration, None) => {
                return Err(MapError::NeedsUnit { field: name.to_owned(), column: column.to_owned() });
            }
            (Kind::Plain, _) => match explicit {
                Some(unit) => return Err(useless(unit)),
                None => None,
            },
        };
        Ok(Self {
            field,
            name: name.to_owned(),
            tag: tag.map(Arc::from),
            column: column.to_owned(),
            unit,
            explicit: explicit.is_some(),
        })
    }
}

impl ColumnMap {
    /// The columns of a log that carry the timeline's own names already. Whether they say when a request started is not
    /// looked at.
    pub(crate) fn own_columns<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        let mut bindings: Vec<Binding> = Vec::new();
        for column in columns {
            let Some(binding) = own_name(column) else { continue };
            if !bindings.iter().any(|other| other.name == binding.name) {
                bindings.push(binding);
            }
        }
        Self { bindings }
    }

    /// Each entry as it is written.
    pub(crate) fn entries(&self) -> Vec<String> {
        self.bindings.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn has(&self, field: Field) -> bool {
        self.bindings.iter().any(|binding| binding.field == field)
    }

    fn check(&self) -> Result<(), MapError> {
        for (at, binding) in self.bindings.iter().enumerate() {
            if self.bindings[..at].iter().any(|other| other.name == binding.name) {
                return Err(MapError::Twice { field: binding.name.clone() });
            }
        }
        let from_end = self.has(Field::End) && self.has(Field::E2e);
        if self.has(Field::Arrival) || self.has(Field::LogWrite) || from_end {
            Ok(())
        } else {
            Err(MapError::NoArrival)
        }
    }
}

/// A binding for a column that is called as the timeline calls it, with or without a unit.
fn own_name(column: &str) -> Option<Binding> {
    if let Some(tag) = column.strip_prefix("tags.").filter(|tag| !tag.is_empty()) {
        return Binding::new(Field::Tag, Kind::Plain, column, Some(tag), column, None).ok();
    }
    let bare = |spec: &&FieldSpec| spec.kind != Kind::Duration;
    let with_unit = |spec: &&FieldSpec| spec.kind != Kind::Plain;
    let spec = fields::by_column(column).filter(bare).or_else(|| {
        let (unit, stem) = Unit::of_column(column);
        unit.and_then(|_| fields::by_column(stem)).filter(with_unit)
    })?;
    Binding::new(spec.field, spec.kind, spec.name, None, column, None).ok()
}

impl FromStr for ColumnMap {
    type Err = MapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let map = Self { bindings: entries.map(Binding::parse).collect::<Result<_, _>>()? };
        map.check()?;
        Ok(map)
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.column)?;
        match self.unit.filter(|_| self.explicit) {
            Some(unit) => write!(f, ":{unit}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ColumnMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, binding) in self.bindings.iter().enumerate() {
            write!(f, "{}{binding}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Result<ColumnMap, MapError> {
        text.parse()
    }

    fn unit(scale: Scale, unix: bool) -> Option<Unit> {
        Some(Unit { scale, unix })
    }

    #[test]
    fn a_unit_comes_from_the_suffix_or_from_what_is_written() {
        let map = map("arrival=t_unix_ms,ttft=first:us,e2e=Total_S,end=done").unwrap();
        let units: Vec<_> = map.bindings.iter().map(|binding| binding.unit).collect();
        assert_eq!(units, [unit(Scale::Ms, true), unit(Scale::Us, false), unit(Scale::S, false), None]);
    }

    #[test]
    fn a_suffix_may_be_a_word() {
        let map = map("arrival=at_unix_millis,ttft=first_seconds,e2e=all_msec,think=wait_nanos").unwrap();
        let units: Vec<_> = map.bindings.iter().map(|binding| binding.unit).collect();
        assert_eq!(
            units,
            [unit(Scale::Ms, true), unit(Scale::S, false), unit(Scale::Ms, false), unit(Scale::Ns, false)]
        );
    }

    #[test]
    fn a_written_unit_beats_the_suffix() {
        assert_eq!(map("arrival=t_s:ms").unwrap().bindings[0].unit, unit(Scale::Ms, false));
    }

    #[test]
    fn a_column_may_hold_a_colon_or_a_space() {
        let map = map("arrival=http:date,input_tokens=Request tokens").unwrap();
        assert_eq!(map.bindings[0].column, "http:date");
        assert_eq!(map.bindings[1].column, "Request tokens");
    }

    #[test]
    fn an_unknown_field_is_answered_with_those_that_exist() {
        let text = map("arrival=a,prompt=b").unwrap_err().to_string();
        assert!(
            text.contains("`prompt`") && text.contains("input_tokens") && text.contains("tags.NAME"),
            "{text}"
        );
    }

    #[test]
    fn a_duration_without_a_unit_is_refused() {
        assert!(matches!(map("arrival=a,ttft=b"), Err(MapError::NeedsUnit { .. })));
        assert!(matches!(map("arrival=a,ttft=b:unix_ms"), Err(MapError::UselessUnit { .. })));
        assert!(matches!(map("arrival=a,model=b:ms"), Err(MapError::UselessUnit { .. })));
    }

    #[test]
    fn a_map_must_say_when_requests_started() {
        assert_eq!(map("input_tokens=a"), Err(MapError::NoArrival));
        assert_eq!(map("end=a"), Err(MapError::NoArrival));
        assert!(map("end=a,e2e=b_ms").is_ok());
        assert!(matches!(map("arrival=a,arrival=b"), Err(MapError::Twice { .. })));
    }

    #[test]
    fn columns_with_the_timelines_own_names_need_no_map() {
        let map = ColumnMap::own_columns([
            "prod_ttft_ns",
            "arrival_unix_ns",
            "prompt",
            "model",
            "tags.team",
            "ttft_ms",
        ]);
        assert_eq!(
            map.to_string(),
            "ttft=prod_ttft_ns,arrival=arrival_unix_ns,model=model,tags.team=tags.team"
        );
        assert_eq!(ColumnMap::own_columns(["ts", "input_tokens"]).entries(), ["input_tokens=input_tokens"]);
    }
}
