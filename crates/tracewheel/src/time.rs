//! Durations as people type them.

use jiff::SignedDuration;

/// Parses `5m`, `1h30m`, `250ms`, `90s` or a bare number of seconds into nanoseconds.
///
/// # Errors
/// A message that names the accepted forms, for anything else and for negative durations.
pub(crate) fn parse_ns(text: &str) -> Result<i64, String> {
    let trimmed = text.trim();
    let bare = !trimmed.is_empty() && trimmed.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let spelled = if bare { format!("{trimmed}s") } else { trimmed.to_owned() };
    let duration: SignedDuration = spelled
        .parse()
        .map_err(|_| format!("`{text}` is not a duration: write it like 5m, 1h30m, 90s or 250ms"))?;
    if duration.is_negative() {
        return Err(format!("`{text}` is negative: durations here start at 0"));
    }
    i64::try_from(duration.as_nanos()).map_err(|_| format!("`{text}` is longer than 292 years"))
}

#[cfg(test)]
mod tests {
    use super::parse_ns;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, ns) in [
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("250ms", 250_000_000),
            ("90s", 90_000_000_000),
            ("1.5s", 1_500_000_000),
            ("10", 10_000_000_000),
            ("0", 0),
            ("2us", 2_000),
        ] {
            assert_eq!(parse_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_accepted_forms() {
        for text in ["", "five", "-5m", "5 parsecs", "."] {
            assert!(parse_ns(text).is_err(), "{text}");
        }
    }
}
