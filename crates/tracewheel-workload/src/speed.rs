//! How much faster than recorded, as an exact fraction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A positive rational factor on arrival offsets. `2` halves every offset, `0.5` doubles it.
///
/// A fraction and not a float: a scaled offset is `floor(offset * denominator / numerator)`, computed in integers,
/// so that it is the same on every machine and never runs backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Speed {
    numerator: u64,
    denominator: u64,
}

impl Default for Speed {
    /// As recorded.
    fn default() -> Self {
        Speed { numerator: 1, denominator: 1 }
    }
}

impl Speed {
    /// `numerator / denominator`, in lowest terms. `None` if either is 0.
    pub fn new(numerator: u64, denominator: u64) -> Option<Speed> {
        if numerator == 0 || denominator == 0 {
            return None;
        }
        let divisor = greatest_common_divisor(numerator, denominator);
        Some(Speed { numerator: numerator / divisor, denominator: denominator / divisor })
    }

    /// The offset, in nanoseconds, at which something recorded at `offset_ns` is planned: the quotient rounded down
    /// to a whole nanosecond. `None` if it does not fit.
    pub fn scale(self, offset_ns: i64) -> Option<i64> {
        let product = i128::from(offset_ns) * i128::from(self.denominator);
        i64::try_from(product.div_euclid(i128::from(self.numerator))).ok()
    }

    /// The recorded offset, in nanoseconds, that is planned at `planned_ns`: the other way round, rounded down. `None`
    /// if it does not fit.
    pub fn recorded(self, planned_ns: i64) -> Option<i64> {
        let product = i128::from(planned_ns) * i128::from(self.numerator);
        i64::try_from(product.div_euclid(i128::from(self.denominator))).ok()
    }

    /// The factor, for display and statistics only.
    pub fn as_f64(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The text is no speed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no speed: write a positive number with at most 9 decimal places, as in 2 or 0.25, or a fraction, as in 1/3"
)]
pub struct ParseSpeedError {
    text: String,
}

impl FromStr for Speed {
    type Err = ParseSpeedError;

    /// Reads `2`, `1.5`, `0.25` or `1/3`. A decimal is taken exactly as it is written.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseSpeedError { text: text.chars().take(80).collect() })
    }
}

fn parse(text: &str) -> Option<Speed> {
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((numerator, denominator)) = text.split_once('/') {
        let number = |part: &str| digits(part).then(|| part.parse().ok()).flatten();
        return Speed::new(number(numerator)?, number(denominator)?);
    }
    let (whole, places) = text.split_once('.').unwrap_or((text, ""));
    if whole.is_empty() || !digits(whole) || !digits(places) || places.len() > 9 {
        return None;
    }
    let denominator = 10_u64.pow(places.len() as u32);
    let places: u64 = if places.is_empty() { 0 } else { places.parse().ok()? };
    Speed::new(whole.parse::<u64>().ok()?.checked_mul(denominator)?.checked_add(places)?, denominator)
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut scale = 1;
        for places in 0..=9_usize {
            if scale % self.denominator == 0
                && let Some(scaled) = self.numerator.checked_mul(scale / self.denominator)
            {
                return match places {
                    0 => write!(f, "{scaled}"),
                    _ => write!(f, "{}.{:0places$}", scaled / scale, scaled % scale),
                };
            }
            scale *= 10;
        }
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

impl TryFrom<String> for Speed {
    type Error = ParseSpeedError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Speed> for String {
    fn from(speed: Speed) -> String {
        speed.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(text: &str) -> Speed {
        text.parse().unwrap()
    }

    #[test]
    fn decimals_and_fractions_are_read_exactly_and_written_back() {
        for text in ["1", "2", "1.5", "0.25", "10", "0.1", "1/3", "0.000000001", "18446744073709551615"] {
            assert_eq!(speed(text).to_string(), text);
        }
        assert_eq!(speed("2.50").to_string(), "2.5");
        assert_eq!(speed("4/2"), speed("2"));
        assert_eq!(speed("0.1"), Speed::new(1, 10).unwrap());
    }

    #[test]
    fn what_is_no_positive_number_is_refused() {
        for text in
            ["", "0", "0.0", "-1", "+1", "1e3", ".5", "nan", "inf", "1/0", "0/1", "/", "1.0000000001", "１"]
        {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }

    #[test]
    fn offsets_are_divided_and_rounded_down_without_floats() {
        assert_eq!(speed("1").scale(i64::MAX), Some(i64::MAX));
        assert_eq!(speed("2").scale(7), Some(3));
        assert_eq!(speed("0.1").scale(3), Some(30));
        assert_eq!(speed("1.5").scale(10), Some(6));
        assert_eq!(speed("1/3").scale(5), Some(15));
        assert_eq!(speed("3").scale(1_000_000_000_000_000_001), Some(333_333_333_333_333_333));
        assert_eq!(speed("0.5").scale(i64::MAX), None);
    }

    #[test]
    fn a_planned_time_leads_back_to_the_recorded_one() {
        assert_eq!(speed("2").recorded(3), Some(6));
        assert_eq!(speed("1/3").recorded(15), Some(5));
        assert_eq!(speed("0.1").recorded(39), Some(3));
        assert_eq!(speed("2").recorded(i64::MAX), None);
    }

    #[test]
    fn scaling_never_changes_the_order() {
        let speed = speed("7/3");
        let mut last = i64::MIN;
        for offset in 0..10_000 {
            let scaled = speed.scale(offset).unwrap();
            assert!(scaled >= last);
            last = scaled;
        }
    }
}
