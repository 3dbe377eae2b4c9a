//! The zone rule for times that carry no zone of their own.

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

use crate::error::IngestError;

/// The zone in which naive local times of a log are read.
#[derive(Debug, Clone)]
pub struct Zone {
    name: String,
    zone: TimeZone,
}

/// What a naive local time is in a zone, in nanoseconds since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Local {
    /// One instant.
    One(i64),
    /// The clock showed this time twice.
    Twice { earlier: i64, later: i64 },
    /// The clock skipped this time.
    Never,
    /// Nanoseconds since 1970 do not reach it: it lies outside of the years 1678 to 2262.
    TooFar,
}

impl Zone {
    /// Coordinated universal time.
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), zone: TimeZone::UTC }
    }

    pub(crate) fn resolve(&self, local: DateTime) -> Local {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => at(local, offset).map_or(Local::TooFar, Local::One),
            AmbiguousOffset::Gap { .. } => Local::Never,
            AmbiguousOffset::Fold { before, after } => match (at(local, before), at(local, after)) {
                (Some(earlier), Some(later)) => Local::Twice { earlier, later },
                _ => Local::TooFar,
            },
        }
    }
}

/// The instant of a local time at an offset; `None` outside of the years 1678 to 2262.
pub(crate) fn at(local: DateTime, offset: Offset) -> Option<i64> {
    i64::try_from(offset.to_timestamp(local).ok()?.as_nanosecond()).ok()
}

impl FromStr for Zone {
    type Err = IngestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let zone = if text.eq_ignore_ascii_case("utc") || text == "Z" {
            Some(TimeZone::UTC)
        } else if text.starts_with(['+', '-']) {
            offset_seconds(text).and_then(|seconds| Offset::from_seconds(seconds).ok()).map(TimeZone::fixed)
        } else {
            // The bundled database: the same import gives the same timeline on every machine.
            TimeZoneDatabase::bundled().get(text).ok()
        };
        let zone = zone.ok_or_else(|| IngestError::NoSuchZone { zone: text.to_owned() })?;
        Ok(Self { name: if text == "Z" { "UTC".to_owned() } else { text.to_owned() }, zone })
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Reads `+HH`, `+HHMM`, `+HH:MM` and the same with seconds.
pub(crate) fn offset_seconds(text: &str) -> Option<i32> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: Vec<u8> = text[1..].bytes().filter(|byte| *byte != b':').collect();
    if !matches!(digits.len(), 2 | 4 | 6) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let part = |at: usize| {
        digits.get(at..at + 2).map_or(0, |two| i32::from(two[0] - b'0') * 10 + i32::from(two[1] - b'0'))
    };
    let (hours, minutes, seconds) = (part(0), part(2), part(4));
    (hours < 24 && minutes < 60 && seconds < 60).then_some(sign * (hours * 3600 + minutes * 60 + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(hour: i8, minute: i8) -> DateTime {
        DateTime::new(2025, 10, 26, hour, minute, 0, 0).unwrap()
    }

    #[test]
    fn a_zone_is_utc_an_offset_or_a_name() {
        let noon = local(12, 0);
        let utc = 1_761_480_000_000_000_000;
        assert_eq!("utc".parse::<Zone>().unwrap().resolve(noon), Local::One(utc));
        assert_eq!("+02:00".parse::<Zone>().unwrap().resolve(noon), Local::One(utc - 7_200_000_000_000));
        assert_eq!("-0530".parse::<Zone>().unwrap().resolve(noon), Local::One(utc + 19_800_000_000_000));
        assert_eq!(
            "Europe/Berlin".parse::<Zone>().unwrap().resolve(noon),
            Local::One(utc - 3_600_000_000_000)
        );
    }

    #[test]
    fn an_unknown_zone_is_named_in_the_error() {
        let error = "Mars/Olympus".parse::<Zone>().unwrap_err().to_string();
        assert!(error.contains("Mars/Olympus") && error.contains("Europe/Berlin"), "{error}");
        assert!("+2".parse::<Zone>().is_err());
        assert!("+é1".parse::<Zone>().is_err());
    }

    #[test]
    fn a_clock_change_shows_a_time_twice_or_never() {
        let berlin: Zone = "Europe/Berlin".parse().unwrap();
        assert!(
            matches!(berlin.resolve(local(2, 30)), Local::Twice { earlier, later } if later - earlier == 3_600_000_000_000)
        );
        assert_eq!(berlin.resolve(DateTime::new(2025, 3, 30, 2, 30, 0, 0).unwrap()), Local::Never);
    }

    #[test]
    fn a_year_that_nanoseconds_do_not_reach_is_not_called_a_skipped_time() {
        for zone in ["Europe/Berlin", "UTC", "-08:00"] {
            let zone: Zone = zone.parse().unwrap();
            for year in [-9999, 1, 1600, 2263, 9999] {
                assert_eq!(
                    zone.resolve(DateTime::new(year, 1, 1, 0, 0, 0, 0).unwrap()),
                    Local::TooFar,
                    "{year}"
                );
            }
        }
    }
}
