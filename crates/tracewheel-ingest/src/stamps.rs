//! Moments and lengths of time: from a log's text to nanoseconds, with the precision that the text has.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::cells::Cell;
use crate::column_map::{Scale, Unit};
use crate::decimal;
use crate::report::RejectReason;
use crate::time_forms::{Form, TextZone, TimeForms};
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
    /// The rule of the last time, in most files that of all.
    last_rule: Option<&'static str>,
    pub(crate) ambiguous_times: u64,
    pub(crate) naive_times: u64,
    /// Units that were told from the size of numbers, in the order of their appearance.
    pub(crate) units_found: Vec<Unit>,
    pub(crate) forms: TimeForms,
}

/// The unit of one column of moments, once its first number was seen. Where no one gave a unit it is that of the last
/// number: each is told from its own size.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ColumnUnit(Option<Unit>);

/// A date and time as written, before a zone is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    local: DateTime,
    precision_ns: i64,
    offset: Option<Offset>,
    zone: TextZone,
    /// Fraction digits; `None` where there are no seconds.
    digits: Option<u8>,
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
                let too_far = StampProblem::Reject(RejectReason::TimeOutOfRange);
                zone::at(written.local, offset).ok_or(too_far)?
            }
            None => self.place(written.local)?,
        };
        self.forms.note(Form::Text { zone: written.zone, digits: written.digits });
        Ok(Stamp { ns, precision_ns: written.precision_ns })
    }

    fn number(
        &mut self,
        text: &str,
        unit: Option<Unit>,
        column: &mut ColumnUnit,
    ) -> Result<Stamp, StampProblem> {
        let unit = match (unit, column.0) {
            (Some(_), Some(decided)) => decided,
            (Some(_), None) => decide(text, unit).ok_or(StampProblem::NeedsUnit)?,
            (None, before) => self.unit_of(text, before)?,
        };
        *column = ColumnUnit(Some(unit));
        let reject = StampProblem::Reject(RejectReason::TimeOutOfRange);
        let scaled = decimal::scaled(text, unit.scale.exponent()).ok_or(reject)?;
        let range = if unit.unix { EPOCH_FLOOR_NS..EPOCH_CEILING_NS } else { 0..EPOCH_FLOOR_NS };
        if !range.contains(&scaled.value) {
            return Err(reject);
        }
        self.set_epoch(unit.unix)?;
        self.rule(if unit.unix { "from 1970 UTC" } else { "from the log's own start" });
        self.forms.note(Form::Number(unit));
        Ok(Stamp { ns: scaled.value, precision_ns: precision(scaled.last_digit, unit.scale) })
    }

    /// The unit that a number's size tells, where no one gave one.
    fn unit_of(&mut self, text: &str, before: Option<Unit>) -> Result<Unit, StampProblem> {
        if let Some(unit) = before.filter(|unit| is_epoch(text, unit.scale)) {
            return Ok(unit);
        }
        let unit = decide(text, None).ok_or(match before {
            // The column did hold wall times: this one is the row's fault.
            Some(_) => StampProblem::Reject(RejectReason::TimeOutOfRange),
            None => StampProblem::NeedsUnit,
        })?;
        if !self.units_found.contains(&unit) {
            self.units_found.push(unit);
        }
        Ok(unit)
    }

    /// A naive local time in the zone that holds for this file.
    fn place(&mut self, local: DateTime) -> Result<i64, StampProblem> {
        let zone = self.zone.as_ref().ok_or(StampProblem::NeedsZone)?;
        let ns = match zone.resolve(local) {
            Local::Never => return Err(StampProblem::Reject(RejectReason::SkippedLocalTime)),
            Local::TooFar => return Err(StampProblem::Reject(RejectReason::TimeOutOfRange)),
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

    fn rule(&mut self, rule: &'static str) {
        if !self.last_rule.is_some_and(|last| std::ptr::eq(last, rule)) {
            self.rules.insert(rule.to_owned());
            self.last_rule = Some(rule);
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
        let mut digits = None;
        if is(16, b":") {
            (second, at, precision_ns, digits) = (two(17)?, 19, SECOND_NS, Some(0));
            if is(19, b".,") {
                let fraction = bytes[20..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                (nanosecond, precision_ns) = fraction_ns(&bytes[20..20 + fraction])?;
                (at, digits) = (20 + fraction, Some(u8::try_from(fraction).unwrap_or(u8::MAX)));
            }
        }
        // A leap second is read as the second before it: 1970 time has none.
        let second = if second == 60 { 59 } else { second };
        let local =
            DateTime::new(number(0, 4)?, two(5)?, two(8)?, two(11)?, two(14)?, second, nanosecond).ok()?;
        let (zone, offset) = match text.get(at..)?.trim_start() {
            "" => (TextZone::None, None),
            zone if ["z", "utc", "gmt"].iter().any(|name| zone.eq_ignore_ascii_case(name)) => {
                (TextZone::Utc, Some(Offset::UTC))
            }
            zone => (TextZone::Offset, Some(Offset::from_seconds(zone::offset_seconds(zone)?).ok()?)),
        };
        Some(Self { local, precision_ns, offset, zone, digits })
    }
}

/// Nanoseconds and precision of the digits after a second; digits beyond the ninth are cut.
fn fraction_ns(digits: &[u8]) -> Option<(i32, i64)> {
    let length = u32::try_from(digits.len().min(9)).ok().filter(|length| *length > 0)?;
    let value = digits.iter().take(9).fold(0, |value, digit| value * 10 + i32::from(digit - b'0'));
    Some((value * 10_i32.pow(9 - length), 10_i64.pow(9 - length)))
}

/// Whether a text is a date and time with a zone of its own.
pub(crate) fn carries_zone(text: &str) -> bool {
    Written::parse(text).is_some_and(|written| written.offset.is_some())
}

/// Whether a text is a moment that needs no unit: a date and time, or a number of the size of a wall time.
pub(crate) fn is_moment(text: &str) -> bool {
    Written::parse(text).is_some() || decide(text, None).is_some()
}

/// Whether a number is a wall time of this century in a unit.
fn is_epoch(text: &str, scale: Scale) -> bool {
    let ns = decimal::scaled(text, scale.exponent()).map(|scaled| scaled.value);
    ns.is_some_and(|ns| (EPOCH_FLOOR_NS..EPOCH_CEILING_NS).contains(&ns))
}

/// The unit of a column whose first number is `text`.
fn decide(text: &str, unit: Option<Unit>) -> Option<Unit> {
    match unit {
        Some(unit) => Some(Unit { unix: unit.unix || is_epoch(text, unit.scale), ..unit }),
        // Four ranges that do not meet: a number which is a date of this century in one unit is none in another.
        None => [Scale::S, Scale::Ms, Scale::Us, Scale::Ns]
            .into_iter()
            .find(|scale| is_epoch(text, *scale))
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
    fn forms_may_change_from_row_to_row_where_no_unit_was_given() {
        let mut clock = FileClock::new(Some(Zone::utc()));
        let mut column = ColumnUnit::default();
        let at = 1_700_158_623_123_456_789;
        for (written, ns) in [
            ("1700158623", at - 123_456_789),
            ("1700158623.123456789", at),
            ("1700158623123", at - 456_789),
            ("1700158623123456", at - 789),
            ("1700158623123456789", at),
            ("2023-11-16T18:17:03.123456789Z", at),
            ("2023-11-16 18:17:03", at - 123_456_789),
            ("2023-11-16 18:17", at - 3_123_456_789),
            ("1700158623", at - 123_456_789),
        ] {
            let cell = Cell::from_csv(written.as_bytes()).unwrap();
            assert_eq!(clock.stamp(&cell, None, &mut column).unwrap().ns, ns, "{written}");
        }
        let stray = clock.stamp(&Cell::Number("82"), None, &mut column);
        assert_eq!(stray, Err(StampProblem::Reject(RejectReason::TimeOutOfRange)));
        let forms: Vec<(String, u64)> = clock.forms.counts().into_iter().collect();
        assert_eq!(
            forms,
            [
                ("number, ms since 1970".to_owned(), 1),
                ("number, ns since 1970".to_owned(), 1),
                ("number, s since 1970".to_owned(), 3),
                ("number, us since 1970".to_owned(), 1),
                ("text with Z, 9 fraction digits".to_owned(), 1),
                ("text without a zone, to the minute".to_owned(), 1),
                ("text without a zone, whole seconds".to_owned(), 1),
            ]
        );
        assert_eq!(clock.units_found.len(), 4);
    }

    #[test]
    fn a_year_out_of_range_is_told_as_such_with_a_zone_and_without() {
        let mut clock = FileClock::new(Some("Europe/Berlin".parse().unwrap()));
        let out_of_range = Err(StampProblem::Reject(RejectReason::TimeOutOfRange));
        for written in [
            "9999-12-31 23:59:59",
            "0001-01-01 00:00:00",
            "9999-12-31T23:59:59Z",
            "0001-01-01 00:00:00+02:00",
        ] {
            assert_eq!(text(&mut clock, written), out_of_range, "{written}");
        }
        let skipped = text(&mut clock, "2025-03-30 02:30:00");
        assert_eq!(skipped, Err(StampProblem::Reject(RejectReason::SkippedLocalTime)));
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
