//! Moments and lengths of time: from a log's text to nanoseconds, with the precision that the text has.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::cells::Cell;
use crate::column_map::{Scale, Unit};
use crate::decimal;
use crate::report::RejectReason;
use crate::zone::{self, Local, Zone};

const SECOND_NS: i64 = 1_000_000_000;
/// Times from here on (September 2001) count from 1970; smaller ones from a start of the log's own.
const EPOCH_FLOOR_NS: i64 = 1_000_000_000 * SECOND_NS;
/// The year 2103: an epoch time beyond it has the wrong unit.
const EPOCH_CEILING_NS: i64 = 4_200_000_000 * SECOND_NS;
const HALF_HOUR_NS: i64 = 1_800 * SECOND_NS;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) ns: i64,
    pub(crate) precision_ns: i64,
}

/// Why a value is no moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StampProblem {
    Reject(RejectReason),
    /// Not this row's fault: the import needs a zone.
    NeedsZone,
    /// Not this row's fault: the import needs a unit.
    NeedsUnit,
}

/// How one file's times are read, and what was found out about them on the way.
#[derive(Debug, Default)]
pub(crate) struct FileClock {
    zone: Option<Zone>,
    /// Why a zone is known that no one gave.
    zone_because: Option<&'static str>,
    last_local_ns: Option<i64>,
    pub(crate) has_epoch: Option<bool>,
    pub(crate) rules: BTreeSet<String>,
    pub(crate) ambiguous_times: u64,
    pub(crate) naive_times: u64,
    pub(crate) unit_found: Option<Unit>,
}

/// The unit of one column of moments, once its first number was seen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ColumnUnit(Option<Unit>);

/// A date and time as written, before a zone is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    local: DateTime,
    precision_ns: i64,
    offset: Option<Offset>,
}

impl FileClock {
    pub(crate) fn new(zone: Option<Zone>) -> Self {
        Self { zone, ..Self::default() }
    }

    /// The zone of a published data set's naive times, unless the caller gave one.
    pub(crate) fn assume_utc(&mut self, because: &'static str) {
        if self.zone.is_none() {
            self.zone = Some(Zone::utc());
            self.zone_because = Some(because);
        }
    }

    /// Reads a moment from text with a date or from a number in `unit`.
    pub(crate) fn stamp(
        &mut self,
        cell: &Cell<'_>,
        unit: Option<Unit>,
        column: &mut ColumnUnit,
    ) -> Result<Stamp, StampProblem> {
        let bad = StampProblem::Reject(RejectReason::BadTime);
        let text = cell.number().ok_or(bad)?;
        if decimal::scaled(text, 0).is_some() {
            return self.number(text, unit, column);
        }
        let Cell::Text(_) = cell else { return Err(bad) };
        let written = Written::parse(text).ok_or(bad)?;
        self.set_epoch(true)?;
        let ns = match written.offset {
            Some(offset) => {
                self.rule("offset in the text");
                zone::at(written.local, offset).ok_or(bad)?
            }
            None => self.place(written.local)?,
        };
        Ok(Stamp { ns, precision_ns: written.precision_ns })
    }

    fn number(
        &mut self,
        text: &str,
        unit: Option<Unit>,
        column: &mut ColumnUnit,
    ) -> Result<Stamp, StampProblem> {
        let unit = match column.0 {
            Some(unit) => unit,
            None => {
                let decided = decide(text, unit).ok_or(StampProblem::NeedsUnit)?;
                if unit.is_none() {
                    self.unit_found = Some(decided);
                }
                *column = ColumnUnit(Some(decided));
                decided
            }
        };
        let reject = StampProblem::Reject(RejectReason::TimeOutOfRange);
        let scaled = decimal::scaled(text, unit.scale.exponent()).ok_or(reject)?;
        let range = if unit.unix { EPOCH_FLOOR_NS..EPOCH_CEILING_NS } else { 0..EPOCH_FLOOR_NS };
        if !range.contains(&scaled.value) {
            return Err(reject);
        }
        self.set_epoch(unit.unix)?;
        self.rule(if unit.unix { "from 1970 UTC" } else { "from the log's own start" });
        Ok(Stamp { ns: scaled.value, precision_ns: precision(scaled.last_digit, unit.scale) })
    }

    /// A naive local time in the zone that holds for this file.
    fn place(&mut self, local: DateTime) -> Result<i64, StampProblem> {
        let zone = self.zone.as_ref().ok_or(StampProblem::NeedsZone)?;
        let ns = match zone.resolve(local) {
            Local::Never => return Err(StampProblem::Reject(RejectReason::SkippedLocalTime)),
            Local::One(ns) => ns,
            Local::Twice { earlier, later } => {
                self.ambiguous_times += 1;
                // A log runs forward: once the first reading would step back by most of an hour, it is the second pass.
                let back = self.last_local_ns.is_some_and(|last| last - earlier > HALF_HOUR_NS);
                if back { later } else { earlier }
            }
        };
        self.naive_times += 1;
        if self.naive_times == 1 {
            let because = self.zone_because.map_or(String::new(), |because| format!(" ({because})"));
            self.rules.insert(format!("naive, taken as {zone}{because}"));
        }
        self.last_local_ns = Some(ns);
        Ok(ns)
    }

    fn set_epoch(&mut self, epoch: bool) -> Result<(), StampProblem> {
        match self.has_epoch.replace(epoch) {
            Some(before) if before != epoch => {
                self.has_epoch = Some(before);
                Err(StampProblem::Reject(RejectReason::TimeOutOfRange))
            }
            _ => Ok(()),
        }
    }

    fn rule(&mut self, rule: &str) {
        if !self.rules.contains(rule) {
            self.rules.insert(rule.to_owned());
        }
    }
}

impl Written {
    /// Reads `YYYY-MM-DD HH:MM[:SS[.fraction]]` with `T` or a space between, slashes too, and then nothing or a zone:
    /// `Z`, `UTC`, `+02`, `+0200`, `+02:00`.
    fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let number = |from: usize, length: usize| -> Option<i16> {
            let digits = bytes.get(from..from + length)?;
            digits.iter().try_fold(0, |value, digit| {
                digit.is_ascii_digit().then(|| value * 10 + i16::from(digit - b'0'))
            })
        };
        let two = |from: usize| number(from, 2).and_then(|value| i8::try_from(value).ok());
        let is = |at: usize, any: &[u8]| bytes.get(at).is_some_and(|byte| any.contains(byte));
        if !(is(4, b"-/") && bytes.get(7) == bytes.get(4) && is(10, b"Tt ") && is(13, b":")) {
            return None;
        }
        let (mut at, mut second, mut nanosecond, mut precision_ns) = (16, 0, 0, 60 * SECOND_NS);
        if is(16, b":") {
            (second, at, precision_ns) = (two(17)?, 19, SECOND_NS);
            if is(19, b".,") {
                let fraction = bytes[20..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                (nanosecond, precision_ns) = fraction_ns(&bytes[20..20 + fraction])?;
                at = 20 + fraction;
            }
        }
        // A leap second is read as the second before it: 1970 time has none.
        let second = if second == 60 { 59 } else { second };
        let local =
            DateTime::new(number(0, 4)?, two(5)?, two(8)?, two(11)?, two(14)?, second, nanosecond).ok()?;
        let offset = match text.get(at..)?.trim_start() {
            "" => None,
            zone if ["z", "utc", "gmt"].iter().any(|name| zone.eq_ignore_ascii_case(name)) => {
                Some(Offset::UTC)
            }
            zone => Some(Offset::from_seconds(zone::offset_seconds(zone)?).ok()?),
        };
        Some(Self { local, precision_ns, offset })
    }
}

/// Nanoseconds and precision of the digits after a second; digits beyond the ninth are cut.
fn fraction_ns(digits: &[u8]) -> Option<(i32, i64)> {
    let length = u32::try_from(digits.len().min(9)).ok().filter(|length| *length > 0)?;
    let value = digits.iter().take(9).fold(0, |value, digit| value * 10 + i32::from(digit - b'0'));
    Some((value * 10_i32.pow(9 - length), 10_i64.pow(9 - length)))
}

/// The unit of a column whose first number is `text`.
fn decide(text: &str, unit: Option<Unit>) -> Option<Unit> {
    let epoch = |scale: Scale| {
        let ns = decimal::scaled(text, scale.exponent()).map(|scaled| scaled.value);
        ns.is_some_and(|ns| (EPOCH_FLOOR_NS..EPOCH_CEILING_NS).contains(&ns))
    };
    match unit {
        Some(unit) => Some(Unit { unix: unit.unix || epoch(unit.scale), ..unit }),
        // Four ranges that do not meet: a number which is a date of this century in one unit is none in another.
        None => [Scale::S, Scale::Ms, Scale::Us, Scale::Ns]
            .into_iter()
            .find(|scale| epoch(*scale))
            .map(|scale| Unit { scale, unix: true }),
    }
}

/// Nanoseconds that the last written digit stands for: at least one, at most the unit.
fn precision(last_digit: i32, scale: Scale) -> i64 {
    let exponent = last_digit.clamp(0, scale.exponent());
    10_i64.pow(exponent.unsigned_abs())
}

/// A length of time in `unit`, with its precision; it may be negative.
pub(crate) fn duration(cell: &Cell<'_>, scale: Scale) -> Result<Stamp, RejectReason> {
    let text = cell.number().ok_or(RejectReason::BadNumber)?;
    let scaled = decimal::scaled(text, scale.exponent()).ok_or(RejectReason::BadNumber)?;
    Ok(Stamp { ns: scaled.value, precision_ns: precision(scaled.last_digit, scale) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(clock: &mut FileClock, text: &str) -> Result<(i64, i64), StampProblem> {
        let cell = Cell::from_csv(text.as_bytes()).unwrap();
        clock.stamp(&cell, None, &mut ColumnUnit::default()).map(|stamp| (stamp.ns, stamp.precision_ns))
    }

    fn with_unit(first: &str, unit: &str) -> Result<(i64, i64), StampProblem> {
        let map: crate::ColumnMap = format!("arrival=t:{unit}").parse().unwrap();
        let stamp = FileClock::default().stamp(
            &Cell::Number(first),
            map.bindings[0].unit,
            &mut ColumnUnit::default(),
        );
        stamp.map(|stamp| (stamp.ns, stamp.precision_ns))
    }

    #[test]
    fn text_of_any_precision_is_read_with_the_precision_that_it_has() {
        let mut clock = FileClock::new(Some(Zone::utc()));
        let base = 1_700_158_623_000_000_000;
        for (written, ns, precision) in [
            ("2023-11-16 18:17:03.9799600", base + 979_960_000, 100),
            ("2023-11-16 18:17:03", base, SECOND_NS),
            ("2023-11-16T18:17:03.5Z", base + 500_000_000, 100_000_000),
            ("2023-11-16T20:17:03,979960001+02:00", base + 979_960_001, 1),
            ("2023-11-16 18:17:03.000000+00:00", base, 1_000),
            ("2023/11/16 18:17:03 UTC", base, SECOND_NS),
            ("2023-11-16T13:17:03-0500", base, SECOND_NS),
            ("2023-11-16 18:17", base - 3 * SECOND_NS, 60 * SECOND_NS),
            ("2023-11-16T18:17:03.123456789123Z", base + 123_456_789, 1),
            ("2023-11-16T18:16:60Z", base - 4 * SECOND_NS, SECOND_NS),
        ] {
            assert_eq!(text(&mut clock, written), Ok((ns, precision)), "{written}");
        }
        assert_eq!(clock.rules.len(), 2);
    }

    #[test]
    fn what_is_no_time_is_rejected() {
        let mut clock = FileClock::new(Some(Zone::utc()));
        for written in [
            "yesterday",
            "2023-13-01 00:00:00",
            "2023-11-16",
            "2023-11-16 18:17:03.",
            "2023-11-16 18:17:03 CET",
            "2023-11-16 25:00:00",
            "20é3-11-16 18:17:03",
        ] {
            assert_eq!(
                text(&mut clock, written),
                Err(StampProblem::Reject(RejectReason::BadTime)),
                "{written}"
            );
        }
    }

    #[test]
    fn a_naive_time_needs_a_zone() {
        assert_eq!(text(&mut FileClock::default(), "2023-11-16 18:17:03"), Err(StampProblem::NeedsZone));
        let mut published = FileClock::default();
        published.assume_utc("published so");
        assert!(text(&mut published, "2023-11-16 18:17:03").is_ok());
        assert_eq!(published.rules.first().unwrap(), "naive, taken as UTC (published so)");
    }

    #[test]
    fn a_log_that_passes_the_doubled_hour_runs_forward() {
        let mut clock = FileClock::new(Some("Europe/Berlin".parse().unwrap()));
        let times = [
            "2025-10-26 01:59:00",
            "2025-10-26 02:10:00",
            "2025-10-26 02:59:00",
            "2025-10-26 02:05:00",
            "2025-10-26 03:00:00",
        ];
        let read: Vec<i64> = times.iter().map(|time| text(&mut clock, time).unwrap().0).collect();
        let steps: Vec<i64> = read.windows(2).map(|pair| (pair[1] - pair[0]) / (60 * SECOND_NS)).collect();
        assert_eq!(steps, [11, 49, 6, 55]);
        assert_eq!(clock.ambiguous_times, 3);
    }

    #[test]
    fn a_numbers_size_tells_an_epoch_from_a_count() {
        assert_eq!(with_unit("27482.5", "ms"), Ok((27_482_500_000, 100_000)));
        assert_eq!(with_unit("0", "ms"), Ok((0, 1_000_000)));
        assert_eq!(with_unit("1700158623123", "ms"), Ok((1_700_158_623_123_000_000, 1_000_000)));
        assert_eq!(with_unit("1700158623123456789", "unix_ns"), Ok((1_700_158_623_123_456_789, 1)));
        assert_eq!(with_unit("5", "unix_s"), Err(StampProblem::Reject(RejectReason::TimeOutOfRange)));
        assert_eq!(with_unit("-5", "s"), Err(StampProblem::Reject(RejectReason::TimeOutOfRange)));
    }

    #[test]
    fn a_unit_that_no_one_gave_is_told_from_an_epochs_size_only() {
        for (written, ns) in [
            ("1700158623", 1_700_158_623_000_000_000),
            ("1700158623123", 1_700_158_623_123_000_000),
            ("1700158623.25", 1_700_158_623_250_000_000),
        ] {
            assert_eq!(text(&mut FileClock::default(), written).unwrap().0, ns);
        }
        assert_eq!(text(&mut FileClock::default(), "82"), Err(StampProblem::NeedsUnit));
    }

    #[test]
    fn counts_and_wall_times_do_not_mix_in_one_file() {
        let mut clock = FileClock::new(None);
        let mut column = ColumnUnit::default();
        let unit = Some(Unit { scale: Scale::Ms, unix: false });
        assert!(clock.stamp(&Cell::Number("0"), unit, &mut column).is_ok());
        let wrong = Err(StampProblem::Reject(RejectReason::TimeOutOfRange));
        assert_eq!(clock.stamp(&Cell::Number("1700158623123"), unit, &mut column), wrong);
        assert_eq!(clock.stamp(&Cell::Text("2023-11-16T18:17:03Z".into()), unit, &mut column), wrong);
        assert!(clock.stamp(&Cell::Number("5.25"), unit, &mut column).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_refused(written in "[0-9TZ:+. /-]{0,40}|.{0,40}") {
            let _ = text(&mut FileClock::new(Some(Zone::utc())), &written);
        }
    }
}
