//! Other tenants of the engine: how much of it they want over a day.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Minutes of a day.
const DAY_MIN: u16 = 24 * 60;

/// Load by other tenants of the same engine: a curve over the day.
///
/// A load of 1 means that they want as many places as the engine runs at once (`engine.max_running`); above that they
/// queue. They share steps, token budget, places, queue and cache with the requests that are really sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantConfig {
    /// The curve: 24 numbers (the full hours from 00:00 on), or points with a time, or one number for the whole day.
    /// Between points it is a straight line, from the last to the first one across midnight. Empty: nobody else.
    pub load: Vec<LoadPoint>,
    /// Time of day at which the mock starts.
    pub start_at: TimeOfDay,
    /// Seconds of the day that pass in one real second; 1440 makes a day of a minute.
    pub time_scale: u32,
    /// Prompt of one of their requests, tokens; it shares nothing with any other and fills the cache.
    pub prompt_tokens: u32,
    /// Answer of one of their requests, tokens.
    pub output_tokens: u32,
    /// How the number of places that they want lies around the curve.
    pub variation: Variation,
    /// How long a drawn number stays, milliseconds of real time.
    pub variation_ms: u32,
}

/// How the number of wanted places lies around the curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variation {
    /// Exactly on it, rounded to whole places.
    None,
    /// Poisson-distributed with the curve as its mean, as for many users who do not know of each other; seeded.
    Poisson,
}

/// One point of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPoint {
    /// When; `None` for a number of a list without times.
    pub at: Option<TimeOfDay>,
    /// Wanted places as a share of `engine.max_running`; 0 or more.
    pub load: f64,
}

/// A time of day, to the minute, written `18:30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct TimeOfDay {
    minute: u16,
}

impl TimeOfDay {
    /// So many minutes after midnight; beyond a day it begins again.
    pub fn from_minute(minute: u16) -> Self {
        Self { minute: minute % DAY_MIN }
    }

    /// Minutes after midnight, 0 to 1439.
    pub fn minute(self) -> u16 {
        self.minute
    }

    fn parse(text: &str) -> Option<Self> {
        let (hour, minute) = text.split_once(':')?;
        let digits = |part: &str| {
            let plain = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| part.parse::<u16>().ok()).flatten()
        };
        let (hour, minute) = (digits(hour)?, digits(minute)?);
        (hour < 24 && minute < 60).then_some(Self { minute: hour * 60 + minute })
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.minute / 60, self.minute % 60)
    }
}

impl Default for TenantConfig {
    fn default() -> Self {
        Self {
            load: Vec::new(),
            start_at: TimeOfDay::default(),
            time_scale: 1,
            prompt_tokens: 1000,
            output_tokens: 200,
            variation: Variation::Poisson,
            variation_ms: 1000,
        }
    }
}

impl TenantConfig {
    /// The curve's points in order of their time (minutes after midnight), whichever way it is written.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence that begins with the key.
    pub(crate) fn points(&self) -> Result<Vec<(u16, f64)>, String> {
        if let Some(point) = self.load.iter().find(|point| !(0.0..=1000.0).contains(&point.load)) {
            return Err(format!("holds {}, but a load lies between 0 and 1000", point.load));
        }
        let timed = self.load.iter().filter(|point| point.at.is_some()).count();
        let mut points: Vec<(u16, f64)> = match (timed, self.load.len()) {
            (0, 0 | 1 | 24) => (0..).map(|hour| hour * 60).zip(self.load.iter().map(|p| p.load)).collect(),
            (0, count) => {
                return Err(format!(
                    "has {count} numbers: give 24, one an hour, or points like {{ at = \"18:30\", load = 0.7 }}"
                ));
            }
            (timed, count) if timed < count => {
                return Err("mixes numbers with points: give all of one kind".to_owned());
            }
            _ => self.load.iter().filter_map(|p| Some((p.at?.minute(), p.load))).collect(),
        };
        points.sort_by_key(|(minute, _)| *minute);
        match points.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            Some(pair) => Err(format!("has two points at {}", TimeOfDay::from_minute(pair[0].0))),
            None => Ok(points),
        }
    }
}

impl Serialize for TimeOfDay {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeOfDay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(format!("`{text}` is no time of day: write it like \"18:30\"")))
    }
}

/// A point as a table.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PointTable {
    at: TimeOfDay,
    load: f64,
}

impl Serialize for LoadPoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.at {
            None => serializer.serialize_f64(self.load),
            Some(at) => PointTable { at, load: self.load }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for LoadPoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LoadPointVisitor)
    }
}

/// Not `untagged`, whose errors say nothing.
struct LoadPointVisitor;

impl<'de> Visitor<'de> for LoadPointVisitor {
    type Value = LoadPoint;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a point like { at = \"18:30\", load = 0.7 }")
    }

    fn visit_f64<E>(self, load: f64) -> Result<LoadPoint, E> {
        Ok(LoadPoint { at: None, load })
    }

    fn visit_i64<E>(self, load: i64) -> Result<LoadPoint, E> {
        Ok(LoadPoint { at: None, load: load as f64 })
    }

    fn visit_u64<E>(self, load: u64) -> Result<LoadPoint, E> {
        Ok(LoadPoint { at: None, load: load as f64 })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LoadPoint, A::Error> {
        let PointTable { at, load } = PointTable::deserialize(MapAccessDeserializer::new(map))?;
        Ok(LoadPoint { at: Some(at), load })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(text: &str) -> Result<Vec<(u16, f64)>, String> {
        toml::from_str::<TenantConfig>(text).map_err(|error| error.to_string())?.points()
    }

    #[test]
    fn a_curve_is_hours_or_points_or_one_number() {
        let hours = points(&format!("load = [{}]", "0.5, ".repeat(24))).unwrap();
        assert_eq!((hours.len(), hours[23]), (24, (23 * 60, 0.5)));
        assert_eq!(points("load = [2]").unwrap(), [(0, 2.0)]);
        let text = "load = [{ at = \"18:30\", load = 1 }, { at = \"6:05\", load = 0.25 }]";
        assert_eq!(points(text).unwrap(), [(365, 0.25), (1110, 1.0)]);
        assert_eq!(points("").unwrap(), []);
    }

    #[test]
    fn an_impossible_curve_says_why() {
        let error = |text: &str| points(text).unwrap_err();
        assert!(error("load = [1, 2]").contains("has 2 numbers: give 24"));
        assert!(error("load = [1, { at = \"1:00\", load = 1 }]").contains("mixes"));
        assert!(error("load = [-1]").contains("holds -1"));
        assert!(error("load = [nan]").contains("between 0 and 1000"));
        assert!(error("load = [{ at = \"24:00\", load = 1 }]").contains("no time of day"));
        assert!(error("load = [{ at = \"+1:00\", load = 1 }]").contains("no time of day"));
        assert!(error("load = [{ at = \"1:00\", laod = 1 }]").contains("laod"));
        let twice = "load = [{ at = \"1:00\", load = 1 }, { at = \"01:00\", load = 2 }]";
        assert!(error(twice).contains("two points at 01:00"));
        assert!(error("load = [\"x\"]").contains("a number or a point"));
    }
}
