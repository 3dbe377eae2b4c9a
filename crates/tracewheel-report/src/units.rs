//! Human units: three digits, one unit for a value and its interval.

use tracewheel_analysis::comparison::{BoundIs, DurationSummary, Estimate, RatioInterval};

/// What stands where nothing is known.
pub(crate) const NOTHING: &str = "-";

/// A unit of time with its size in nanoseconds.
#[derive(Clone, Copy)]
struct Unit {
    name: &'static str,
    ns: f64,
}

const UNITS: [Unit; 4] = [
    Unit { name: "s", ns: 1e9 },
    Unit { name: "ms", ns: 1e6 },
    Unit { name: "µs", ns: 1e3 },
    Unit { name: "ns", ns: 1.0 },
];

impl Unit {
    fn of(ns: i64) -> Self {
        UNITS.into_iter().find(|unit| ns.unsigned_abs() as f64 >= unit.ns).unwrap_or(UNITS[3])
    }

    /// Decimals that leave three digits of a value in this unit.
    fn decimals(self, ns: i64) -> usize {
        match ns.unsigned_abs() as f64 / self.ns {
            _ if self.ns == 1.0 => 0,
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            _ => 2,
        }
    }

    fn number(self, ns: i64, decimals: usize) -> String {
        format!("{:.decimals$}", ns as f64 / self.ns)
    }
}

/// A duration: `842 ns`, `12.3 µs`, `40.1 ms`, `1.23 s`.
pub(crate) fn duration(ns: i64) -> String {
    let unit = Unit::of(ns);
    format!("{} {}", unit.number(ns, unit.decimals(ns)), unit.name)
}

/// A duration that may be unknown.
pub(crate) fn duration_or_nothing(ns: Option<i64>) -> String {
    ns.map_or(NOTHING.to_owned(), duration)
}

/// A quantile: `40.1 ms`, or `∞`.
pub(crate) fn quantile(estimate: Option<&Estimate>) -> String {
    match estimate {
        None => NOTHING.to_owned(),
        Some(e) => e.value_ns.map_or("∞".to_owned(), duration),
    }
}

/// A quantile and its interval in one unit: `40.1 ms [35.2, 46.0]`. `∞` is never answered, `?` is an end that the sample
/// does not bound.
pub(crate) fn estimate(estimate: Option<&Estimate>) -> String {
    let Some(e) = estimate else { return NOTHING.to_owned() };
    let interval = &e.interval;
    let scale = e.value_ns.or(interval.lo_ns).unwrap_or(0);
    let unit = Unit::of(scale);
    let decimals = unit.decimals(scale);
    let end = |ns: Option<i64>, is: BoundIs| match (ns, is) {
        (Some(ns), _) => unit.number(ns, decimals),
        (None, BoundIs::Infinite) => "∞".to_owned(),
        (None, _) => "?".to_owned(),
    };
    let ends = format!("[{}, {}]", end(interval.lo_ns, interval.lo_is), end(interval.hi_ns, interval.hi_is));
    match e.value_ns {
        Some(ns) => format!("{} {} {ends}", unit.number(ns, decimals), unit.name),
        None if interval.lo_ns.is_some() => format!("∞ {ends} {}", unit.name),
        None => format!("∞ {ends}"),
    }
}

/// A ratio and its interval: `1.04 [0.97, 1.12]`.
pub(crate) fn ratio(ratio: Option<&RatioInterval>) -> String {
    let Some(r) = ratio else { return NOTHING.to_owned() };
    let decimals = match r.value {
        Some(v) if v >= 99.95 => 0,
        Some(v) if v >= 9.995 => 1,
        _ => 2,
    };
    let number = |v: f64| format!("{v:.decimals$}");
    let hi = match (r.hi, r.hi_is) {
        (Some(hi), _) => number(hi),
        (None, BoundIs::Infinite) => "∞".to_owned(),
        (None, _) => "?".to_owned(),
    };
    format!("{} [{}, {hi}]", r.value.map_or("∞".to_owned(), number), r.lo.map_or("∞".to_owned(), number))
}

/// A count with its thousands apart: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in per cent: `12.5 %`.
pub(crate) fn share(share: Option<f64>) -> String {
    share.map_or(NOTHING.to_owned(), |share| format!("{:.1} %", 100.0 * share))
}

/// A plain number with three digits.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => NOTHING.to_owned(),
        Some(v) if v.abs() >= 99.95 => count(v.round().abs() as u64),
        Some(v) if v.abs() >= 9.995 => format!("{v:.1}"),
        Some(v) => format!("{v:.2}"),
    }
}

/// The percentiles of a duration in one line.
pub(crate) fn percentiles(d: &DurationSummary) -> String {
    let at = duration_or_nothing;
    format!("p50 {}, p90 {}, p99 {}, max {}", at(d.p50_ns), at(d.p90_ns), at(d.p99_ns), at(d.max_ns))
}

/// A span of wall time in UTC, to the second: `2023-11-16 18:15:46 to 18:25:46 UTC`; offsets for traces without an epoch.
pub(crate) fn wall_span(from_unix_ns: i64, to_unix_ns: i64) -> String {
    const TEN_YEARS_NS: i64 = 10 * 365 * 86_400 * 1_000_000_000;
    if (0..TEN_YEARS_NS).contains(&from_unix_ns) {
        return format!("{} to {} of the trace", duration(from_unix_ns), duration(to_unix_ns));
    }
    let (from, to) = (civil(from_unix_ns), civil(to_unix_ns));
    if from.0 == to.0 {
        format!("{} {} to {} UTC", from.0, from.1, to.1)
    } else {
        format!("{} {} to {} {} UTC", from.0, from.1, to.0, to.1)
    }
}

/// A moment of wall time in UTC, to the second.
pub(crate) fn moment(unix_ns: i64) -> String {
    let (date, time) = civil(unix_ns);
    format!("{date} {time} UTC")
}

/// A number of bytes: `512 B`, `1.50 MiB`.
pub(crate) fn size(bytes: i64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let whole = bytes.unsigned_abs();
    match units.into_iter().find(|(_, unit)| whole >= *unit) {
        Some((name, unit)) => format!("{} {name}", number(Some(bytes as f64 / unit as f64))),
        None => format!("{bytes} B"),
    }
}

/// A sentence in which whole nanoseconds (`3000000000 ns`) are put in human units; as moments where they are since 1970.
pub(crate) fn humane(sentence: &str) -> String {
    const YEAR_2000_NS: i64 = 946_684_800_000_000_000;
    let words: Vec<&str> = sentence.split(' ').collect();
    let mut out: Vec<String> = Vec::with_capacity(words.len());
    let mut at = 0;
    while at < words.len() {
        let unit = words.get(at + 1).and_then(|next| next.strip_prefix("ns"));
        let rest = unit.filter(|rest| rest.chars().all(|c| c.is_ascii_punctuation()));
        match (words[at].parse::<i64>(), rest) {
            (Ok(ns), Some(rest)) => {
                let text = if ns >= YEAR_2000_NS { moment(ns) } else { duration(ns) };
                out.push(format!("{text}{rest}"));
                at += 2;
            }
            _ => {
                out.push(words[at].to_owned());
                at += 1;
            }
        }
    }
    out.join(" ")
}

/// Date and time of day in UTC, by the days-from-civil calendar arithmetic on 400-year eras.
fn civil(unix_ns: i64) -> (String, String) {
    let seconds = unix_ns.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years of this calendar begin in March.
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let date = format!("{year:04}-{month:02}-{day:02}");
    (date, format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (842, "842 ns"),
            (12_345, "12.3 µs"),
            (40_060_000, "40.1 ms"),
            (999_600_000, "1000 ms"),
            (1_234_000_000, "1.23 s"),
            (98_760_000_000, "98.8 s"),
            (3_600_000_000_000, "3600 s"),
            (-1_500_000, "-1.50 ms"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn nanoseconds_in_a_sentence_become_human() {
        let found = "first in row 1 (a.csv at 9): precision 1000000000 ns, 1700158546000000000 ns again";
        let told = "first in row 1 (a.csv at 9): precision 1.00 s, 2023-11-16 18:15:46 UTC again";
        assert_eq!(humane(found), told);
        assert_eq!(humane("TTFT 5 nsx"), "TTFT 5 nsx");
    }

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!([512, 1536, 16 << 20].map(size), ["512 B", "1.50 KiB", "16.0 MiB"]);
    }

    #[test]
    fn wall_spans_are_named_once() {
        let at = 1_700_158_546_000_000_000;
        assert_eq!(wall_span(at, at + 600_000_000_000), "2023-11-16 18:15:46 to 18:25:46 UTC");
        let leap = 1_709_164_800_000_000_000;
        assert_eq!(
            wall_span(leap, leap + 86_400_000_000_000),
            "2024-02-29 00:00:00 to 2024-03-01 00:00:00 UTC"
        );
        assert_eq!(wall_span(0, 1_500_000_000), "0 ns to 1.50 s of the trace");
    }
}
