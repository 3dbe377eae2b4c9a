//! A share of a whole, as an exact fraction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// More than nothing and at most all, in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Share {
    ppb: u32,
}

/// A billion: the whole.
const WHOLE: u32 = 1_000_000_000;

/// Decimal places that are read.
const PLACES: usize = 9;

impl Share {
    /// All of it.
    pub const WHOLE: Share = Share { ppb: WHOLE };

    /// As a float, for reports.
    pub fn as_f64(self) -> f64 {
        f64::from(self.ppb) / f64::from(WHOLE)
    }

    /// Whether a uniform 64-bit draw falls into the share: true for `floor(share * 2^64)` of all draws. What falls into
    /// a share falls into every larger one.
    pub(crate) fn takes(self, draw: u64) -> bool {
        // draw / 2^64 < ppb / 10^9, in whole numbers.
        u128::from(draw) * u128::from(WHOLE) < u128::from(self.ppb) << 64
    }
}

/// The text is no share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no share: write a number above 0 and up to 1 with at most 9 decimal places, as in 0.25, or per cent, as in 25%"
)]
pub struct ParseShareError {
    text: String,
}

impl FromStr for Share {
    type Err = ParseShareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseShareError { text: text.chars().take(80).collect() })
    }
}

fn parse(text: &str) -> Option<Share> {
    let (number, per_cent) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), true),
        None => (text, false),
    };
    let (whole, places) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let most_places = if per_cent { PLACES - 2 } else { PLACES };
    if whole.is_empty() || !digits(whole) || !digits(places) || places.len() > most_places {
        return None;
    }
    let parts: u64 = format!("{places:0<most_places$}").parse().ok()?;
    let one = 10_u64.pow(most_places as u32);
    let ppb = whole.parse::<u64>().ok()?.checked_mul(one)?.checked_add(parts)?;
    let ppb = u32::try_from(ppb).ok().filter(|ppb| (1..=WHOLE).contains(ppb))?;
    Some(Share { ppb })
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{}.{:0PLACES$}", self.ppb / WHOLE, self.ppb % WHOLE);
        f.write_str(digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl TryFrom<String> for Share {
    type Error = ParseShareError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Share> for String {
    fn from(share: Share) -> String {
        share.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(text: &str) -> Share {
        text.parse().unwrap()
    }

    #[test]
    fn shares_are_read_exactly_and_written_back() {
        for text in ["0.25", "1", "0.000000001", "0.37"] {
            assert_eq!(share(text).to_string(), text);
        }
        assert_eq!(
            (share("25%"), share("12.5 %"), share("1.0")),
            (share("0.25"), share("0.125"), Share::WHOLE)
        );
        for text in
            ["", "0", "0.0", "1.1", "-0.1", "101%", "0%", ".5", "1e-3", "0.0000000001", "%", "half", "nan"]
        {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_share_takes_its_part_of_all_draws_and_no_more() {
        assert!(Share::WHOLE.takes(u64::MAX));
        let quarter = share("0.25");
        assert!(quarter.takes(0) && quarter.takes((1 << 62) - 1));
        assert!(!quarter.takes(1 << 62) && !quarter.takes(u64::MAX));
        assert!(share("0.000000001").takes(18_446_744_073) && !share("0.000000001").takes(18_446_744_074));
    }
}
