//! Decimal numbers from their text, exactly: no time or count ever passes through a float.

/// A decimal number scaled to a whole number of a smaller unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scaled {
    /// The number in the smaller unit; what lies below one is rounded to the nearest, halves away from zero.
    pub(crate) value: i64,
    /// Exponent of ten, in the smaller unit, of the last digit that the text has.
    pub(crate) last_digit: i32,
}

/// Digits of the mantissa that are taken in; what follows lies below anything that an `i64` can hold.
const MAX_DIGITS: u32 = 36;

/// Reads `[+-]digits[.digits][e[+-]digits]` and multiplies it by `10^exponent`. `None` where the text is no such number
/// or the result does not fit.
pub(crate) fn scaled(text: &str, exponent: i32) -> Option<Scaled> {
    short(text.as_bytes(), exponent).or_else(|| long(text, exponent))
}

/// The common case: digits, perhaps with a point among them, few enough for 64 bits. `None` says nothing of the text.
fn short(text: &[u8], exponent: i32) -> Option<Scaled> {
    if text.len() > 18 {
        return None;
    }
    let (mut value, mut point) = (0_i64, None);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' => value = value * 10 + i64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(at),
            _ => return None,
        }
    }
    let fraction = point.map_or(0, |at| text.len() - at - 1);
    let last_digit = exponent - fraction as i32;
    let power = 10_i64.checked_pow(u32::try_from(last_digit).ok()?)?;
    // A point alone has no digits.
    let any_digit = text.len() > usize::from(point.is_some());
    any_digit.then_some(Scaled { value: value.checked_mul(power)?, last_digit })
}

fn long(text: &str, exponent: i32) -> Option<Scaled> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (mantissa, power, rest) = mantissa(digits)?;
    let written = written_exponent(rest)?;
    let last_digit = exponent.checked_add(power)?.checked_add(written)?;
    let magnitude = match last_digit {
        _ if mantissa == 0 => 0,
        0.. => mantissa.checked_mul(10_i128.checked_pow(last_digit.unsigned_abs())?)?,
        _ => divided(mantissa, last_digit.unsigned_abs()),
    };
    let value = i64::try_from(if negative { -magnitude } else { magnitude }).ok()?;
    Some(Scaled { value, last_digit })
}

/// A whole number from its text: `812`, and `812.0` or `8.12e2` too, which some emitters write for counts.
pub(crate) fn whole(text: &str) -> Option<i64> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok();
    }
    let fine = scaled(text, 9)?;
    (fine.last_digit >= 0 && fine.value % 1_000_000_000 == 0).then_some(fine.value / 1_000_000_000)
}

/// The digits before an exponent as one whole number, the power of ten that it still takes, and the rest of the text.
fn mantissa(text: &[u8]) -> Option<(i128, i32, &[u8])> {
    let (mut value, mut taken, mut power) = (0_i128, 0_u32, 0_i32);
    let (mut any, mut fraction) = (false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' => {
                any = true;
                if taken < MAX_DIGITS {
                    value = value * 10 + i128::from(byte - b'0');
                    taken += u32::from(value != 0);
                    power -= i32::from(fraction);
                } else {
                    power += i32::from(!fraction);
                }
            }
            b'.' if !fraction => fraction = true,
            _ => return any.then_some((value, power, &text[at..])),
        }
    }
    any.then_some((value, power, &[]))
}

fn written_exponent(text: &[u8]) -> Option<i32> {
    match text {
        [] => Some(0),
        [b'e' | b'E', digits @ ..] if digits.len() <= 6 => std::str::from_utf8(digits).ok()?.parse().ok(),
        _ => None,
    }
}

/// `mantissa / 10^power`, rounded to the nearest, halves up.
fn divided(mantissa: i128, power: u32) -> i128 {
    match 10_i128.checked_pow(power) {
        Some(divisor) => mantissa / divisor + i128::from(mantissa % divisor * 2 >= divisor),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value(text: &str, exponent: i32) -> Option<i64> {
        scaled(text, exponent).map(|scaled| scaled.value)
    }

    #[test]
    fn fractions_of_milliseconds_are_kept_to_the_nanosecond() {
        assert_eq!(value("27482.123456", 6), Some(27_482_123_456));
        assert_eq!(value("1795536000120.000001", 6), Some(1_795_536_000_120_000_001));
        assert_eq!(value("1776685509.572759", 9), Some(1_776_685_509_572_759_000));
    }

    #[test]
    fn what_lies_below_a_nanosecond_is_rounded() {
        assert_eq!(value("0.0000005", 6), Some(1));
        assert_eq!(value("0.00000049", 6), Some(0));
        assert_eq!(value("-1.5", 0), Some(-2));
        assert_eq!(value("0.1234567890123456789012345678901234567890", 9), Some(123_456_789));
    }

    #[test]
    fn exponents_are_read() {
        assert_eq!(value("1.5e3", 0), Some(1500));
        assert_eq!(value("15E-1", 3), Some(1500));
        assert_eq!(scaled("1.50", 9), Some(Scaled { value: 1_500_000_000, last_digit: 7 }));
    }

    #[test]
    fn what_is_no_number_or_does_not_fit_is_refused() {
        for text in ["", "-", ".", "1.2.3", "0x10", "1e", "1e99999999", "nan", "inf", "1 ", "1_000", "--1"] {
            assert_eq!(value(text, 9), None, "{text}");
        }
        assert_eq!(value("9223372036854775808", 0), None);
        assert_eq!(value("9223372036854775807", 0), Some(i64::MAX));
        assert_eq!(value(&"9".repeat(400), 0), None);
    }

    #[test]
    fn a_count_may_be_written_with_a_fraction_of_zero() {
        assert_eq!(whole("812"), Some(812));
        assert_eq!(whole("812.0"), Some(812));
        assert_eq!(whole("-3"), Some(-3));
        assert_eq!(whole("812.5"), None);
        assert_eq!(whole(""), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}", exponent in 0..10) {
            let _ = (scaled(&text, exponent), whole(&text));
        }

        #[test]
        fn the_short_way_gives_what_the_long_one_gives(text in "[0-9]{0,20}(\\.[0-9]{0,10})?|[0-9.e-]{0,6}", exponent in -2..12) {
            if let Some(scaled) = short(text.as_bytes(), exponent) {
                prop_assert_eq!(long(&text, exponent), Some(scaled));
            }
        }

        #[test]
        fn nanoseconds_survive_the_way_through_decimal_seconds(ns in 0..i64::MAX) {
            let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            prop_assert_eq!(value(&text, 9), Some(ns));
        }
    }
}
