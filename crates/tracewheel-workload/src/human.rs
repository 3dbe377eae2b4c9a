//! Durations as people read them, for error texts.

/// `1h 02m 03.5s`, `5m 00s`, `12.25s`, `250ms`, `0s`: the nanoseconds of a duration, to the millisecond; below a
/// millisecond in full. Negative ones carry a minus sign.
pub(crate) fn duration(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    if ns < 1_000_000 {
        return match ns {
            0 => "0s".to_owned(),
            ns if ns % 1_000 == 0 => format!("{sign}{}us", ns / 1_000),
            ns => format!("{sign}{ns}ns"),
        };
    }
    let (ms, s) = (ns / 1_000_000 % 1_000, ns / 1_000_000_000);
    if s == 0 {
        return format!("{sign}{ms}ms");
    }
    let places = if ms == 0 { String::new() } else { format!(".{ms:03}").trim_end_matches('0').to_owned() };
    let (days, hours, minutes, seconds) = (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{seconds}{places}s"),
        (0, 0, _) => format!("{sign}{minutes}m {seconds:02}{places}s"),
        (0, _, _) => format!("{sign}{hours}h {minutes:02}m {seconds:02}{places}s"),
        _ => format!("{sign}{days}d {hours:02}h {minutes:02}m {seconds:02}{places}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_read_as_people_say_them() {
        const SECOND: i64 = 1_000_000_000;
        for (ns, text) in [
            (0, "0s"),
            (5, "5ns"),
            (7_000, "7us"),
            (250_000_000, "250ms"),
            (SECOND, "1s"),
            (12 * SECOND + SECOND / 4, "12.25s"),
            (300 * SECOND, "5m 00s"),
            (3_723 * SECOND + SECOND / 2, "1h 02m 03.5s"),
            (90_061 * SECOND, "1d 01h 01m 01s"),
            (-2 * SECOND, "-2s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }
}
