//! The words of the progress line.

use tracewheel_replay::Tick;

/// One tick in words: in flight, failed, how late, the TTFT that users feel, and the time left.
pub fn tick_text(tick: &Tick) -> String {
    if tick.phase == "prime" {
        return "getting ready".to_owned();
    }
    let mut parts = vec![format!("{} in flight", tick.in_flight)];
    if tick.failed > 0 {
        parts.push(format!("{} failed", tick.failed));
    }
    if tick.retries > 0 {
        parts.push(format!("{} retries", tick.retries));
    }
    if let Some(late) = tick.late_p99_ns {
        parts.push(format!("late p99 {}", short(late)));
    }
    if let Some(ttft) = tick.ttft_p95_ns {
        parts.push(format!("TTFT p95 {}", short(ttft)));
    }
    if let Some(left) = left_ns(tick) {
        parts.push(format!("{} left", clock(left)));
    }
    parts.join("  ")
}

/// Time until the last release, from the share already sent; `None` before there is a share.
fn left_ns(tick: &Tick) -> Option<i64> {
    if tick.sent == 0 || tick.elapsed_ns <= 0 || tick.sent >= tick.planned {
        return None;
    }
    let whole = i128::from(tick.elapsed_ns) * i128::from(tick.planned) / i128::from(tick.sent);
    i64::try_from(whole - i128::from(tick.elapsed_ns)).ok()
}

fn short(ns: i64) -> String {
    match ns {
        ns if ns >= 10_000_000_000 => format!("{:.1} s", ns as f64 / 1e9),
        ns if ns >= 1_000_000_000 => format!("{:.2} s", ns as f64 / 1e9),
        ns if ns >= 10_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        ns if ns >= 1_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        ns => format!("{:.0} µs", ns as f64 / 1e3),
    }
}

fn clock(ns: i64) -> String {
    let seconds = ns / 1_000_000_000;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_names_what_matters_and_leaves_out_what_is_not_known() {
        let tick = Tick {
            phase: "measure",
            elapsed_ns: 30_000_000_000,
            planned: 400,
            sent: 100,
            in_flight: 7,
            late_p99_ns: Some(85_000),
            ttft_p95_ns: Some(1_240_000_000),
            ..Tick::default()
        };
        assert_eq!(tick_text(&tick), "7 in flight  late p99 85 µs  TTFT p95 1.24 s  1:30 left");
    }

    #[test]
    fn nothing_is_promised_before_the_first_request_or_after_the_last() {
        let tick = Tick { phase: "measure", planned: 10, ..Tick::default() };
        assert_eq!(tick_text(&tick), "0 in flight");
        let done = Tick { sent: 10, elapsed_ns: 5, failed: 2, retries: 3, ..tick };
        assert_eq!(tick_text(&done), "0 in flight  2 failed  3 retries");
    }

    #[test]
    fn long_waits_are_shown_as_a_clock() {
        assert_eq!(clock(3_725_000_000_000), "1:02:05");
        assert_eq!(short(15_300_000_000), "15.3 s");
        assert_eq!(short(2_500_000), "2.5 ms");
    }
}
